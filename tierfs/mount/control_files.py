"""Control files: `.tierfs` at the root of a mount, found by name but not listed, with the mount's reports.

Their content is made when they are opened, or follows the mount while they are open. They show size 0 and bypass the
page cache, like files in /proc. They hide a directory of the store with this name. Other users than the one who mounts
read them only with the option allow_other_control.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from typing import Protocol

import pyfuse3
import trio

from tierfs.base.system import osio
from tierfs.base.words.names import CONTROL_NAME
from tierfs.base.words.types import ROOT_INODE
from tierfs.mount.options import MountOptions

DIRECTORY_NAME = CONTROL_NAME.encode()
# Inode numbers of the store count up from 1 and never reach this one.
_DIRECTORY_INODE = 1 << 63


Content = Callable[[], bytes]


class OpenControl(Protocol):
    """One open handle of a control file."""

    async def read(self, offset: int, size_bytes: int) -> bytes:
        """Return the next bytes; empty at the end."""
        ...

    def close(self) -> None:
        """Release the handle."""
        ...


Opener = Callable[[], OpenControl]


class Text:
    """A content fixed when the file was opened."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def read(self, offset: int, size_bytes: int) -> bytes:
        """Return a range of it."""
        return self._content[offset : offset + size_bytes]

    def close(self) -> None:
        """Do nothing: it holds no resource."""


def made_when_opened(content: Content) -> Opener:
    """Return an opener that fixes the content when the file is opened."""
    return lambda: Text(content())


class MadeInThread:
    """A content made by a thread at the first read: of what takes longer than the loop may be kept."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._made: bytes | None = None
        self._lock = trio.Lock()

    async def read(self, offset: int, size_bytes: int) -> bytes:
        """Return a range of it."""
        async with self._lock:
            if self._made is None:
                self._made = await trio.to_thread.run_sync(self._content)
        return self._made[offset : offset + size_bytes]

    def close(self) -> None:
        """Do nothing: it holds no resource."""


def made_in_thread(content: Content) -> Opener:
    """Return an opener whose content a thread makes at the first read."""
    return lambda: MadeInThread(content)


class ControlFiles:
    """The control files of one mount; without any, their directory does not exist."""

    def __init__(self, files: Mapping[str, Opener], options: MountOptions) -> None:
        self._options = options
        self._openers = list(files.values())
        self._inodes = {name.encode(): _DIRECTORY_INODE + 1 + index for index, name in enumerate(files)}

    def find(self, parent_inode: int, name: bytes) -> int | None:
        """Return the inode of a control file or of their directory; None for everything else."""
        if parent_inode == ROOT_INODE and name == DIRECTORY_NAME and self._inodes:
            return _DIRECTORY_INODE
        if name == b"." and self.owns(parent_inode):
            return parent_inode
        return self._inodes.get(name) if parent_inode == _DIRECTORY_INODE else None

    def owns(self, inode: int) -> bool:
        """Return whether the inode is a control file or their directory."""
        return inode >= _DIRECTORY_INODE

    def is_directory(self, inode: int) -> bool:
        """Return whether the inode is the directory of the control files."""
        return inode == _DIRECTORY_INODE

    def path(self, inode: int) -> str:
        """Return its path in the mount."""
        name = next((name for name, number in self._inodes.items() if number == inode), b"")
        return b"/".join((b"", DIRECTORY_NAME, *filter(None, (name,)))).decode()

    def attributes(self, inode: int) -> pyfuse3.EntryAttributes:
        """Return its attributes for stat."""
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = inode
        directory = inode in (_DIRECTORY_INODE, ROOT_INODE)  # the mount's root, as `..`
        mode = stat.S_IFDIR | osio.SHOWN_DIRECTORY if directory else stat.S_IFREG | osio.SHOWN_FILE
        entry.st_nlink = 2 if directory else 1
        if self._options.allow_other_control:
            entry.st_mode = mode & ~self._options.umask
            entry.st_uid, entry.st_gid = self._options.uid, self._options.gid
        else:
            # They name every file that is read, by whomever: that is for the user who mounts, whatever uid= shows.
            entry.st_mode = mode & ~(stat.S_IRWXG | stat.S_IRWXO)
            entry.st_uid, entry.st_gid = os.getuid(), os.getgid()
        entry.attr_timeout = entry.entry_timeout = 0
        return entry

    def list(self, token: pyfuse3.ReaddirToken, start: int) -> None:
        """Answer a readdir of the directory from entry `start` on."""
        dots = {b".": _DIRECTORY_INODE, b"..": int(ROOT_INODE)}
        for index, (name, inode) in enumerate((dots | self._inodes).items()):
            if index >= start and not pyfuse3.readdir_reply(token, name, self.attributes(inode), index + 1):
                return

    def open(self, inode: int) -> OpenControl:
        """Open a control file."""
        return self._openers[inode - _DIRECTORY_INODE - 1]()
