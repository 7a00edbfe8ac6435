"""Disks small enough to fill, that fail, or that take no changes."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_PIECE_BYTES = 64 << 10


@contextmanager
def disk(path: Path, size_bytes: int) -> Iterator[Path]:
    """A filesystem of this size, mounted at a new directory."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tierfs-test", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(path: Path) -> None:
    """Fill the disk, with a file of that name."""
    with path.open("ab", buffering=0) as file:
        piece = bytes(_PIECE_BYTES)
        while piece:
            try:
                file.write(piece)
            except OSError as exc:
                if exc.errno != errno.ENOSPC:
                    raise
                piece = piece[: len(piece) // 2]


@contextmanager
def read_only(path: Path, at: Path) -> Iterator[Path]:
    """The directory, mounted so that nothing in it can change."""
    if os.geteuid() != 0:
        pytest.skip("a bind mount needs root")
    at.mkdir()
    subprocess.run(["mount", "--bind", str(path), str(at)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(at)], check=True)
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


@contextmanager
def filled(path: Path, free_bytes: int) -> Iterator[None]:
    """Fill the disk but for some bytes, with a file of that name, for as long as the block lasts."""
    fill(path)
    os.truncate(path, max(0, path.stat().st_size - free_bytes))
    try:
        yield
    finally:
        path.unlink()


def synced(patch: pytest.MonkeyPatch) -> list[str]:
    """Record the paths of everything that is synced from now on, as it happens."""
    done: list[str] = []
    sync = os.fsync

    def fsync(fd: int) -> None:
        sync(fd)
        done.append(os.readlink(f"/proc/self/fd/{fd}"))

    patch.setattr(os, "fsync", fsync)
    return done


@dataclass(frozen=True, slots=True)
class FailingDisk:
    """An ext4 in a file, which can fail as a disk does."""

    path: Path

    def fail(self) -> None:
        """Let the filesystem meet an error: from then on it takes no changes, also of those who have files open.

        A remount for reading alone is refused while a file is open for writing.
        """
        subprocess.run(["mount", "-o", "remount,abort", str(self.path)], check=True)
        with pytest.raises(OSError, match="Read-only"):
            (self.path / "new").touch()

    def repair(self) -> None:
        """Check it and mount it again, as an operator does once no process uses it."""
        subprocess.run(["umount", str(self.path)], check=True)
        checked = subprocess.run(["fsck.ext4", "-y", "-f", str(_image(self.path))], check=False, capture_output=True)
        assert checked.returncode in (0, 1), checked  # 1: errors were corrected
        assert _mounted(self.path)


def _image(path: Path) -> Path:
    return path.with_name(f"{path.name}.img")


def _mounted(path: Path) -> bool:
    """Mount the image of a disk; return whether this machine can."""
    command = ["mount", "-o", "loop,errors=remount-ro", str(_image(path)), str(path)]
    return subprocess.run(command, check=False).returncode == 0


@contextmanager
def failing_disk(path: Path, size_bytes: int) -> Iterator[FailingDisk]:
    """A disk of this size, mounted at a new directory."""
    if os.geteuid() != 0:
        pytest.skip("mounting a disk needs root")
    path.mkdir()
    image = _image(path)
    image.touch()
    os.truncate(image, size_bytes)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    if not _mounted(path):
        pytest.skip("this machine has no loop devices")
    try:
        yield FailingDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
