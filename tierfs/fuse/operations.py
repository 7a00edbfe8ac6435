"""The FUSE operations: thin, read-only, every error through the edge.

One trio thread serves everything, so nothing here waits for a disk but by awaiting the reader; metadata
comes from LMDB's shared mapping. Mutations are pyfuse3's defaults, overridden to EROFS in readonly.py.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass

import pyfuse3

from tierfs.checksum import Buffer
from tierfs.chunkstore.chunkfiles import ChunkFiles
from tierfs.config import MountSettings
from tierfs.errors import Fenced, NotFound
from tierfs.fuse import attributes, xattrs
from tierfs.fuse.edge import operation
from tierfs.fuse.inodes import Inodes, Known
from tierfs.fuse.options import MountOptions
from tierfs.fuse.readonly import ReadOnlyOperations
from tierfs.metadata import directories
from tierfs.metadata.directories import Entry
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.transaction import ReadTransaction
from tierfs.metrics import MetricName, MetricSink
from tierfs.reading.handle import ReadHandle
from tierfs.reading.reader import Reader
from tierfs.types import DirectoryId, EntryKind, SegmentId

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND | os.O_CREAT
_BATCH_ENTRIES = 512
"""Directory entries read per transaction; a kernel's readdir buffer takes fewer."""

_NAME_MAX = 255


@dataclass(slots=True)
class _OpenDirectory:
    """One listing under way: cookies count entries, and names are found again behind the last one."""

    directory_id: DirectoryId
    batch: list[Entry]
    first_cookie: int = 0
    last_name: str = ""
    ended: bool = False


class Operations(ReadOnlyOperations):
    """Serves one store."""

    def __init__(
        self,
        metadata: MetadataStore,
        files: ChunkFiles,
        reader: Reader,
        options: MountOptions,
        settings: MountSettings,
        metrics: MetricSink,
    ) -> None:
        super().__init__()
        self.metrics = metrics
        self.inodes = Inodes()
        self._metadata = metadata
        self._files = files
        self._reader = reader
        self._options = options
        self._settings = settings
        self._next_handle = 1
        self._files_open: dict[int, tuple[ReadHandle, Known]] = {}
        self._directories_open: dict[int, _OpenDirectory] = {}

    @operation
    async def lookup(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        """Find a name: one get for the entry, one for its record."""
        self._count("lookup")
        parent = self._require(parent_inode)
        text = name.decode(errors="surrogateescape")
        if text in (".", ".."):
            return await self.getattr(parent_inode, ctx)
        with self._metadata.read() as txn:
            found = self._lookup(txn, parent, text)
            if found is None:
                return attributes.missing(self._settings.sealed_timeout_s)
            return self._attributes(txn, found, remember=True)

    @operation
    async def getattr(self, inode: int, ctx: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        """Attributes of an inode the kernel knows."""
        self._count("getattr")
        known = self._require(inode)
        with self._metadata.read() as txn:
            return self._attributes(txn, Entry("", known.kind, known.id), remember=False)

    @operation
    async def opendir(self, inode: int, ctx: pyfuse3.RequestContext) -> int:
        """Open a directory for listing."""
        known = self._require(inode)
        handle = self._new_handle()
        self._directories_open[handle] = _OpenDirectory(DirectoryId(known.id), [])
        return handle

    @operation
    async def readdir(self, handle: int, start: int, token: pyfuse3.ReaddirToken) -> None:
        """List entries with their attributes, from cookie `start` on, in name order."""
        self._count("readdir")
        listing = self._directories_open[handle]
        if start < listing.first_cookie:  # rewinddir, or a seek back beyond what is kept
            listing.batch, listing.first_cookie, listing.last_name, listing.ended = [], 0, "", False
        with self._metadata.read() as txn:
            while True:
                index = start - listing.first_cookie
                while index >= len(listing.batch):
                    if not self._next_batch(txn, listing):
                        return
                    index = start - listing.first_cookie
                start += 1
                if not self._reply_entry(txn, listing.batch[index], start, token):
                    return

    @operation
    async def releasedir(self, handle: int) -> None:
        """Close a listing."""
        self._directories_open.pop(handle, None)

    @operation
    async def open(self, inode: int, flags: int, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        """Open a segment for reading; unsealed ones bypass the page cache, which would race their growth."""
        self._count("open")
        if flags & _WRITES:
            raise pyfuse3.FUSEError(errno.EROFS)
        known = self._require(inode)
        reading = self._reader.open(SegmentId(known.id), priority=self._options.read_priority)
        handle = self._new_handle()
        self._files_open[handle] = (reading, known)
        sealed = reading.segment.sealed
        keep = sealed and known.sealed_open_seen
        known.sealed_open_seen = sealed
        direct = not sealed or self._options.direct_io
        return pyfuse3.FileInfo(fh=handle, direct_io=direct, keep_cache=keep and not direct)

    @operation
    async def read(self, handle: int, offset: int, size: int) -> Buffer:  # type: ignore[override]  # any buffer will do
        """Read; offset 0 of the file is the segment's start offset. A short answer means end of file."""
        reading, known = self._files_open[handle]
        data = await reading.read(reading.segment.start_offset + offset, size)
        known.size_shown = max(known.size_shown, offset + len(data))
        return data

    @operation
    async def release(self, handle: int) -> None:
        """Close a segment."""
        reading, _ = self._files_open.pop(handle)
        reading.close()

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        """The kernel dropped inodes; never raises."""
        for inode, lookups in inode_list:
            self.inodes.forget(inode, lookups)

    @operation
    async def statfs(self, ctx: pyfuse3.RequestContext) -> pyfuse3.StatvfsData:
        """The local disk's sizes."""
        status = os.statvfs(self._files.root)
        answer = pyfuse3.StatvfsData()
        for field in ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail"):
            setattr(answer, field, getattr(status, field))
        answer.f_namemax = _NAME_MAX
        return answer

    @operation
    async def getxattr(self, inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> bytes:
        """A `user.tierfs.` attribute."""
        known = self._require(inode)
        value: bytes | None = None
        if known.kind is EntryKind.SEGMENT and name.startswith(xattrs.PREFIX):
            with self._metadata.read() as txn:
                value = xattrs.value_of(txn, self._segment(txn, known.id), name)
            if value is None:
                value = self._served_from(known, name)
        if value is None:
            raise pyfuse3.FUSEError(pyfuse3.ENOATTR)
        return value

    @operation
    async def listxattr(self, inode: int, ctx: pyfuse3.RequestContext) -> Sequence[bytes]:
        """Nothing is listed, so that `cp -a` copies none of it."""
        return []

    @operation
    async def access(self, inode: int, mode: int, ctx: pyfuse3.RequestContext) -> bool:
        """Whether the mode is allowed; writing never is."""
        if mode & os.W_OK:
            raise pyfuse3.FUSEError(errno.EROFS)
        return True

    def _lookup(self, txn: ReadTransaction, parent: Known, name: str) -> Entry | None:
        try:
            return directories.lookup(txn, DirectoryId(parent.id), name)
        except UnicodeEncodeError:
            return None  # no segment has a name that is not UTF-8

    def _attributes(self, txn: ReadTransaction, entry: Entry, *, remember: bool) -> pyfuse3.EntryAttributes:
        """Attributes of an entry; with `remember` the kernel is told of it and counts a lookup."""
        timeout_s = self._settings.sealed_timeout_s
        if entry.kind is EntryKind.DIRECTORY:
            directory = directories.directory(txn, entry.id)
            if remember:
                self.inodes.remember(directory.inode, entry.kind, entry.id)
            return attributes.of_directory(directory, self._options, timeout_s)
        segment = self._segment(txn, entry.id)
        if remember:
            self.inodes.remember(segment.inode, entry.kind, entry.id)
        found = attributes.of_segment(segment, self._options, timeout_s)
        known = self.inodes.get(segment.inode)
        if known is not None:
            known.size_shown = found.st_size = max(known.size_shown, found.st_size)
        return found

    def _segment(self, txn: ReadTransaction, segment_id: int) -> SegmentRecord:
        segment = directories.segment(txn, SegmentId(segment_id))
        if segment is None:
            raise Fenced("the segment was deleted")
        return segment

    def _next_batch(self, txn: ReadTransaction, listing: _OpenDirectory) -> bool:
        if listing.ended:
            return False
        batch: list[Entry] = []
        for entry in directories.entries(txn, listing.directory_id, after=listing.last_name):
            batch.append(entry)
            if len(batch) == _BATCH_ENTRIES:
                break
        listing.first_cookie += len(listing.batch)
        listing.batch = batch
        listing.ended = len(batch) < _BATCH_ENTRIES
        listing.last_name = batch[-1].name if batch else listing.last_name
        return bool(batch)

    def _reply_entry(self, txn: ReadTransaction, entry: Entry, cookie: int, token: pyfuse3.ReaddirToken) -> bool:
        try:
            found = self._attributes(txn, entry, remember=False)
        except (NotFound, Fenced):
            return True  # deleted since the batch was read
        if not pyfuse3.readdir_reply(token, entry.name.encode(), found, cookie):
            return False
        self.inodes.remember(found.st_ino, entry.kind, entry.id)
        return True

    def _served_from(self, known: Known, name: bytes) -> bytes | None:
        """Which tier served the newest handle of this segment last."""
        if name != xattrs.PREFIX + b"served_from":
            return None
        for reading, opened in reversed(self._files_open.values()):
            if opened is known and reading.served_from is not None:
                return reading.served_from.name.lower().encode()
        return b"none"

    def _require(self, inode: int) -> Known:
        known = self.inodes.get(inode)
        if known is None:
            raise Fenced(f"inode {inode} is not known any more")
        return known

    def _new_handle(self) -> int:
        self._next_handle += 1
        return self._next_handle

    def _count(self, name: str) -> None:
        self.metrics.count(MetricName.FUSE_OPERATIONS, operation=name)
