"""CRC32C grids of objects: runs of 128 KiB blocks, found by one cursor seek."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import cycle, pairwise
from typing import Any

from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.base.words.types import CRC_BLOCK_BYTES, ByteRange, ObjectId, PayloadEncoding
from tierfs.engine.frames.frame_map import MAX_FRAME_BYTES, MAX_GAP_BYTES, MAX_STORED_FRAME_BYTES, FrameMap
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.records import RECORD_VERSION, ChecksumRun, ObjectRecord
from tierfs.engine.metadata.tables import CHECKSUMS, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction

# CRCs per run: 1 KiB, so that two runs share an LMDB page (512 would need an overflow page each).
RUN_BLOCKS = 256

RUN_BYTES = RUN_BLOCKS * CRC_BLOCK_BYTES

# Limit of the frames of one run: its blocks, and the ends of joined objects among them.
MAX_RUN_FRAMES = 2048

_CRC_BYTES = 4


def pack(crcs: Sequence[int]) -> bytes:
    """Return CRCs as a run stores them."""
    return struct.pack(f">{len(crcs)}I", *crcs)


def put_run(txn: WriteTransaction, object_id: ObjectId, run: ChecksumRun) -> None:
    """Write one run."""
    txn.put(CHECKSUMS, tables.pair(object_id, run.start), run)


def put_grid(txn: WriteTransaction, object_id: ObjectId, crcs: Sequence[int]) -> None:
    """Write the runs of a whole object, from its block CRCs."""
    put_packed(txn, object_id, pack(crcs))


def put_packed(txn: WriteTransaction, object_id: ObjectId, packed: bytes) -> None:
    """Write the runs of a whole object, from its block CRCs as runs store them."""
    for first in range(0, len(packed), RUN_BLOCKS * 4):
        run = ChecksumRun(start=first // 4 * CRC_BLOCK_BYTES, crcs=packed[first : first + RUN_BLOCKS * 4])
        put_run(txn, object_id, run)


def put_compressed(
    txn: WriteTransaction, object_id: ObjectId, crcs: Sequence[int], frames: FrameMap, length_bytes: int
) -> None:
    """Write the runs of a whole compressed object of so many plain bytes, with the places of its frames."""
    for first in range(0, len(crcs), RUN_BLOCKS):
        start = first * CRC_BLOCK_BYTES
        numbers = frames.holding(ByteRange(start, min(start + RUN_BYTES, length_bytes)))
        starts = frames.starts[numbers.start : numbers.stop + 1]
        stored = frames.stored[numbers.start : numbers.stop + 1]
        run = ChecksumRun(
            start=start,
            crcs=pack(crcs[first : first + RUN_BLOCKS]),
            frame_start=starts[0],
            stored_start=stored[0],
            frame_lengths=_short([end - begin for begin, end in pairwise(starts)], ends=starts[-1] == length_bytes),
            stored_lengths=tuple(end - begin for begin, end in pairwise(stored)),
        )
        put_run(txn, object_id, run)


def _short(lengths: Sequence[int], *, ends: bool) -> tuple[int, ...]:
    """Return one length for all frames, if only the last one is shorter, which `ends` the object; else each length."""
    first, last = lengths[0], lengths[-1]
    alike = set(lengths[:-1]) <= {first} and (last == first or (ends and 0 < last < first))
    return (first,) if alike else tuple(lengths)


def frames_of(run: ChecksumRun, length_bytes: int) -> FrameMap:
    """Return the frames that a run of an object of so many plain bytes places."""
    return FrameMap.of(run.frame_start, run.stored_start, run.frame_lengths, run.stored_lengths, length_bytes)


def has_frames(run: ChecksumRun, stored: ObjectRecord) -> bool:
    """Return whether a run of an object places frames of all its blocks, or the object is not compressed."""
    if stored.encoding is not PayloadEncoding.ZSTD_FRAMES:
        return True
    return places_frames(run, stored.length, stored.stored_length)


def places_frames(run: Any, length_bytes: int, stored_bytes: int) -> bool:
    """Return whether a run, or its message, places frames of all its blocks inside an object of so many bytes."""
    lengths, stored_lengths = run.frame_lengths, run.stored_lengths
    if run.start % RUN_BYTES or len(stored_lengths) > MAX_RUN_FRAMES or len(lengths) not in (1, len(stored_lengths)):
        return False
    if max(run.frame_start, run.stored_start) > stored_bytes + length_bytes:
        return False
    for length, stored_length in zip(cycle(lengths), stored_lengths, strict=False):
        if length > MAX_FRAME_BYTES or stored_length > (MAX_STORED_FRAME_BYTES if length else MAX_GAP_BYTES):
            return False
    frames = FrameMap.of(run.frame_start, run.stored_start, lengths, stored_lengths, length_bytes)
    end = min(run.start + len(run.crcs) // _CRC_BYTES * CRC_BLOCK_BYTES, length_bytes)
    held = frames.plain
    return held.start <= run.start and end <= held.end <= length_bytes and frames.stored[-1] <= stored_bytes


def all_frames(txn: ReadTransaction, record: ObjectRecord) -> FrameMap:
    """Return the frames of a whole compressed object, and each seek table between two of them as one of no plain bytes.

    Raises DataLoss if its runs do not place all of them.
    """
    starts, stored = array("Q", [0]), array("Q", [0])
    for run in runs(txn, record.id):
        frames = frames_of(run, record.length)
        # A frame that ends behind the row is in the next one as well.
        first = bisect_left(frames.stored, stored[-1])
        if frames.stored[0] > stored[-1]:
            starts.append(starts[-1])
            stored.append(frames.stored[0])
        if first == len(frames.stored) or (frames.starts[first], frames.stored[first]) != (starts[-1], stored[-1]):
            break
        starts.extend(frames.starts[first + 1 :])
        stored.extend(frames.stored[first + 1 :])
    if starts[-1] != record.length or stored[-1] > record.stored_bytes:
        raise DataLoss(f"object {record.id} has no frame for its byte {starts[-1]}", remedy="run: tierfs check")
    return FrameMap(starts, stored)


def run_at(txn: ReadTransaction, object_id: ObjectId, offset: int) -> ChecksumRun | None:
    """Return the run that covers an offset of the object, or None when it has no checksum there."""
    run = txn.at_or_before(CHECKSUMS, tables.pair(object_id, offset), prefix=tables.u64(object_id))
    if run is None or offset >= run.start + run.count * CRC_BLOCK_BYTES:
        return None
    return run


def run_behind(txn: ReadTransaction, object_id: ObjectId, offset: int) -> int | None:
    """Return the start of the first run after an offset of the object; None when there is none."""
    rows = txn.scan_raw(CHECKSUMS.name, tables.pair(object_id, offset + 1), prefix=tables.u64(object_id))
    return next((int.from_bytes(key[tables.U64_BYTES :], "big") for key, _ in rows), None)


def runs(txn: ReadTransaction, object_id: ObjectId) -> Iterator[ChecksumRun]:
    """Yield all runs of an object, ascending."""
    for _, run in txn.scan(CHECKSUMS, prefix=tables.u64(object_id)):
        yield run


def runs_covering(txn: ReadTransaction, object_id: ObjectId, wanted: ByteRange) -> tuple[ChecksumRun, ...]:
    """Return the runs that cover a range of an object. Raises DataLoss where one is missing, NotFound without the
    object."""
    covering: list[ChecksumRun] = []
    offset = wanted.start
    while offset < wanted.end:
        run = run_at(txn, object_id, offset)
        if run is None and txn.get(OBJECTS, tables.u64(object_id)) is None:
            raise NotFound(f"object {object_id} was replaced or deleted")
        if run is None:
            raise DataLoss(f"object {object_id} has no checksum at {offset}", remedy="run: tierfs check")
        covering.append(run)
        offset = run.start + run.count * CRC_BLOCK_BYTES
    return tuple(covering)


class PackedChecksums:
    """Checksums of many objects, through one cursor. Measured: a fifth of the time of runs_covering."""

    def __init__(self, txn: ReadTransaction) -> None:
        self._txn = txn
        self._cursor = txn.cursor_raw(CHECKSUMS.name)

    def covering(self, object_id: ObjectId, wanted: ByteRange) -> tuple[int, bytes]:
        """Return the start of the first block, and all checksums that cover a range of an object, packed.

        Raises what runs_covering raises.
        """
        cursor, packed = self._cursor, b""
        first = end = wanted.start - wanted.start % RUN_BYTES
        has_row = cursor.set_range(tables.pair(object_id, first))
        while has_row and end < wanted.end and cursor.key() == tables.pair(object_id, end):
            packed += pb.ChecksumRun.FromString(cursor.value()).crcs
            end = first + len(packed) // 4 * CRC_BLOCK_BYTES
            has_row = end < wanted.end and cursor.next()
        if wanted.start < wanted.end <= end:
            return first, packed
        runs = runs_covering(self._txn, object_id, wanted)  # for runs off this grid, and for the error
        return runs[0].start, b"".join(run.crcs for run in runs)


def write_blocks(txn: WriteTransaction, object_id: ObjectId, first_block: int, crcs: Sequence[int]) -> None:
    """Set the CRCs of consecutive blocks of a growing object, whose grid starts at 0."""
    at = 0
    while at < len(crcs):
        block = first_block + at
        run_start = block // RUN_BLOCKS * RUN_BYTES
        index = block % RUN_BLOCKS
        count = min(RUN_BLOCKS - index, len(crcs) - at)
        key = tables.pair(object_id, run_start)
        # A message, not a record, as in chains.grow: each append passes here.
        run = txn.message(CHECKSUMS, key) if index else None
        if run is None:
            run = pb.ChecksumRun(version=RECORD_VERSION, start=run_start)
        run.crcs = run.crcs[: index * 4] + pack(crcs[at : at + count])
        txn.put_raw(CHECKSUMS.name, key, run.SerializeToString(deterministic=True))
        at += count


def delete(txn: WriteTransaction, object_id: ObjectId) -> None:
    """Remove all runs of an object."""
    txn.delete_prefix(CHECKSUMS.name, tables.u64(object_id))
