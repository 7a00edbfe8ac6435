"""Manifests of batches: objects `uploads/<job>/manifest-…` that map a job's objects to segments.

They are for a recovery that has nothing but objects. They are written before the commit, so one that was never
committed may exist until its job is collected: readers use those of jobs with a marker (journal/batch_markers.py). Both
go with the last of the job's objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import starmap

from tierfs.app.batches.upload import job_prefix
from tierfs.base.bytes import ranges
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.engine.chunkstore.validate import ATTEMPT_KEY
from tierfs.engine.metadata import frames
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.batch_records import BatchRecord, UploadedSegment
from tierfs.engine.metadata.records import RECORD_VERSION, StoreRecord
from tierfs.engine.metadata.store import new_id

# Size at which a part is full: with one more segment of the longest kind it stays below the readers' limit.
_PART_BYTES = 4 * 1024 * 1024


def put_manifest(
    storage: ChunkStorage,
    store: StoreRecord,
    record: BatchRecord,
    segments: Sequence[UploadedSegment],
    *,
    seal: bool,
    now_ms: int,
) -> list[str]:
    """Write the manifest of a batch whose segment ids are reserved; return the names of its parts."""
    attempt = new_id()
    head = pb.BatchManifest(
        version=RECORD_VERSION,
        store_id=store.store_id,
        store_epoch=store.store_epoch,
        job=record.job,
        application=record.application,
        batch=record.batch,
        written_ms=now_ms,
        sealed=seal,
    )
    parts = list(_parts(head, record, segments))
    named = [f"{job_prefix(record.job)}manifest-{attempt}-{part.part:06d}" for part in parts]
    for name, part in zip(named, parts, strict=True):
        part.parts = len(parts)
        storage.put(name, BufferSource(frames.frame(part)), metadata={ATTEMPT_KEY: attempt})
    return named


def _parts(
    head: pb.BatchManifest, record: BatchRecord, segments: Sequence[UploadedSegment]
) -> Iterator[pb.BatchManifest]:
    described = starmap(_describe, zip(record.segment_ids, segments, strict=True))
    for number, some in enumerate(ranges.groups(described, pb.UploadedSegment.ByteSize, _PART_BYTES)):
        part = pb.BatchManifest(part=number, segments=some)
        part.MergeFrom(head)
        yield part


def _describe(segment_id: int, uploaded: UploadedSegment) -> pb.UploadedSegment:
    objects = [pb.UploadedObject(name=made.name, length=made.length, crc32c=made.crc32c) for made in uploaded.objects]
    return pb.UploadedSegment(segment_id=segment_id, name=uploaded.segment, length=uploaded.length, objects=objects)
