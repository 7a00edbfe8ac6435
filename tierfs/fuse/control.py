"""Control files: `.tierfs` at the root of a mount, found by name but not listed, with what it tells of itself.

Their content is made when they are opened. They show size 0 and are read past the page cache, like files
in /proc. A directory of the store with this name is hidden behind it.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping

import pyfuse3

from tierfs.fuse.options import MountOptions
from tierfs.types import ROOT_INODE

DIRECTORY_NAME = b".tierfs"
_DIRECTORY_INODE = 1 << 63
"""Numbers of the store count up from 1 and never get here."""

_FILE_MODE = 0o444
_DIRECTORY_MODE = 0o555

Content = Callable[[], bytes]


class ControlFiles:
    """The control files of one mount; without any, the directory is not there either."""

    def __init__(self, contents: Mapping[str, Content], options: MountOptions) -> None:
        self._options = options
        self._contents = list(contents.values())
        self._inodes = {name.encode(): _DIRECTORY_INODE + 1 + index for index, name in enumerate(contents)}

    def find(self, parent_inode: int, name: bytes) -> int | None:
        """The inode of a control file or of their directory; None for everything else."""
        if parent_inode == ROOT_INODE and name == DIRECTORY_NAME and self._inodes:
            return _DIRECTORY_INODE
        return self._inodes.get(name) if parent_inode == _DIRECTORY_INODE else None

    def owns(self, inode: int) -> bool:
        """Whether the inode is a control file or their directory."""
        return inode >= _DIRECTORY_INODE

    def is_directory(self, inode: int) -> bool:
        """Whether the inode is the directory of the control files."""
        return inode == _DIRECTORY_INODE

    def attributes(self, inode: int) -> pyfuse3.EntryAttributes:
        """What stat shows."""
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = inode
        directory = self.is_directory(inode)
        mode = stat.S_IFDIR | _DIRECTORY_MODE if directory else stat.S_IFREG | _FILE_MODE
        entry.st_mode = mode & ~self._options.umask
        entry.st_nlink = 2 if directory else 1
        entry.st_uid, entry.st_gid = self._options.uid, self._options.gid
        entry.attr_timeout = entry.entry_timeout = 0
        return entry

    def list(self, token: pyfuse3.ReaddirToken, start: int) -> None:
        """Answer a readdir of the directory from entry `start` on."""
        for index, (name, inode) in enumerate(self._inodes.items()):
            if index >= start and not pyfuse3.readdir_reply(token, name, self.attributes(inode), index + 1):
                return

    def content(self, inode: int) -> bytes:
        """What the file says now."""
        return self._contents[inode - _DIRECTORY_INODE - 1]()
