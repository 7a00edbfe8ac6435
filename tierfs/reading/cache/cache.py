"""DiskCache: cold blocks on a local disk, so that a restart or a small memory does not fetch them again.

The caller's checksum is the authority: a block that does not match counts as a miss. The cache's disk may fail or
fill in any way; reads continue without it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from tierfs.base.system.metrics import MetricName, MetricSink
from tierfs.base.system.os_errors import NO_ROOM
from tierfs.base.words.types import MIB, ObjectId
from tierfs.reading.cache.files import CacheFiles, InUse, slots_within
from tierfs.reading.cache.health import LABEL, CacheHealth, CacheState, CacheStats
from tierfs.reading.cache.slots import SLOT_BYTES, SlotPlace, SlotTable, runs
from tierfs.reading.fetch.grid import Grid

log = logging.getLogger(__name__)

# Room on its filesystem that the cache leaves to others: four times that below which appends are refused.
FREE_FLOOR_BYTES = 256 * MIB

# 8 MiB allocated at a time: long extents, and one system call for many stores.
_GROWTH_SLOTS = 64

# After a full disk, growth needs a quarter more free room, or the disk would be full again at once.
_ROOM_AGAIN = 4

# 1 MiB read at a time: checked while it is in the processor's cache.
_READ_SLOTS = 8


class DiskCache:
    """The cache of one process. Thread-safe; no method raises an error of the disk.

    `read_now` and `holds` do not wait for the disk, because nothing waits for it while holding the lock.
    """

    def __init__(
        self, directory: Path, files: CacheFiles, size_bytes: int, metrics: MetricSink, free_floor_bytes: int
    ) -> None:
        """Use `open`."""
        self._files = files
        self._size_bytes = size_bytes
        self._metrics = metrics
        self._free_floor_bytes = free_floor_bytes
        self._lock = threading.Lock()
        self._writing = threading.Lock()  # taken before the other one; held while the files change
        self._health = CacheHealth(directory, self._lock, metrics, files.close)
        self._table = SlotTable(files.load(), files.slots())
        self._hits = self._misses = 0
        metrics.set_gauge(MetricName.CACHE_BYTES, self._table.used * SLOT_BYTES, cache=LABEL)

    @classmethod
    def open(
        cls,
        directory: Path,
        store_id: str,
        size_bytes: int,
        metrics: MetricSink,
        *,
        free_floor_bytes: int = FREE_FLOOR_BYTES,
    ) -> DiskCache | None:
        """Open the cache in a directory, made if its parent exists, or None, with the reason in the log.

        Blocks of another store, or beyond the size, are discarded. `size_bytes` bounds all files together; 0 is off.
        """
        if size_bytes == 0:
            return None
        if slots_within(size_bytes) == 0:
            log.warning("disk cache %s: %d bytes are too small for a block; reading without it", directory, size_bytes)
            return None
        try:
            return cls.open_or_raise(directory, store_id, size_bytes, metrics, free_floor_bytes=free_floor_bytes)
        except InUse:
            log.warning("disk cache %s is in use by another process; reading without it", directory)
        except OSError as exc:
            log.warning("disk cache %s cannot be opened: %s; reading without it", directory, exc.strerror or exc)
        return None

    @classmethod
    def open_or_raise(
        cls,
        directory: Path,
        store_id: str,
        size_bytes: int,
        metrics: MetricSink,
        *,
        free_floor_bytes: int = FREE_FLOOR_BYTES,
    ) -> DiskCache:
        """Open the cache for a size that holds a block. Raises InUse, OSError."""
        files = CacheFiles(directory, store_id, slots_within(size_bytes))
        try:
            return cls(directory, files, size_bytes, metrics, free_floor_bytes)
        except BaseException:
            files.close()
            raise

    def read(self, object_id: ObjectId, start: int, view: memoryview, grid: Grid) -> int:
        """Fill the longest prefix of `view` whose whole blocks are held and match; return its bytes.

        `view` begins at block boundary `start` of the object; `grid` covers it. The rest of `view` is undefined.
        """
        places = self._begin(object_id, start, len(view), count_misses=True)
        return self._finish(places, *self._fill(places, start, view, grid, now=False)) if places else 0

    def read_now(self, object_id: ObjectId, start: int, view: memoryview, grid: Grid) -> int:
        """Do as `read`, from the page cache alone; 0 when it would wait. Misses are not counted yet."""
        if self._lock.locked():
            return 0
        places = self._begin(object_id, start, len(view), count_misses=False)
        return self._finish(places, *self._fill(places, start, view, grid, now=True)) if places else 0

    def holds(self, object_id: ObjectId, start: int) -> bool:
        """Return whether the block that begins at `start` is held; its bytes may still prove wrong."""
        with self._lock:
            return self._health.usable and bool(self._table.find(object_id, start, start + 1))

    def store(self, object_id: ObjectId, start: int, view: memoryview) -> None:
        """Store blocks that the caller checked; `view` begins at a block boundary and ends at a block's end.

        Held blocks are skipped, and blocks that do not fit are left out. Waits for the disk.
        """
        with self._writing:
            if not self._enter():
                return
            places: list[SlotPlace] = []
            try:
                places, room = self._placed(object_id, start, start + len(view))
                for run in runs(places, len(places)):
                    at = run[0].start - start
                    self._files.write(run, view[at : at + len(run) * SLOT_BYTES])
                    with self._lock:
                        self._table.put(run)
                    places = places[len(run) :]
                if room:
                    self._health.stored()
            except OSError as exc:
                self._health.failed(exc)
            finally:
                self._leave([place.slot for place in places])

    def forget(self, object_id: ObjectId) -> None:
        """Free the slots of a deleted object. Waits for the disk."""
        with self._writing:
            if not self._enter():
                return
            with self._lock:
                slots = self._table.take_object(object_id)
            try:
                self._files.clear(slots)
            except OSError as exc:
                self._health.failed(exc)
            finally:
                self._leave(slots)

    @property
    def stats(self) -> CacheStats:
        """Size, hits, misses and state now."""
        with self._lock:
            used = self._table.used * SLOT_BYTES
            return CacheStats(used, self._size_bytes, self._hits, self._misses, self._health.state)

    def close(self) -> None:
        """Stop; reads and stores in flight end first, and the last of them closes the files. Idempotent."""
        self._health.close()

    def _enter(self) -> bool:
        with self._lock:
            return self._health.enter()

    def _leave(self, unused: Sequence[int]) -> None:
        with self._lock:
            self._table.give_back(unused)
            used_bytes = self._table.used * SLOT_BYTES
        self._metrics.set_gauge(MetricName.CACHE_BYTES, used_bytes, cache=LABEL)
        self._health.leave()

    def _begin(self, object_id: ObjectId, start: int, length: int, *, count_misses: bool) -> list[SlotPlace]:
        """Return the blocks to read, and keep the files open until `_finish`; without a block no `_finish` is due."""
        with self._lock:
            if not self._health.usable:
                return []
            places = self._table.find(object_id, start, start + length)
            misses = self._table.gap(object_id, start + len(places) * SLOT_BYTES, start + length) if count_misses else 0
            self._misses += misses
            if places:
                self._health.enter()
        if misses:
            self._metrics.count(MetricName.CACHE_MISSES, misses, cache=LABEL)
        return places

    def _fill(
        self, places: Sequence[SlotPlace], start: int, view: memoryview, grid: Grid, *, now: bool
    ) -> tuple[int, int, bool]:
        """Read and check; return the bytes and blocks that are right, and whether the next block is wrong."""
        first = index = (start - grid.range.start) // SLOT_BYTES
        done = 0
        for run in runs(places, _READ_SLOTS):
            part = view[done : done + len(run) * SLOT_BYTES]
            try:
                got = (self._files.read_now if now else self._files.read)(run[0].slot, part)
            except OSError as exc:
                self._health.failed(exc)
                return done, index - first, False
            bad, index = grid.first_bad(view, start, index, start + done + got)
            done = grid.block_start(index) - start
            if bad is not None or got < len(part):
                return done, index - first, bad is not None or not now
        return done, index - first, False

    def _finish(self, places: Sequence[SlotPlace], filled: int, blocks: int, wrong: bool) -> int:
        with self._lock:
            self._hits += blocks
            self._table.touch(places[:blocks])
            # Another block may have got the slot while this one was read: then nothing is wrong with it.
            damaged = wrong and self._table.drop(places[blocks])
            self._misses += wrong
        self._health.leave()
        if blocks:
            self._metrics.count(MetricName.CACHE_HITS, blocks, cache=LABEL)
        if wrong:
            self._metrics.count(MetricName.CACHE_MISSES, cache=LABEL)
        if damaged:
            self._metrics.count(MetricName.CHECKSUM_FAILURES, source="disk cache")
        return filled

    def _placed(self, object_id: ObjectId, start: int, end: int) -> tuple[list[SlotPlace], bool]:
        """Return slots for the missing blocks of a range, and whether the filesystem proved to have room."""
        with self._lock:
            missing = self._table.missing(object_id, start, end)
            lacking = len(missing) - self._table.free
        room = lacking > 0 and self._grow(lacking)
        with self._lock:
            slots = self._table.take(len(missing))
        return [SlotPlace(object_id, at, slot) for at, slot in zip(missing, slots, strict=False)], room

    def _grow(self, lacking: int) -> bool:
        """Add slots as far as the size allows; return False if the filesystem has no room for them.

        Without them the least recently read blocks make room. Raises OSError for a failing disk.
        """
        count = self._table.count
        by = min(max(lacking, _GROWTH_SLOTS), slots_within(self._size_bytes) - count)
        if by <= 0:
            return True
        floor = self._free_floor_bytes
        if self._health.state is CacheState.FULL_DISK:
            floor += floor // _ROOM_AGAIN
        try:
            self._files.grow(count, by, floor)
        except OSError as exc:
            if exc.errno not in NO_ROOM:
                raise
            self._health.failed(exc)
            return False
        with self._lock:
            self._table.grow(by)
        return True
