"""A log, its writer, and logrotate: each of its modes in the steps that another process can see."""

from __future__ import annotations

import gzip
import os
from collections.abc import Generator, Iterator
from pathlib import Path

MODES: tuple[str, ...] = (
    "create",
    "create compress",
    "create delaycompress",
    "dateext delaycompress",
    "copytruncate",
    "nocreate",
)
MODES += ("copytruncate compress", "dateext copytruncate")

_MOST = 60


class RotatedLog:
    """`name` in a directory. The lines that its writer has written are consecutive numbers from 0 on."""

    def __init__(self, directory: Path, mode: str, name: str = "app.log") -> None:
        self.path = directory / name
        self.mode = mode
        self.written = 0
        self.rotations = 0
        self.may_write = True
        """Not between the end of a copy and the truncation, when logrotate itself loses lines."""
        self._half = ""
        self._file = self.path.open("ab", buffering=0)
        self._under_way: Iterator[None] = iter(())

    def write(self, lines: int) -> None:
        """Write lines; of a writer that must not write now, none."""
        if self.may_write:
            numbers = range(self.written, self.written + lines)
            self._file.write("".join(f"{number:>9}\n" for number in numbers)[len(self._half) :].encode())
            self.written += lines
            self._half = ""

    def write_half(self) -> None:
        """Write the beginning of a line, whose end comes with the next lines."""
        if self.may_write and not self._half:
            self._file.write(b"     ")
            self._half = "     "

    def step(self) -> None:
        """Make the next step of a rotation; begin one if none is under way."""
        try:
            next(self._under_way)
        except StopIteration:
            self._under_way = self._rotate()
            next(self._under_way)

    def close(self) -> None:
        """End the writer."""
        self._file.close()

    def finish(self) -> None:
        """Make all steps of the rotation under way."""
        for _ in self._under_way:
            pass

    def _rotate(self) -> Iterator[None]:
        self.rotations += 1
        first = yield from self._make_room()
        if "copytruncate" in self.mode:
            yield from self._copy_to(first)
        else:
            self.path.rename(first)
            yield
            if "nocreate" not in self.mode:
                self.path.touch()
                yield
            self.write(bool(self._half))
            self._file.close()
            self._file = self.path.open("ab", buffering=0)
            yield
        if "compress" in self.mode:
            delayed = "delaycompress" in self.mode
            plain = [path for path in self._rotated() if path.suffix != ".gz" and not (delayed and path == first)]
            for path in plain:
                yield from _compress(path)

    def _make_room(self) -> Generator[None, None, Path]:
        """Shift the numbers of earlier files; return the name of the next one."""
        if "dateext" in self.mode:
            return self.path.with_name(f"{self.path.name}-{20260101 + self.rotations}")
        for number in range(_MOST, 0, -1):
            for end in ("", ".gz"):
                path = self._numbered(number, end)
                if path.exists():
                    path.rename(self._numbered(number + 1, end))
                    yield
        return self._numbered(1)

    def _copy_to(self, first: Path) -> Iterator[None]:
        data = self.path.read_bytes()
        first.write_bytes(data[: len(data) // 2])
        yield
        self.write(bool(self._half))
        self.may_write = False
        first.write_bytes(self.path.read_bytes())
        yield
        os.truncate(self.path, 0)
        self.may_write = True
        yield

    def _numbered(self, number: int, end: str = "") -> Path:
        return self.path.with_name(f"{self.path.name}.{number}{end}")

    def _rotated(self) -> list[Path]:
        return sorted(path for path in self.path.parent.glob(f"{self.path.name}?*"))


def _compress(path: Path) -> Iterator[None]:
    packed, times = path.with_name(path.name + ".gz"), path.stat()
    data = gzip.compress(path.read_bytes())
    packed.write_bytes(data[: len(data) // 2])
    yield
    packed.write_bytes(data)
    os.utime(packed, ns=(times.st_atime_ns, times.st_mtime_ns))
    yield
    path.unlink()
    yield
