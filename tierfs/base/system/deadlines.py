"""Deadlines: one time by which a request ends, whatever it waits for on its way.

A deadline is made where a request enters (an append, a commit of a batch), and is in force in the caller's thread until
the request ends. Everything below that waits (a request to a server, a lock, a turn, a pause) waits no longer than
that; nothing below makes a deadline of its own. Of two that are in force the earlier one counts.

A call that may hang, as of a server that is silent or a filesystem that is away, runs in a thread of its own, which is
given up at the deadline: no client of a vendor has one limit for a whole call. So such a call touches neither records
nor memory of its caller's, and a process ends without it. It counts until it really ends: a server that never answers
takes no more than MOST_CALLS threads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, Generic, Protocol, TypeVar

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system import forks, guards
from tierfs.base.system.clock import SystemClock
from tierfs.base.words import units
from tierfs.base.words.errors import Unavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

# Calls at once of a process that end by a deadline, those that were given up included: the appends of a process share
# few requests, and each given up may keep the 4 MiB of a pool. A guess.
MOST_CALLS = 32

ASK_REMEDY = "check the cold tier: tierfs doctor"

_current: ContextVar[Deadline | None] = ContextVar("deadline", default=None)
_call: ContextVar[_Call[Any] | None] = ContextVar("bounded_call", default=None)


class Monotonic(Protocol):
    """The part of a clock that deadlines need."""

    def monotonic_s(self) -> float:
        """See Clock."""
        ...


class Lock(Protocol):
    """A lock or a semaphore of `threading`."""

    def acquire(self, blocking: bool = ..., timeout: float = ...) -> bool:
        """See threading.Lock."""
        ...

    def release(self) -> None:
        """See threading.Lock."""
        ...


@dataclass(frozen=True, slots=True)
class Deadline:
    """A time by which a request ends."""

    until_s: float
    """By the monotonic clock."""
    limit: str
    """The time that it had, and what set it, for messages."""
    clock: Monotonic

    @classmethod
    def after(cls, seconds: float, setting: str, clock: Monotonic | None = None) -> Deadline:
        """Return the deadline of a request that begins now; `setting` is the name of what set its time."""
        clock = clock or SystemClock()
        return cls(clock.monotonic_s() + seconds, f"{units.format_duration(seconds)} ({setting})", clock)

    @property
    def left_s(self) -> float:
        """The time that is left; 0 once it is over."""
        return max(0.0, self.until_s - self.clock.monotonic_s())

    @property
    def is_over(self) -> bool:
        """Whether it has passed."""
        return self.left_s == 0

    def passed(self, what: str, last: BaseException | None = None) -> Unavailable:
        """Return the error of work that it ended; `last` is the error of the last try."""
        reason = "" if last is None else f": {last}"
        return Unavailable(f"{what}: no answer within {self.limit}{reason}", remedy=ASK_REMEDY)

    @contextmanager
    def in_force(self, *, for_others: bool = False) -> Iterator[None]:
        """End what this thread waits for in the block by it, and by an earlier one that is in force already.

        `for_others`: the block works for the requests of several threads, and the one of its own does not count.
        """
        outer = _current.get()
        token = _current.set(self if for_others or outer is None or self.left_s < outer.left_s else outer)
        try:
            yield
        finally:
            _current.reset(token)


def current() -> Deadline | None:
    """Return the deadline in force in this thread."""
    return _current.get()


def is_over() -> bool:
    """Return whether nobody waits any more for what this thread does.

    The deadline in force has passed, or the wait for this call was interrupted.
    """
    deadline, call = _current.get(), _call.get()
    return (deadline is not None and deadline.is_over) or (call is not None and call.is_given_up)


def require_time(what: str) -> None:
    """Raise Unavailable for work that nobody waits for any more, before it is begun; see `is_over`."""
    deadline = _current.get()
    if deadline is not None and is_over():
        raise deadline.passed(what)


def note(error: BaseException) -> None:
    """Keep the error of a try that is followed by another one, for the message if the deadline ends that."""
    call = _call.get()
    if call is not None:
        call.last = error


def within(longest_s: float) -> float:
    """Return the time to wait for something: no longer than `longest_s`, nor than the deadline in force."""
    deadline = _current.get()
    return longest_s if deadline is None else min(longest_s, deadline.left_s)


@contextmanager
def taken(lock: Lock, what: str) -> Iterator[None]:
    """Have a lock in the block. Raises Unavailable where others have it still at the deadline in force."""
    deadline = _current.get()
    if deadline is None:
        lock.acquire()
    elif not lock.acquire(timeout=deadline.left_s):
        raise deadline.passed(what)
    try:
        yield
    finally:
        lock.release()


def bounded(call: Callable[[], T], what: str) -> T:
    """Return the result of a call that may hang, or raise its error, or Unavailable at the deadline in force.

    The call goes on by itself then, in a thread of its own: it may use nothing that its caller changes or closes
    afterwards, and sees by `is_over` that nobody waits. Without a deadline it is just called.
    """
    deadline = _current.get()
    return call() if deadline is None else _CALLS.run(call, what, deadline)


class _Call(Generic[T]):
    """One call in a thread of its own."""

    def __init__(self, call: Callable[[], T], what: str, ended: Callable[[], None]) -> None:
        self._function = call
        self._what = what
        self._after = ended
        self._context = copy_context()
        self.ended = threading.Event()
        self.results: list[T] = []
        self.error: BaseException | None = None
        self.last: BaseException | None = None
        self.is_given_up = False

    def run(self) -> None:
        """Make it, and keep how it ended."""
        try:
            self._context.run(_call.set, self)
            self.results.append(self._context.run(self._function))
        except BaseException as exc:
            self.error = exc
        finally:
            self._after()
            self.ended.set()
        if self.is_given_up:
            log.info("%s ended after its deadline: %s", self._what, "done" if self.error is None else self.error)


class _Calls:
    """The calls of this process that a deadline bounds. Thread-safe."""

    def __init__(self) -> None:
        self.forget()
        forks.register(self)

    def forget(self) -> None:
        """Begin anew in a child of fork, which has none of its parent's threads."""
        self._free = threading.Semaphore(MOST_CALLS)

    def run(self, call: Callable[[], T], what: str, deadline: Deadline) -> T:
        free = self._free
        if deadline.is_over or not free.acquire(timeout=deadline.left_s):
            raise deadline.passed(what)
        made = _Call(call, what, free.release)
        try:
            threading.Thread(target=made.run, name="tierfs-deadline", daemon=True).start()
        except RuntimeError as exc:
            free.release()
            raise Unavailable(f"{what}: {exc}", remedy="raise this user's limit of threads: ulimit -u") from exc
        try:
            with guards.abandonable:
                is_there = made.ended.wait(deadline.left_s)
        except BaseException:
            made.is_given_up = True
            raise
        if not is_there:
            made.is_given_up = True
            raise deadline.passed(what, made.last)
        if made.error is not None:
            raise made.error
        return made.results[0]


_CALLS = _Calls()
