"""The background writer: looks every tick, plans, and carries out with a bounded number of uploads.

Its work is a list of tasks, which tasks.py repeats. Decisions are the planner's (tiering/planner.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

import trio

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.bytes.parallel import Attempts, Pool
from tierfs.base.options.config import BackgroundSettings
from tierfs.base.words.errors import Fenced, QuotaReached, TierfsError
from tierfs.base.words.types import SegmentId
from tierfs.engine.metadata.sums import Sums
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering import quota
from tierfs.tiering.archive.command import AT_ONCE
from tierfs.tiering.archive.due import ArchiveAction
from tierfs.tiering.archive.watch import ArchiveWatch
from tierfs.tiering.candidates import PackAction, is_small
from tierfs.tiering.consolidate_plan import ConsolidateAction
from tierfs.tiering.consolidation_watch import ConsolidationWatch
from tierfs.tiering.objects import ChunksMoved
from tierfs.tiering.offload_queue import ObjectKey, key_of
from tierfs.tiering.planner import MOST_EVICTIONS, Actions, Backlog, Planner
from tierfs.tiering.policy import EvictAction, PendingObject, disk_view
from tierfs.tiering.snapshot import SLICE_S, Snapshots
from tierfs.upkeep.holder import perform
from tierfs.upkeep.holder.failures import EVICT, OFFLOAD, OWNER, PACK, PUBLISH, QUOTA, look, of_object, of_segment
from tierfs.upkeep.holder.signs_of_life import LIFE, SignsOfLife
from tierfs.upkeep.holder.status import BacklogStatus
from tierfs.upkeep.holder.tasks import Task, TaskLoop, TaskOutcome
from tierfs.upkeep.holder.work import ColdWork

_CONSOLIDATE, _ARCHIVE = "consolidate", "archive"
# No limit of a group's size but those of the policies.
_ANY_BYTES = 2**63

# Small objects that are packed while more are still looked for. A look finds some 40 (measured: 247 packs for 10,000
# files, each with its requests).
_LEAST_SMALL = 1000

# Ticks between two entries of the journal, however many changes come: each is a PUT and a LIST, and with the checks of
# the owner and of the mark these are two requests in three seconds.
_PUBLISH_TICKS = 3

# While no process commits, every so many ticks is enough for work that falls due by time alone, as deletions do. A look
# by a thread costs 0.2 ms: with one per task and tick a holder at rest took 1.5 % of a core.
_STILL_TICKS = 5
_STILL_PERIODS = 2

# Largest error of the time that `status` shows for the oldest byte: a commit in so much time at most.
_OLDEST_OFF_MS = 30_000

# Objects of one worker: a large one, or small ones that go together.
Group = tuple[PendingObject, ...]


@dataclass(slots=True)
class _Uploads:
    """The uploads in flight; requests wait until there is none and keep it so."""

    running: set[ObjectKey] = field(default_factory=set)
    ended: set[ObjectKey] = field(default_factory=set)
    """Not yet reported to the planner."""
    paused: bool = False
    changed: trio.Event = field(default_factory=trio.Event)

    def is_paused(self) -> bool:
        """Return whether uploads pause; evaluated again after each wait."""
        return self.paused

    def end(self, keys: Collection[ObjectKey]) -> None:
        """Note an upload that ended, well or not: wake all that wait for that."""
        self.running.difference_update(keys)
        self.ended.update(keys)
        self.changed.set()
        self.changed = trio.Event()


class BackgroundWriter:
    """The cold work of one store. Its owner holds the store."""

    def __init__(self, work: ColdWork, loop: TaskLoop, settings: BackgroundSettings) -> None:
        self._work = work
        self._metadata = work.metadata
        self._failures = failures = loop.failures
        self._failures_ended = failures.ended
        self._settings = settings
        self._loop = loop
        self._in_thread = loop.in_thread
        below_bytes = work.settings.pack_below_bytes
        self._planner = Planner(lambda pending: is_small(pending.action, below_bytes))
        self._snapshots = Snapshots(self._metadata, self._planner, lambda key: failures.is_stuck(of_object(key)))
        self._server = perform.server(work)
        self._life = SignsOfLife(self._metadata, work.publisher)
        self._uploads = _Uploads()
        self._send, self._receive = trio.open_memory_channel[Group](0)
        self._current = True
        """Whether the planner knows of everything that changed before the last look."""
        self._is_full = False
        self._room_waits = trio.Event()
        """Set once what was uploaded has to be published at once, because the disk is full and it can be evicted."""
        self.backlog: BacklogStatus | None = None
        """As of the last look."""

    def tasks(self) -> list[Task]:
        """Return the tasks that only a store with a cold tier has."""
        s, work, blocking = self._settings, self._work, self._loop.blocking
        publish = {PUBLISH: self._publish, "collect": blocking(work.collect)}
        table = [
            Task(s.tick_s, {"look": self._look}, woken=lambda: self._uploads.changed),
            Task(_PUBLISH_TICKS * s.tick_s, publish, still_periods=_STILL_PERIODS, woken=lambda: self._room_waits),
            # Without publishing: a failure of that is PUBLISH's, and an upload's own check would end it here.
            Task(s.owner_check_s, {OWNER: blocking(work.publisher.verify_ownership)}),
            Task(s.tick_s, {LIFE: self._show_life}),
            Task(s.request_poll_s, {"requests": self._serve}),
            *(Task(s.tick_s, {"upload": self._upload_next}) for _ in range(work.settings.objects_in_parallel)),
        ]
        if work.settings.consolidate_chunks:
            watch = ConsolidationWatch(self._metadata, work.cold.location_id, work.settings)
            consolidate = {_CONSOLIDATE: partial(self._consolidate, watch)}
            table.append(Task(s.tick_s, consolidate, still_periods=_STILL_TICKS))
        archive = ArchiveWatch(self._metadata, work.cold.location_id)
        table.append(Task(s.tick_s, {_ARCHIVE: partial(self._archive, archive)}, still_periods=_STILL_TICKS))
        return table

    async def _show_life(self) -> None:
        if self._life.is_due:  # without a thread while no standby follows
            await self._in_thread(self._life.show)

    async def _look(self) -> TaskOutcome:
        """Look, plan, and start what is due."""
        todo, released = await self._in_thread(partial(self._plan, tuple(self._uploads.ended)))
        self._uploads.ended.difference_update(released)
        attempts = Attempts()
        if todo.rolls:
            await self._in_thread(partial(self._roll, todo.rolls, attempts))
        await self._offer()
        evicted = TaskOutcome.DONE
        if todo.evictions:  # on its own: one that waits for the cold tier holds up no roll or offload
            evicted = await self._loop.attempt(EVICT, self._loop.blocking(partial(self._evict, todo.evictions)))
        attempts.end()
        full = len(todo.evictions) >= MOST_EVICTIONS and evicted is TaskOutcome.DONE
        return TaskOutcome.DONE if self._current and not full else TaskOutcome.MORE

    def _plan(self, ended: Collection[ObjectKey]) -> tuple[Actions, list[ObjectKey]]:
        """Return what is due, and the ended uploads whose segments were looked at since.

        In a thread, in slices: a new holder has every segment to look at, and a pack has thousands.
        """
        planner = self._planner
        keys = [segment_id for segment_id, _ in ended]
        self._current = look(self._snapshots, self._failures, keys, slice_s=SLICE_S)
        released = [key for key in ended if not self._snapshots.is_awaited(key[0])]
        for key in released:  # after the look: what they did is seen by now
            planner.offloads.release(key)
        if self._failures.ended != self._failures_ended:
            self._failures_ended = self._failures.ended
            planner.offloads.wake()
        if self._current:
            self._forget_failures()
        with self._metadata.read() as txn:
            sums, noted_ms = txn.sums, txn.oldest_local_only_ms
            self._look_for_room(txn, sums)
        local_bytes = planner.local_bytes if sums is None else sums.local_bytes
        backlog = planner.backlog if sums is None else Backlog(sums.pending_bytes, sums.growing_bytes)
        waits, kept = backlog.minus(planner.kept), planner.kept.bytes
        self.backlog = BacklogStatus(waits.pending_bytes, waits.active_bytes, planner.oldest_ms, kept)
        self._note_oldest(noted_ms)
        engine = self._work.engine
        disk = disk_view(engine.files.disk_bytes(), local_bytes, engine.free_space_floor_bytes, self._settings)
        self._is_full = disk.excess_bytes > 0
        if backlog.bytes > disk.high_unoffloaded_bytes:
            self._snapshots.refresh_active()
        # Before the server was asked, the task of the clocks asks it (kinds.py).
        trusted = self._work.clocks.asked and self._work.clocks.reason() is None
        now_ms = self._metadata.clock.now_ms()
        return planner.next(
            disk, now_ms, backlog=backlog, lag_counts=trusted, may_evict=partial(self._may_try, EVICT)
        ), released

    def _look_for_room(self, txn: ReadTransaction, totals: Sums | None) -> None:
        """End the wait for room under the quota once what waited fits, or nothing of it is left to upload."""
        if not self._failures.has(QUOTA):
            return
        room_bytes = quota.use_of(txn, totals).room_bytes
        nothing_waits = self._current and not self._planner.offloads
        if room_bytes is None or room_bytes >= self._failures.bytes_of(QUOTA) or nothing_waits:
            self._failures.passed(QUOTA)

    def _within_quota(self, work: Callable[[], object], size_bytes: int) -> None:
        """Do an upload; one that the quota leaves no room for is no failure of its own."""
        try:
            work()
        except QuotaReached as exc:
            self._failures.failed(QUOTA, exc, size_bytes=size_bytes)

    def _may_try(self, task: str, segment_id: SegmentId) -> bool:
        return self._failures.may_try(of_segment(task, segment_id))

    def _forget_failures(self) -> None:
        """Drop the failures of uploads and evictions that are not wanted any more."""
        planner = self._planner
        self._failures.retain(f"{OFFLOAD} ", lambda what: _key_in(what) in planner.offloads)
        self._failures.retain(PACK, lambda _: len(planner.offloads) > 0)
        self._failures.retain_segments(EVICT, planner.has_copies, keep_damage=False)

    def _note_oldest(self, noted_ms: int) -> None:
        """Note for `status` since when the oldest byte has been here alone, if the old note is far off by now."""
        oldest_ms = self._planner.oldest_ms
        if self._current and oldest_ms and abs(oldest_ms - noted_ms) > _OLDEST_OFF_MS:
            with self._metadata.write_notes() as txn:
                txn.note_oldest(oldest_ms)

    def _roll(self, segment_ids: Sequence[SegmentId], attempts: Attempts) -> None:
        for segment_id in segment_ids:
            with attempts.step():
                self._work.engine.roll(segment_id)

    async def _publish(self) -> None:
        """Publish; where room is waited for, look at once for what may be evicted now."""
        await self._in_thread(self._work.publish)
        if self._is_full:
            self._uploads.end(())

    async def _offer(self) -> None:
        """Hand the most urgent uploads to workers that are free; the others stay in the planner's queue."""
        free = self._send.statistics
        if not (self._failures.may_try(OWNER) and self._failures.may_try(QUOTA)):
            return
        while self._planner.offloads and not self._uploads.is_paused() and free().tasks_waiting_receive:
            taken, group = await self._in_thread(self._take)
            if not taken:
                return
            if self._uploads.is_paused():  # meanwhile: they go back
                self._uploads.end([key_of(pending) for pending in group])
                return
            if group:
                self._send.send_nowait(group)
                self._uploads.running.update(map(key_of, group))

    def _take(self) -> tuple[bool, Group]:
        """Return whether anything is queued, and what of it may be uploaded now. In a thread: it may be thousands."""
        taken = self._planner.take_offloads(_ANY_BYTES, 0 if self._current else _LEAST_SMALL)
        now_ms = self._metadata.clock.now_ms()
        return bool(taken), tuple(pending for pending in taken if self._may_upload(pending, now_ms, len(taken) > 1))

    def _may_upload(self, pending: PendingObject, now_ms: int, packed: bool) -> bool:
        """Return whether it never failed, or its pause is over; else put it back into the queue until then."""
        key = key_of(pending)
        names = (of_object(key), PACK) if packed else (of_object(key),)
        until_ms = max(self._failures.next_try_ms(what) for what in names)
        if until_ms <= now_ms:
            return True
        self._planner.offloads.rest(key, until_ms)
        return False

    def _evict(self, evictions: Sequence[EvictAction]) -> None:
        """Evict one segment after another; an error of one is listed and keeps no other.

        Raises what concerns all of them: Fenced, StorageFull, Unavailable as while the cold tier is away, and why the
        cold tier cannot be proved ours, as without credentials.
        """
        for action, outcome in self._work.evict_segments(evictions):
            what = of_segment(EVICT, action.segment_id)
            if isinstance(outcome, TierfsError):
                self._failures.failed(what, outcome)
            else:
                self._failures.passed(what)
        self._work.collect()

    async def _upload_next(self) -> TaskOutcome:
        """Make the next object or pack that the look hands out."""
        loop, group = self._loop, await self._receive.receive()
        try:
            # First of all: one failure says that the place is not ours, instead of one per object.
            owner = await loop.attempt(OWNER, loop.blocking(self._work.cold.require_ours))
            if owner is TaskOutcome.FAILED:
                return TaskOutcome.AT_ONCE
            size_bytes = sum(pending.bytes for pending in group)
            if len(group) > 1:
                pack = partial(self._within_quota, partial(self._pack, group), size_bytes)
                await loop.attempt(PACK, loop.blocking(pack))
            else:
                (pending,) = group
                upload = partial(self._within_quota, partial(self._work.upload, pending.action), size_bytes)
                await loop.attempt(of_object(key_of(pending)), loop.blocking(upload), size_bytes=size_bytes)
        finally:
            self._uploads.end([key_of(pending) for pending in group])
        if self._is_full:
            self._room_waits.set()
            self._room_waits = trio.Event()
        return TaskOutcome.AT_ONCE

    def _pack(self, group: Group) -> None:
        """Make one object of a group; note one by one what was left out."""
        packed = self._work.pack(PackAction(tuple(pending.action for pending in group)))
        failed = dict(packed.failed)
        for pending in group:
            error = failed.get(pending.action)
            if error is not None:
                self._failures.failed(of_object(key_of(pending)), error, size_bytes=pending.bytes)
            else:
                self._failures.passed(of_object(key_of(pending)))

    async def _consolidate(self, watch: ConsolidationWatch) -> TaskOutcome:
        """Make one object after another, so that offloads keep most of the way to the bucket."""
        # Joining needs room until its sources end; moving live bytes out of dead ones, below, makes some.
        full = self._failures.has(QUOTA)
        action = None if full else await self._in_thread(partial(self._next_consolidation, watch))
        if action is None and watch.more and not full:
            return TaskOutcome.MORE
        if action is None:  # a walk over a million objects is in no hurry where no process commits
            await self._loop.attempt("repack", self._loop.blocking(self._work.repacker.step))
            return TaskOutcome.DONE
        work = partial(self._work.consolidator.run, action, lambda _: None)
        await self._loop.attempt(of_segment(_CONSOLIDATE, action.segment_id), self._loop.blocking(work))
        return TaskOutcome.AT_ONCE

    async def _archive(self, watch: ArchiveWatch) -> TaskOutcome:
        """Move what falls due to its storage class, several objects at once: the server copies them."""
        if self._failures.has(QUOTA):
            return TaskOutcome.DONE  # both copies of an object take room for a while
        actions = await self._in_thread(partial(self._next_archived, watch))
        if actions:
            await self._in_thread(self._work.clocks.require)  # a clock that jumped would move everything
            await self._in_thread(partial(self._archive_some, actions))
        return TaskOutcome.MORE if watch.more else TaskOutcome.DONE

    def _next_archived(self, watch: ArchiveWatch) -> list[ArchiveAction]:
        actions = watch.next(AT_ONCE, partial(self._may_try, _ARCHIVE))
        self._failures.retain_segments(_ARCHIVE, watch.is_known)
        return actions

    def _archive_some(self, actions: Sequence[ArchiveAction]) -> None:
        """Move some objects; an error of one is listed for its segment and keeps no other. Raises Fenced."""
        with Pool(AT_ONCE, "tierfs-archive") as pool:
            for action, error in zip(actions, pool.run(self._archive_one, actions), strict=True):
                what = of_segment(_ARCHIVE, action.segment_id)
                if error is not None:
                    self._failures.failed(what, error, size_bytes=action.object.stored_bytes)
                elif self._failures.has(what):
                    self._failures.passed(what)

    def _archive_one(self, action: ArchiveAction) -> TierfsError | None:
        try:
            self._work.archive_one(action)
        except (Fenced, ChunksMoved) as exc:
            if isinstance(exc, Fenced):
                raise
            return None
        except TierfsError as exc:
            return exc
        return None

    def _next_consolidation(self, watch: ConsolidationWatch) -> ConsolidateAction | None:
        action = watch.next(partial(self._may_try, _CONSOLIDATE))
        self._failures.retain_segments(_CONSOLIDATE, watch.is_known)
        return action

    async def _serve(self) -> None:
        """Carry out the requests that wait; uploads pause for those that upload by themselves.

        The next look for some is a period away even after commits: those of appends are news all the time.
        """
        if not self._server.may_have_next:
            return
        while (request := await self._in_thread(self._server.next)) is not None:
            self._uploads.paused = perform.uploads(request)
            while self._uploads.paused and self._uploads.running:
                await self._uploads.changed.wait()
            try:
                await self._in_thread(partial(self._server.carry_out, request))
            finally:
                self._uploads.paused = False


def _key_in(what: str) -> ObjectKey:
    """Return the upload whose failures have a name."""
    _, segment_id, start = what.split()
    return SegmentId(int(segment_id)), int(start)
