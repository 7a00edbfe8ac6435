"""What a process must not share with a child of its fork: locks, connections, an open database.

A child has all descriptors of its parent. A lock that it keeps open outlives the parent; a database or a
connection that it uses is used by two. So what holds such a thing registers here and is told in the child.
"""

from __future__ import annotations

import ctypes
import os
from typing import Protocol
from weakref import WeakSet

from tierfs.errors import Closed


class Inherited(Protocol):
    """Holds what a child must not use."""

    def forget(self) -> None:
        """Called in a child, before anything else runs there: let go of what belongs to the parent."""
        ...


_registered: WeakSet[Inherited] = WeakSet()


def register(holder: Inherited) -> None:
    """Have `holder.forget` called in children, for as long as the holder lives."""
    _registered.add(holder)


def require_process(pid: int, what: str) -> None:
    """Raise Closed in any process but `pid`, which opened `what`."""
    if pid != os.getpid():
        raise Closed(
            f"{what} belongs to process {pid}; this one, {os.getpid()}, is a child of it",
            remedy="open the store again in the child",
        )


def leak(thing: object) -> None:
    """Never release an object of the parent's in this child: its end would undo what the parent still uses."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _forget_all() -> None:
    for holder in list(_registered):
        holder.forget()


os.register_at_fork(after_in_child=_forget_all)
