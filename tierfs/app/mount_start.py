"""Start a mount in the background. Part of the composition root.

Apart from what the started process runs: a command that only starts one imports a fifth of that.
"""

from __future__ import annotations

import os
from pathlib import Path

from tierfs.app.store import open_store
from tierfs.base.system import processes
from tierfs.base.system.mounts import MountState, state_of
from tierfs.base.system.places import FSNAME_PREFIX, mount_at
from tierfs.base.system.store_paths import MOUNT_NAME
from tierfs.mount import mountpoint as points
from tierfs.mount.options import parse_options


def store_of_source(source: str) -> Path:
    """Return the store that a mount's source means: its directory, also as the kernel's table of mounts writes it."""
    return Path(source.removeprefix(FSNAME_PREFIX)).absolute()


def start_mount(store: Path, mountpoint: Path, options: str) -> Path:
    """Mount a store at an absolute path in a process of its own; return the log of that once it serves.

    Raises what is wrong, with nothing mounted: Conflict for a mount point in use, and the errors of `open_store`.
    """
    any_owner = parse_options(options).allow_other_owner
    points.require_usable(mountpoint)
    with open_store(store, any_owner=any_owner) as opened:
        paths = opened.paths
    more = ["-o", options] if options else []
    words = ["--store", str(paths.root), "mount", str(mountpoint), "-f", *more]
    return processes.start(words, paths.log, MOUNT_NAME)


def is_mounted(store: Path, mountpoint: Path) -> bool:
    """Return whether a store is what is mounted at a path, and its process answers."""
    mount = mount_at(mountpoint)
    if mount is None or mount.root or state_of(mount) is not MountState.ALIVE:
        return False
    try:
        return os.path.samefile(mount.store, store)
    except OSError:  # of a directory that is missing: the start reports it
        return False
