"""A null pyfuse3 filesystem: one file from one page-aligned buffer, the fastest a mount in Python can be.

python -m tests.benchmarks.nullfs MOUNTPOINT SIZE_BYTES [keep_cache]
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import sys
from pathlib import Path

import pyfuse3
import trio

from tierfs.fuse.mountpoint import tune_read_ahead

NAME = b"null"
_INODE = 2
_REQUEST_BYTES = 1 << 20


class NullOperations(pyfuse3.Operations):
    """Answers every read from the same memory."""

    def __init__(self, size: int, *, keep_cache: bool = False) -> None:
        super().__init__()
        self._size = size
        self._keep_cache = keep_cache
        self._buffer = memoryview(mmap.mmap(-1, _REQUEST_BYTES))

    async def getattr(self, inode: int, ctx: pyfuse3.RequestContext | None = None) -> pyfuse3.EntryAttributes:
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = inode
        directory = inode == pyfuse3.ROOT_INODE
        entry.st_mode = stat.S_IFDIR | 0o555 if directory else stat.S_IFREG | 0o444
        entry.st_size = 0 if directory else self._size
        return entry

    async def lookup(self, parent: int, name: bytes, ctx: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        if name != NAME:
            raise pyfuse3.FUSEError(errno.ENOENT)
        return await self.getattr(_INODE)

    async def open(self, inode: int, flags: int, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        return pyfuse3.FileInfo(fh=inode, keep_cache=self._keep_cache)

    async def read(self, handle: int, offset: int, size: int) -> memoryview:  # type: ignore[override]
        return self._buffer[: max(0, min(size, self._size - offset))]


async def serve(mountpoint: Path) -> None:
    async with trio.open_nursery() as nursery:

        async def announce() -> None:
            await trio.to_thread.run_sync(os.stat, mountpoint)
            await trio.to_thread.run_sync(tune_read_ahead, mountpoint)
            print("ready", flush=True)

        nursery.start_soon(announce)
        await pyfuse3.main(max_tasks=10_000)


def main() -> None:
    mountpoint = Path(sys.argv[1])
    options = {"fsname=null", "ro", "nosuid", "nodev", "noexec", "default_permissions"}
    operations = NullOperations(int(sys.argv[2]), keep_cache=sys.argv[3:] == ["keep_cache"])
    pyfuse3.init(operations, str(mountpoint), options)
    try:
        trio.run(serve, mountpoint)
    finally:
        pyfuse3.close()


if __name__ == "__main__":
    main()
