"""Start mounts and holders of a store as daemons.

What they run is imported by them alone: a command that starts one takes half the time.
"""

from __future__ import annotations

from pathlib import Path

from tierfs.app.store import open_store
from tierfs.fuse import mountpoint as points
from tierfs.fuse.options import parse_options
from tierfs.holder import lock
from tierfs.holder.lock import HeldElsewhere
from tierfs.system import processes

HOLDER, MOUNT = "daemon", "mount"
"""Names of the daemons, and of their logs."""


def hold_background(store_path: Path) -> Path:
    """Start a daemon that holds the store; return its log once it does. Raises the daemon's error."""
    with open_store(store_path) as store:
        paths = store.paths
        holder = lock.current(paths.holder)
    if holder is not None:
        raise HeldElsewhere(f"the store is held by {holder}", remedy="leave it to that process, or end it first")
    return processes.start(["--store", str(paths.root), "daemon", "-f"], paths.log, HOLDER)


def mount_background(store_path: Path, mountpoint: Path, options: str) -> Path:
    """Start a daemon that mounts; return its log once the mount answers. Raises the daemon's error."""
    any_owner = parse_options(options).allow_other_owner
    points.require_usable(mountpoint)
    with open_store(store_path, any_owner=any_owner) as store:
        paths = store.paths
    arguments = ["--store", str(paths.root), "mount", str(mountpoint), "-f", *(["-o", options] if options else [])]
    return processes.start(arguments, paths.log, MOUNT)
