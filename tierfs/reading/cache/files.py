"""The files of the disk cache: one of slots, one of records of the block in each slot, one to lock.

A slot's bytes are written before its record, and nothing is ever synced: the checksum of each block is in
the metadata, so the remains of a crash or a power failure (a record without its bytes, old bytes under a
new record, half a record) are found when the block is read, and cost one fetch. Methods raise OSError.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from tierfs.base.bytes.checksum import crc32c
from tierfs.base.system import osio
from tierfs.base.system.locks import LockFile
from tierfs.base.words.types import ObjectId
from tierfs.reading.cache.slots import SLOT_BYTES, SlotPlace

# Long names, so that naming a directory of other files by mistake overwrites none of them.
DATA_NAME, INDEX_NAME, LOCK_NAME = "tierfs-cache.data", "tierfs-cache.index", "tierfs-cache.lock"

_MAGIC = b"TFSC"
_VERSION = 1
# Magic, version, store id, bytes of a slot, zeros. CRC32C of it all follows.
_HEADER = struct.Struct(">4sI32sI16x")
# Object id, start in the object, sequence, length. CRC32C of it all follows.
_RECORD = struct.Struct(">QQQI")
_CRC = struct.Struct(">I")
_HEADER_BYTES = _HEADER.size + _CRC.size
# 32: divides a sector, so that a record is on one.
_RECORD_BYTES = _RECORD.size + _CRC.size

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class InUse(Exception):
    """Another process uses the cache."""


def slots_within(size_bytes: int) -> int:
    """Return the number of slots that fit into a cache of this size, counting all of its files."""
    return max(0, (size_bytes - _HEADER_BYTES) // (SLOT_BYTES + _RECORD_BYTES))


def room_bytes(directory: Path, size_bytes: int, free_floor_bytes: int) -> int:
    """Return the bytes of blocks a cache of this size can hold on its disk as full as it is now. Raises OSError."""
    data = directory / DATA_NAME
    slots = data.stat().st_size // SLOT_BYTES if data.exists() else 0
    status = os.statvfs(directory if directory.exists() else directory.parent)
    free = max(0, status.f_bavail * status.f_frsize - free_floor_bytes) // SLOT_BYTES
    return min(slots_within(size_bytes), slots + free) * SLOT_BYTES


class CacheFiles:
    """The open files of one cache. Reading is safe in any thread, everything else in one at a time."""

    def __init__(self, directory: Path, store_id: str, slots: int) -> None:
        """Open or create the files, cut to at most `slots` slots; those of another store are emptied.

        The directory's parent must exist, so that the cache of an unmounted disk is not created on the disk below.
        Raises InUse, OSError.
        """
        with ExitStack() as opened:
            opened.enter_context(closing(_locked(directory)))
            self._data_fd = osio.open_or_create(directory / DATA_NAME)
            opened.callback(os.close, self._data_fd)
            self._index_fd = osio.open_or_create(directory / INDEX_NAME)
            opened.callback(os.close, self._index_fd)
            self._begin(_header(store_id), slots)
            self._opened = opened.pop_all()
        self._sequence = 0
        self._page_cache = osio.PageCache()

    def load(self) -> list[SlotPlace]:
        """Return the recorded blocks, oldest first; a damaged record is an empty slot."""
        index = os.pread(self._index_fd, self.slots() * _RECORD_BYTES, _HEADER_BYTES)
        recorded = sorted(_recorded(index))
        self._sequence = recorded[-1][0] if recorded else 0
        return [place for _, place in recorded]

    def slots(self) -> int:
        """Return the number of whole slots in the data file."""
        return os.fstat(self._data_fd).st_size // SLOT_BYTES

    def grow(self, slots: int, by: int, free_floor_bytes: int) -> None:
        """Grow from `slots` to `slots + by`, with their room on the disk allocated, or change nothing.

        Raises OSError with ENOSPC also if less than the floor would stay free.
        """
        status = os.fstatvfs(self._data_fd)
        if status.f_bavail * status.f_frsize - by * SLOT_BYTES < free_floor_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        try:
            os.posix_fallocate(self._data_fd, slots * SLOT_BYTES, by * SLOT_BYTES)
        except OSError:
            os.ftruncate(self._data_fd, slots * SLOT_BYTES)
            raise

    def read(self, slot: int, view: memoryview) -> int:
        """Read from the beginning of a slot, and on through those after it; return the bytes read."""
        return os.preadv(self._data_fd, [view], slot * SLOT_BYTES)

    def read_now(self, slot: int, view: memoryview) -> int:
        """Do the same without waiting; return the bytes found in the page cache, 0 if that is unknowable."""
        return self._page_cache.read(self._data_fd, view, slot * SLOT_BYTES)

    def write(self, run: Sequence[SlotPlace], view: memoryview) -> None:
        """Write neighbouring blocks to their slots, then their records."""
        osio.write_all(self._data_fd, view, run[0].slot * SLOT_BYTES)
        records = bytearray()
        for place in run:
            self._sequence += 1
            length = min(SLOT_BYTES, len(view) - (place.start - run[0].start))
            body = _RECORD.pack(place.object_id, place.start, self._sequence, length)
            records += body + _CRC.pack(crc32c(body))
        osio.write_all(self._index_fd, memoryview(records), _record_offset(run[0].slot))

    def clear(self, slots: Sequence[int]) -> None:
        """Empty the records of slots."""
        for slot in slots:
            osio.write_all(self._index_fd, memoryview(bytes(_RECORD_BYTES)), _record_offset(slot))

    def close(self) -> None:
        """Close all files; the lock last."""
        self._opened.close()

    def _begin(self, header: bytes, slots: int) -> None:
        if os.pread(self._index_fd, _HEADER_BYTES, 0) != header:
            os.ftruncate(self._index_fd, 0)
            os.ftruncate(self._data_fd, 0)
            osio.write_all(self._index_fd, memoryview(header), 0)
        for fd, limit in ((self._index_fd, _record_offset(slots)), (self._data_fd, slots * SLOT_BYTES)):
            if os.fstat(fd).st_size > limit:
                os.ftruncate(fd, limit)


def _locked(directory: Path) -> LockFile:
    directory.mkdir(mode=osio.OWNER_DIRECTORY, exist_ok=True)
    if directory.stat().st_mode & _OTHERS_MAY_WRITE:
        raise PermissionError(f"{directory} is writable by other users; run: chmod 700 {directory}")
    file = LockFile(directory / LOCK_NAME)
    if not file.try_lock():
        file.close()
        raise InUse(f"disk cache {directory} is in use by another process")
    return file


def _header(store_id: str) -> bytes:
    body = _HEADER.pack(_MAGIC, _VERSION, store_id.encode(), SLOT_BYTES)
    return body + _CRC.pack(crc32c(body))


def _recorded(index: bytes) -> Iterator[tuple[int, SlotPlace]]:
    """Yield sequence and place of every slot's record; a damaged record is an empty slot."""
    for slot in range(len(index) // _RECORD_BYTES):
        at = slot * _RECORD_BYTES
        body = index[at : at + _RECORD.size]
        if _CRC.unpack_from(index, at + _RECORD.size)[0] == crc32c(body):
            object_id, start, sequence, _ = _RECORD.unpack(body)
            yield sequence, SlotPlace(ObjectId(object_id), start, slot)


def _record_offset(slot: int) -> int:
    return _HEADER_BYTES + slot * _RECORD_BYTES
