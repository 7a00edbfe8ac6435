"""Find the objects that move to another storage class or place: pure decisions over the chunks of segments.

An object moves when every chunk that points at it is due: of a pack and of a clone they are in several segments. So
chunks are counted while segments pass by, until they are as many as the object has references.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.policy import Policy
from tierfs.base.words import object_names
from tierfs.base.words.storage_classes import is_restored_first
from tierfs.base.words.types import ByteRange, ChunkState, LocationId, ObjectId, SegmentId
from tierfs.engine.metadata import archive_place
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.transaction import ReadTransaction

_MS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class ArchiveAction:
    """Move one object to another storage class."""

    object: ObjectRecord
    """As it was when the action was planned."""
    storage_class: str
    """Empty: the class of new objects."""
    segment_id: SegmentId
    """One that has bytes in it."""
    path: str
    """Its full name."""
    whole: ByteRange | None = None
    """The segment's bytes that the object is, if it is one chunk of this segment alone."""


@dataclass(frozen=True, slots=True)
class ArchiveTarget:
    """The storage class that cold objects of a segment are to have."""

    storage_class: str
    """Empty: back to the class of new objects."""
    cold_before_ms: int
    """Only of objects that were cold by then."""

    @classmethod
    def by(cls, policy: Policy, now_ms: int) -> ArchiveTarget | None:
        """Return the target of a policy; None without one."""
        if policy.archive_class is None or policy.archive_after_s is None:
            return None
        return cls(policy.archive_class, now_ms - policy.archive_after_s * _MS_PER_S)


@dataclass(frozen=True, slots=True)
class Movable:
    """Filter of the objects that may move at all."""

    location_ids: frozenset[LocationId]
    """The store's own place and its archive place: those of others are never touched."""
    published_sequence: int
    """Newest change that the journal names."""

    @classmethod
    def of(cls, txn: ReadTransaction, location_id: LocationId) -> Movable:
        """Return that of now; `location_id`: the store's own place."""
        places = frozenset({location_id, archive_place.id_of(txn)})
        return cls(places - {archive_place.NONE}, txn.store.journal.published_sequence)

    def __call__(self, record: ObjectRecord) -> bool:
        """Return whether an object may move: ours, named by the journal, no ledger's, and its bytes have a CRC32C.

        The objects of a ledger name each other, as Pulsar reads them.
        """
        return (
            record.location_id in self.location_ids
            and not record.foreign
            and not record.encoding.is_ledger
            and record.crc32c is not None
            and record.linked_sequence <= self.published_sequence
        )


class DueObjects:
    """Counts the due chunks of objects. Used by one thread, for one pass over segments."""

    def __init__(self, movable: Movable, *, asked: bool = False) -> None:
        """`asked`: by a command, which also moves an object that has to be restored first, if it was."""
        self._movable = movable
        self._asked = asked
        self._due: Counter[ObjectId] = Counter()
        self.next_due_ms = 0
        """When the next object falls due, of those that passed by; 0: none."""

    def met(
        self, segment_id: SegmentId, path: str, wanted: ArchiveTarget, chunks: Iterable[PlacedChunk]
    ) -> Iterator[ArchiveAction]:
        """Count chunks of a segment; yield the objects that all chunks are due of."""
        for placed in chunks:
            record = placed.object
            if placed.chunk.state is not ChunkState.GOOD or not self._may_move(record, wanted):
                continue
            if record.created_ms > wanted.cold_before_ms:
                self._note(record.created_ms - wanted.cold_before_ms)
                continue
            due = self._due[record.id] + 1 if record.references > 1 else 1
            if due < record.references:
                self._due[record.id] = due
                continue
            self._due.pop(record.id, None)
            whole = placed.range if _is_whole(placed) else None
            if whole is not None or _has_renewable_name(record):
                yield ArchiveAction(record, wanted.storage_class, segment_id, path, whole)

    @property
    def shared(self) -> int:
        """The number of objects that stay, as other segments have parts of them that are not due."""
        return len(self._due)

    def _may_move(self, record: ObjectRecord, wanted: ArchiveTarget) -> bool:
        if record.archive_class == wanted.storage_class or not self._movable(record):
            return False
        return self._asked or not is_restored_first(record.archive_class)

    def _note(self, waits_ms: int) -> None:
        self.next_due_ms = min(self.next_due_ms or waits_ms, waits_ms)


def _is_whole(placed: PlacedChunk) -> bool:
    """Return whether a chunk is all of its object, which has no other."""
    chunk, record = placed.chunk, placed.object
    return record.references == 1 and not record.packed and (chunk.object_offset, chunk.length) == (0, record.length)


def _has_renewable_name(record: ObjectRecord) -> bool:
    """Return whether the name of an object says all that another name of it must say."""
    return bool(object_names.CHUNK.fullmatch(record.name) or object_names.PACK.fullmatch(record.name))
