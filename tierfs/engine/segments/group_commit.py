"""Group commit: concurrent appenders share writes, file syncs and one LMDB commit.

The first to arrive leads: it takes all calls that are queued, has each segment's writer put its calls into one write
and one change, syncs the files side by side, commits once, and wakes the others. Calls that arrive during that form
the next group, and one of their callers is woken to lead it. Order inside a segment is queue order. Signals are
deferred until a call has its result: a Ctrl-C in the leader's thread must not decide over the others' appends.

A leader waits for the callers of the group before, as long as one after the other comes back: they were woken a moment
ago, and a group without them costs as many syncs.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from tierfs.base.bytes.parallel import Pool
from tierfs.base.system import guards
from tierfs.base.system.deadlines import Deadline
from tierfs.base.words.errors import Conflict, NotFound, TierfsError
from tierfs.base.words.types import ByteRange
from tierfs.engine.metadata.append_keys import AppendKey
from tierfs.engine.metadata.followed_range import FollowedRange
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.segments.active_chunk import ActiveChunk, ChunkDescriptors, ChunkEnded
from tierfs.engine.segments.ownership import StaleBase
from tierfs.engine.segments.unsure_files import UnsureFiles

log = logging.getLogger(__name__)

# Files synced at once. Measured on ext4 with 32 files: 7.2 ms one by one, 4.2 with 4, 3.3 with 8, 2.8 with 32.
_SYNC_THREADS = 8

# Bytes of a group from which its writes are worth a thread for each segment: a guess, some 0.3 ms of copying.
_LARGE_BYTES = 1024 * 1024

# Longest pause between two callers on their way back: some ten times what a thread takes to be woken and to queue.
_RETURN_S = 0.0002


_NO_BYTES = ByteRange(0, 0)


class AppendCall:
    """One append of one caller. `data` stays the caller's until the call is settled."""

    __slots__ = (
        "_woken",
        "appender",
        "data",
        "deadline",
        "entries",
        "error",
        "expected_offset",
        "first_entry_id",
        "followed",
        "is_settled",
        "key",
        "last",
        "leads",
        "range",
        "seal",
        "unnamed",
    )

    def __init__(
        self,
        appender: Appender,
        data: memoryview,
        entries: Sequence[int] = (),
        expected_offset: int | None = None,
        *,
        last: bool = False,
        seal: bool = False,
        key: AppendKey | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        """Keep the append; `entries` are the lengths of the ledger entries that make up the bytes."""
        self.appender = appender
        self.data = data
        self.entries = entries
        self.expected_offset = expected_offset
        self.last = last
        self.seal = seal
        self.key = key
        self.followed: FollowedRange | None = None
        self.range = _NO_BYTES
        """Bytes of the segment, set when they are written."""
        self.first_entry_id = 0
        """Id of the first entry, set by the commit."""
        self.error: BaseException | None = None
        self.is_settled = False
        self.leads = False
        """Whether the caller is to lead the next group."""
        self.deadline = deadline
        """By which it ends, where it waits for a server; None: the one that GroupCommit.deadline gives it."""
        self.unnamed: PendingCommit | None = None
        """Its committed change, whose publication the caller has to see to itself."""
        self._woken = threading.Lock()  # half the price of an Event
        self._woken.acquire()

    def wake(self) -> None:
        """Let the caller go on: the call is settled, or leads."""
        self._woken.release()

    def wait(self, timeout_s: float = -1) -> bool:
        """Wait for one `wake`; False when none came in time."""
        return self._woken.acquire(timeout=timeout_s)


class PendingCommit(ABC):
    """The change of one appender in a group: all its calls together. Subclasses define the change."""

    def __init__(
        self, calls: Sequence[AppendCall], chunks: Sequence[ActiveChunk], begun: Sequence[ActiveChunk]
    ) -> None:
        """Keep the calls and the chunks that they were written to; those of `begun` have new files."""
        self.calls = calls
        self.chunks = tuple(chunks)
        self.begun = tuple(begun)
        self.error: BaseException | None = None
        self.is_unsure = False
        """Whether the change may have happened in spite of its error."""
        self.sequence = 0
        """Last change for the journal that was queued by the end of the commit; set where the journal is waited for."""

    @abstractmethod
    def apply(self, txn: WriteTransaction) -> None:
        """Change the records. Raises StaleBase, Conflict or NotFound before the first change, or not at all.

        Anything else it raises undoes the whole group.
        """


class Appender(Protocol):
    """Makes one change of calls; used by the leader's thread only, for one group at a time."""

    def gather(self, calls: Sequence[AppendCall]) -> tuple[PendingCommit | None, Sequence[AppendCall]]:
        """Write the bytes of calls, in their order; return their change, and the calls that the next group takes.

        A call that cannot be taken gets its error. An error that is raised is that of all calls without one; none of
        their bytes are written then.
        """
        ...

    def settle(self, pending: PendingCommit) -> None:
        """Follow the change: it is durable, or has an error and, unless `is_unsure`, nothing of it is committed.

        Raises nothing.
        """
        ...


# A chunk file, and the change that it was written for.
File = tuple[PendingCommit, ActiveChunk]


class GroupCommit:
    """Of one engine. Thread-safe; close it to end its threads.

    A subclass may store the bytes elsewhere too, before the commit or after it (tiering/packs/append_pool.py).
    """

    large_bytes = _LARGE_BYTES
    """Bytes of a group from which segments are written and synced side by side."""
    waits_for_servers = False
    """Whether its appends have a deadline."""

    def __init__(self, metadata: MetadataStore, descriptors: ChunkDescriptors) -> None:
        """Start without threads: the first group of several files starts them."""
        self.metadata = metadata
        self.descriptors = descriptors
        self._unsure = UnsureFiles(metadata, descriptors.files)
        self._queue: list[AppendCall] = []
        self._queue_lock = threading.Lock()
        self._has_leader = False
        self._expected = 1
        """Calls of the next group if all known callers come back."""
        self._queued_bytes = 0
        self._awaited = 0
        """Queued calls that the leader waits for; 0 when it does not wait."""
        self._enough = threading.Lock()
        """Released once for a leader that waits, by the call that completes its group."""
        self._enough.acquire()
        self._pool: Pool | None = None

    def close(self) -> None:
        """End the threads; idempotent. No call may be on its way."""
        try:
            self._unsure.settle()
        except TierfsError as exc:
            log.info("chunk files of failed appends are kept for the store's holder: %s", exc)
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def submit(self, call: AppendCall) -> None:
        """Queue a call, and wait until it is durable. Raises its error, with nothing changed."""
        with guards.deferred():  # the error comes before Ctrl-C: it may say that the bytes are there all the same
            self._submit([call])
            if call.error is not None:
                raise call.error

    def confirm(self, name: str, added: ByteRange) -> None:
        """Return once an append that is committed may be acknowledged again. A subclass may wait for more than that."""

    def submit_all(self, calls: Sequence[AppendCall]) -> None:
        """Queue calls of one thread, and wait until each is durable or has its error."""
        with guards.deferred():
            self._submit(calls)

    def _submit(self, calls: Sequence[AppendCall]) -> None:
        if calls:
            calls[0].leads = self._enqueue(calls)
        for call in calls:  # in the order of the queue, so none behind this one is asked to lead before it ends
            while not call.is_settled:
                if call.leads:
                    call.leads = False
                    self._lead()
                else:
                    self._wait(call)
            if call.unnamed is not None:
                self._complete(call)

    def _wait(self, call: AppendCall) -> None:
        """Wait until a call is settled or leads. A subclass may end it before: it is settled then."""
        call.wait()

    def _complete(self, call: AppendCall) -> None:
        """Have the change of a call that is settled named by the journal; in its caller's thread."""

    def deadline(self) -> Deadline | None:
        """Return the deadline of an append that begins now; None where it waits for no server."""
        return None

    def _enqueue(self, calls: Sequence[AppendCall]) -> bool:
        """Queue calls; return whether their caller is to lead."""
        with self._queue_lock:
            self._queue.extend(calls)
            for call in calls:
                self._queued_bytes += len(call.data)
            if self._awaited and self._is_complete():
                self._awaited = 0
                self._enough.release()
            leads, self._has_leader = not self._has_leader, True
            return leads

    def _lead(self) -> None:
        """Commit one group, settle its calls, and pass the lead on."""
        calls: list[AppendCall] = []
        group: list[PendingCommit] = []
        later: list[AppendCall] = []
        failed = False
        try:
            self._await_returning()
            with self._queue_lock:
                calls = self._take()
            self._unsure.require_room()
            later += self._prepare(calls, group)
            self._commit([pending for pending in group if pending.error is None])
        except BaseException as exc:
            failed = True
            later.clear()
            _fail(group, calls, exc if isinstance(exc, Exception) else StaleBase("the leader of the group exited"))
            if not isinstance(exc, Exception):
                raise
        finally:
            for pending in group:
                _settle(pending)
            if failed:
                later += self._again(calls)
            self._pass_on(later, len(calls))
            self._answer(group, calls, later)

    def _again(self, calls: Sequence[AppendCall]) -> list[AppendCall]:
        """Return the calls of a group that failed and that the next group tries again, without their errors."""
        return []

    def _take(self) -> list[AppendCall]:
        """Take the calls of a group from the queue. Called with the queue's lock."""
        calls, self._queue, self._queued_bytes = self._queue, [], 0
        return calls

    def _is_complete(self) -> bool:
        """Return whether a leader that waits for calls has enough. Called with the queue's lock."""
        return len(self._queue) >= self._awaited

    def _await_returning(self) -> None:
        """Wait for the callers of the group before, while they keep coming."""
        with self._queue_lock:
            arrived = len(self._queue)
            self._awaited = self._expected if arrived < self._expected else 0
        while self._awaited:
            if self._enough.acquire(timeout=_RETURN_S):
                return
            with self._queue_lock:
                if len(self._queue) == arrived:
                    self._awaited = 0
                arrived = len(self._queue)
        self._enough.acquire(blocking=False)  # completed in the moment in which the wait ended

    def _prepare(self, calls: Sequence[AppendCall], group: list[PendingCommit]) -> list[AppendCall]:
        """Have each appender write its calls, and sync the files; return the calls that wait for the next group.

        The changes are added to `group`. Small writes are quicker one after the other, as they hardly leave the
        interpreter; large ones are made side by side, each followed by its sync.
        """
        of_appenders: dict[int, list[AppendCall]] = {}
        for call in calls:
            of_appenders.setdefault(id(call.appender), []).append(call)
        later: list[AppendCall] = []

        def gather(part: Sequence[AppendCall]) -> PendingCommit | None:
            try:
                pending, rest = part[0].appender.gather(part)
            except Exception as exc:
                for call in part:
                    call.error = call.error or exc
                return None
            later.extend(rest)
            if pending is not None:
                group.append(pending)
            return pending

        def write_and_sync(part: Sequence[AppendCall]) -> None:
            pending = gather(part)
            if pending is not None:
                self._sync_files([(pending, chunk) for chunk in pending.chunks])

        parts = list(of_appenders.values())
        if len(parts) > 1 and sum(len(call.data) for call in calls) >= self.large_bytes:
            self._threads().run(write_and_sync, parts)
        else:
            for part in parts:
                gather(part)
            self._sync(group)
        return later

    def _pass_on(self, later: Sequence[AppendCall], settled: int) -> None:
        """Let the first caller in the queue lead the next group."""
        with self._queue_lock:
            self._queue[:0] = later
            for call in later:
                self._queued_bytes += len(call.data)
            self._expected = settled - len(later) + len(self._queue)
            self._has_leader = bool(self._queue)
            if self._queue:
                self._queue[0].leads = True
                self._queue[0].wake()

    def _answer(self, group: Sequence[PendingCommit], calls: Sequence[AppendCall], later: Sequence[AppendCall]) -> None:
        """Let the callers of a group go on, but for those of `later`. The next group is on its way meanwhile.

        Raises nothing. A subclass may wait for more than the commit first, and give a call the error of that.
        """
        waiting = set(map(id, later))
        for call in calls:
            if id(call) not in waiting:
                call.is_settled = True
                call.wake()

    def _sync(self, group: Sequence[PendingCommit]) -> None:
        """Sync the files side by side. A change whose file cannot be synced fails alone."""
        files = [(pending, chunk) for pending in group for chunk in pending.chunks]
        if len(files) <= 1:
            self._sync_files(files)
        else:
            self._threads().run(self._sync_files, shares_of(files))

    def _threads(self) -> Pool:
        if self._pool is None:
            self._pool = Pool(_SYNC_THREADS, "tierfs-sync")
        return self._pool

    def _sync_files(self, files: Sequence[File]) -> None:
        for pending, chunk in files:
            try:
                self.descriptors.sync(chunk)
            except TierfsError as exc:
                pending.error = StaleBase(str(exc)) if isinstance(exc, ChunkEnded) else exc

    def _commit(self, group: Sequence[PendingCommit]) -> None:
        if not group:
            return
        applied: list[PendingCommit] = []
        try:
            with self.metadata.write() as txn:
                for pending in group:
                    try:
                        pending.apply(txn)
                    except (StaleBase, Conflict, NotFound) as exc:
                        pending.error = exc
                changed = [pending for pending in group if pending.error is None]
                self._link(txn, changed)
                unnamed = self._unsure.unnamed(txn)
                applied = changed  # from here on it may happen
        except BaseException:
            for pending in applied:
                pending.is_unsure = True
                self._unsure.add(pending.begun)
            raise
        if applied:  # else nothing was written, and nothing is decided
            self._unsure.decided(unnamed)

    def _link(self, txn: WriteTransaction, changed: Sequence[PendingCommit]) -> None:
        """Change more records in the transaction of a group. An error undoes the group."""


def shares_of(files: Sequence[File]) -> list[Sequence[File]]:
    """Return the files of a group in parts, one for each thread that syncs."""
    return [files[at::_SYNC_THREADS] for at in range(min(len(files), _SYNC_THREADS))]


def _fail(group: Sequence[PendingCommit], calls: Sequence[AppendCall], error: Exception) -> None:
    """Give the error to all that have none."""
    for pending in group:
        pending.error = pending.error or error
    for call in calls:
        call.error = call.error or error


def _settle(pending: PendingCommit) -> None:
    for call in pending.calls:
        call.error = pending.error
    try:
        pending.calls[0].appender.settle(pending)
    except Exception:  # the callers have to be woken all the same
        log.exception("after a commit")
