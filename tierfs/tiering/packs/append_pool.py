"""Append pool: appends that are acknowledged once they are an object of the bucket and its journal names them.

RocketMQ's tiered store gathers small commits of many queues in a pool of buffers and uploads them as one object
(RocketMQ issue 6154, "Upload Buffer Pooling"). Here a group of appends is a pool: all that arrive while the one before
is sent, until `ack.pool_bytes` of them wait or the first has waited `ack.delay_s`.

An append ends by its deadline, `ack.deadline_s` after its call, wherever it is then (system/deadlines.py). Before its
commit it fails with nothing in the segment; a pack that arrives later is garbage, as its intent was given up. Behind
its commit it is unconfirmed, and the journal gets it from whoever publishes next. What its server still does goes on
in a thread that nobody waits for. Those of a pool whose deadlines are later are sent again with the next one.

Crash order: intent committed -> pack created, while the local files are synced -> one commit that grows the segments,
links their bytes to the pack and queues the change for the journal -> journal entry -> acknowledged. Until that commit
nothing of the appends is in the segments, and a crash leaves an intent. After it the bytes are in the segments without
being acknowledged: the entry is written by this process, or by the next one that publishes, and no append doubles them
if it is repeated at the offset it expected.

The local files are synced too, so that local records tell the truth after a power loss as for any other append: it is
done while the pack is on its way, and takes less time (docs/design/0050).
"""

from __future__ import annotations

import enum
import logging
import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing

from tierfs.base.options.config import AckSettings
from tierfs.base.system import deadlines, guards
from tierfs.base.system.deadlines import Deadline, Monotonic
from tierfs.base.words.errors import Conflict, Fenced, TierfsError, Unavailable, unexpected
from tierfs.base.words.types import MAX_PACK_ENTRIES, ByteRange
from tierfs.engine.chunkstore.protocol import StoredObject
from tierfs.engine.journal import publish
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.segments.active_chunk import ChunkDescriptors
from tierfs.engine.segments.append import PendingAppend
from tierfs.engine.segments.group_commit import AppendCall, GroupCommit, PendingCommit, shares_of
from tierfs.engine.segments.ownership import StaleBase
from tierfs.tiering import objects
from tierfs.tiering.objects import ColdTier
from tierfs.tiering.packs import append_ends
from tierfs.tiering.packs.pool_recipe import PoolRecipe, policy_of

log = logging.getLogger(__name__)

# First and longest pause before the journal is tried again. Requests to the storage have their own retries.
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


class _Wait(enum.Enum):
    """What a leader waits for before others come back."""

    AGE = enum.auto()
    ANSWERS = enum.auto()


class AppendPool(GroupCommit):
    """Group commit of the appends with `ack = cold` of one engine. Thread-safe; close it to end its threads."""

    large_bytes = sys.maxsize  # the files are synced beside the upload
    waits_for_servers = True

    def __init__(
        self,
        metadata: MetadataStore,
        descriptors: ChunkDescriptors,
        settings: AckSettings,
        connect: Callable[[], tuple[Publisher, ColdTier]],
        *,
        clock: Monotonic | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`connect` returns the cold tier as it is placed now; it raises NoColdTier. `clock` is that of deadlines."""
        super().__init__(metadata, descriptors)
        self._clock = clock
        self._sleep = sleep
        self.settings = settings
        """Read anew for each append and each pool."""
        self._connect = connect
        self._place: tuple[Publisher, ColdTier] | None = None
        self._sent_s = -math.inf
        """Time at which the last pool was taken from the queue."""
        self._unanswered = 0
        """Calls of pools that are committed while the journal does not name them yet."""
        self._waits_for: _Wait | None = None
        """What the leader waits for, besides a full pool."""
        self._recipe: PoolRecipe | None = None
        """The recipe whose pack the commit under way links."""

    def deadline(self) -> Deadline:
        """Return the one in force, or that of an append of now; see GroupCommit."""
        seconds = self.settings.deadline_s
        return deadlines.current() or Deadline.after(seconds, "ack.deadline_s", self._clock)

    def _enqueue(self, calls: Sequence[AppendCall]) -> bool:
        for call in calls:
            call.deadline = call.deadline or self.deadline()
        return super()._enqueue(calls)

    def _lead(self) -> None:
        """Lead a group, in the time of all of its appends; see GroupCommit."""
        with self._queue_lock:
            until = append_ends.deadline_of(*self._queue)
        with until.in_force(for_others=True):  # also what the writers of its segments ask
            super()._lead()

    def _wait(self, call: AppendCall) -> None:
        """Wait as GroupCommit does; a call that is in the queue still at its deadline leaves it, and fails."""
        deadline = append_ends.deadline_of(call)
        if call.wait(deadline.left_s):
            return
        with self._queue_lock:
            if call in self._queue and not call.leads:
                self._queue.remove(call)
                self._queued_bytes -= len(call.data)
                call.error = append_ends.too_late(call, deadline.passed("previous appends are in progress"))
                call.is_settled = True
                return
        call.wait()  # for its leader, who ends in time

    def _prepare(self, calls: Sequence[AppendCall], group: list[PendingCommit]) -> list[AppendCall]:
        """Write the calls whose deadline is not over; see GroupCommit."""
        in_time: list[AppendCall] = []
        for call in calls:
            if (deadline := append_ends.deadline_of(call)).is_over:
                call.error = append_ends.too_late(call, deadline.passed("it was not started"))
            else:
                in_time.append(call)
        return super()._prepare(in_time, group)

    def _again(self, calls: Sequence[AppendCall]) -> list[AppendCall]:
        """Return the calls that have time left although their pool had none; see GroupCommit."""
        again: list[AppendCall] = []
        for call in calls:
            if isinstance(call.error, append_ends.OutOfTime):
                if append_ends.deadline_of(call).is_over:
                    call.error = append_ends.too_late(call, call.error)
                else:
                    call.error = None
                    again.append(call)
        return again

    def _await_returning(self) -> None:
        """Wait until the pool is full, or the last one is old enough and no caller is on its way back."""
        # The delay counts from pool to pool: it bounds their number, and an append after a pause waits for nothing.
        self._gather_for(_Wait.AGE, self._sent_s + self.settings.delay_s - time.monotonic())
        # The journal is about to answer the pool before, and its callers come back: without them two halves follow
        # each other in turn, for twice the requests (64 threads, Ceph RGW on the same cores: 1,200 appends/s, 1,800).
        self._gather_for(_Wait.ANSWERS, self.settings.delay_s)
        if not self._is_full:
            super()._await_returning()

    def _gather_for(self, reason: _Wait, wait_s: float) -> None:
        """Wait until the reason is gone or the pool is full, `wait_s` at most."""
        with self._queue_lock:
            wait_s = min([wait_s, *(append_ends.deadline_of(call).left_s for call in self._queue[:1])])
            if wait_s <= 0 or self._is_full or (reason is _Wait.ANSWERS and not self._unanswered):
                return
            self._waits_for, self._awaited = reason, sys.maxsize
            self._expected = max(self._expected, len(self._queue) + self._unanswered)
        self._enough.acquire(timeout=wait_s)
        with self._queue_lock:
            self._waits_for, self._awaited = None, 0
        self._enough.acquire(blocking=False)  # filled in the moment in which the wait ended

    def _pass_on(self, later: Sequence[AppendCall], settled: int) -> None:
        """Pass the lead on; see GroupCommit."""
        with self._queue_lock:
            self._unanswered += settled - len(later)
        super()._pass_on(later, settled)

    def _answer(self, group: Sequence[PendingCommit], calls: Sequence[AppendCall], later: Sequence[AppendCall]) -> None:
        """Let the callers go on once the journal names their appends, and then a leader that waits for them."""
        self._acknowledge(group)
        super()._answer(group, calls, later)
        with self._queue_lock:
            self._unanswered -= len(calls) - len(later)
            if self._waits_for is _Wait.ANSWERS and self._awaited and not self._unanswered:
                self._awaited = 0
                self._enough.release()

    @property
    def _is_full(self) -> bool:
        return self._queued_bytes >= self.settings.pool_bytes

    def _is_complete(self) -> bool:
        """Return whether the leader has enough calls; see GroupCommit."""
        return self._is_full or (self._waits_for is None and super()._is_complete())

    def _take(self) -> list[AppendCall]:
        """Take calls up to the size of a pool, at least one, and no more than a pack may name.

        Their segments agree on compression, as in any pack; the others are taken next, as all calls of one segment are.
        """
        self._sent_s = time.monotonic()
        taken: list[AppendCall] = []
        left: list[AppendCall] = []
        taken_bytes = 0
        for number, call in enumerate(self._queue):
            if taken and (taken_bytes >= self.settings.pool_bytes or len(taken) >= MAX_PACK_ENTRIES):
                left += self._queue[number:]
                break
            if taken and _compresses(call) is not _compresses(taken[0]):
                left.append(call)
                continue
            taken.append(call)
            taken_bytes += len(call.data)
        self._queue = left
        self._queued_bytes -= taken_bytes
        return taken

    def _sync(self, group: Sequence[PendingCommit]) -> None:
        """Leave the files to the upload, beside which they are synced."""

    def _commit(self, group: Sequence[PendingCommit]) -> None:
        """Upload the bytes of a group as one pack, and commit it; groups without bytes are only committed."""
        appends = [pending for pending in group if isinstance(pending, PendingAppend) and pending.range]
        if not appends:
            super()._sync(group)
            super()._commit([pending for pending in group if pending.error is None])
            return
        until = append_ends.deadline_of(*append_ends.calls(group))
        try:
            with until.in_force(for_others=True):
                self._send(group, appends)
        except Unavailable as exc:
            if until.is_over and not any(pending.is_unsure for pending in group):
                raise append_ends.OutOfTime(str(exc)) from exc
            raise

    def _send(self, group: Sequence[PendingCommit], appends: Sequence[PendingAppend]) -> None:
        publisher = None
        try:
            publisher, cold = self._cold_tier()
            recipe = PoolRecipe(self, group, appends, cold)
            if not recipe.is_empty:
                with closing(recipe):
                    objects.make(self.metadata, cold, recipe)
        except Fenced:
            raise
        except TierfsError as exc:
            # The pack is garbage by now, or in a place that is no longer the cold tier, whatever that says of it: a
            # directory that was left may be gone.
            is_left = publisher is not None and not publisher.is_in_place()
            if not isinstance(exc, Conflict) and (not is_left or any(pending.is_unsure for pending in group)):
                raise
            log.info("appends are rewritten: %s", exc)
            for pending in group:
                pending.error = pending.error or StaleBase(str(exc))

    def commit_with(self, recipe: PoolRecipe, group: Sequence[PendingCommit]) -> None:
        """Commit the changes of a group together with the links to a pack that was stored."""
        self._recipe = recipe
        try:
            super()._commit([pending for pending in group if pending.error is None])
        finally:
            self._recipe = None

    def _link(self, txn: WriteTransaction, changed: Sequence[PendingCommit]) -> None:
        """Link the bytes of a group to its pack; see GroupCommit."""
        if self._recipe is not None:
            self._recipe.link_in(txn, changed)
            publish.intend(txn)  # else the entry costs one more commit
        for pending in changed:
            pending.sequence = txn.store.next_outbox - 1

    def sync_beside(self, group: Sequence[PendingCommit], upload: Callable[[], StoredObject]) -> StoredObject:
        """Sync the files of a group while `upload` runs; return its result. Raises what it raises."""
        files = [(pending, chunk) for pending in group for chunk in pending.chunks]
        with self._threads().running(self._sync_files, shares_of(files)):
            return upload()  # in this thread, where Ctrl-C can end it

    def _acknowledge(self, group: Sequence[PendingCommit]) -> None:
        """Wait until the journal names the appends of a group, and give those that it does not name an error."""
        waiting = [pending for pending in group if pending.error is None and _is_promised(pending)]
        if not waiting:
            return
        until = append_ends.deadline_of(*append_ends.calls(waiting))
        error = self._publish(max(pending.sequence for pending in waiting), until)
        if error is None:
            return
        for pending in waiting:
            for call in pending.calls:
                if until.is_over and not (append_ends.deadline_of(call).is_over or guards.is_interrupted()):
                    call.unnamed = pending
                else:
                    call.error = append_ends.unconfirmed(_name_of(pending), call.range, error)

    def confirm(self, name: str, added: ByteRange) -> None:
        """Wait until the journal names all changes of now, that append among them. Raises as for an append."""
        with self.metadata.read() as txn:
            newest = txn.store.next_outbox - 1
        error = self._publish(newest, self.deadline())
        if error is not None:
            raise append_ends.unconfirmed(name, added, error)

    def _complete(self, call: AppendCall) -> None:
        """Publish in the caller's own time what its leader had no time for; see GroupCommit."""
        pending, call.unnamed = call.unnamed, None
        error = None if pending is None else self._publish(pending.sequence, append_ends.deadline_of(call))
        if pending is not None and error is not None:
            call.error = append_ends.unconfirmed(_name_of(pending), call.range, error)

    def _publish(self, sequence: int, until: Deadline) -> TierfsError | None:
        """Publish until the journal names a change; return what went wrong last if it does not."""
        try:
            with until.in_force(for_others=True):
                self._publish_until_named(sequence)
        except KeyboardInterrupt:
            # A second Ctrl-C ends a request; the first one's handler follows, and the others have their result.
            return Unavailable("interrupted")
        except Exception as exc:
            return unexpected(exc, "publishing")
        return None

    def _publish_until_named(self, sequence: int) -> None:
        """Publish until the journal names a change. Raises Fenced, and at the deadline what went wrong last."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                publisher, _ = self._cold_tier()
                publisher.publish(until=sequence)
                return
            except Fenced:
                raise
            except (Unavailable, Conflict) as exc:
                if guards.is_interrupted() or deadlines.within(pause_s) < pause_s:
                    raise
                log.info("checking again whether the journal has an append: %s", exc)
            self._sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _cold_tier(self) -> tuple[Publisher, ColdTier]:
        """Return the cold tier, connected again once the store has another place."""
        place = self._place
        if place is None or not place[0].is_in_place():
            place = self._place = self._connect()
        return place


def _name_of(pending: PendingCommit) -> str:
    assert isinstance(pending, PendingAppend)
    return pending.name


def _compresses(call: AppendCall) -> bool:
    return policy_of(call).compresses


def _is_promised(pending: PendingCommit) -> bool:
    """Return whether an acknowledgment says that the journal has the change: that of a mere mark says nothing."""
    return isinstance(pending, PendingAppend) and bool(pending.range or pending.seal)
