"""One run at a time on a table in a local directory, where no storage decides between two of them.

A rename on a local disk replaces the file that another process has just put there, so a catalog of files could lose a
commit. On other storage the catalog decides, or that of Hadoop does by a rename that fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from tierfs.base.system.locks import LockFile
from tierfs.base.words.errors import Conflict

# Readers of tables, and Iceberg's removal of orphan files, pass over names that begin with an underscore.
_NAME = "_tierfs.lock"


@contextmanager
def only_run(location: str | None, name: str) -> Iterator[None]:
    """Hold the lock of a table for the block. Raises Conflict if another run of this machine has it."""
    directory = None if location is None else local_path(location)
    if directory is None:
        yield
        return
    directory.mkdir(parents=True, exist_ok=True)
    with closing(LockFile(directory / _NAME)) as lock:
        if not lock.try_lock():
            raise Conflict(f"another run follows into {name}", remedy="wait for its end, or stop it")
        yield


def local_path(location: str) -> Path | None:
    """Return the path of a local directory; None for any other place."""
    url = urlsplit(location)
    if url.scheme not in ("", "file"):
        return None
    return Path(url2pathname(url.path) if url.scheme else location)
