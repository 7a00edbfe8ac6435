"""Sums over all segments, chunks, objects, garbage and trash, kept in the transaction that changes a row.

WriteTransaction reports every row it writes or deletes in a counted table, so no caller can forget. A store of an older
tierfs is counted once, a few rows with each commit: rows up to a key are in the sums, and changes of those after it are
counted when the scan reaches them. The row names the LMDB transaction that wrote it, as every transaction here writes
it; one that the newest transaction did not write is void, because a tierfs that keeps no sums wrote since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from google.protobuf.message import DecodeError

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import IN_PLACE, ChunkState, PayloadEncoding, SegmentId, Tier
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.records import RECORD_VERSION
from tierfs.engine.metadata.tables import CHUNKS, DIRECTORIES, GARBAGE, OBJECTS, SEGMENTS

# In `store`, beside the superblock.
SUMS_KEY = b"sums"

# Fields of Sums, by their position. The first ones come from segments, in the order of `_segment_values`.
_SEGMENT_FIELDS = 9
_LOST, _SUSPECT_LOCAL, _SUSPECT_COLD, _GARBAGE_BYTES, _GARBAGE_FAILED, _REMOVALS = range(9, 15)
_TRASH_UNCOVERED = 20
_COLD_OBJECTS, _COLD_GARBAGE = 22, 23
_COMPRESSED, _COMPRESSED_STORED, _ENCODED = range(24, 27)
_ARCHIVED, _ARCHIVED_BYTES, _PLACED, _PLACED_BYTES = range(27, 31)
# `uncovered_bytes`, `active_segments`
_UNCOVERED, _ACTIVE = 6, 7
_NOTHING = (*(0,) * _SEGMENT_FIELDS, None)

# Tag of `state` in a ChunkRecord; nearly all are good, and without this byte.
_STATE_TAG = b"\x48"

# Tag of `removal` in a DirectoryRecord; nearly none is in the trash. A name may hold this byte too.
_REMOVAL_TAG = b"\x4a"

# `tier` in an ObjectRecord of a cold one; of local ones, which each append writes, the field is absent.
_COLD_TAG = b"\x18\x01"

# Position of the tier in a key of `chunks`.
_TIER_AT = tables.U64_BYTES

# The row holds signed 64-bit numbers. Records of a bucket are bounded one by one; their sum is bounded here.
MAX_SUM = 2**63 - 1

# The fields of Sums, in their order: changed in place, as a commit of an append has microseconds for this.
Values = list[int]

_Count = Callable[[Values, bytes, bytes, int], None]

# Rows of a database from a key on.
Scan = Callable[[bytes, bytes], Iterable[tuple[bytes, bytes]]]


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over the rows of a store. New fields come last."""

    bytes: int = 0
    """Readable bytes of all segments."""
    local_chunks: int = 0
    local_bytes: int = 0
    local_segments: int = 0
    """Segments with local chunks."""
    cold_chunks: int = 0
    cold_bytes: int = 0
    uncovered_bytes: int = 0
    """Bytes that no cold chunk holds, those recorded as lost included."""
    active_segments: int = 0
    active_bytes: int = 0
    """Bytes of chunks that are still appended to."""
    lost_bytes: int = 0
    suspect_local_bytes: int = 0
    suspect_cold_bytes: int = 0
    garbage_bytes: int = 0
    garbage_failed: int = 0
    """Rows whose deletion failed before."""
    removals: int = 0
    """In the trash, of which the following are sums too; the fields above include its segments."""
    trash_segments: int = 0
    trash_directories: int = 0
    trash_bytes: int = 0
    trash_local_bytes: int = 0
    trash_cold_bytes: int = 0
    trash_uncovered_bytes: int = 0
    trash_active_bytes: int = 0
    cold_object_bytes: int = 0
    """Stored bytes of cold objects that are the store's own, of which some may be dead."""
    cold_garbage_bytes: int = 0
    """Of objects in the cold tier that are not deleted yet."""
    compressed_bytes: int = 0
    """Plain bytes of the compressed ones among the cold objects, of which some may be dead; next what is stored."""
    compressed_stored_bytes: int = 0
    encoded_objects: int = 0
    """Cold objects, those of others included, that are not stored as their plain bytes: compressed, or of ledgers."""
    archived_objects: int = 0
    archived_bytes: int = 0
    """Stored bytes of those, of which some may be dead."""
    placed_objects: int = 0
    """Those of them in the archive place."""
    placed_bytes: int = 0

    @property
    def not_offloaded_bytes(self) -> int:
        """Bytes that only the local disk holds, without the trash; at most, as far as the cold tier can be trusted."""
        return max(0, self.uncovered_bytes - self.trash_uncovered_bytes - self.lost_bytes)

    @property
    def growing_bytes(self) -> int:
        """Bytes here alone in chunks that are still appended to, without the trash."""
        return max(0, self.active_bytes - self.trash_active_bytes)

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait to be offloaded, without those of chunks that are still appended to."""
        return max(0, self.not_offloaded_bytes - self.growing_bytes)


_FIELDS = len(fields(Sums))


def _segment_values(data: bytes | None) -> tuple[Any, ...]:
    """Return a segment's contribution to the first fields, and its removal, if it is in the trash itself.

    A damaged row contributes nothing, and tierfs check reports it.
    """
    try:
        row = pb.SegmentRecord.FromString(data) if data is not None else None
    except DecodeError:
        row = None
    if row is None:
        return _NOTHING
    local, cold = row.local, row.cold
    chunks = local.count
    uncovered, active_bytes = here_alone(row)
    removal = row.removal if row.HasField("removal") and row.removal.due_ms else None
    sizes = chunks, local.bytes, bool(chunks), cold.count, cold.bytes, uncovered, row.active, active_bytes
    return row.length - row.start_offset, *sizes, removal


def here_alone(row: pb.SegmentRecord) -> tuple[int, int]:
    """Return the bytes of a segment that no cold chunk holds, and those of them in a chunk that is appended to."""
    # As SegmentRecord.uncovered_bytes and growing_bytes, of the message: each append counts with this.
    cold, start, end = row.cold, row.start_offset, row.length
    held = cold.bytes - max(0, start - cold.first_chunk) if cold.count else 0
    alone = max(0, end - start - max(0, held))
    return alone, min(alone, end - row.local.last_chunk) if row.active else 0


def _count_segment(values: Values, _: bytes, data: bytes, sign: int) -> None:
    *sizes, removal = _segment_values(data)
    for index, value in enumerate(sizes):
        values[index] += sign * value
    _count_removal(values, removal, sign)


def _count_directory(values: Values, _: bytes, data: bytes, sign: int) -> None:
    removal = pb.DirectoryRecord.FromString(data).removal
    _count_removal(values, removal if removal.due_ms else None, sign)


def _count_removal(values: Values, removal: pb.Removal | None, sign: int) -> None:
    if removal is None:
        return
    each = removal
    sizes = 1, each.segments, each.directories, each.bytes, each.local_bytes, each.cold_bytes
    for index, value in enumerate((*sizes, each.uncovered_bytes, each.active_bytes), _REMOVALS):
        values[index] += sign * value


def _count_chunk(values: Values, key: bytes, data: bytes, sign: int) -> None:
    row = pb.ChunkRecord.FromString(data)
    if row.state == ChunkState.LOST:
        if key[_TIER_AT] == Tier.COLD:  # bytes lost in the local tier are lost in the cold one as well
            values[_LOST] += sign * row.length
    elif row.state == ChunkState.SUSPECT:
        values[_SUSPECT_LOCAL if key[_TIER_AT] == Tier.LOCAL else _SUSPECT_COLD] += sign * row.length


def _count_garbage(values: Values, _: bytes, data: bytes, sign: int) -> None:
    row = pb.GarbageRecord.FromString(data)
    values[_GARBAGE_BYTES] += sign * row.length
    values[_GARBAGE_FAILED] += sign * bool(row.last_error)
    if row.tier == Tier.COLD:
        values[_COLD_GARBAGE] += sign * row.length


def _count_object(values: Values, _: bytes, data: bytes, sign: int) -> None:
    row = pb.ObjectRecord.FromString(data)
    if row.tier == Tier.COLD and not row.foreign:
        values[_COLD_OBJECTS] += sign * (row.stored_length or row.length)
    if row.tier == Tier.COLD and row.encoding:
        values[_ENCODED] += sign
    if row.encoding == PayloadEncoding.ZSTD_FRAMES:
        values[_COMPRESSED] += sign * row.length
        values[_COMPRESSED_STORED] += sign * row.stored_length
    if row.archive_class:
        values[_ARCHIVED] += sign
        values[_ARCHIVED_BYTES] += sign * (row.stored_length or row.length)
    if row.archive_class == IN_PLACE:
        values[_PLACED] += sign
        values[_PLACED_BYTES] += sign * (row.stored_length or row.length)


# In the order in which they are counted; each with a byte without which a row counts for nothing and needs no parsing.
_TABLES: tuple[tuple[bytes, _Count, bytes], ...] = (
    (SEGMENTS.name, _count_segment, b""),
    (CHUNKS.name, _count_chunk, _STATE_TAG),
    (GARBAGE.name, _count_garbage, b""),
    (DIRECTORIES.name, _count_directory, _REMOVAL_TAG),
    (OBJECTS.name, _count_object, _COLD_TAG),
)

COUNTED = {name: (number, count, tag) for number, (name, count, tag) in enumerate(_TABLES)}


def recount(scan: Scan) -> Sums:
    """Return the sums over all rows, with which the kept ones must agree."""
    values = [0] * _FIELDS
    for name, count, tag in _TABLES:
        for key, data in scan(name, b""):
            if tag in data:
                _add(count, values, key, data, 1)
    return Sums(*values)


def read(data: bytes | None, transaction_id: int) -> Tally | None:
    """Return the tally in a row that this transaction wrote; None when it is void or not complete."""
    tally = Tally(data, transaction_id)
    return tally if tally.complete else None


class Tally:
    """The sums inside one write transaction."""

    def __init__(self, data: bytes | None, transaction_id: int) -> None:
        """Start from `data`, the stored row, which counts only if the transaction with that number wrote it."""
        try:
            row = None if data is None else pb.SumsRecord.FromString(data)
        except DecodeError:
            row = None
        values: Values = [] if row is None or row.transaction_id != transaction_id else list(row.values)
        self.values = values if len(values) == _FIELDS else [0] * _FIELDS
        self._table, self._key = 0, b""
        self.oldest_ms = 0
        """Earliest time since which bytes may have been on the local disk alone; 0 when none are, or it is unknown."""
        self.changed_active: set[SegmentId] = set()
        """Segments whose active chunk began or ended."""
        if row is not None and self.values is values:
            self._table, self._key = row.counted_tables, row.counted_key
            self.oldest_ms = row.oldest_ms
        self._all_was_cold = self._all_is_cold

    @property
    def sums(self) -> Sums:
        """The sums as they are now."""
        return Sums(*self.values)

    @property
    def complete(self) -> bool:
        """Whether all rows are in the sums."""
        return self._table == len(_TABLES)

    @property
    def _all_is_cold(self) -> bool:
        """Whether `not_offloaded_bytes` is 0."""
        values = self.values
        return self._table == len(_TABLES) and values[_UNCOVERED] <= values[_LOST] + values[_TRASH_UNCOVERED]

    def changed(self, name: bytes, key: bytes, old: bytes | None, new: bytes | None) -> None:
        """Count a row of a counted table that was written (with `new`) or deleted."""
        number, count, tag = COUNTED[name]
        counts = number < self._table or (number == self._table and key <= self._key)  # else the scan counts it later
        if number == 0:
            self._segment_changed(key, old, new, counts=counts)
        elif counts:
            signed = [(data, sign) for data, sign in ((old, -1), (new, 1)) if data is not None and tag in data]
            for data, sign in signed:
                _add(count, self.values, key, data, sign)
            counts = bool(signed)
        if counts and max(self.values) > MAX_SUM:
            raise _too_many()

    def restart(self) -> None:
        """Begin to count all rows again."""
        self.values, self._table, self._key = [0] * _FIELDS, 0, b""

    def count(self, scan: Scan, rows: int) -> None:
        """Add at most `rows` further rows to the sums."""
        while not self.complete and rows:
            name, count, tag = _TABLES[self._table]
            for key, data in scan(name, self._key + b"\0" if self._key else b""):
                if tag in data:
                    _add(count, self.values, key, data, 1)
                self._key, rows = bytes(key), rows - 1
                if max(self.values) > MAX_SUM:
                    raise _too_many()
                if not rows:
                    return
            self._table, self._key = self._table + 1, b""

    def encode(self, transaction_id: int, now_ms: int) -> bytes:
        """Return the row."""
        if self._all_is_cold:
            self.oldest_ms = 0
        elif self._all_was_cold:
            self.oldest_ms = now_ms
        row = pb.SumsRecord(
            version=RECORD_VERSION,
            transaction_id=transaction_id,
            values=self.values,
            counted_tables=self._table,
            counted_key=self._key,
            oldest_ms=self.oldest_ms,
        )
        return row.SerializeToString()

    def _segment_changed(self, key: bytes, old: bytes | None, new: bytes | None, *, counts: bool) -> None:
        before, after = _segment_values(old), _segment_values(new)
        if counts:
            values = self.values
            for index in range(_SEGMENT_FIELDS):
                values[index] += after[index] - before[index]
            if before[-1] is not after[-1]:  # nearly always neither is in the trash
                _count_removal(values, before[-1], -1)
                _count_removal(values, after[-1], 1)
        if before[_ACTIVE] != after[_ACTIVE] and old is not None and new is not None:
            # Appends do not report a chunk that ended, and the planner needs it.
            self.changed_active.add(SegmentId(tables.read_u64(key)))


def _too_many() -> DataLoss:
    return DataLoss("the records contain more bytes than possible", remedy="run: tierfs check")


def _add(count: _Count, values: Values, key: bytes, data: bytes, sign: int) -> None:
    """Count a row; a damaged one counts for nothing, and tierfs check reports it."""
    try:
        count(values, key, data, sign)
    except DecodeError:
        return
