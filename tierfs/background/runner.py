"""The background writer: looks every tick, plans, and carries out with a bounded number of uploads.

All I/O runs through `in_thread`; time through trio and the clock, so that tests own both. Nothing here
decides: planner.py does. What fails is noted in `troubles` and tried again later.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

import trio

from tierfs.background import evict_troubles, look_troubles
from tierfs.background.consolidation_plan import ConsolidateAction
from tierfs.background.consolidation_watch import PREFIX, ConsolidationWatch, segment_of, trouble_of
from tierfs.background.offload import ChunksMoved
from tierfs.background.offload_queue import ObjectKey, key_of
from tierfs.background.planner import Actions, Backlog, Planner
from tierfs.background.planning import PackAction, is_small
from tierfs.background.policy import EvictAction, PendingObject
from tierfs.background.pressure import disk_view
from tierfs.background.serve import RequestServer
from tierfs.background.snapshot import SLICE_S, Snapshots
from tierfs.background.status import BacklogStatus
from tierfs.background.troubles import Troubles
from tierfs.background.work import ColdWork
from tierfs.config import BackgroundSettings
from tierfs.errors import Fenced
from tierfs.types import SegmentId

log = logging.getLogger(__name__)

T = TypeVar("T")

_READERS_EVERY_S = 60.0
"""A guess: a minute's pages are few, and the look costs a system call per process."""

_OFFLOAD = "offload"
_PACK = "pack"
"""Names what concerns a whole pack, as when the cold tier is away: all of them wait then, under one name."""

_REPACK = "repack"

_ANY_BYTES = 2**63
"""No limit of a group's size but those of the policies."""
_OWNER = "owner"
"""Whether the cold tier is ours."""

_LEAST_SMALL = 1000
"""Small objects that are packed while more are still looked for. A look finds some 40 (measured: 247 packs for 10,000
files, each with its requests)."""

PAUSE_S = 2 * SLICE_S
"""Between two slices of a look that is too long for one: most of the interpreter is left to a mount's readers."""

_STILL_TICKS = 5
"""While nobody commits, every so many ticks is enough for what falls due by time alone, as deletions do. A look by a
thread costs 0.2 ms: with one per task and tick a holder at rest took 1.5 % of a core."""

_OLDEST_OFF_MS = 30_000
"""How far what `status` tells of the oldest byte may be off: a commit in so much time at most."""

Group = tuple[PendingObject, ...]
"""Objects to make that one worker makes: a large one, or small ones that go together."""


class InThread(Protocol):
    """Runs a blocking function elsewhere and awaits it."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """What the function returns or raises."""
        ...

    @property
    def busy(self) -> bool:
        """Whether something is still at work, also what nobody awaits any more."""
        ...

    def idle(self) -> Awaitable[None]:
        """Return when nothing is at work."""
        ...


@dataclass(slots=True)
class _Uploads:
    """What is being uploaded; requests wait until it is empty and keep it so."""

    running: set[ObjectKey] = field(default_factory=set)
    ended: set[ObjectKey] = field(default_factory=set)
    """That the planner was not told of yet."""
    paused: bool = False
    changed: trio.Event = field(default_factory=trio.Event)

    def is_paused(self) -> bool:
        """Asked again after each wait."""
        return self.paused

    def end(self, keys: Collection[ObjectKey]) -> None:
        """An upload ended, well or not: wake whoever waits for that."""
        self.running.difference_update(keys)
        self.ended.update(keys)
        self.changed.set()
        self.changed = trio.Event()


class BackgroundWriter:
    """Runs one store's cold work. Its owner holds the store."""

    def __init__(self, work: ColdWork, troubles: Troubles, settings: BackgroundSettings, in_thread: InThread) -> None:
        self._work = work
        self._metadata = work.tools.engine.metadata
        self._troubles = troubles
        self._settings = settings
        self._in_thread = in_thread
        below_bytes = work.tools.settings.pack_below_bytes
        self._planner = Planner(lambda pending: is_small(pending.action, below_bytes))
        self._snapshots = Snapshots(self._metadata, self._planner, lambda key: troubles.is_stuck(_trouble_of(key)))
        self._troubles_ended = troubles.ended
        self._uploads = _Uploads()
        self._current = True
        """Whether the planner knows of everything that changed before the last look."""
        self.backlog: BacklogStatus | None = None
        """As of the last look."""

    async def run(self) -> None:
        """Work until cancelled. Raises Fenced, in a group, when another store owns the bucket."""
        send, receive = trio.open_memory_channel[Group](0)
        async with trio.open_nursery() as nursery:
            for _ in range(self._work.tools.settings.objects_in_parallel):
                nursery.start_soon(self._upload_each, receive.clone())
            nursery.start_soon(self._publish_and_collect)
            nursery.start_soon(self._watch_owner)
            nursery.start_soon(self._serve_requests)
            nursery.start_soon(self._end_lifetimes)
            nursery.start_soon(self._watch_clocks)
            nursery.start_soon(self._clear_dead_readers)
            if self._work.tools.settings.consolidate_chunks:
                nursery.start_soon(self._consolidate)
            while True:
                await self._tick(send)

    async def _tick(self, send: trio.MemorySendChannel[Group]) -> None:
        """Look, plan, start what is due; then wait for an upload to end or the next tick."""
        ended = self._uploads.changed
        if await self._attempt("look", partial(self._look, send)):
            with trio.move_on_after(self._settings.tick_s if self._current else PAUSE_S):
                await ended.wait()
        else:
            await trio.sleep(self._settings.tick_s)

    async def _look(self, send: trio.MemorySendChannel[Group]) -> None:
        todo, released = await self._in_thread(partial(self._plan, tuple(self._uploads.ended)))
        self._uploads.ended.difference_update(released)
        if todo.rolls:
            await self._in_thread(partial(self._roll, todo.rolls))
        await self._offer(send)
        if todo.evictions:  # on its own: one that waits for the cold tier holds up no roll or offload
            await self._attempt("evict", partial(self._in_thread, partial(self._evict, todo.evictions)))

    def _plan(self, ended: Collection[ObjectKey]) -> tuple[Actions, list[ObjectKey]]:
        """What is due, and the ended uploads whose segments were looked at since.

        In a thread, in slices: a new holder has every segment to look at, and a pack has thousands.
        """
        planner = self._planner
        look_troubles.try_again(self._snapshots, self._troubles, self._metadata.clock.now_ms())
        self._current = self._snapshots.refresh([segment_id for segment_id, _ in ended], slice_s=SLICE_S)
        look_troubles.note(self._metadata, self._snapshots, self._troubles, complete=self._current)
        released = [key for key in ended if not self._snapshots.is_awaited(key[0])]
        for key in released:  # after the look: what they did is seen by now
            planner.release(key)
        if self._troubles.ended != self._troubles_ended:
            self._troubles_ended = self._troubles.ended
            planner.offloads.wake()
        if self._current:
            self._troubles.retain(f"{_OFFLOAD} ", lambda what: _key_in(what) in planner.offloads)
            self._troubles.retain(_PACK, lambda _: len(planner.offloads) > 0)
            evict_troubles.retain(self._troubles, planner.has_copies)
        with self._metadata.read() as txn:
            sums, noted_ms = txn.sums, txn.oldest_local_only_ms
        local_bytes = planner.local_bytes if sums is None else sums.local_bytes
        backlog = planner.backlog if sums is None else Backlog(sums.pending_bytes, sums.active_bytes)
        self.backlog = BacklogStatus(backlog.pending_bytes, backlog.active_bytes, planner.oldest_ms)
        self._note_oldest(noted_ms)
        engine = self._work.tools.engine
        disk = disk_view(engine.files.disk_bytes(), local_bytes, engine.free_space_floor_bytes, self._settings)
        if backlog.bytes > disk.high_unoffloaded_bytes:
            self._snapshots.refresh_active()
        trusted = self._work.tools.clocks.reason() is None
        now_ms = self._metadata.clock.now_ms()
        may_evict = evict_troubles.may_evict(self._troubles, now_ms)
        return planner.next(disk, now_ms, backlog=backlog, lag_counts=trusted, may_evict=may_evict), released

    def _note_oldest(self, noted_ms: int) -> None:
        """Write down since when the oldest byte has been here alone, for `status`, if what it knows is far off."""
        oldest_ms = self._planner.oldest_ms
        if self._current and oldest_ms and abs(oldest_ms - noted_ms) > _OLDEST_OFF_MS:
            with self._metadata.write_notes() as txn:
                txn.note_oldest(oldest_ms)

    def _roll(self, segment_ids: Sequence[SegmentId]) -> None:
        for segment_id in segment_ids:
            self._work.tools.engine.roll(segment_id)

    async def _offer(self, send: trio.MemorySendChannel[Group]) -> None:
        """Hand the most urgent uploads to workers that are free; the others stay in the planner's queue."""
        if not self._troubles.may_try(_OWNER, self._metadata.clock.now_ms()):
            return
        while self._planner.offloads and not self._uploads.is_paused() and send.statistics().tasks_waiting_receive:
            taken, group = await self._in_thread(self._take)
            if not taken:
                return
            if self._uploads.is_paused():  # meanwhile: they go back
                self._uploads.end([key_of(pending) for pending in group])
                return
            if group:
                send.send_nowait(group)
                self._uploads.running.update(map(key_of, group))

    def _take(self) -> tuple[bool, Group]:
        """Whether there was anything to take, and what of it may be uploaded now. In a thread: it may be thousands."""
        taken = self._planner.take_offloads(_ANY_BYTES, 0 if self._current else _LEAST_SMALL)
        now_ms = self._metadata.clock.now_ms()
        return bool(taken), tuple(pending for pending in taken if self._may_upload(pending, now_ms, len(taken) > 1))

    def _may_upload(self, pending: PendingObject, now_ms: int, packed: bool) -> bool:
        """Whether it never failed, or its pause is over; else it goes back to the queue until then."""
        until_ms = max(
            self._troubles.next_try_ms(what) for what in ((_key(pending), _PACK) if packed else (_key(pending),))
        )
        if until_ms <= now_ms:
            return True
        self._planner.offloads.rest(key_of(pending), until_ms)
        return False

    def _evict(self, evictions: Sequence[EvictAction]) -> None:
        evict_troubles.evict_each(self._work, self._metadata, self._troubles, evictions)
        self._work.collect()

    async def _upload_each(self, receive: trio.MemoryReceiveChannel[Group]) -> None:
        async for group in receive:
            try:
                # First of all: one row of trouble says that the place is not ours, instead of one per object.
                if not await self._attempt(_OWNER, partial(self._in_thread, self._work.tools.cold.require_ours)):
                    continue
                if len(group) == 1:
                    await self._upload(group[0])
                else:
                    await self._attempt(_PACK, partial(self._in_thread, partial(self._pack, group)))
            finally:
                self._uploads.end([key_of(pending) for pending in group])

    async def _upload(self, pending: PendingObject) -> None:
        work = partial(self._in_thread, partial(self._work.upload, pending.action))
        await self._attempt(_key(pending), work, pending)

    def _pack(self, group: Group) -> None:
        """Make one object of a group; what was left out is noted one by one."""
        packed = self._work.pack(PackAction(tuple(pending.action for pending in group)))
        failed = dict(packed.failed)
        for pending in group:
            error = failed.get(pending.action)
            if error is not None:
                self._note(_key(pending), error, pending)
            else:
                self._troubles.passed(_key(pending))

    async def _publish_and_collect(self) -> None:
        while True:
            newest = self._metadata.last_transaction_id()
            published = await self._attempt("publish", partial(self._in_thread, self._work.publish))
            collected = await self._attempt("collect", partial(self._in_thread, self._work.collect))
            await self._rest(newest if published and collected else None)

    async def _rest(self, newest: int | None) -> None:
        """Sleep for a tick, and for some more until anybody commits after transaction `newest`."""
        for _ in range(_STILL_TICKS):
            await trio.sleep(self._settings.tick_s)
            if self._metadata.last_transaction_id() != newest:
                return

    async def _end_lifetimes(self) -> None:
        while True:
            await self._attempt("lifetimes", partial(self._in_thread, self._work.end_lifetimes))
            await trio.sleep(self._settings.lifetimes_every_s)

    async def _watch_clocks(self) -> None:
        """List timed deletions as stuck while the clocks disagree; each of them looks at the clocks itself."""
        clocks = self._work.tools.clocks
        while True:
            await self._attempt("timed deletions", partial(self._in_thread, clocks.require))
            await self._attempt("clocks", partial(self._in_thread, self._work.tell_clocks))
            await trio.sleep(self._settings.clocks_every_s)

    async def _clear_dead_readers(self) -> None:
        """A reader that was killed keeps every page that was replaced since from being used again."""
        while True:
            await self._attempt("dead readers", partial(self._in_thread, self._metadata.clear_dead_readers))
            await trio.sleep(_READERS_EVERY_S)

    async def _watch_owner(self) -> None:
        """Learn of another owner of the bucket also while there is nothing to publish."""
        while True:
            await self._attempt(_OWNER, partial(self._in_thread, self._work.tools.publisher.require_ownership))
            await trio.sleep(self._settings.owner_check_s)

    async def _consolidate(self) -> None:
        """One object after another, so that offloads keep most of the way to the bucket."""
        tools = self._work.tools
        watch = ConsolidationWatch(self._metadata, tools.cold.location_id, tools.settings)
        while True:
            if not await self._attempt("consolidate", partial(self._consolidate_next, watch)):
                await trio.sleep(self._settings.tick_s)

    async def _consolidate_next(self, watch: ConsolidationWatch) -> None:
        newest = self._metadata.last_transaction_id()
        action = await self._in_thread(partial(self._next_consolidation, watch))
        if action is None and watch.more:
            await trio.sleep(PAUSE_S)
            return
        if action is None:
            await self._attempt(_REPACK, partial(self._in_thread, self._work.repacker.step))
            await self._rest(newest)  # a walk over a million objects is in no hurry where nobody commits
            return
        work = partial(self._work.consolidator.run, action, lambda _: None)
        await self._attempt(trouble_of(action.segment_id), partial(self._in_thread, work))

    def _next_consolidation(self, watch: ConsolidationWatch) -> ConsolidateAction | None:
        now_ms = self._metadata.clock.now_ms()
        action = watch.next(lambda segment_id: self._troubles.may_try(trouble_of(segment_id), now_ms))
        self._troubles.retain(PREFIX, lambda what: watch.is_known(segment_of(what)))
        return action

    async def _serve_requests(self) -> None:
        server = RequestServer(self._metadata, self._work)
        while True:
            if server.may_have_next:
                await self._attempt("requests", partial(self._serve_waiting, server))
            await trio.sleep(self._settings.request_poll_s)  # always: commits of appends are news all the time

    async def _serve_waiting(self, server: RequestServer) -> None:
        while (request := await self._in_thread(server.next)) is not None:
            self._uploads.paused = server.uploads(request)
            while self._uploads.paused and self._uploads.running:
                await self._uploads.changed.wait()
            try:
                await self._in_thread(partial(server.carry_out, request))
            finally:
                self._uploads.paused = False

    async def _attempt(
        self, what: str, work: Callable[[], Awaitable[Any]], pending: PendingObject | None = None
    ) -> bool:
        """Do it if its pause is over; note how it went. Only Fenced passes, which ends everything."""
        if not self._troubles.may_try(what, self._metadata.clock.now_ms()):
            return False
        try:
            await work()
            if self._troubles.has(what):
                await self._in_thread(partial(self._troubles.passed, what))
        except Fenced:
            raise
        except ChunksMoved as exc:
            log.debug("%s: %s", what, exc)
        except Exception as exc:
            await self._in_thread(partial(self._note, what, exc, pending))
            return False
        return True

    def _note(self, what: str, error: Exception, pending: PendingObject | None) -> None:
        """Write a failure down, for people with the segment's name."""
        if pending is None:
            self._troubles.failed(what, error)
            return
        name = look_troubles.name_of(self._metadata, pending.action.segment_id)
        self._troubles.failed(what, error, name=name, size_bytes=pending.bytes)


def _key(pending: PendingObject) -> str:
    """Names an upload in `troubles`."""
    return _trouble_of(key_of(pending))


def _trouble_of(key: ObjectKey) -> str:
    segment_id, start = key
    return f"{_OFFLOAD} {segment_id} {start}"


def _key_in(what: str) -> ObjectKey:
    """The same, read from a trouble's name."""
    _, segment_id, start = what.split()
    return SegmentId(int(segment_id)), int(start)
