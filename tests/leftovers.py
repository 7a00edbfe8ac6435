"""Mounts in temporary directories of earlier runs that were killed: pytest fails at its end when it removes those."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tierfs.base.system import places

LOCK = ".lock"
"""In the directory of a run: the number of its process."""


def unmount_leftovers(root: Path) -> None:
    """Unmount what is below `root`, which has a directory for each run, unless the process of that run exists."""
    for row in reversed(places.table().values()):  # what is mounted in another mount comes first
        point = Path(row.mountpoint)
        if root in point.parents and not _is_running(root / point.relative_to(root).parts[0]):
            command = ["umount", "--lazy"] if os.geteuid() == 0 else ["fusermount3", "-uz"]
            subprocess.run([*command, point], check=False, capture_output=True)


def _is_running(run: Path) -> bool:
    try:
        return Path("/proc", (run / LOCK).read_text()).exists()
    except FileNotFoundError:  # a run that ends removes it
        return False
