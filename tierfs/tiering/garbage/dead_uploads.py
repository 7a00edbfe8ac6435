"""Dead uploads: begun in the bucket, older than the grace period, and never to be finished.

An unfinished multipart upload is in no listing of objects and yet paid for. Objects that a distributed writer put below
`uploads/<job>/` are dead when no record names them, and nothing was added to the job for as long, or, while the job has
an intent, for JOB_REST_MS. Manifest and marker live with the objects of their job; the marker of an application's last
commit stays. The bucket is listed first and the records are
read afterwards, as for orphans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import object_names
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.object_names import is_about_job
from tierfs.base.words.types import LocationId
from tierfs.engine.chunkstore.protocol import ChunkStorage, PendingUpload, StoredObject, Uploads
from tierfs.engine.journal import batch_markers
from tierfs.engine.journal.names import JOURNAL_PREFIX
from tierfs.engine.metadata import chains
from tierfs.engine.metadata.entries_object import ENTRIES_PREFIX
from tierfs.engine.metadata.records import IntentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import INTENTS, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.tiering import objects
from tierfs.tiering.garbage.collect import Collected
from tierfs.tiering.garbage.orphans import SEGMENTS_PREFIX
from tierfs.tiering.ledgers.owners import attempts, uuid_of
from tierfs.tiering.objects import JOB_REST_MS, JOBS_PREFIX, job_of, jobs
from tierfs.tiering.packs import format as packs
from tierfs.tiering.packs.format import PACKS_PREFIX

# Prefixes of this store's objects besides segments/ and packs/; .tmp/ is where a directory keeps temporary files.
_OURS = (JOURNAL_PREFIX, JOBS_PREFIX, ENTRIES_PREFIX, "probe/", ".tmp/")


@dataclass(frozen=True, slots=True)
class DeadUpload:
    """An upload to abort; without an id an object of a job to delete, or a job to end, whose name ends with a slash."""

    name: str
    upload_id: str
    started_ms: int
    length: int = 0


class DeadUploads:
    """Finds and aborts them in one store's cold location, or its archive place, which has no jobs."""

    def __init__(self, metadata: MetadataStore, storage: ChunkStorage, location_id: LocationId) -> None:
        self._metadata = metadata
        self._storage = storage
        self._location_id = location_id

    def find(self, *, grace_ms: int) -> list[DeadUpload]:
        """Return those begun `grace_ms` ago or earlier, by the server's clock; only what this store made.

        A dead job precedes what it left, so that it cannot be committed any more when that goes.
        """
        before_ms = self._metadata.clock.now_ms() - grace_ms
        under_way = list(self._storage.uploads("")) if isinstance(self._storage, Uploads) else []
        written, newest = self._jobs(before_ms)
        for upload in under_way:
            newest[job_of(upload.name)] = max(newest.get(job_of(upload.name), 0), upload.started_ms)
        pending = [upload for upload in under_way if upload.started_ms <= before_ms]
        with self._metadata.read() as txn:
            epoch = txn.store.store_epoch
            ours = attempts(txn) if any(uuid_of(upload.name) for upload in pending) else set()
            alive = self._alive(txn, newest)
            dead = [intent for name, intent in jobs(txn).items() if name not in alive]
            dead += self._of_dead_appenders(txn)
        pending = [upload for upload in pending if _is_ours(upload, epoch) or uuid_of(upload.name) in ours]
        ended = [DeadUpload(intent.name, "", intent.created_ms) for intent in dead]
        unowned = [stored for stored in written if job_of(stored.name) not in alive]
        return [*ended, *self._without_intent(pending, alive), *self._without_record(unowned)]

    def find_pending(self, *, grace_ms: int) -> list[DeadUpload]:
        """Return those among the uploads alone: jobs are in the cold location."""
        before_ms = self._metadata.clock.now_ms() - grace_ms
        under_way = list(self._storage.uploads("")) if isinstance(self._storage, Uploads) else []
        with self._metadata.read() as txn:
            epoch = txn.store.store_epoch
        old = (upload for upload in under_way if upload.started_ms <= before_ms)
        return list(self._without_intent([upload for upload in old if _is_ours(upload, epoch)], set()))

    def abort(self, dead: Iterable[DeadUpload]) -> Collected:
        """Abort uploads, and make objects of dead jobs garbage that is due now. Idempotent; returns the failures."""
        done, committed = Collected(), set[str]()
        for upload in dead:
            if upload.name.endswith("/"):
                if not self._end_job(upload.name):
                    committed.add(upload.name)
                continue
            if job_of(upload.name) in committed:
                continue
            with self._metadata.write() as txn:
                if not upload.upload_id and not self._give_up(txn, upload.name):
                    chains.discard(txn, self._location_id, upload.name, upload.length)
            try:
                if upload.upload_id and isinstance(self._storage, Uploads):
                    self._storage.abort_upload(PendingUpload(upload.name, upload.upload_id, upload.started_ms))
            except TierfsError as exc:
                done = done.plus(Collected.failure(upload.name, exc))
            else:
                done = done.plus(Collected(aborted=1))
        return done

    def _end_job(self, name: str) -> bool:
        """Let a job commit no more; False when it was committed, or given up, since it was found dead."""
        with self._metadata.write() as txn:
            intent = jobs(txn).get(name)
            return intent is not None and txn.delete(INTENTS.name, intent.attempt.encode())

    def _of_dead_appenders(self, txn: ReadTransaction) -> list[IntentRecord]:
        """Return the intents of packs that nobody makes any more.

        A process that appends with ack=cold makes packs of its own, and may be killed beside a holder that lives on.
        One that is alive after so long, and finds its intent gone, makes its pack again (tiering/objects.py).
        """
        before_ms = self._metadata.clock.now_ms() - JOB_REST_MS
        packed = (intent for _, intent in txn.scan(INTENTS) if intent.name.startswith(PACKS_PREFIX))
        return [intent for intent in packed if intent.created_ms <= before_ms]

    def _give_up(self, txn: WriteTransaction, name: str) -> bool:
        """Drop the intent of a pack, whose object becomes garbage; return whether there was one."""
        intent = next((intent for _, intent in txn.scan(INTENTS) if intent.name == name), None)
        if intent is not None:
            objects.discard(txn, intent)
        return intent is not None

    def _alive(self, txn: ReadTransaction, newest: Mapping[str, int]) -> set[str]:
        """Return the jobs with an intent that began, or to which something was added, in the last JOB_REST_MS."""
        before_ms = self._metadata.clock.now_ms() - JOB_REST_MS
        return {name for name, job in jobs(txn).items() if max(job.created_ms, newest.get(name, 0)) > before_ms}

    def _jobs(self, before_ms: int) -> tuple[list[StoredObject], dict[str, int]]:
        """Return the objects of jobs without additions since `before_ms`, and the time of each job's last addition."""
        old: list[StoredObject] = []
        newest: dict[str, int] = {}
        for job, listed in groupby(self._storage.list(JOBS_PREFIX), key=lambda stored: job_of(stored.name)):
            objects = list(listed)
            newest[job] = max(stored.modified_ms for stored in objects)
            if job and newest[job] <= before_ms:
                old += objects
        return old, newest

    def _without_intent(self, pending: list[PendingUpload], alive_jobs: set[str]) -> Iterator[DeadUpload]:
        """Yield those without an intent: an upload of this store, or its job, has one as long as it may be finished."""
        with self._metadata.read() as txn:
            alive = {intent.name for _, intent in txn.scan(INTENTS)}
        for upload in pending:
            if upload.name not in alive and job_of(upload.name) not in alive_jobs:
                yield DeadUpload(upload.name, upload.upload_id, upload.started_ms)

    def _without_record(self, written: list[StoredObject]) -> Iterator[DeadUpload]:
        if not written:
            return
        names = {stored.name for stored in written}
        with self._metadata.read() as txn:
            named = {record.name for _, record in txn.scan(OBJECTS) if record.name in names}
            used = {job_of(name) for name in named}
            ours = (stored for stored in written if object_names.is_ours(stored.name))
            unused = [stored for stored in ours if stored.name not in named]
            dead = [stored for stored in unused if not self._tells(txn, stored.name, used)]
        for stored in dead:
            yield DeadUpload(stored.name, "", stored.modified_ms, stored.length_bytes)

    def _tells(self, txn: ReadTransaction, name: str, used: set[str]) -> bool:
        """Return whether an object tells of a job that a recovery from objects has to know."""
        if job_of(name) in used:
            return is_about_job(name)
        marker = batch_markers.parse_name(name)
        return marker is not None and batch_markers.is_needed(txn, marker)


def _is_ours(upload: PendingUpload, epoch: int) -> bool:
    """Return whether an upload is ours: below segments/ and packs/ its name tells an epoch, which is not newer."""
    if upload.name.startswith(PACKS_PREFIX):
        pack = packs.parse_name(upload.name)
        return pack is not None and pack.store_epoch <= epoch
    if upload.name.startswith(SEGMENTS_PREFIX):
        parsed = object_names.CHUNK.fullmatch(upload.name)
        return parsed is not None and int(parsed["epoch"]) <= epoch
    return upload.name.startswith(_OURS)
