"""Reading files below a held tree as objects. Changes nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tierfs.chunkstore.checks import STEP_BYTES, check_etag, check_range, past_end
from tierfs.chunkstore.directory_tree import READ_FLAGS, HeldTree, map_os_errors
from tierfs.chunkstore.protocol import OnReceived, StoredObject
from tierfs.errors import NotFound
from tierfs.names import printable

Describe = Callable[[str, os.stat_result], StoredObject]
"""What the filesystem's word on a file is worth: decides the etag."""


class FileReader:
    """Regular files of one tree; links, devices and pipes are no objects. Thread-safe."""

    def __init__(self, tree: HeldTree, describe: Describe) -> None:
        self._tree = tree
        self._describe = describe

    def read_into(
        self, name: str, offset: int, buffer: memoryview, if_match: str | None, progress: OnReceived | None
    ) -> None:
        """See ChunkStorage.read_into; `name` was checked."""
        with self.open(name) as (fd, status):
            found = self._describe(name, status)
            check_etag(name, found.etag, if_match, found.length_bytes)
            check_range(found, offset, len(buffer))
            done = 0
            while done < len(buffer):
                with map_os_errors(name):
                    read = os.preadv(fd, [buffer[done : done + STEP_BYTES]], offset + done)
                if not read:
                    raise past_end(name, offset, len(buffer), offset + done)
                done += read
                if progress is not None:
                    progress(done)

    @contextmanager
    def open(self, name: str) -> Iterator[tuple[int, os.stat_result]]:
        """A descriptor of the regular file `name`, and what it is. Raises NotFound."""
        parent, _, last = name.rpartition("/")
        with map_os_errors(name), self._tree.open_directory(parent) as directory:
            # O_NONBLOCK: whoever put a FIFO there does not make us wait.
            fd = os.open(last, READ_FLAGS | os.O_NONBLOCK, dir_fd=directory)
        try:
            with map_os_errors(name):
                status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise NotFound(f"{printable(name)}: not a regular file")
            yield fd, status
        finally:
            os.close(fd)
