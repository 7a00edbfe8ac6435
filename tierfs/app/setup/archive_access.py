"""The archive place of one open store, as its holder uses it. Part of the composition root."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierfs.app.setup.locations import Locations
from tierfs.base.words.errors import Conflict
from tierfs.engine.journal.archive_mark import ArchiveProof
from tierfs.engine.metadata import archive_place
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering.archive.move import ArchiveTier
from tierfs.tiering.objects import ColdTier

if TYPE_CHECKING:
    from tierfs.engine.chunkstore.paced import TransferPace


class ArchiveAccess:
    """Looks where the archive place is, and proves it. Thread-safe."""

    def __init__(self, metadata: MetadataStore, locations: Locations, pace: TransferPace, cold: ColdTier) -> None:
        """`cold`: the cold tier, whose fence is that of the archive place, too."""
        self._metadata = metadata
        self._locations = locations
        self._pace = pace
        self._cold = cold
        self.proof = ArchiveProof(metadata, locations.tried_once_at)
        self._made: tuple[LocationRecord, ArchiveTier] | None = None

    def tier(self) -> ArchiveTier | None:
        """Return the archive place of now; None without one."""
        with self._metadata.read() as txn:
            place = archive_place.find(txn)
        if place is None:
            return None
        made = self._made
        if made is None or made[0] != place:
            made = self._made = place, self._tier(place)
        return made[1]

    def _tier(self, place: LocationRecord) -> ArchiveTier:
        def require_ours() -> None:
            self._cold.require_ours()
            self.proof.require()

        def require_place(txn: ReadTransaction) -> None:
            if archive_place.find(txn) != place:
                raise Conflict("the address of the archive place has changed", remedy="run the command again")

        storage = self._locations.paced_at(place, self._pace)
        tier = ColdTier(place.id, storage, require_ours, require_place)
        return ArchiveTier(tier, self.proof.require_now, self.proof.why_not)
