"""Run a trio loop for a caller that knows no trio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple

import trio

from tierfs import errors

T = TypeVar("T")
Args = TypeVarTuple("Args")


def run(work: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
    """Return the result of `work` in a loop of its own. Raises its error alone, where trio raises a group."""
    try:
        # Else Ctrl-C would be raised in any running code, and trio loses tasks that are just being started.
        return trio.run(work, *args, restrict_keyboard_interrupt_to_checkpoints=True)
    except BaseExceptionGroup as group:
        failed = errors.leaf(group)
    raise failed  # out here: inside, the group would become its context, and the group holds it
