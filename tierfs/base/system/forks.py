"""Resources that a child of a fork must not share: their owners register here, and are notified in the child.

A child has all descriptors of its parent. A lock that it keeps open outlives the parent; a database or a connection
would be used by two processes.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

from tierfs.base.words.errors import Closed

_registered: WeakSet[Inherited] = WeakSet()


class Inherited(Protocol):
    """Holds what a child must not use."""

    def forget(self) -> None:
        """Let go of what belongs to the parent; called in a child, before anything else runs there."""
        ...


def register(owner: Inherited) -> None:
    """Have `owner.forget` called in children, for as long as the owner lives."""
    _registered.add(owner)


def of_parent(pid: int, what: str) -> Closed:
    """Return the error of a process that uses what its parent `pid` opened."""
    return Closed(
        f"{what} belongs to process {pid}; this one, {os.getpid()}, is a child of it",
        remedy="open the store again in the child",
    )


def leak(thing: object) -> None:
    """Never release an object of the parent's in this child: its end would undo what the parent still uses."""
    import ctypes  # here: few processes fork, and loading it costs 5 ms

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _forget_all() -> None:
    for owner in list(_registered):
        owner.forget()


os.register_at_fork(after_in_child=_forget_all)
