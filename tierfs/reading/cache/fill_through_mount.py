"""Filling the disk cache of a mount, which another process serves: reading through it makes it store what it fetches.

What the mount stored is seen in the records of its cache. It drops what it fetches faster than the cache's disk
takes it, so this reads no further than the disk follows, and once more what is missing in the end.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tierfs.errors import NotFound, TierfsError, Unavailable
from tierfs.names import printable
from tierfs.parallel import Meter
from tierfs.reading.cache.files import peek
from tierfs.reading.cache.fill_plan import WantedBytes, held_bytes
from tierfs.reading.stats import CACHE_REPORT_NAME, CacheReport
from tierfs.types import MIB, ObjectId, ReadPriority

_CONTROL_DIRECTORY = ".tierfs"
_PRIORITY = "user.tierfs.read_priority"
_START_OFFSET = "user.tierfs.start_offset"

_READ_BYTES = MIB
"""One read: the largest request the kernel passes on."""

_POLL_S = 0.02
_SETTLES_WITHIN_S = 10.0
"""How long the end waits for the mount to store everything; other readers may keep it busy for ever."""

_PASSES = 3


class ThroughMount:
    """One mount of the store that has the disk cache."""

    def __init__(self, mountpoint: Path, directory: Path, store_id: str, lag_bytes: int) -> None:
        """`lag_bytes`: how far the cache's disk may lag behind what is fetched before this waits for it."""
        self.mountpoint = mountpoint
        self._lag_bytes = lag_bytes
        self._directory = directory
        self._store_id = store_id

    def report(self) -> CacheReport:
        """What the mount says of its cache. Raises Unavailable when it says nothing, or that the cache failed."""
        try:
            report = read_report(self.mountpoint)
        except (OSError, ValueError) as exc:
            raise Unavailable(f"the mount at {self.mountpoint} does not tell of its cache: {exc}") from exc
        if not report.usable:
            raise Unavailable(
                f"the disk cache of the mount at {self.mountpoint} is {report.state}",
                remedy="see why in its log, then mount again",
            )
        return report

    def priority_of(self, name: str) -> ReadPriority:
        """Which tier the mount reads a segment from first."""
        with _explained(self.mountpoint, name):
            return ReadPriority(os.getxattr(self.mountpoint / name, _PRIORITY).decode())

    def held_bytes(self, wanted: Sequence[WantedBytes]) -> int:
        """How many of the bytes the cache holds by its records. Raises OSError."""
        return sum(self._held_bytes_of_each(wanted))

    def fill(self, wanted: Sequence[WantedBytes], advance: Meter) -> None:
        """Read everything, and what the mount did not keep once or twice more. Idempotent.

        Raises Unavailable for what the mount cannot deliver; its log says why.
        """
        self._read(wanted, advance)
        for _ in range(_PASSES - 1):
            self._settle()
            missing = self._missing(wanted)
            if not missing:
                return
            self._read(missing, Meter())  # these bytes count once
        self._settle()

    def _missing(self, wanted: Sequence[WantedBytes]) -> list[WantedBytes]:
        held = self._held_bytes_of_each(wanted)
        return [one for one, size in zip(wanted, held, strict=True) if size < one.held.length_bytes]

    def _held_bytes_of_each(self, wanted: Sequence[WantedBytes]) -> list[int]:
        objects = {one.holder.id for one in wanted}
        held: set[tuple[ObjectId, int]] = {
            (place.object_id, place.start)
            for place in peek(self._directory, self._store_id)
            if place.object_id in objects
        }
        return [held_bytes([one], lambda object_id, start: (object_id, start) in held) for one in wanted]

    def _read(self, wanted: Iterable[WantedBytes], advance: Meter) -> None:
        buffer = memoryview(bytearray(_READ_BYTES))
        unlooked_bytes = 0
        for name, pieces in itertools.groupby(wanted, key=lambda one: one.name):
            with _explained(self.mountpoint, name), _opened(self.mountpoint / name) as file:
                for got in _reads(file, pieces, buffer):
                    advance(got, name)
                    unlooked_bytes += got
                    if unlooked_bytes >= self._lag_bytes:
                        self._wait_for_the_disk()
                        unlooked_bytes = 0

    def _wait_for_the_disk(self) -> None:
        while self.report().unstored_bytes > self._lag_bytes:
            time.sleep(_POLL_S)

    def _settle(self) -> None:
        end = time.monotonic() + _SETTLES_WITHIN_S
        while not self.report().settled and time.monotonic() < end:
            time.sleep(_POLL_S)


def read_report(mountpoint: Path) -> CacheReport:
    """What a mount says of its cache. Raises OSError, ValueError."""
    return CacheReport.decode((mountpoint / _CONTROL_DIRECTORY / CACHE_REPORT_NAME).read_bytes())


@contextmanager
def _explained(mountpoint: Path, name: str) -> Iterator[None]:
    """Say which segment the mount could not read."""
    try:
        yield
    except OSError as exc:
        kind: type[TierfsError] = NotFound if isinstance(exc, FileNotFoundError) else Unavailable
        raise kind(
            f"{printable(name)} cannot be read through the mount at {mountpoint}: {exc.strerror}",
            remedy="its log says why",
        ) from exc


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a file, with what the kernel remembers of its bytes forgotten: else the mount would not be asked."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        yield file
    finally:
        os.close(file)


def _reads(file: int, pieces: Iterable[WantedBytes], buffer: memoryview) -> Iterator[int]:
    """Read the pieces of an open segment; yields the bytes of each read."""
    start_offset = int(os.getxattr(file, _START_OFFSET))
    for one in pieces:
        at = one.start
        while at < one.end:
            got = os.preadv(file, [buffer[: one.end - at]], at - start_offset)
            if got == 0:
                return  # the mount does not show these bytes yet; the next pass may
            yield got
            at += got
