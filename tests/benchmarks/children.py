"""Mounts in processes of their own, for as long as a block runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tierfs.base.system import processes
from tierfs.base.system.processes import Argument
from tierfs.base.words.errors import Unavailable
from tierfs.mount.mountpoint import FUSERMOUNT

_READY = "ready\n"
_END_S = 15
"""A mount gives reads in flight 5 s; what has not ended long after is killed."""


@contextmanager
def served(mountpoint: Path, module: str, *arguments: Argument) -> Iterator[int]:
    """A module that mounts and prints `ready`; yields its process. Raises Unavailable when it ends before that."""
    process = processes.begin(processes.python(module, *arguments))
    with _ended(process, mountpoint):
        assert process.stdout is not None
        if process.stdout.readline() != _READY:
            raise Unavailable(f"nothing was mounted at {mountpoint}", remedy="see: tierfs doctor")
        yield process.pid


@contextmanager
def _ended(process: processes.Process, mountpoint: Path) -> Iterator[None]:
    """End the process and take its mount down, whatever happens."""
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_END_S)
        except processes.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        _detach(mountpoint)


def _detach(mountpoint: Path) -> None:
    """Unmount what the process left; it says so when that is nothing, and nobody listens."""
    tool = shutil.which(FUSERMOUNT)
    command = [tool, "-u", "-z", "-q"] if tool is not None else ["umount", "-l", "-q"]
    processes.run([*command, mountpoint])
