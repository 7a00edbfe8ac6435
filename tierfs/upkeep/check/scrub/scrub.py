"""Reads pieces and checks every byte, several at once. Memory: one buffer per thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from tierfs.base.bytes import ranges
from tierfs.base.bytes.parallel import Pool
from tierfs.base.words.errors import NotFound, Unavailable
from tierfs.base.words.types import ByteRange, LocationId, SegmentId, Tier
from tierfs.engine.chunkstore.link import Links, Slots
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.reading.verified import VerifiedReader
from tierfs.upkeep.check.places import Places
from tierfs.upkeep.check.scrub.copy_reader import Checked, CopyReader
from tierfs.upkeep.check.scrub.pieces import ScrubPiece, pieces

_LEAST_AT_ONCE = 8
# Pieces at once: the least for disks, the most for links far away; each takes a buffer.
_MOST_AT_ONCE = 32


class Scrubber:
    """Reads pieces of both tiers."""

    def __init__(
        self, metadata: MetadataStore, files: ChunkFiles, storage_of: Callable[[LocationId], ChunkStorage]
    ) -> None:
        self._metadata = metadata
        self._files = files
        self.reader = VerifiedReader(metadata, self._linked, lambda: files)
        """Etags of objects that differ and whose bytes proved right wait there to be adopted."""
        self.places = Places(metadata, storage_of)
        self.storage_of = storage_of
        self._measured: set[int] = set()
        self._shorter: dict[int, int] = {}
        """Lengths of cold objects that end before their records say, by id."""
        self._links = Links(_MOST_AT_ONCE)
        self._slots = Slots()
        self._copies = CopyReader(self.reader, self._away)

    def run(self, wanted: Iterable[ScrubPiece]) -> Iterator[Checked]:
        """Check each piece, in the same order. Raises Unavailable when a tier does not answer."""
        with Pool(_MOST_AT_ONCE, "tierfs-scrub") as pool:
            yield from pool.in_order(self._check_in_slot, wanted)

    def _check_in_slot(self, piece: ScrubPiece) -> Checked:
        with self._slots.one_of(lambda: max(_LEAST_AT_ONCE, self._links.streams)):
            return self.check(piece)

    def _linked(self, location_id: LocationId) -> ChunkStorage:
        """Return a location's storage, and follow its link."""
        storage = self.storage_of(location_id)
        self._links.add(location_id, storage)
        return storage

    def has_all(self, segment_id: SegmentId, window: ByteRange, *tiers: Tier) -> bool:
        """Return whether these tiers have good copies of all readable bytes of a range; reads them."""
        wanted: list[ByteRange] = []
        good: list[ByteRange] = []
        for checked in self.run(pieces(self._metadata, segment_id, window, tiers)):
            wanted.append(checked.piece.range)
            good.extend(ranges.gaps(checked.piece.range, checked.bad))
        return not any(ranges.subtract(ranges.union(wanted), ranges.union(good)))

    def check(self, piece: ScrubPiece) -> Checked:
        """Check one piece; read apparently bad bytes once more, unless they moved meanwhile."""
        if piece.placed is None:
            return Checked(piece, (piece.range,), "no tier has these bytes")
        record = piece.placed.object
        length = self._shorter.get(record.id)
        if length is not None and piece.in_object.start >= length:
            return Checked(piece, (piece.range,), f"{record.name} has only {length} bytes")
        checked = self._copies.check(piece, piece.placed)
        if not checked.bad:
            return checked
        self._measure(record)
        with self._metadata.read() as txn:
            now = txn.get(OBJECTS, tables.u64(record.id))
        if now is None:
            return Checked(piece)
        if now.name != record.name:  # it went to another storage class meanwhile, and its old name may be gone
            return self.check(replace(piece, placed=replace(piece.placed, object=now)))
        place = self.reader.place(record)
        place.was_left()  # looks: both reads would be of a place that was left before them
        while (checked := self._copies.check(piece, piece.placed)).bad and place.was_left():
            pass
        return checked

    def _measure(self, record: ObjectRecord) -> None:
        """Ask for the size of an object with bad bytes, once: what a record claims beyond it is not asked for."""
        if record.tier is Tier.LOCAL or record.encoding or record.id in self._measured:
            return
        self._measured.add(record.id)
        try:
            stored = self.storage_of(record.location_id).stat(record.name)
        except (NotFound, Unavailable):
            return
        if stored.length_bytes < record.length:
            self._shorter[record.id] = stored.length_bytes

    def _away(self, placed: PlacedChunk) -> str | None:
        """Return the reason the whole place of a copy is unreachable, or None."""
        if placed.object.tier is Tier.COLD:
            return self.places.away(placed.object.location_id)
        return None if self._files.is_mounted else f"{self._files.root} is not accessible: not a chunk directory"
