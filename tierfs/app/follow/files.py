"""One file of a log: its bytes, as they were before it was compressed, and whether it is one that the store knows."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import closing
from typing import IO

from tierfs.app.follow.plan import Match, Matches, SeenFile
from tierfs.app.unpacking import unpacking
from tierfs.base.bytes.checksum import crc32c
from tierfs.engine.metadata.followed_range import MAX_PROOF_BYTES, FollowedRange

# Of a compressed file that is read to the place that is known.
_SKIP_BYTES = 1024 * 1024


class Unreadable(Exception):
    """A file cannot be read to its end now: it is being written or compressed, damaged, or has gone."""


class OpenFile:
    """A file of a log, open; it stays the same file whatever becomes of its name."""

    def __init__(self, path: str) -> None:
        """Open a regular file. Raises OSError."""
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
        self.path = path
        self.compressed = False
        self._unpacked: IO[bytes] | None = None
        self._packed: IO[bytes] | None = None
        self._unpacked_at = 0
        try:
            status = os.fstat(self.fd)
            if not stat.S_ISREG(status.st_mode):
                raise Unreadable(f"{path} is not a regular file")
        except BaseException:
            os.close(self.fd)
            raise
        self.identity = status.st_dev, status.st_ino

    def look(self) -> SeenFile:
        """Return the file as it is now."""
        return log_file(self.path, os.fstat(self.fd), compressed=self.compressed)

    def read(self, start: int, size: int) -> bytes:
        """Return up to `size` bytes from an offset on, fewer only at the end. Raises OSError and Unreadable."""
        if self.compressed:
            return self._read_unpacked(start, size)
        parts: list[bytes] = []
        while size > 0 and (part := os.pread(self.fd, size, start)):
            parts.append(part)
            start, size = start + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_unpacked(self, start: int, size: int) -> bytes:
        try:
            if self._unpacked is None or start < self._unpacked_at:
                self._unpack_anew()
            assert self._unpacked is not None
            while self._unpacked_at < start:
                skipped = len(self._unpacked.read(min(_SKIP_BYTES, start - self._unpacked_at)))
                self._unpacked_at += skipped
                if not skipped:
                    return b""
            data = self._unpacked.read(size)
            self._unpacked_at += len(data)
            return data
        except Exception as exc:  # each format has errors of its own for a file that ends too early
            self._forget_unpacked()
            raise Unreadable(f"{self.path} cannot be decompressed: {exc}") from exc

    def _unpack_anew(self) -> None:
        self._forget_unpacked()
        os.lseek(self.fd, 0, os.SEEK_SET)
        self._packed = os.fdopen(self.fd, "rb", closefd=False)
        self._unpacked, self._unpacked_at = unpacking(self.path, self._packed), 0

    def _forget_unpacked(self) -> None:
        for each in (self._unpacked, self._packed):
            if each is not None:
                each.close()
        self._unpacked = self._packed = None

    def close(self) -> None:
        """Close it; idempotent."""
        if self.fd >= 0:
            self._forget_unpacked()
            os.close(self.fd)
        self.fd = -1


def log_file(path: str, status: os.stat_result, *, compressed: bool) -> SeenFile:
    """Return what a look at a file found."""
    identity = status.st_dev, status.st_ino
    return SeenFile(path, *identity, status.st_size, status.st_mtime_ns, compressed)


def look_at(path: str, *, compressed: bool = False) -> SeenFile | None:
    """Look at a file; None where there is no regular one."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return log_file(path, status, compressed=compressed) if stat.S_ISREG(status.st_mode) else None


def modified_ns(directory: str) -> int:
    """Return when names in a directory last changed; 0 for one that cannot be looked at."""
    try:
        return os.stat(directory).st_mtime_ns
    except OSError:
        return 0


def opened(file: SeenFile) -> OpenFile:
    """Open a file that a look found. Raises Unreadable if it is another one now, and OSError."""
    opened_file = OpenFile(file.path)
    opened_file.compressed = file.compressed
    if opened_file.identity != file.identity:
        opened_file.close()
        raise Unreadable(f"{file.path} is another file now")
    return opened_file


def compare(known: FollowedRange, file: OpenFile, head: bytes = b"") -> Match:
    """Compare a file with what the store knows of one; `head` are that one's first bytes, where they are at hand."""
    if not known.file_end and not known.head_length:
        return Match.SAME if file.identity == (known.device, known.inode) else Match.OTHER
    try:
        first = file.read(0, MAX_PROOF_BYTES)
        if len(first) < known.head_length:
            is_begun = bool(first) and head.startswith(first)
            return Match.SHORTER if is_begun and not file.compressed else Match.OTHER
        if crc32c(first[: known.head_length]) != known.head_crc32c:
            return Match.OTHER
        if not known.tail_length:
            is_long = not known.file_end or bool(file.read(known.file_end - 1, 1))
            return Match.SAME if is_long else Match.SHORTER
        tail = file.read(known.file_end - known.tail_length, known.tail_length)
    except (OSError, Unreadable):
        return Match.UNKNOWN
    if len(tail) < known.tail_length:
        return Match.SHORTER
    return Match.SAME if crc32c(tail) == known.tail_crc32c else Match.OTHER


def matches(known: FollowedRange, file: SeenFile, head: bytes = b"") -> Match:
    """Compare a file that a look found; UNKNOWN if it cannot be opened, or has another name now."""
    try:
        opened_file = opened(file)
    except (OSError, Unreadable):
        return Match.UNKNOWN
    try:
        return compare(known, opened_file, head)
    finally:
        opened_file.close()


def matches_kept(kept: Mapping[tuple[int, int], OpenFile], head: bytes = b"") -> Matches:
    """Return what compares files as `matches` does, those that are open without another look at their names."""

    def match(known: FollowedRange, file: SeenFile) -> Match:
        held = None if file.compressed else kept.get(file.identity)
        return matches(known, file, head) if held is None else compare(known, held, head)

    return match


def is_copy(copy: SeenFile, file: SeenFile) -> bool:
    """Return whether a file has the first and the last bytes of another one's beginning."""
    if copy.compressed or file.compressed or copy.size > file.size:
        return False
    try:
        with closing(opened(copy)) as first, closing(opened(file)) as second:
            ends = (0, max(0, copy.size - MAX_PROOF_BYTES))
            size = min(copy.size, MAX_PROOF_BYTES)
            return all(first.read(start, size) == second.read(start, size) for start in ends)
    except (OSError, Unreadable):
        return False
