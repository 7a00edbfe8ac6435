"""Calls of the operating system that several layers make: directories that last."""

from __future__ import annotations

import os
from pathlib import Path


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directories(path: Path, mode: int) -> None:
    """Make a directory and what is missing above it, durably; one that is there is success. Raises OSError."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    path.mkdir(mode=mode, parents=True, exist_ok=True)
    for made in missing:
        sync_directory(made.parent)
