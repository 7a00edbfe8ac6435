"""The driver's part of a batch: begin a job, commit what its executors uploaded, or give it up.

Crash order: intent committed -> executors upload -> one listing shows every object -> segment ids reserved -> manifest
created -> one transaction makes all segments, drops the intent and writes down that the batch is done. A driver that
dies leaves an intent and objects: `gc` finds them once nothing was added for JOB_REST_MS (objects.py).

Spark runs `begin`, `commit` and `abort` in processes of their own, so nothing is kept between them but the job's id.

Manifests `uploads/<job>/manifest-…`: what a commit makes of a job's objects, for who has nothing but objects.

Written before the commit, so one that was never committed may lie there until its job is collected: readers take one
manifest per version of an application, and only where every object is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tierfs.chunkstore.protocol import BufferSource, ChunkStorage, StoredObject
from tierfs.chunkstore.validate import ATTEMPT_KEY
from tierfs.errors import DataLoss, InvalidRequest, NotDirectory, Unavailable
from tierfs.metadata import batches, chains, changes, directories, policies, store
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.ledger_and_batch_records import BatchRecord, UploadedObject, UploadedSegment
from tierfs.metadata.records import RECORD_VERSION, GarbageRecord, IntentRecord, StoreRecord
from tierfs.metadata.store import MetadataStore, new_id
from tierfs.metadata.tables import INTENTS
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.names import join, printable, split
from tierfs.policy import Policy
from tierfs.segments import batch_commit
from tierfs.segments.batch_commit import Batch, GivenUp, require_job
from tierfs.tiering.batch_upload import MAX_OBJECT_BYTES, UploadPlan, job_prefix
from tierfs.types import (
    CRC_BLOCK_BYTES,
    ROOT_DIRECTORY,
    AttemptId,
    DirectoryId,
    EntryKind,
    LocationId,
    ReadPriority,
    SegmentId,
    Tier,
)

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
        storage.put(name, BufferSource(changes.frame(part)), metadata={ATTEMPT_KEY: attempt})
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


MAX_SEGMENTS = 100_000
"""Of one batch: its transaction takes half a minute (measured: 10,000 take 3 s), in which nobody else commits."""

_GARBAGE_PER_COMMIT = 1000


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit did."""

    segments: int = 0
    bytes: int = 0
    repeated: bool = False
    """Whether the version had been committed before, so that nothing was changed."""
    sequence: int = 0
    """The change at which the journal names all of it."""


class BatchJobs:
    """Jobs of one store that writes to one cold place. Thread-safe; any process may have one."""

    def __init__(self, metadata: MetadataStore, storage: ChunkStorage, location_id: LocationId) -> None:
        self._metadata = metadata
        self._storage = storage
        self._location_id = location_id

    def begin(self, into: str) -> UploadPlan:
        """Note that a job begins, so that nobody takes its objects for garbage; returns what executors must know.

        Raises Fenced, and NotDirectory where `into` runs through a segment; then nothing is noted.
        """
        job = new_id()
        with self._metadata.write() as txn:
            policy = _policy(txn, into)
            intent = IntentRecord(
                attempt=AttemptId(job),
                location_id=self._location_id,
                name=job_prefix(job),
                segment_id=SegmentId(0),
                start_offset=0,
                end_offset=0,
                created_ms=txn.now_ms,
                store_epoch=txn.store.store_epoch,
            )
            txn.put(INTENTS, job.encode(), intent)
            object_bytes = min(policy.object_bytes, MAX_OBJECT_BYTES)
            return UploadPlan(txn.store.store_id, txn.store.store_epoch, job, object_bytes)

    def require_possible(self, into: str) -> None:
        """Raise what `begin` raises, with nothing noted."""
        with self._metadata.read() as txn:
            store.require_owner(txn.store)
            _policy(txn, into)

    def commit(
        self, job: str, application: str, version: int, segments: Sequence[UploadedSegment], *, seal: bool
    ) -> Committed:
        """Make all segments of the job, exactly once per application and version. Idempotent.

        Raises AlreadyExists for a name that is taken, InvalidRequest, Unavailable for an object that is missing,
        DataLoss for one that differs, Conflict for a job that was given up, Fenced, StorageFull, and what the
        storage raises; then nothing is committed, and the same call may succeed later.
        """
        batches.check(application, version)
        if len(segments) > MAX_SEGMENTS:
            raise InvalidRequest(
                f"one write of {len(segments)} segments",
                remedy=f"write at most {MAX_SEGMENTS}: repartition or coalesce",
            )
        if self._is_committed(application, version, segments):
            self.abort(job)
            return self._repeated()
        listed = self._listed(job)
        uploaded = verified(segments, listed)
        try:
            return self._commit(job, application, version, uploaded, listed, seal=seal)
        except GivenUp:
            if self._is_committed(application, version, ()):
                return self._repeated()  # another process committed the same job
            raise

    def _commit(
        self,
        job: str,
        application: str,
        version: int,
        uploaded: Sequence[UploadedSegment],
        listed: Mapping[str, StoredObject],
        *,
        seal: bool,
    ) -> Committed:
        record, store = self._reserve(job, application, version, len(uploaded))
        now_ms = self._metadata.clock.now_ms()
        manifest = put_manifest(self._storage, store, record, uploaded, seal=seal, now_ms=now_ms)
        used = {one.name for segment in uploaded for one in segment.objects}
        with self._metadata.write() as txn:
            made = batch_commit.commit(txn, Batch(record, uploaded, seal, self._location_id))
            left = [one for one in listed.values() if not made or one.name not in used]
            self._add_garbage(txn, left)
            if not made:
                self._add_garbage(txn, [StoredObject(name, 0, "") for name in manifest])
        if not made:
            return self._repeated()
        with self._metadata.read() as view:
            sequence = view.store.next_outbox - 1
        return Committed(len(uploaded), sum(one.length for one in uploaded), sequence=sequence)

    def abort(self, job: str) -> int:
        """Make the objects of a job garbage; returns how many. Nothing of one that was committed or given up."""
        with self._metadata.write() as txn:
            if not txn.delete(INTENTS.name, job.encode()):
                return 0
        return self._discard(job)

    def _discard(self, job: str) -> int:
        """All objects of a job without an intent, which can commit no more. What comes later `gc` finds."""
        found = list(self._listed(job).values())
        for first in range(0, len(found), _GARBAGE_PER_COMMIT):
            with self._metadata.write() as txn:
                self._add_garbage(txn, found[first : first + _GARBAGE_PER_COMMIT])
        return len(found)

    def _repeated(self) -> Committed:
        with self._metadata.read() as txn:
            return Committed(repeated=True, sequence=txn.store.next_outbox - 1)

    def _is_committed(self, application: str, version: int, segments: Sequence[UploadedSegment]) -> bool:
        """Whether a version was committed; raises what is wrong with names if not."""
        with self._metadata.read() as txn:
            done = batches.is_committed(txn, application, version)
            if not done:
                batch_commit.check_names(txn, segments)
        return done

    def _listed(self, job: str) -> dict[str, StoredObject]:
        return {one.name: one for one in self._storage.list(job_prefix(job))}

    def _reserve(self, job: str, application: str, version: int, segments: int) -> tuple[BatchRecord, StoreRecord]:
        """Ids of the segments, which the manifest names before they are made."""
        with self._metadata.write() as txn:
            require_job(txn, job)
            ids = tuple(txn.allocate_id() for _ in range(segments))
            store = txn.store
        return BatchRecord(application=application, batch=str(version), segment_ids=ids, job=job), store

    def _add_garbage(self, txn: WriteTransaction, objects: Iterable[StoredObject]) -> None:
        for one in objects:
            garbage = GarbageRecord(
                due_ms=txn.now_ms, tier=Tier.COLD, location_id=self._location_id, name=one.name, length=one.length_bytes
            )
            chains.add_garbage(txn, garbage)


def verified(segments: Sequence[UploadedSegment], listed: Mapping[str, StoredObject]) -> list[UploadedSegment]:
    """The segments with the etags of a listing. Raises Unavailable or DataLoss for what is not there as it was sent."""
    return [replace(one, objects=tuple(_checked(each, listed) for each in one.objects)) for one in segments]


def _checked(one: UploadedObject, listed: Mapping[str, StoredObject]) -> UploadedObject:
    found = listed.get(one.name)
    if found is None:
        raise Unavailable(f"{one.name} was uploaded and is not in the bucket", remedy="run the job again")
    if found.length_bytes != one.length or len(one.crcs) != 4 * -(-one.length // CRC_BLOCK_BYTES):
        raise DataLoss(f"{one.name} has {found.length_bytes} of {one.length} bytes", remedy="run the job again")
    return replace(one, etag=found.etag)


def _policy(txn: ReadTransaction, into: str) -> Policy:
    """The policy below a directory. Raises NotDirectory, or InvalidRequest where what is cold is not read."""
    policy = policies.of_directory(txn, _nearest_directory(txn, into))
    if policy.read_priority is ReadPriority.LOCAL_ONLY:
        where = printable(into) or "/"
        raise InvalidRequest(
            f"what is below {where} is read from the local disk only, and a distributed write goes elsewhere",
            remedy=f"tierfs policy set {where} read_priority=local-first",
        )
    return policy


def _nearest_directory(txn: ReadTransaction, path: str) -> DirectoryId:
    """The directory of a path, or the one above that there is. Raises NotDirectory."""
    parts = split(path)
    for depth in range(len(parts), 0, -1):
        entry = directories.find(txn, join(parts[:depth]))
        if entry is not None and entry.kind is EntryKind.SEGMENT:
            raise NotDirectory(f"{printable(path)} is a segment, so nothing can be written below it")
        if entry is not None:
            return DirectoryId(entry.id)
    return ROOT_DIRECTORY
