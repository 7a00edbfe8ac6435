"""Environments that a child of fork has from its parent: never used, never closed, and out of the way of its own.

Closing one in a child is no way out. It waits for ever when a thread of the parent was writing at the moment
of the fork, and it frees the slots of the parent's readers in the lock file that both map, so that the pages
they read are written over. LMDB itself allows a child to open the environment anew; its locks are the process's.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

from tierfs import forks

_FILES = ("data.mdb", "lock.mdb")

_paths: set[Path] = set()
"""Of environments that a parent of this process had open."""


def abandon(path: Path, environment: object) -> None:
    """In a child: keep the parent's environment as it is until this process ends."""
    forks.leak(environment)
    _paths.add(path)


def make_way(path: Path) -> None:
    """Before an environment is opened: have py-lmdb forget that the parent had it open.

    It refuses to open a file twice in a process and knows files by device and inode, in a set that a child
    inherits and that only closing shortens.
    """
    if path not in _paths:
        return
    _paths.discard(path)
    found = [os.stat(path / name) for name in _FILES]
    keys = frozenset(("ino", status.st_dev, status.st_ino) for status in found)
    for thing in gc.get_objects():
        if type(thing) is set and not thing.isdisjoint(keys):
            thing.difference_update(keys)
