"""One run at a time on a table in a local directory, where no storage decides between two of them.

A rename on a local disk replaces the file that another process has just put there, so a catalog of files could lose a
commit. On other storage the catalog decides, or that of Hadoop does by a rename that fails.

Java renames and writes what the driver tells it to. When the driver alone is killed, its Java lives for a moment: it
may finish the last call, and its tasks. So each of the two has a lock of its own, and a run waits for both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from tierfs.base.system.locks import LockFile
from tierfs.base.words.errors import Conflict
from tierfs.pipeline.spark.tables.table_files import HadoopFiles

# Readers of tables, and Iceberg's removal of orphan files, pass over names that begin with an underscore.
_NAME = "_tierfs.lock"

# Bytes of the file: the lock of the driver, and that of its Java.
_DRIVER, _JAVA = 0, 1

# For the Java of a killed driver to end: it stops Spark as soon as its standard input ends.
JAVA_S = 60.0


@contextmanager
def only_run(location: str, name: str, files: HadoopFiles) -> Iterator[None]:
    """Hold the locks of a table for the block; `files` are those of the Java that writes.

    Raises Conflict if another run of this machine has the table, or the Java of a killed one does not end.
    """
    directory = local_path(location)
    if directory is None:
        yield
        return
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / _NAME
    with closing(LockFile(path)) as lock:
        if not lock.try_lock(start=_DRIVER, length=1):
            raise Conflict(f"another run follows into {name}", remedy="wait for its end, or stop it")
        if not lock.lock_within(JAVA_S, start=_JAVA, length=1):
            raise Conflict(
                f"the Java of a killed run may still write to {name}",
                remedy=f"end that process: lslocks shows which one has a lock of {path}",
            )
        lock.unlock(start=_JAVA, length=1)  # nobody else takes it meanwhile
        with files.locked(path, _JAVA):
            yield


def local_path(location: str) -> Path | None:
    """Return the path of a local directory; None for any other place."""
    url = urlsplit(location)
    if url.scheme not in ("", "file"):
        return None
    return Path(url2pathname(url.path) if url.scheme else location)
