"""A pyfuse3 filesystem that does nothing but answer: a tree of files in memory, everything cached by the kernel.

`python -m tests.benchmarks.files.null_tree SOURCE MOUNTPOINT` shows copies of the files of a directory. It is the limit
that a mount written with pyfuse3 can reach.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pyfuse3
import trio

_TIMEOUT_S = 300.0
_MAX_TASKS = 10_000


@dataclass
class _Node:
    attributes: pyfuse3.EntryAttributes
    content: bytes = b""
    children: dict[bytes, _Node] = field(default_factory=dict)


class NullTree(pyfuse3.Operations):
    """The files of `source`, read once."""

    def __init__(self, source: Path) -> None:
        super().__init__()
        self._nodes: dict[int, _Node] = {}
        self._add(source)

    def _add(self, path: Path) -> _Node:
        status, attributes = path.stat(), pyfuse3.EntryAttributes()
        attributes.st_ino = cast(pyfuse3.InodeT, len(self._nodes) + 1)
        attributes.st_mode, attributes.st_size, attributes.st_nlink = (
            cast(pyfuse3.ModeT, status.st_mode),
            status.st_size,
            1,
        )
        attributes.st_size, attributes.st_mtime_ns = status.st_size, status.st_mtime_ns
        attributes.st_blksize, attributes.st_blocks = 1 << 20, 1
        attributes.attr_timeout = attributes.entry_timeout = _TIMEOUT_S
        node = self._nodes[attributes.st_ino] = _Node(attributes)
        if stat.S_ISDIR(status.st_mode):
            node.children = {os.fsencode(child.name): self._add(child) for child in sorted(path.iterdir())}
        else:
            node.content = path.read_bytes()
        return node

    async def lookup(
        self, parent_inode: pyfuse3.InodeT, name: pyfuse3.FileNameT, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        """Find a name."""
        node = self._nodes[parent_inode].children.get(name)
        if node is None:
            raise pyfuse3.FUSEError(errno.ENOENT)
        return node.attributes

    async def getattr(self, inode: pyfuse3.InodeT, ctx: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        """Return the attributes."""
        return self._nodes[inode].attributes

    async def opendir(self, inode: pyfuse3.InodeT, ctx: pyfuse3.RequestContext) -> pyfuse3.FileHandleT:
        """Open a directory: its inode is the handle."""
        return cast(pyfuse3.FileHandleT, inode)

    async def readdir(self, fh: pyfuse3.FileHandleT, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        """List the names, numbered."""
        children = list(self._nodes[fh].children.items())
        for number, (name, node) in enumerate(children[start_id:], start_id + 1):
            if not pyfuse3.readdir_reply(token, cast(pyfuse3.FileNameT, name), node.attributes, number):
                return

    async def open(self, inode: pyfuse3.InodeT, flags: int, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        """Open a file: its inode is the handle."""
        return pyfuse3.FileInfo(fh=cast(pyfuse3.FileHandleT, inode), keep_cache=True)

    async def read(self, fh: pyfuse3.FileHandleT, off: int, size: int) -> bytes:
        """Return a range."""
        return self._nodes[fh].content[off : off + size]

    async def release(self, fh: pyfuse3.FileHandleT) -> None:
        """Close a file."""

    async def releasedir(self, fh: pyfuse3.FileHandleT) -> None:
        """Close a directory."""

    async def getxattr(self, inode: pyfuse3.InodeT, name: pyfuse3.XAttrNameT, ctx: pyfuse3.RequestContext) -> bytes:
        """Let the kernel never ask again."""
        raise pyfuse3.FUSEError(errno.ENOSYS)

    async def listxattr(self, inode: pyfuse3.InodeT, ctx: pyfuse3.RequestContext) -> list[pyfuse3.XAttrNameT]:
        """Let the kernel never ask again."""
        raise pyfuse3.FUSEError(errno.ENOSYS)


def main() -> None:
    """Mount and serve until it is unmounted."""
    source, mountpoint = sys.argv[1:]
    pyfuse3.init(NullTree(Path(source)), mountpoint, {"fsname=null", "ro", "default_permissions"})
    try:
        trio.run(pyfuse3.main, 1, _MAX_TASKS)
    finally:
        pyfuse3.close(unmount=True)


if __name__ == "__main__":
    main()
