"""Orphans and dead uploads in the archive place. While that is away, those in the cold tier are found all the same."""

from __future__ import annotations

import logging

from tierfs.base.bytes.progress import OnProgress
from tierfs.base.words.errors import TierfsError
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.metadata.store import MetadataStore
from tierfs.tiering.archive.move import ArchiveTier
from tierfs.tiering.garbage.collect import Collected
from tierfs.tiering.garbage.dead_uploads import DeadUpload, DeadUploads
from tierfs.tiering.garbage.orphans import Orphan, OrphanFinder

log = logging.getLogger(__name__)


class ArchiveSweep:
    """Looks for what no record names in the archive place of one store."""

    def __init__(self, metadata: MetadataStore, files: ChunkFiles, archive: ArchiveTier) -> None:
        tier = archive.tier
        self._archive = archive
        self._orphans = OrphanFinder(metadata, files, tier.storage, tier.location_id)
        self._uploads = DeadUploads(metadata, tier.storage, tier.location_id)

    def orphans(self, *, grace_ms: int, report: OnProgress) -> list[Orphan]:
        """Return the orphans that are older; none, with a warning, while the place is not proved."""
        try:
            self._archive.require_now()
            return self._orphans.find_objects(grace_ms=grace_ms, report=report)
        except TierfsError as exc:
            log.warning("no orphans are looked for in the archive place: %s", exc)
            return []

    def dead_uploads(self, *, grace_ms: int) -> list[DeadUpload]:
        """Return the dead uploads; none while the place is not proved."""
        try:
            self._archive.require_now()
            return self._uploads.find_pending(grace_ms=grace_ms)
        except TierfsError as exc:
            log.info("no dead uploads are looked for in the archive place: %s", exc)
            return []

    def abort(self, *, grace_ms: int) -> Collected:
        """Abort the dead uploads; return the failures."""
        return self._uploads.abort(self.dead_uploads(grace_ms=grace_ms))

    def failure(self) -> Collected:
        """Return why the place is not proved, as a failed deletion; nothing if it is."""
        try:
            self._archive.require_now()
        except TierfsError as exc:
            return Collected.failure("archive place", exc)
        return Collected()
