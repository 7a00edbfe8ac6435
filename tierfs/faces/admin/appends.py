"""Appends: the appends of all clients, gathered into groups that share syncs and commits.

The loop only queues. One thread takes what has been queued since its last group, and makes it durable together: a
thread for each request would hand the interpreter around between them for every append. Appends that wait for the
bucket are left to other threads, so that those of other segments do not wait for it too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tierfs.app.store import Store
from tierfs.base.bytes.checksum import Buffer, crc32c
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.deadlines import Deadline
from tierfs.base.words import names
from tierfs.base.words.errors import Closed, Conflict, NotFound, TierfsError, unexpected
from tierfs.base.words.types import Ack, ByteRange
from tierfs.engine.metadata import append_keys, directories, policies
from tierfs.engine.metadata.append_key_record import AppendKeyRecord
from tierfs.engine.metadata.append_keys import AppendKey
from tierfs.engine.metadata.followed_range import FollowedRange
from tierfs.engine.segments.writer import PlannedAppend, SegmentWriter, append_all
from tierfs.faces.admin.answers import Refused

log = logging.getLogger(__name__)
T = TypeVar("T")

# Appends of one group: as many as the connections there can be, and a bound of the time that a group takes.
_MOST_TOGETHER = 1024

# Longest pause between two clients on their way back: each has to be woken, and to send its next append.
_RETURN_S = 0.002

# Groups on their way to the bucket at once: one is sent while the next ones fill (a guess).
_SLOW_THREADS = 4

_UNPROCESSABLE = 422

# Of an append that another thread makes.
_ON_WAY = Closed("an append with this Idempotency-Key is in progress")

_NOT_TRIED = Closed("the append was not attempted", remedy="append again")


@dataclass(eq=False, slots=True)
class _Queued:
    name: str
    data: Buffer
    expected_offset: int | None
    seal: bool
    key: str | None
    deadline: Deadline
    answer: asyncio.Future[ByteRange]
    followed: FollowedRange | None = None
    was_made: bool = False
    """Whether an earlier request has made the append."""

    def as_key(self) -> AppendKey | None:
        """Return the key with what it names; None without one."""
        if self.key is None:
            return None
        return AppendKey(self.key, crc32c(self.data), len(self.data), self.seal, self.expected_offset)


class Appends:
    """Appends to the segments of one store, for the loop that it is entered in; close it there."""

    def __init__(self, store: Store, idle_s: float) -> None:
        """A segment's writer is kept for `idle_s` after its last append, so that others may write then."""
        self._store = store
        self._idle_s = idle_s
        self._queue: list[_Queued] = []
        self._expected = 1
        """Appends of the next group if all known clients come back."""
        self._queued = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "tierfs-appends")
        self._writers: dict[str, tuple[SegmentWriter, float]] = {}
        """By name, each with the time of its last append. Of the thread alone."""
        self._removals = 0
        """The store's count of removals and renames when the writers were last seen to have their names."""
        self._slow = ThreadPoolExecutor(_SLOW_THREADS, "tierfs-appends-cold")
        self._on_way: Counter[str] = Counter()
        """Groups of the other threads by segment; its writer is not idle."""
        self._keyed: dict[tuple[str, str], _Queued] = {}
        """Appends that are not answered yet, by name and key."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def append(
        self,
        name: str,
        data: Buffer,
        expected_offset: int | None = None,
        *,
        seal: bool = False,
        key: str | None = None,
        followed: FollowedRange | None = None,
    ) -> tuple[ByteRange, bool]:
        """Append bytes to a segment, which is made where it is missing; return their range, once they are durable.

        One that the bucket acknowledges has its deadline from here on, whatever it waits for in the queues.
        The name is one that names.join returned. With `key` an append that was made under it is not made again: its
        range is returned, and that it was. `followed` is recorded with the bytes. Raises Refused for the key of another
        append, and as Engine.open_writer and SegmentWriter.append, with nothing appended.
        """
        answer: asyncio.Future[ByteRange] = self._loop.create_future()
        deadline = Deadline.after(self._store.settings.ack.deadline_s, "ack.deadline_s")
        queued = _Queued(name, data, expected_offset, seal, key, deadline, answer, followed)
        if key is None:
            return await self._made(queued), False
        first = self._keyed.setdefault((name, key), queued)
        if first is not queued:
            if (data, expected_offset, seal) != (first.data, first.expected_offset, first.seal):
                raise _other_append(name)
            return await asyncio.shield(first.answer), True
        try:
            return await self._made(queued), queued.was_made
        finally:
            del self._keyed[name, key]

    async def _made(self, queued: _Queued) -> ByteRange:
        self._queue.append(queued)
        self._queued.set()
        return await queued.answer

    async def without_writer(self, name: str, work: Callable[[], T]) -> T:
        """Do work that no writer of a segment, or of one below, may be in the way of; it waits behind appends."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._left, name, work)

    async def close(self) -> None:
        """Let go of all segments. Queued appends fail with Closed."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for queued in self._queue:
            _settle(queued, Closed("the admin API is stopping", remedy="append again"))
        await self._loop.run_in_executor(None, self._slow.shutdown)
        await self._loop.run_in_executor(self._thread, self._leave_all)
        self._thread.shutdown()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                await asyncio.wait_for(self._queued.wait(), self._idle_s if self._writers else None)
            except TimeoutError:
                await loop.run_in_executor(self._thread, self._leave_idle)
                continue
            await self._returned()
            group, self._queue = self._queue[:_MOST_TOGETHER], self._queue[_MOST_TOGETHER:]
            if not self._queue:
                self._queued.clear()
            try:
                results = await loop.run_in_executor(self._thread, self._append, group)
            except Exception as exc:
                results = [unexpected(exc, "append")] * len(group)
            self._expected = len(self._queue)
            for queued, result in zip(group, results, strict=True):
                if result is not _ON_WAY:
                    _settle(queued, result)
                    self._expected += 1

    async def _returned(self) -> None:
        """Wait for the clients of the group before, while they keep coming.

        A group without them costs as many syncs. Otherwise clients part into two groups, each of which waits for the
        other's syncs (as in segments/group_commit.py).
        """
        arrived = 0
        while arrived < len(self._queue) < self._expected:
            arrived = len(self._queue)
            await asyncio.sleep(_RETURN_S)

    def _append(self, group: list[_Queued]) -> list[ByteRange | TierfsError]:
        """Make a group durable. A writer that was kept and proves stale is opened again, once."""
        results = self._try(group)
        again = [at for at, (_, kept) in enumerate(results) if kept]
        if again:
            for at, result in zip(again, self._try([group[at] for at in again]), strict=True):
                results[at] = result
        if self._idle_s == 0:
            self._leave_all()
        elif len(self._writers) > 1:
            self._leave_idle()
        return [result for result, _ in results]

    def _try(self, group: list[_Queued]) -> list[tuple[ByteRange | TierfsError, bool]]:
        """Return the result of each append, and whether it failed because a kept writer was of no more use."""
        results: list[tuple[ByteRange | TierfsError, bool]] = [(_NOT_TRIED, False)] * len(group)
        planned: dict[int, PlannedAppend] = {}
        self._leave_renamed()
        kept = set(self._writers)
        now_s = self._store.clock.monotonic_s()
        self._open_followed(group, now_s)
        for at, queued in enumerate(group):
            try:
                key = queued.as_key()
                made = None if key is None else self._made_before(queued.name, key)
                if made is not None:
                    queued.was_made = True
                    results[at] = self._again(queued, made), False
                    continue
                with queued.deadline.in_force():
                    writer = self._writer(queued.name, now_s)
                planned[at] = PlannedAppend(
                    writer,
                    queued.data,
                    queued.expected_offset,
                    queued.seal,
                    key,
                    queued.deadline,
                    followed=queued.followed,
                )
            except Exception as exc:
                results[at] = unexpected(exc, names.printable(queued.name)), False
        slow = {at: append for at, append in planned.items() if append.writer.acknowledges_cold}
        if slow:
            self._on_way.update({group[at].name for at in slow})
            self._slow.submit(self._append_slowly, [(group[at], append) for at, append in slow.items()])
            results = [(_ON_WAY, False) if at in slow else result for at, result in enumerate(results)]
        quick = {at: append for at, append in planned.items() if at not in slow}
        for at, result in zip(quick, append_all([*quick.values()]), strict=True):
            name = group[at].name
            # Fenced, sealed or removed by another process, and perhaps open again by now.
            stale = isinstance(result, Closed | NotFound) or (
                isinstance(result, Conflict) and not hasattr(result, "actual_length")
            )
            if stale or group[at].seal:
                self._leave(name)
            results[at] = result, stale and name in kept
        return results

    def _made_before(self, name: str, key: AppendKey) -> AppendKeyRecord | None:
        """Return the append that was made under a key. Raises Refused if it is another one."""
        with self._store.metadata.read() as txn:
            made = append_keys.find(txn, name, key.text)
        if made is not None and not key.names(made):
            raise _other_append(name)
        return made

    def _again(self, queued: _Queued, made: AppendKeyRecord) -> ByteRange | TierfsError:
        """Return the result of an append that was made before: where the bucket acknowledges it, later."""
        with self._store.metadata.read() as txn:
            ack = policies.effective(txn, directories.segment_by_id(txn, made.segment_id)).ack
        if ack is Ack.LOCAL:
            return made.range
        self._slow.submit(self._confirm_slowly, queued, made, ack)
        return _ON_WAY

    def _confirm_slowly(self, queued: _Queued, made: AppendKeyRecord, ack: Ack) -> None:
        result: ByteRange | TierfsError = made.range
        try:
            with queued.deadline.in_force():
                self._store.engine.confirm(queued.name, made.range, ack)
        except Exception as exc:
            result = unexpected(exc, names.printable(queued.name))
        self._loop.call_soon_threadsafe(_settle, queued, result)

    def _append_slowly(self, group: list[tuple[_Queued, PlannedAppend]]) -> None:
        """Make a group durable in the bucket, and answer. The writer of a segment that failed is opened again then."""
        try:
            results = append_all([append for _, append in group])
        except Exception as exc:
            results = [unexpected(exc, "append")] * len(group)
        failed = {
            queued.name
            for (queued, _), result in zip(group, results, strict=True)
            if queued.seal or isinstance(result, TierfsError)
        }
        self._thread.submit(self._end_slow, {queued.name for queued, _ in group}, failed)
        for (queued, _), result in zip(group, results, strict=True):
            self._loop.call_soon_threadsafe(_settle, queued, result)

    def _end_slow(self, names_of_group: set[str], failed: set[str]) -> None:
        self._on_way.subtract(names_of_group)
        self._on_way = +self._on_way
        for name in failed - set(self._on_way):
            self._leave(name)

    def _open_followed(self, group: list[_Queued], now_s: float) -> None:
        """Open the segments of followed logs in one commit: a sender may have hundreds that got nothing for a while."""
        lengths = {each.name: each.expected_offset or 0 for each in group if each.followed is not None}
        lengths = {name: length for name, length in lengths.items() if name not in self._writers}
        if len(lengths) > 1:
            try:
                opened = self._store.engine.open_writers(lengths)
            except TierfsError as exc:  # of one of them: alone, each has its own
                log.debug("writers are opened one by one: %s", exc)
            else:
                self._writers |= {name: (writer, now_s) for name, writer in opened.items()}

    def _writer(self, name: str, now_s: float) -> SegmentWriter:
        writer, _ = self._writers.get(name, (None, 0.0))
        if writer is None:
            writer = self._store.engine.open_writer(name)
        self._writers[name] = writer, now_s
        return writer

    def _left(self, name: str, work: Callable[[], T]) -> T:
        for held in list(self._writers):
            if held == name or held.startswith(f"{name}/") or not name:
                self._leave(held)
        return work()

    def _leave_renamed(self) -> None:
        """Let go of writers whose segment has another name now: an append to the old one makes a new segment."""
        with self._store.metadata.read() as txn:
            removals = txn.store.removals
        if removals != self._removals:
            for name, (writer, _) in list(self._writers.items()):
                if self._store.engine.own_writer(name) is not writer and not self._on_way[name]:
                    self._leave(name)
            self._removals = removals

    def _leave_idle(self) -> None:
        since_s = self._store.clock.monotonic_s() - self._idle_s
        rows = list(self._writers.items())
        idle = [name for name, (_, last_s) in rows if last_s <= since_s and not self._on_way[name]]
        quick = [writer for name in idle if not (writer := self._writers[name][0]).acknowledges_cold]
        alive = [writer for writer in quick if not writer.is_closed]
        if len(alive) > 1:  # one commit marks the chunks of all as whole
            append_all([PlannedAppend(writer, b"", last=True) for writer in alive])
        for name in idle:
            self._leave(name)

    def _leave_all(self) -> None:
        for name in list(self._writers):
            self._leave(name)

    def _leave(self, name: str) -> None:
        writer, _ = self._writers.pop(name, (None, 0.0))
        if writer is None:
            return
        try:
            self._store.engine.close_writer(writer)
        except TierfsError as exc:
            log.info("%s: its writer was not closed cleanly: %s", names.printable(name), exc)


def _other_append(name: str) -> Refused:
    return Refused(
        _UNPROCESSABLE,
        f"the Idempotency-Key belongs to another append to {names.printable(name)}",
        remedy="use a new key for each append, and repeat an append unchanged",
    )


def _settle(queued: _Queued, result: ByteRange | TierfsError) -> None:
    """Answer a client, unless it is gone."""
    if queued.answer.done():
        return
    if isinstance(result, TierfsError):
        queued.answer.set_exception(result)
    else:
        queued.answer.set_result(result)
