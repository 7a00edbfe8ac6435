"""Manifests `uploads/<job>/manifest-…`: what a commit makes of a job's objects, for who has nothing but objects.

Written before the commit, so one that was never committed may lie there until its job is collected: readers take one
manifest per version of an application, and only where every object is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tierfs.background.batch_upload import job_prefix
from tierfs.chunkstore.checks import ATTEMPT_KEY
from tierfs.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.metadata import journal
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.batch_records import BatchRecord, UploadedSegment
from tierfs.metadata.records import RECORD_VERSION, StoreRecord
from tierfs.metadata.store import new_id

_PART_BYTES = 4 * 1024 * 1024
"""Segments of a part end here, so that one more of the longest stays below what readers take."""

_NAME = re.compile(r"uploads/(?P<job>[0-9a-f]{32})/manifest-(?P<attempt>[0-9a-f]{32})-(?P<part>[0-9]{6})")


def is_manifest(name: str) -> bool:
    """Whether an object's name is that of a part of a manifest."""
    return _NAME.fullmatch(name) is not None


def attempt_of(name: str) -> str:
    """Which manifest a part belongs to; empty for other names."""
    found = _NAME.fullmatch(name)
    return found["attempt"] if found is not None else ""


def put_manifest(
    storage: ChunkStorage,
    store: StoreRecord,
    record: BatchRecord,
    segments: Sequence[UploadedSegment],
    *,
    seal: bool,
    now_ms: int,
) -> list[str]:
    """Write the manifest of a batch whose segment ids are reserved; returns the names of its parts."""
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
        storage.put(name, BufferSource(journal.frame(part)), metadata={ATTEMPT_KEY: attempt})
    return named


def _parts(
    head: pb.BatchManifest, record: BatchRecord, segments: Sequence[UploadedSegment]
) -> Iterator[pb.BatchManifest]:
    part, size_bytes = _copy(head, 0), 0
    for segment_id, uploaded in zip(record.segment_ids, segments, strict=True):
        described = _describe(segment_id, uploaded)
        size = described.ByteSize()
        if size_bytes and size_bytes + size > _PART_BYTES:
            yield part
            part, size_bytes = _copy(head, part.part + 1), 0
        part.segments.append(described)
        size_bytes += size
    yield part


def _copy(head: pb.BatchManifest, number: int) -> pb.BatchManifest:
    part = pb.BatchManifest()
    part.CopyFrom(head)
    part.part = number
    return part


def _describe(segment_id: int, uploaded: UploadedSegment) -> pb.UploadedSegment:
    objects = [pb.UploadedObject(name=one.name, length=one.length, crc32c=one.crc32c) for one in uploaded.objects]
    return pb.UploadedSegment(segment_id=segment_id, name=uploaded.segment, length=uploaded.length, objects=objects)
