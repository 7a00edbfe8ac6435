"""Read files below a root directory as objects. Changes nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tierfs.base.words.errors import NotFound
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.directory.tree import READ_FLAGS, RootDirectory, map_os_errors
from tierfs.engine.chunkstore.protocol import OnReceived, StoredObject
from tierfs.engine.chunkstore.validate import STEP_BYTES, check_etag, check_range, past_end

# Makes the description of an object from its file's status; decides the etag.
Describe = Callable[[str, os.stat_result], StoredObject]


class FileReader:
    """Regular files of one tree; links, devices and pipes are no objects. Thread-safe."""

    def __init__(self, tree: RootDirectory, describe: Describe) -> None:
        self._tree = tree
        self._describe = describe

    def read_into(
        self, name: str, offset: int, buffer: memoryview, if_match: str | None, progress: OnReceived | None
    ) -> None:
        """See ChunkStorage.read_into; `name` is already checked."""
        with self.open(name) as (fd, status):
            stored = self._describe(name, status)
            check_etag(name, stored.etag, if_match, stored.length_bytes)
            check_range(stored, offset, len(buffer))
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
        """Yield a descriptor and the status of the regular file `name`. Raises NotFound."""
        parent, _, last = name.rpartition("/")
        with map_os_errors(name), self._tree.open_directory(parent) as directory:
            # O_NONBLOCK: a FIFO of that name must not block us.
            fd = os.open(last.encode(), READ_FLAGS | os.O_NONBLOCK, dir_fd=directory)
            try:
                status = os.fstat(fd)
            except BaseException:
                os.close(fd)
                raise
        try:
            if not stat.S_ISREG(status.st_mode):
                raise NotFound(f"{printable(name)}: not a regular file")
            yield fd, status
        finally:
            os.close(fd)
