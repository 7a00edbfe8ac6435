"""Define tierfs's own parameter types, shared options, confirmations, and waiting for room on a full local disk."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from tierfs import units
from tierfs.app.store import Store
from tierfs.cli.session import Session
from tierfs.errors import Conflict, InvalidRequest, NoColdTier, StorageFull, Unavailable
from tierfs.types import ReadPriority

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Size(click.ParamType[int]):
    """A number of bytes, like 4096 or 64MiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse the typed text."""
        try:
            return units.parse_size(value)
        except ValueError as exc:
            self.fail(str(exc), param, ctx)


class Duration(click.ParamType[float]):
    """A time in seconds, like 90 or 5min."""

    name = "duration"

    def __init__(self, least_s: float = 0) -> None:
        self._least_s = least_s

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the typed text."""
        try:
            seconds = units.parse_duration(value)
        except ValueError as exc:
            self.fail(str(exc), param, ctx)
        if not self._least_s <= seconds <= units.MAX_S:
            self.fail(f"{value!r} is not from {units.format_duration(self._least_s)} to 36500d", param, ctx)
        return seconds


class Priority(click.ParamType[ReadPriority]):
    """A read priority."""

    name = "priority"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ReadPriority:
        """Parse the typed text."""
        try:
            return ReadPriority(value)
        except ValueError:
            self.fail(f"{value!r} is not one of {', '.join(ReadPriority)}", param, ctx)


read_priority_option = click.option(
    "--read-priority",
    "read_priority",
    type=Priority(),
    metavar="P",
    help=f"Tier that serves bytes held by both: {', '.join(ReadPriority)}.",
)


# How a position in a managed ledger is written in help.
POSITION = "LEDGER[:ENTRY]"

_EXIT_DECLINED = 1

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


def dry_run_option(line: str) -> Callable[[F], F]:
    """Return the decorator for the option --dry-run, with its line of the help."""
    return click.option("-n", "--dry-run", is_flag=True, help=line)


def is_terminal() -> bool:
    """Return whether a user can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(verb: str, question: str) -> None:
    """Return after a yes; exit with 1 after a no. Raises InvalidRequest without a terminal."""
    if not is_terminal():
        session = click.get_current_context().ensure_object(Session)
        raise InvalidRequest(
            f"{verb} needs a confirmation, and there is no terminal: {question}",
            remedy=f"to confirm: {session.command_with('--yes')}",
        )
    if not click.confirm(question, err=True):
        click.echo("nothing was changed", err=True)
        raise click.exceptions.Exit(_EXIT_DECLINED)


# Limit of an append's wait for a holder to make room: it ends, offloads and evicts a chunk within some seconds.
HOLDER_WAIT_S = 60.0

wait_option = click.option(
    "--wait",
    type=Duration(),
    metavar="TIME",
    help="Maximum wait for room on a full disk  [default: 1min while a mount or daemon runs, else none]",
)

# Interval between two attempts: the holder checks for room as often.
_POLL_S = 1.0


class Room:
    """Repeat work that found the disk full: after evicting cold bytes, then while waiting may help."""

    def __init__(
        self, store: Store, session: Session, *, wait_s: float | None = None, holder_wait_s: float = math.inf
    ) -> None:
        """Wait at most `wait_s`; None: `holder_wait_s` while a holder may make room, else not at all."""
        self._store = store
        self._session = session
        self._wait_s = wait_s
        self._holder_wait_s = holder_wait_s
        self._warned = False
        self._lock = threading.Lock()
        self._evictions = 0

    def make(self, segment: str, work: Callable[[], T], stop: threading.Event | None = None) -> T:
        """Do `work`, which appends to `segment`. Raises the errors of `work`; StorageFull only when nothing helped.

        Setting `stop` ends the wait, with StorageFull.
        """
        since_s: float | None = None
        while True:
            try:
                return work()
            except StorageFull as exc:
                from tierfs.holder import lock

                now_s = time.monotonic()
                since_s = now_s if since_s is None else since_s
                if lock.current(self._store.paths.holder) is None and self._evict(segment):
                    continue
                holder = lock.current(self._store.paths.holder)
                limit_s = 0 if holder is None else self._holder_wait_s
                remaining_s = since_s + (limit_s if self._wait_s is None else self._wait_s) - now_s
                if remaining_s <= 0:
                    raise
                self._warn_once(f"{exc}; waiting for {'room' if holder is None else f'{holder} to make room'}")
                if (stop or threading.Event()).wait(min(_POLL_S, remaining_s)):
                    raise

    def _evict(self, segment: str) -> bool:
        """Evict cold bytes, as no holder does it; return whether any were evicted."""
        seen = self._evictions
        with self._lock:
            if self._evictions > seen:
                return True  # another thread did meanwhile
            from tierfs.app import verbs
            from tierfs.holder.lock import HeldElsewhere

            try:
                freed = verbs.make_room(self._store, segment)
            except HeldElsewhere:
                return False
            except (Conflict, Unavailable, NoColdTier) as exc:
                self._warn_once(f"nothing can be evicted: {exc}")
                return False
            self._evictions += freed > 0
        if freed:
            self._session.note(f"the local disk is full: {freed >> 20} MiB that are cold were evicted")
        return freed > 0

    def _warn_once(self, text: str) -> None:
        if not self._warned:
            self._session.warn(text)
        self._warned = True
