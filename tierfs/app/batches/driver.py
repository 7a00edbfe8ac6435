"""Distributed writes: executors upload, the driver commits all segments at once. Part of the composition root.

    job = begin(store, "nightly", "tables/orders")          # driver
    with job.task(partition) as task:                       # executors, which have no store
        task.open("part-00000").write(data)
        uploaded = task.finish()
    commit(store, job, uploaded_of_all_tasks, version=812)  # driver; exactly once per application and version

`begin`, `commit` and `abort` may run in different processes: a job is all that passes between them, and all
that an executor needs: picklable, and no store.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from time import sleep

from tierfs.app import verbs
from tierfs.app.batches.executor import Acknowledge, WriteJob
from tierfs.app.batches.job import BatchJobs, Written
from tierfs.app.store import Store
from tierfs.base.system import deadlines
from tierfs.base.system.deadlines import Deadline
from tierfs.base.words import names
from tierfs.base.words.errors import Fenced, InvalidRequest, TierfsError, Unavailable, no_cold_tier
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.metadata import batches, store_ownership
from tierfs.engine.metadata.batch_records import UploadedSegment
from tierfs.upkeep.holder.lock import HeldElsewhere
from tierfs.upkeep.holder.perform import holding

log = logging.getLogger(__name__)
_WHAT = "a distributed write"

# Time of the try to publish a commit that needs no bucket: a far server answers in a second. A guess.
_TRY_S = 5.0

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
_REPEATABLE = "repeat the write: it is committed on this disk, only the journal is missing"

_NAMELESS = (
    "it is committed on this disk, and the store's holder publishes it: repeating a write without txnAppId writes "
    "its rows twice"
)


def begin(
    store: Store, application: str | None, into: str, *, version: int | None = None, seal: bool = True
) -> WriteJob:
    """Begin a write of segments below directory `into`, which need not exist.

    Without an application the write is one of its own: commit it as version 0. Raises what makes the commit impossible,
    as far as it is known: NoColdTier, Fenced in a replica or in a store that another one superseded, NotDirectory,
    InvalidRequest, and Conflict for a version that is too old to tell.
    """
    canonical = names.join(names.split(into))
    with _deadline(store).in_force():
        require_possible(store, application, into, version)
        plan = _jobs(store).begin(canonical)
    location = store.cold_location
    assert location is not None
    application = batches.of_job(plan.job) if application is None else application
    place = Place(replace(location, stored=b""), store.path, store.settings.cold)
    return WriteJob(application, seal, plan, place, canonical)


def require_possible(store: Store, application: str | None, into: str, version: int | None = None) -> None:
    """Raise as `begin` would, and note nothing: to refuse a write before its job is needed."""
    if application is not None:
        batches.check(application, 0)
    if application is not None and version is not None:
        is_committed(store, application, version)  # raises for one that is too old to tell
    with _deadline(store).in_force():
        _require_owner(store)
    _jobs(store).require_possible(names.join(names.split(into)))


def commit(
    store: Store,
    job: WriteJob,
    uploaded: Sequence[UploadedSegment],
    version: int,
    *,
    acknowledge: Acknowledge = Acknowledge.JOURNAL,
    writer: str = "",
) -> Written:
    """Make all segments of a write in one commit, and wait until the journal names them; see BatchJobs.commit.

    `writer`: the stream that repeats its last version; another one's is refused (Conflict).

    A version that was committed before is success once the journal names it: nothing is changed, and the job's objects
    become garbage. Raises Unavailable when the journal cannot be written within `ack.deadline_s` of the call: the same
    call, or the same write again, then waits for the journal and writes nothing twice. Raises Fenced when another store
    turns out to own the bucket.
    """
    below = f"{job.into}/" if job.into else ""
    astray = next((upload.segment for upload in uploaded if not upload.segment.startswith(below)), None)
    if astray is not None:
        raise InvalidRequest(f"segment {names.printable(astray)} is not below {names.printable(job.into)}")
    with _deadline(store).in_force():
        done = _jobs(store).commit(job.id, job.application, version, uploaded, seal=job.seal, writer=writer)
        return _acknowledged(store, done, job.application, version, acknowledge)


def repeated(
    store: Store, application: str, version: int, *, acknowledge: Acknowledge = Acknowledge.JOURNAL
) -> Written | None:
    """Return the result of a version that was committed before; None for any other. Waits and raises as `commit`."""
    done = _jobs(store).repeated(application, version)
    with _deadline(store).in_force():
        return None if done is None else _acknowledged(store, done, application, version, acknowledge)


def abort(store: Store, job: WriteJob) -> int:
    """Make what a write uploaded garbage; return how many objects. Nothing after a commit, or another abort."""
    return _jobs(store).abort(job.id)


def is_committed(store: Store, application: str, version: int) -> bool:
    """Return whether a version of an application was committed."""
    batches.check(application, version)
    with store.metadata.read() as txn:
        return batches.is_committed(txn, application, version)


def _deadline(store: Store) -> Deadline:
    return Deadline.after(store.settings.ack.deadline_s, "ack.deadline_s")


def _jobs(store: Store) -> BatchJobs:
    location = store.cold_location
    if location is None:
        raise no_cold_tier(_WHAT)
    _, cold = store.cold_tier(location)
    return BatchJobs(store.metadata, cold)


def _require_owner(store: Store) -> None:
    """Confirm at the bucket that it is ours, unless there is a holder, which does that itself."""
    with store.metadata.read() as txn:
        store_ownership.require_owner(txn.store)
    try:
        with holding(store, _WHAT) as work:
            work.publisher.require_ownership()
    except HeldElsewhere as exc:
        log.debug("%s", exc)


def _acknowledged(store: Store, done: Written, application: str, version: int, acknowledge: Acknowledge) -> Written:
    what, remedy = f"version {version} of {names.printable(application)}", _REPEATABLE
    if batches.is_of_job(application):
        what, remedy = "the write", _NAMELESS
    if acknowledge is Acknowledge.LOCAL:
        published = _try_to_publish(store, done.sequence, what)
    else:
        _wait_for_journal(store, done.sequence, what, remedy)
        published = True
    return replace(done, published=published)


def _try_to_publish(store: Store, sequence: int, what: str) -> bool:
    try:
        with Deadline.after(_TRY_S, "a try").in_force():
            failed = verbs.settle(store)
    except Fenced:
        raise
    except TierfsError as exc:
        failed = exc
    if failed is not None:
        log.warning("%s is committed, but not yet in the bucket's journal: %s", what, failed)
    return _is_published(store, sequence)


def _wait_for_journal(store: Store, sequence: int, what: str, remedy: str) -> None:
    """Wait until the holder or this process has published a commit. Raises Unavailable when the time is over."""
    pause_s = _FIRST_PAUSE_S
    while True:
        failed: TierfsError | None = None
        if not _is_published(store, sequence):
            failed = verbs.settle(store)
        with store.metadata.read() as txn:
            store_ownership.require_owner(txn.store)
        if _is_published(store, sequence):
            return
        if deadlines.within(pause_s) < pause_s:
            raise Unavailable(
                f"{what} is not in the bucket's journal yet: {failed or 'the holder has not published it'}",
                remedy=remedy,
            ) from failed
        sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _is_published(store: Store, sequence: int) -> bool:
    with store.metadata.read() as txn:
        return txn.store.journal.published_sequence >= sequence
