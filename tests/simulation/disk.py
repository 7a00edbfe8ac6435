"""A disk that can lose power: what was synced stays, of all else a drawn part.

The files are real ones. Their state at the last sync is kept beside them: a file's bytes by its `fsync`, the names in a
directory by the directory's. LMDB syncs in C, so a commit counts as its sync, unless it was opened to do without.
"""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.simulation.points import Points
from tierfs.engine.metadata.environment import Environment

SECTOR_BYTES = 512
"""Written whole or not at all."""

_DATA = "data.mdb"


class SimDisk:
    """The files below one directory. `attached` while its store is open; what is there before counts as synced."""

    def __init__(self, root: Path, points: Points) -> None:
        self.root = root
        self._points = points
        self._held: dict[int, int] = {}
        """A descriptor per inode: its number is not used again, and a removed file can be read."""
        self._bytes: dict[int, bytes] = {}
        """Of each file that was synced."""
        self._names: dict[int, dict[str, int]] = {}
        """The inode behind each name, of each directory that was synced."""
        self._later: dict[int, list[bytes]] = {}
        """Commits of metadata that was opened without sync."""
        self._current: set[int] = set()
        """Metadata whose last commit was synced, of which no copy is kept: that would cost most of a commit."""
        self.losses = 0

    @contextmanager
    def attached(self) -> Iterator[None]:
        """See every sync, commit and removal of the process."""
        with ExitStack() as stack:
            stack.callback(self._forget)
            self.settle(self.root)
            for name, double in (("fsync", self._fsync), ("fdatasync", self._fsync), ("unlink", self._unlink)):
                stack.enter_context(patch.object(os, name, double(getattr(os, name))))
            stack.enter_context(patch.object(Environment, "commit", self._commit(Environment.commit)))
            yield

    def power_loss(self, chance: random.Random) -> None:
        """Leave the directory as a disk could hold it; no file of it may be open."""
        self.losses += 1
        self._restore(self.root, chance)
        self._forget()
        self.settle(self.root)

    def sync(self, directory: Path) -> None:
        """Make the names in a directory, and not what is below, durable."""
        self._names[self._hold(directory)] = self._listed(directory)

    def sync_file(self, path: Path) -> None:
        """Make a file's bytes and the names beside it durable, or its absence: what damaged it is no write of ours."""
        if path.exists():
            self._bytes[self._hold(path)] = path.read_bytes()
        self.sync(path.parent)

    def keeps(self, path: Path, length_bytes: int) -> bool:
        """Return whether a loss of power now would leave a file its name and so many bytes."""
        try:
            for place in (path, *path.parents):
                if place == self.root:
                    break
                names = self._names.get(place.parent.stat().st_ino, {})
                if names.get(place.name) != place.stat().st_ino:
                    return False
            return len(self._bytes.get(path.stat().st_ino, b"")) >= length_bytes
        except FileNotFoundError:
            return False

    def _fsync(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def fsync(fd: int) -> None:
            path, status = os.readlink(f"/proc/self/fd/{fd}"), os.fstat(fd)
            if not f"{path}/".startswith(f"{self.root}/"):
                real(fd)
                return
            self._points.reach("sync")
            if stat.S_ISDIR(status.st_mode):
                self._names[self._hold(path, status.st_ino)] = self._listed(path)
            else:
                inode = self._hold(f"/proc/self/fd/{fd}", status.st_ino, follow=True)
                self._bytes[inode] = os.pread(fd, status.st_size, 0)
            self._points.reach("synced")

        return fsync

    def _unlink(self, real: Callable[..., None]) -> Callable[..., None]:
        def unlink(path: str, *, dir_fd: int | None = None) -> None:
            self._points.reach("unlink")
            real(path, dir_fd=dir_fd)

        return unlink

    def _commit(self, real: Callable[[Environment, Any], None]) -> Callable[[Environment, Any], None]:
        def commit(environment: Environment, txn: Any) -> None:
            self._points.reach("commit")
            if not f"{environment.path}/".startswith(f"{self.root}/"):
                real(environment, txn)
            elif _syncs(environment):
                real(environment, txn)
                self._current.add(self._hold(environment.path / _DATA))
            else:
                self._unsynced(environment.path / _DATA, lambda: real(environment, txn))
            self._points.reach("committed")

        return commit

    def _unsynced(self, path: Path, commit: Callable[[], None]) -> None:
        inode = self._hold(path)
        if inode in self._current:
            self._current.discard(inode)
            self._bytes[inode] = path.read_bytes()
        commit()
        self._later.setdefault(inode, []).append(path.read_bytes())

    def _hold(self, path: str | Path, known: int = 0, *, follow: bool = False) -> int:
        """Keep what is at a path; return its inode, which a caller may know: most are held already."""
        if known in self._held:
            return known
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
        inode = os.fstat(fd).st_ino
        if inode in self._held:
            os.close(fd)
        else:
            self._held[inode] = fd
        return inode

    def _listed(self, directory: str | Path) -> dict[str, int]:
        with os.scandir(directory) as entries:
            return {entry.name: self._hold(entry.path, entry.inode()) for entry in entries}

    def settle(self, directory: Path) -> None:
        """Take everything below a directory as synced."""
        self.sync(directory)
        for entry in os.scandir(directory):
            if entry.is_dir(follow_symlinks=False):
                self.settle(Path(entry.path))
            else:
                self._bytes[entry.inode()] = Path(entry.path).read_bytes()

    def _restore(self, directory: Path, chance: random.Random) -> None:
        """Draw the names of a directory, then the bytes of each file, then what is below it."""
        inode = self._hold(directory)
        now, synced = self._listed(directory), self._names.get(inode, {})
        for name in sorted(now.keys() | synced.keys()):
            kept = now.get(name)
            if kept != synced.get(name) and chance.random() < 0.5:
                kept = synced.get(name)
            self._restore_name(directory / name, now.get(name), kept, chance)

    def _restore_name(self, path: Path, now: int | None, kept: int | None, chance: random.Random) -> None:
        if kept is None:
            _remove(path)
        elif path.is_dir() and now == kept:
            self._restore(path, chance)
        elif os.path.isdir(f"/proc/self/fd/{self._held[kept]}"):
            path.mkdir()  # it was removed, and all in it before
        else:
            self._restore_bytes(path, kept, chance)

    def _restore_bytes(self, path: Path, inode: int, chance: random.Random) -> None:
        source = f"/proc/self/fd/{self._held[inode]}"
        with open(source, "rb") as file:
            data, mode = file.read(), os.fstat(file.fileno()).st_mode
        synced = self._bytes.get(inode, b"")
        if path.name == _DATA:
            kept = data if inode in self._current else chance.choice([synced, *self._later.get(inode, [])])
        else:
            kept = synced if synced == data else _torn(synced, data, chance)
        if kept != data or not path.exists() or path.stat().st_ino != inode:
            _remove(path)
            path.write_bytes(kept)
            path.chmod(mode & 0o7777)

    def _forget(self) -> None:
        for fd in self._held.values():
            os.close(fd)
        for kept in (self._held, self._bytes, self._names, self._later, self._current):
            kept.clear()


def _syncs(environment: Environment) -> bool:
    flags = environment.lmdb.flags()
    return bool(flags["sync"] and flags["metasync"])


def _torn(synced: bytes, data: bytes, chance: random.Random) -> bytes:
    """Return bytes of which each sector is as synced or as written, up to a drawn end; nothing reads as zeros."""
    length = chance.choice([len(synced), len(data), chance.randint(*sorted((len(synced), len(data))))])
    out = bytearray(length)
    for at in range(0, length, SECTOR_BYTES):
        part = (synced if chance.random() < 0.5 else data)[at : min(length, at + SECTOR_BYTES)]
        out[at : at + len(part)] = part
    common = min(len(synced), len(data), length)
    if synced[:common] == data[:common]:  # an append leaves the bytes before it alone
        out[:common] = synced[:common]
    return bytes(out)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for child in path.iterdir():
            _remove(child)
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
