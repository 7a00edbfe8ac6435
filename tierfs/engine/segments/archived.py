"""The archived bytes of segments, by storage class: those of their cold chunks whose objects were moved to one."""

from __future__ import annotations

from collections.abc import Iterator

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.storage_classes import is_restored_first
from tierfs.base.words.types import ObjectId, SegmentId, Tier
from tierfs.engine.metadata import chains, tables
from tierfs.engine.metadata.records import ObjectRecord, SegmentRecord
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction

# Objects that are remembered for the next chunks, as those of a pack are in order. A guess: 2 MiB.
_MOST_REMEMBERED = 8192


@dataclass(frozen=True, slots=True)
class InClass:
    """Bytes of a segment in one storage class of the archive."""

    storage_class: str
    bytes: int
    objects: int

    @property
    def must_be_restored(self) -> bool:
        """Whether they can be read only after `tierfs thaw`."""
        return is_restored_first(self.storage_class)


class ArchivedShares:
    """The archived bytes of segments, as of one snapshot; costs nothing while no object is archived."""

    def __init__(self, txn: ReadTransaction) -> None:
        sums = txn.sums
        self._txn = txn
        self._has_none = sums is not None and not sums.archived_objects
        self._classes: dict[ObjectId, str] = {}

    def of(self, segment: SegmentRecord) -> tuple[InClass, ...]:
        """Return what a segment has in each class, in the order of their names."""
        if self._has_none or not segment.cold.count:
            return ()
        sizes: dict[str, int] = {}
        seen: dict[str, set[ObjectId]] = {}
        for chunk in chains.chunks(self._txn, segment.id, Tier.COLD):
            name = "" if chunk.lost else self._class_of(chunk.object_id)
            if name:
                sizes[name] = sizes.get(name, 0) + chunk.length
                seen.setdefault(name, set()).add(chunk.object_id)
        return tuple(InClass(name, sizes[name], len(seen[name])) for name in sorted(sizes))

    def bytes_of(self, segment: SegmentRecord) -> int:
        """Return the sum over all classes."""
        return sum(each.bytes for each in self.of(segment))

    def _class_of(self, object_id: ObjectId) -> str:
        known = self._classes.get(object_id)
        if known is None:
            data = self._txn.get_raw(OBJECTS.name, tables.u64(object_id))
            row = None if data is None else OBJECTS.codec.parse_or_none(data)
            if len(self._classes) >= _MOST_REMEMBERED:
                self._classes.clear()
            known = self._classes[object_id] = "" if row is None else row.archive_class
        return known


def cold_objects(txn: ReadTransaction, segment_id: SegmentId) -> Iterator[ObjectRecord]:
    """Yield the objects of a segment's cold chunks that are not lost, each chunk's in turn."""
    for chunk in chains.chunks(txn, segment_id, Tier.COLD):
        if not chunk.lost:
            yield chains.object_of(txn, chunk)
