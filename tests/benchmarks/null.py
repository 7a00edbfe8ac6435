"""A null pyfuse3 filesystem: one file from one page-aligned buffer, the fastest a mount in Python can be.

    python -m tests.benchmarks.null MOUNTPOINT SIZE_BYTES [keep_cache]

Prints `ready` once it answers. With `keep_cache` the kernel keeps the file's pages from one open to the next.
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

from tierfs.base.system import osio
from tierfs.mount.mountpoint import tune_read_ahead

NAME = "null"
KEEP_CACHE = "keep_cache"
_INODE = pyfuse3.InodeT(2)
_REQUEST_BYTES = 1 << 20
"""The largest request of the kernel."""

_MAX_TASKS = 10_000
"""As a mount of a store has it."""


class NullOperations(pyfuse3.Operations):
    """Answers every read from the same memory."""

    def __init__(self, size_bytes: int, *, keep_cache: bool) -> None:
        super().__init__()
        self._size_bytes = size_bytes
        self._keep_cache = keep_cache
        self._buffer = memoryview(mmap.mmap(-1, _REQUEST_BYTES))

    async def getattr(
        self, inode: pyfuse3.InodeT, ctx: pyfuse3.RequestContext | None = None
    ) -> pyfuse3.EntryAttributes:
        """The root, or the file."""
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = inode
        directory = inode == pyfuse3.ROOT_INODE
        mode = stat.S_IFDIR | osio.SHOWN_DIRECTORY if directory else stat.S_IFREG | osio.SHOWN_FILE
        entry.st_mode = pyfuse3.ModeT(mode)
        entry.st_size = 0 if directory else self._size_bytes
        return entry

    async def lookup(
        self, parent_inode: pyfuse3.InodeT, name: pyfuse3.FileNameT, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        """The one name there is."""
        if name != NAME.encode():
            raise pyfuse3.FUSEError(errno.ENOENT)
        return await self.getattr(_INODE)

    async def open(self, inode: pyfuse3.InodeT, flags: pyfuse3.FlagT, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        """Every open is the same."""
        return pyfuse3.FileInfo(fh=pyfuse3.FileHandleT(inode), keep_cache=self._keep_cache)

    async def read(self, fh: pyfuse3.FileHandleT, off: int, size: int) -> memoryview:  # type: ignore[override]
        """Nothing is copied here."""
        return self._buffer[: max(0, min(size, self._size_bytes - off))]


async def _serve(mountpoint: Path) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_announce, mountpoint)
        await pyfuse3.main(max_tasks=_MAX_TASKS)


async def _announce(mountpoint: Path) -> None:
    await trio.to_thread.run_sync(os.stat, mountpoint)
    await trio.to_thread.run_sync(tune_read_ahead, mountpoint)
    print("ready", flush=True)


def main() -> None:
    """Mount and serve until unmounted."""
    mountpoint, size_bytes, *rest = sys.argv[1:]
    options = {"fsname=null", "ro", "nosuid", "nodev", "noexec", "default_permissions"}
    pyfuse3.init(NullOperations(int(size_bytes), keep_cache=KEEP_CACHE in rest), mountpoint, options)
    try:
        trio.run(_serve, Path(mountpoint))
    finally:
        pyfuse3.close()


if __name__ == "__main__":
    main()
