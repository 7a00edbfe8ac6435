"""Show the status of a store again and again, for `tierfs status --watch`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tierfs.base.words.errors import TierfsError
from tierfs.base.words.names import printable
from tierfs.faces.cli.drawing import live
from tierfs.faces.cli.session import Session

# Returns the status for programs and for people.
Look = Callable[[], tuple[dict[str, Any], str]]


def watch(session: Session, interval_s: float, look: Look) -> None:
    """Show what `look` returns, until q is pressed or Ctrl-C; without a terminal, one after the other.

    Raises what the first look raises. A later one that fails is shown as its error, since the store may come back.
    """
    seen = look()
    with suppress(KeyboardInterrupt):
        if session.json or not live.is_possible():
            _print(session, interval_s, look, seen)
        else:
            _show(interval_s, look, seen)


def _print(session: Session, interval_s: float, look: Look, seen: tuple[dict[str, Any], str]) -> None:
    with live.keys() as wait:
        while True:
            session.rows([seen[0]], [seen[1], ""])
            sys.stdout.flush()
            if wait(interval_s) in live.END:
                return
            seen = _again(look)


def _show(interval_s: float, look: Look, seen: tuple[dict[str, Any], str]) -> None:
    with live.screen() as screen, live.keys() as wait:
        while True:
            at = time.strftime("%H:%M:%S", time.gmtime())
            lines = seen[1].splitlines()[: max(0, screen.rows - 1)]
            screen.show([*lines, f"q quit   every {interval_s:g} s, last at {at} UTC"])
            if wait(interval_s) in live.END:
                return
            seen = _again(look)


def _again(look: Look) -> tuple[dict[str, Any], str]:
    try:
        return look()
    except TierfsError as exc:
        remedy = f"\n  {printable(exc.remedy)}" if exc.remedy else ""
        return {"error": str(exc), "remedy": exc.remedy}, f"tierfs: {printable(str(exc))}{remedy}"
