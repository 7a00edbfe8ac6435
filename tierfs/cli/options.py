"""Types of parameters that click does not know.

Asking before something is destroyed.

Room on the local disk: what appends do when there is none.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from tierfs import units
from tierfs.app import verbs
from tierfs.app.store import Store
from tierfs.cli.session import Session
from tierfs.errors import Conflict, InvalidRequest, StorageFull, Unavailable
from tierfs.holder import lock
from tierfs.holder.lock import HeldElsewhere
from tierfs.types import ReadPriority


class Size(click.ParamType[int]):
    """A number of bytes, like 4096 or 64MiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse what was typed."""
        try:
            return units.parse_size(value)
        except ValueError as exc:
            self.fail(str(exc), param, ctx)


class Duration(click.ParamType[float]):
    """A time in seconds, like 90 or 5min."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse what was typed."""
        try:
            return units.parse_duration(value)
        except ValueError as exc:
            self.fail(str(exc), param, ctx)


class Priority(click.ParamType[ReadPriority]):
    """A read priority."""

    name = "priority"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ReadPriority:
        """Parse what was typed."""
        try:
            return ReadPriority(value)
        except ValueError:
            self.fail(f"{value!r} is none of {', '.join(ReadPriority)}", param, ctx)


read_priority_option = click.option(
    "--read-priority",
    "read_priority",
    type=Priority(),
    metavar="P",
    help=f"Which tier serves a byte both hold: {', '.join(ReadPriority)}.",
)


_EXIT_DECLINED = 1

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def is_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(verb: str, question: str) -> None:
    """Go on only after a yes; without a terminal nobody can give it: InvalidRequest."""
    if not is_terminal():
        raise InvalidRequest(
            f"{verb} asks first, and there is no terminal: {question}", remedy=f"to go on: {verb} --yes"
        )
    if not click.confirm(question, err=True):
        click.echo("nothing was changed", err=True)
        raise click.exceptions.Exit(_EXIT_DECLINED)


T = TypeVar("T")

HOLDER_WAIT_S = 60.0
"""How long an append waits for a holder to make room: in some seconds it ends a chunk, makes it cold and evicts it."""

wait_option = click.option(
    "--wait",
    type=Duration(),
    metavar="TIME",
    help="How long to wait for room on a full disk  [default: 1min if a mount or daemon may make some]",
)

_POLL_S = 1.0
"""Between two looks whether there is room: the holder looks as often."""


class Room:
    """Repeats what found the disk full: after evicting cold bytes, then for as long as waiting may help."""

    def __init__(
        self, store: Store, session: Session, *, wait_s: float | None = None, holder_wait_s: float = math.inf
    ) -> None:
        """`wait_s` is how long to wait; None: `holder_wait_s` while a holder may make room, else not at all."""
        self._store = store
        self._session = session
        self._wait_s = wait_s
        self._holder_wait_s = holder_wait_s
        self._told = False
        self._lock = threading.Lock()
        self._evictions = 0

    def make(self, segment: str, work: Callable[[], T], stop: threading.Event | None = None) -> T:
        """Do `work`, which appends to `segment`. Raises what it raises, StorageFull only after all that helps.

        `stop` ends the waiting, with StorageFull.
        """
        since_s: float | None = None
        while True:
            try:
                return work()
            except StorageFull as exc:
                now_s = time.monotonic()
                since_s = now_s if since_s is None else since_s
                if lock.current(self._store.paths.holder) is None and self._evict(segment):
                    continue
                who = lock.current(self._store.paths.holder)
                left_s = since_s + self._limit_s(who) - now_s
                if left_s <= 0:
                    raise
                self._tell(f"{exc}; waiting for {'room' if who is None else f'{who} to make room'}")
                if (stop or threading.Event()).wait(min(_POLL_S, left_s)):
                    raise

    def _limit_s(self, who: object) -> float:
        if self._wait_s is not None:
            return self._wait_s
        return 0 if who is None else self._holder_wait_s

    def _evict(self, segment: str) -> bool:
        """Evict cold bytes, as no holder does it; whether any went."""
        seen = self._evictions
        with self._lock:
            if self._evictions > seen:
                return True  # another thread did, meanwhile
            try:
                freed = verbs.make_room(self._store, segment)
            except HeldElsewhere:
                return False
            except (Conflict, Unavailable) as exc:
                self._tell(f"nothing can be evicted: {exc}")
                return False
            self._evictions += freed > 0
        if freed:
            self._session.note(f"the local disk is full: {freed >> 20} MiB that are cold were evicted")
        return freed > 0

    def _tell(self, text: str) -> None:
        """Warn once."""
        if not self._told:
            self._session.warn(text)
        self._told = True
