"""Environments that a parent of this process had open: a child of fork keeps them open and unused.

Closing one in a child would wait for ever when a thread of the parent was writing at the moment of the fork, and would
free the slots of the parent's readers in the lock file that both map, so that the pages they read are overwritten.
LMDB itself allows a child to open the environment again; its locks belong to the process.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

from tierfs.base.system import forks
from tierfs.engine.metadata.host import FILES

# Paths of environments that a parent of this process had open.
_paths: set[Path] = set()


def abandon(path: Path, environment: object) -> None:
    """Keep the parent's environment, in a child, as it is until this process ends."""
    forks.leak(environment)
    _paths.add(path)


def make_way(path: Path) -> None:
    """Let py-lmdb forget, before an environment is opened, that the parent had it open.

    It refuses to open a file twice in a process and knows files by device and inode, in a set that a child inherits and
    that only closing shortens.
    """
    if path not in _paths:
        return
    _paths.discard(path)
    statuses = [os.stat(path / name) for name in FILES if (path / name).exists()]
    keys = frozenset(("ino", status.st_dev, status.st_ino) for status in statuses)
    was_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()  # servers freeze what they have before they fork, and the collector does not list that
    for candidate in gc.get_objects():
        if type(candidate) is set and not candidate.isdisjoint(keys):
            candidate.difference_update(keys)
    if was_frozen:
        gc.freeze()
