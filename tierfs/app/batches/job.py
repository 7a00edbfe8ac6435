"""The driver's part of a batch: begin a job, commit the uploads of its executors, or abort it.

Crash order: intent committed -> executors upload -> one listing shows every object -> segment ids reserved -> manifest
created -> one transaction makes all segments, drops the intent and records that the batch is done. A driver that dies
leaves an intent and objects: `gc` finds them once nothing was added for JOB_REST_MS (objects.py).

Spark runs `begin`, `commit` and `abort` in separate processes, so only the job's id is kept between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tierfs.app.batches import commit as batch_commit
from tierfs.app.batches.commit import GivenUp, require_job
from tierfs.app.batches.manifest import put_manifest
from tierfs.app.batches.upload import MAX_OBJECT_BYTES, UploadPlan, job_prefix
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.policy import Policy
from tierfs.base.options.precedence import SetBy
from tierfs.base.words import object_names
from tierfs.base.words.errors import DataLoss, InvalidRequest, NotDirectory, Unavailable
from tierfs.base.words.names import join, printable, split
from tierfs.base.words.types import CRC_BLOCK_BYTES, ROOT_DIRECTORY, AttemptId, DirectoryId, EntryKind, ReadPriority
from tierfs.engine.chunkstore.protocol import StoredObject
from tierfs.engine.journal import batch_markers
from tierfs.engine.metadata import batches, chains, directories, policies, store_ownership
from tierfs.engine.metadata.batch_records import BatchRecord, UploadedObject, UploadedSegment
from tierfs.engine.metadata.store import MetadataStore, new_id
from tierfs.engine.metadata.tables import INTENTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.tiering import objects, quota
from tierfs.tiering.objects import ColdTier

# Most segments of a batch: its transaction takes half a minute (measured: 10,000 take 3 s) and blocks all commits.
MAX_SEGMENTS = 100_000

_GARBAGE_PER_COMMIT = 1000


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a commit."""

    segments: int = 0
    bytes: int = 0
    repeated: bool = False
    """Whether the version had been committed before, so that nothing was changed."""
    published: bool = False
    """Whether the bucket's journal is known to name it, so that it outlives this disk."""
    sequence: int = 0
    """Sequence of the change with which the journal names all segments."""


class BatchJobs:
    """Jobs of one store and one cold location. Thread-safe; any process may use it."""

    def __init__(self, metadata: MetadataStore, cold: ColdTier) -> None:
        self._metadata = metadata
        self._cold = cold
        self._storage = cold.storage
        self._location_id = cold.location_id

    def begin(self, into: str) -> UploadPlan:
        """Write the intent of a new job, which protects its objects from `gc`; return the plan for its executors.

        Raises Fenced, QuotaReached, NotDirectory where `into` runs through a segment, and Conflict once the store has
        another place than this cold tier; then no intent is written.
        """
        job = new_id()
        with self._metadata.write() as txn:
            self._cold.require_place(txn)
            policy = _policy(txn, into)
            quota.require_room(txn, 1)  # how much its tasks write, nobody knows yet
            objects.intend(txn, AttemptId(job), self._location_id, job_prefix(job))
            object_bytes = min(policy.object_bytes, MAX_OBJECT_BYTES)
            form = policy.compression, policy.compression_level
            return UploadPlan(txn.store.store_id, txn.store.store_epoch, job, object_bytes, *form)

    def require_possible(self, into: str) -> None:
        """Raise as `begin` would, without writing an intent."""
        with self._metadata.read() as txn:
            store_ownership.require_owner(txn.store)
            _policy(txn, into)

    def commit(
        self,
        job: str,
        application: str,
        version: int,
        segments: Sequence[UploadedSegment],
        *,
        seal: bool,
        writer: str = "",
    ) -> Written:
        """Make all segments of the job, exactly once per application and version. Idempotent.

        Raises AlreadyExists for a name that is taken, InvalidRequest, Unavailable for an object that is missing,
        DataLoss for one that differs, Conflict for a job that was abandoned, Fenced, StorageFull, and storage
        errors; then nothing is committed, and the same call may succeed later.
        """
        batches.check(application, version)
        if len(segments) > MAX_SEGMENTS:
            raise InvalidRequest(
                f"one write of {len(segments)} segments",
                remedy=f"write at most {MAX_SEGMENTS}: repartition or coalesce",
            )
        if self._is_committed(application, version, segments, writer):
            self.abort(job)
            return self._repeated()
        record = BatchRecord(application=application, batch=str(version), job=job, writer=writer)
        try:
            with self._metadata.read() as txn:  # of a job that was given up, the objects are gone or in another place
                require_job(txn, job)
            listed = self._listed(job)
            return self._commit(record, verified(segments, listed), listed, seal=seal)
        except GivenUp:
            if self._is_committed(application, version, ()):
                return self._repeated()  # another process committed the same job
            raise

    def _commit(
        self,
        record: BatchRecord,
        uploaded: Sequence[UploadedSegment],
        listed: Mapping[str, StoredObject],
        *,
        seal: bool,
    ) -> Written:
        with self._metadata.write() as txn:
            require_job(txn, record.job)
            # Reserved: the manifest names the segments before they are made.
            record = replace(record, segment_ids=tuple(txn.allocate_id() for _ in uploaded))
            store = txn.store
        now_ms = self._metadata.clock.now_ms()
        used = {item.name for segment in uploaded for item in segment.objects}
        manifest: list[str] = []
        if used:
            manifest = put_manifest(self._storage, store, record, uploaded, seal=seal, now_ms=now_ms)
        with self._metadata.write() as txn:
            made = batch_commit.commit(txn, record, uploaded, self._location_id, seal=seal)
            self._add_garbage(txn, [stored for stored in listed.values() if not made or stored.name not in used])
            if not made:
                self._add_garbage(txn, [StoredObject(name, 0, "") for name in manifest])
            elif not used:  # no object of the job takes its marker along; it stays while it is needed
                self._add_garbage(txn, [StoredObject(batch_markers.marker_name(record, store.store_epoch), 0, "")])
        if not made:
            return self._repeated()
        with self._metadata.read() as view:
            sequence = view.store.next_outbox - 1
        return Written(len(uploaded), sum(segment.length for segment in uploaded), sequence=sequence)

    def repeated(self, application: str, version: int) -> Written | None:
        """Return the result of a version that was committed before; None for any other."""
        batches.check(application, version)
        return self._repeated() if self._is_committed(application, version, ()) else None

    def abort(self, job: str) -> int:
        """Make the objects of a job garbage; return their number, 0 for a job that was committed or abandoned."""
        with self._metadata.write() as txn:
            if not txn.delete(INTENTS.name, job.encode()):
                return 0
        return self._discard(job)

    def _discard(self, job: str) -> int:
        """Make all objects of a job without an intent garbage: it cannot commit. `gc` finds later uploads."""
        stored = list(self._listed(job).values())
        for first in range(0, len(stored), _GARBAGE_PER_COMMIT):
            with self._metadata.write() as txn:
                self._add_garbage(txn, stored[first : first + _GARBAGE_PER_COMMIT])
        return len(stored)

    def _repeated(self) -> Written:
        with self._metadata.read() as txn:
            return Written(repeated=True, sequence=txn.store.next_outbox - 1)

    def _is_committed(
        self, application: str, version: int, segments: Sequence[UploadedSegment], writer: str = ""
    ) -> bool:
        """Return whether a version was committed; if not, raise for names that cannot be made."""
        with self._metadata.read() as txn:
            done = batches.is_committed(txn, application, version, writer)
            if not done:
                batch_commit.check_names(txn, segments)
        return done

    def _listed(self, job: str) -> dict[str, StoredObject]:
        return {stored.name: stored for stored in self._storage.list(job_prefix(job))}

    def _add_garbage(self, txn: WriteTransaction, objects: Iterable[StoredObject]) -> None:
        for stored in objects:
            if object_names.is_ours(stored.name):
                chains.discard(txn, self._location_id, stored.name, stored.length_bytes)


def verified(segments: Sequence[UploadedSegment], listed: Mapping[str, StoredObject]) -> list[UploadedSegment]:
    """Return the segments with the etags of a listing.

    Raises Unavailable for an object that is missing, DataLoss for one that differs from the upload.
    """
    return [replace(made, objects=tuple(_checked(item, listed) for item in made.objects)) for made in segments]


def _checked(uploaded: UploadedObject, listed: Mapping[str, StoredObject]) -> UploadedObject:
    name, stored = uploaded.name, listed.get(uploaded.name)
    if stored is None:
        raise Unavailable(f"{name} was uploaded, but is missing in the bucket", remedy="run the job again")
    size_bytes, blocks = uploaded.stored_bytes, -(-uploaded.length // CRC_BLOCK_BYTES)
    if stored.length_bytes != size_bytes or not len(uploaded.crcs) == len(_block_lengths(uploaded)) == 4 * blocks:
        raise DataLoss(f"{name} has {stored.length_bytes} of {size_bytes} bytes", remedy="run the job again")
    return replace(uploaded, etag=stored.etag)


def _block_lengths(uploaded: UploadedObject) -> bytes:
    """Return the stored lengths of the frames; of a plain object, as many bytes as its checksums are."""
    return uploaded.crcs if uploaded.frames is None else uploaded.frames.lengths


def _policy(txn: ReadTransaction, into: str) -> Policy:
    """Return the policy below a directory. Raises NotDirectory, or InvalidRequest if cold bytes are not read there."""
    held = policies.of_directory(txn, _nearest_directory(txn, into))
    priority, where = held.read_priority(), printable(into) or "/"
    if priority.value is ReadPriority.LOCAL_ONLY:
        by_setting = priority.origin.set_by is SetBy.SETTING
        raise InvalidRequest(
            f"{where} is read only from the local disk ({priority.origin}), but a distributed write is cold",
            remedy="change that setting" if by_setting else f"tierfs config {where} read_priority=local-first",
        )
    return held.values


def _nearest_directory(txn: ReadTransaction, path: str) -> DirectoryId:
    """Return the directory of a path, or its nearest existing ancestor. Raises NotDirectory."""
    parts = split(path)
    for depth in range(len(parts), 0, -1):
        entry = directories.find(txn, join(parts[:depth]))
        if entry is not None and entry.kind is EntryKind.SEGMENT:
            raise NotDirectory(f"{printable(path)} is a segment, so nothing can be written below it")
        if entry is not None:
            return DirectoryId(entry.id)
    return ROOT_DIRECTORY
