"""The commit of a batch: one transaction makes all segments of it, out of objects that were uploaded before.

A batch is visible as a whole or not at all. The intent of its job is deleted in the same transaction, so a job commits
once; and a version of an application commits once, whichever of its jobs is first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from tierfs.base.bytes.byte_times import ByteTimes, TimedBytes
from tierfs.base.words import names
from tierfs.base.words.errors import AlreadyExists, Conflict, InvalidRequest
from tierfs.base.words.types import ByteRange, LocationId, ObjectId, SegmentId, Tier
from tierfs.engine.frames.frame_map import FRAME_BYTES, FrameMap
from tierfs.engine.metadata import batches, checksums, directories, frame_rows
from tierfs.engine.metadata.batch_records import BatchRecord, UploadedObject, UploadedSegment
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.records import IntentRecord, ObjectRecord
from tierfs.engine.metadata.tables import INTENTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.engine.segments import segment_builder


class GivenUp(Conflict):
    """A job without an intent: another process committed it or gave it up, or `gc` took it for dead."""


def check_names(txn: ReadTransaction, segments: Sequence[UploadedSegment]) -> None:
    """Check the names as the commit will. Raises AlreadyExists, NotDirectory or InvalidRequest."""
    seen: set[str] = set()
    for segment in segments:
        name = names.join(names.split(segment.segment))
        if name in seen:
            raise InvalidRequest(
                f"two tasks wrote segment {names.printable(name)}", remedy="give each segment of a batch its own name"
            )
        seen.add(name)
        if directories.find(txn, name) is not None:
            raise _exists(name)


def require_job(txn: ReadTransaction, job: str) -> IntentRecord:
    """Return the intent of a job. Raises GivenUp for one that was committed or given up."""
    intent = txn.get(INTENTS, job.encode())
    if intent is None:
        raise GivenUp(f"job {job} was abandoned, or committed by another process", remedy="run the job again")
    return intent


def commit(
    txn: WriteTransaction,
    record: BatchRecord,
    segments: Sequence[UploadedSegment],
    location_id: LocationId,
    *,
    seal: bool,
) -> bool:
    """Create the batch's segments and end its job; False, with none created, if its version was committed before.

    The ids in `record` are reserved, one for each segment. Raises AlreadyExists, NotDirectory or InvalidRequest for a
    name, and GivenUp.
    """
    intent = require_job(txn, record.job)
    txn.delete(INTENTS.name, record.job.encode())
    if batches.is_committed(txn, record.application, record.number, record.writer):
        return False
    batches.begin(txn, record)
    builder = segment_builder.SegmentBuilder(txn, seal=seal)
    for segment_id, uploaded in zip(record.segment_ids, segments, strict=True):
        try:
            new = builder.make(SegmentId(segment_id), uploaded.segment, uploaded.length, uploaded.file)
        except AlreadyExists as exc:
            raise _exists(uploaded.segment) from exc
        made = [_object(txn, item, location_id, intent.store_epoch) for item in uploaded.objects]
        ends = accumulate(stored.length for stored in made)
        placed = ((ByteRange(end - stored.length, end), stored) for end, stored in zip(ends, made, strict=True))
        Editor(txn, new).link_objects(placed, segment_first=True)
    builder.end()
    batches.commit(txn, record)
    return True


def _object(txn: WriteTransaction, uploaded: UploadedObject, location_id: LocationId, store_epoch: int) -> ObjectRecord:
    object_id, frames = ObjectId(txn.allocate_id()), uploaded.frames
    stored = ObjectRecord(
        id=object_id,
        tier=Tier.COLD,
        location_id=location_id,
        name=uploaded.name,
        length=uploaded.length,
        etag=uploaded.etag,
        crc32c=uploaded.crc32c,
        store_epoch=store_epoch,
        attempt=uploaded.attempt,
        created_ms=txn.now_ms,
        written_ms=txn.now_ms,
        times=ByteTimes.of([TimedBytes(uploaded.length, txn.now_ms, txn.now_ms)]),
    )
    if frames is None:
        checksums.put_packed(txn, object_id, uploaded.crcs)
        return stored
    placed = FrameMap.of(0, 0, (FRAME_BYTES,), checksums.unpack(frames.lengths), uploaded.length)
    frame_rows.put_compressed(txn, object_id, checksums.unpack(uploaded.crcs), placed, uploaded.length)
    return frame_rows.as_compressed(stored, frames.stored_length, frames.stored_crc32c)


def _exists(name: str) -> AlreadyExists:
    return AlreadyExists(
        f"segment {names.printable(name)} already exists, so nothing of the batch was committed",
        remedy="write into another directory, or delete it first",
    )
