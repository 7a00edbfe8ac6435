"""CRC32C grids of objects: runs of 128 KiB blocks, found by one cursor seek."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.base.words.types import CRC_BLOCK_BYTES, ByteRange, ObjectId
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.records import RECORD_VERSION, ChecksumRun
from tierfs.engine.metadata.tables import CHECKSUMS, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction

# CRCs per run: 1 KiB, so that two runs share an LMDB page (512 would need an overflow page each).
RUN_BLOCKS = 256

RUN_BYTES = RUN_BLOCKS * CRC_BLOCK_BYTES

CRC_BYTES = 4

# A run as a record, or as it is stored: plans read tens of thousands.
AnyRun: TypeAlias = "ChecksumRun | pb.ChecksumRun"


def pack(crcs: Sequence[int]) -> bytes:
    """Return CRCs as a run stores them."""
    return struct.pack(f">{len(crcs)}I", *crcs)


def unpack(packed: bytes) -> tuple[int, ...]:
    """Return the numbers of `pack`."""
    return struct.unpack(f">{len(packed) // 4}I", packed)


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


def require_object(txn: ReadTransaction, object_id: ObjectId) -> None:
    """Raise NotFound for an object without a record: its rows are gone with it, and are not lost."""
    if txn.get(OBJECTS, tables.u64(object_id)) is None:
        raise NotFound(f"object {object_id} was replaced or deleted")


def runs_covering(txn: ReadTransaction, object_id: ObjectId, wanted: ByteRange) -> tuple[ChecksumRun, ...]:
    """Return the runs that cover a range of an object. Raises DataLoss where one is missing, NotFound without the
    object."""
    covering: list[ChecksumRun] = []
    offset = wanted.start
    while offset < wanted.end:
        run = run_at(txn, object_id, offset)
        if run is None:
            require_object(txn, object_id)
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
        runs = self.runs(object_id, wanted)
        return runs[0].start, b"".join([run.crcs for run in runs])

    def runs(self, object_id: ObjectId, wanted: ByteRange) -> Sequence[AnyRun]:
        """Return the runs that cover a range of an object. Raises what runs_covering raises."""
        cursor = self._cursor
        runs: list[pb.ChecksumRun] = []
        end = wanted.start - wanted.start % RUN_BYTES
        has_row = cursor.set_range(tables.pair(object_id, end))
        while has_row and end < wanted.end and cursor.key() == tables.pair(object_id, end):
            run = pb.ChecksumRun.FromString(cursor.value())
            runs.append(run)
            end += len(run.crcs) // 4 * CRC_BLOCK_BYTES
            has_row = end < wanted.end and cursor.next()
        if wanted.start < wanted.end <= end:
            return runs
        return runs_covering(self._txn, object_id, wanted)  # for runs off this grid, and for the error


def whole_blocks(wanted: ByteRange, length_bytes: int) -> ByteRange:
    """Return a range of an object of so many bytes with all of the blocks it touches."""
    end = -(-wanted.end // CRC_BLOCK_BYTES) * CRC_BLOCK_BYTES
    return ByteRange(wanted.start - wanted.start % CRC_BLOCK_BYTES, min(end, length_bytes))


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
