"""One server for all processes of a test run: the first to need it starts it, and ends it when all have left."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def shared(directory: Path, start: Callable[[], str], stop: Callable[[], None]) -> Iterator[str]:
    """Give every process that shares `directory` what the first one's `start` returned: where the server is.

    The process that started it waits in the end for the others, and only then stops it. The kernel lets go of the
    locks of one that dies.
    """
    directory.mkdir(parents=True, exist_ok=True)
    record = directory / "address"
    with _open(directory / "users") as users, _open(directory / "starting") as starting:
        fcntl.flock(users, fcntl.LOCK_SH)  # before looking: nobody stops it from here on
        fcntl.flock(starting, fcntl.LOCK_EX)
        ours = not record.exists()
        if ours:
            record.write_text(start())
        address = record.read_text()
        fcntl.flock(starting, fcntl.LOCK_UN)
        try:
            yield address
        finally:
            if ours:
                fcntl.flock(users, fcntl.LOCK_EX)
                record.unlink()
                stop()


@contextmanager
def _open(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
