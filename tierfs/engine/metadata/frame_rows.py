"""The frames of compressed objects, in the runs of their checksums: each run places those of its blocks.

A frame that reaches beyond a run is in the next one, too. Objects of other encodings have none.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import CRC_BLOCK_BYTES, ByteRange, ObjectId, PayloadEncoding
from tierfs.engine.frames.frame_map import FrameMap, is_readable
from tierfs.engine.metadata import checksums
from tierfs.engine.metadata.records import ChecksumRun, ObjectRecord
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction

# Limit of the frames of one run: its blocks, and the ends of joined objects among them.
MAX_RUN_FRAMES = 2048


def put_compressed(
    txn: WriteTransaction, object_id: ObjectId, crcs: Sequence[int], frames: FrameMap, length_bytes: int
) -> None:
    """Write the runs of a whole compressed object of so many plain bytes, with the places of its frames."""
    for first in range(0, len(crcs), checksums.RUN_BLOCKS):
        start = first * CRC_BLOCK_BYTES
        held = frames.cut(ByteRange(start, min(start + checksums.RUN_BYTES, length_bytes)))
        run = ChecksumRun(
            start=start,
            crcs=checksums.pack(crcs[first : first + checksums.RUN_BLOCKS]),
            frame_start=held.starts[0],
            stored_start=held.stored[0],
            frame_lengths=lengths_of(held, ends=held.starts[-1] == length_bytes),
            stored_lengths=held.stored_lengths,
        )
        checksums.put_run(txn, object_id, run)


def as_compressed(record: ObjectRecord, stored_length: int, stored_crc32c: int | None) -> ObjectRecord:
    """Return the record of the same plain bytes, stored as frames."""
    encoding = PayloadEncoding.ZSTD_FRAMES
    return replace(record, encoding=encoding, stored_length=stored_length, stored_crc32c=stored_crc32c)


def lengths_of(frames: FrameMap, *, ends: bool) -> tuple[int, ...]:
    """Return one length for all frames, if only the last one is shorter, whose end is known (`ends`); else each."""
    lengths = frames.lengths
    first, last = lengths[0], lengths[-1]
    alike = set(lengths[:-1]) <= {first} and (last == first or (ends and 0 < last < first))
    return (first,) if alike else lengths


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
    if run.start % checksums.RUN_BYTES or len(lengths) not in (1, len(stored_lengths)):
        return False
    if len(stored_lengths) > MAX_RUN_FRAMES or max(run.frame_start, run.stored_start) > stored_bytes + length_bytes:
        return False
    for length, stored_length in zip(cycle(lengths), stored_lengths, strict=False):
        if not is_readable(length, stored_length):
            return False
    frames = FrameMap.of(run.frame_start, run.stored_start, lengths, stored_lengths, length_bytes)
    end = min(run.start + len(run.crcs) // checksums.CRC_BYTES * CRC_BLOCK_BYTES, length_bytes)
    held = frames.plain
    return held.start <= run.start and end <= held.end <= length_bytes and frames.stored[-1] <= stored_bytes


def crowded_run(frames: FrameMap) -> int | None:
    """Return where a run of an object starts that would have too many of its frames; None: rows can place them all."""
    end = frames.plain.end
    for start in range(0, end, checksums.RUN_BYTES):
        if len(frames.holding(ByteRange(start, min(start + checksums.RUN_BYTES, end)))) > MAX_RUN_FRAMES:
            return start
    return None


def all_frames(txn: ReadTransaction, record: ObjectRecord) -> FrameMap:
    """Return the frames of a whole compressed object, and each seek table between two of them as one of no plain bytes.

    Raises DataLoss if its runs do not place all of them.
    """
    starts, stored = array("Q", [0]), array("Q", [0])
    for run in checksums.runs(txn, record.id):
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


def _frames_in(run: checksums.AnyRun, wanted: ByteRange, length_bytes: int) -> FrameMap | None:
    """Return the frames of a run that hold bytes of `wanted`, in other runs as well; None without any.

    Measured: of frames of one length in a tenth of the time of frames_of.
    """
    start, stored_start, stored = run.frame_start, run.stored_start, run.stored_lengths
    if len(run.frame_lengths) == 1 and (each := run.frame_lengths[0]):
        first = max(0, wanted.start - start) // each
        held = stored[first : -(-(wanted.end - start) // each)]
        begin = stored_start + sum(stored[:first])
        return FrameMap.of(start + first * each, begin, (each,), held, length_bytes) if held else None
    frames = FrameMap.of(start, stored_start, run.frame_lengths, stored, length_bytes)
    part = frames.plain.intersect(wanted)
    return frames.cut(part) if part else None


def frames_holding(txn: ReadTransaction, record: ObjectRecord, wanted: ByteRange) -> tuple[FrameMap, ...]:
    """Return the frames that hold all blocks that `wanted` touches, by runs; none of an object that has no frames.

    One that two runs hold is there twice. Those that the metadata lacks are left out.
    """
    if record.encoding is not PayloadEncoding.ZSTD_FRAMES:
        return ()
    blocks = checksums.whole_blocks(wanted, record.length)
    maps: list[FrameMap] = []
    at: int | None = blocks.start
    while at is not None and at < blocks.end:
        run = checksums.run_at(txn, record.id, at)
        frames = None if run is None else _frames_in(run, blocks, record.length)
        maps += [] if frames is None else [frames]
        at = checksums.run_behind(txn, record.id, at) if run is None else run.start + run.count * CRC_BLOCK_BYTES
    return tuple(maps)


def frames_of_runs(runs: Iterable[checksums.AnyRun], wanted: ByteRange, length_bytes: int) -> tuple[FrameMap, ...]:
    """Return what frames_holding returns of a compressed object of so many plain bytes; `runs` cover `wanted`."""
    blocks = checksums.whole_blocks(wanted, length_bytes)
    maps = (_frames_in(run, blocks, length_bytes) for run in runs)
    return tuple(each for each in maps if each is not None)
