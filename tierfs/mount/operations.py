"""The FUSE operations: thin, read-only, every error translated by `errors`.

One trio thread serves everything, so an operation waits for a disk only by awaiting the reader; metadata is read from
LMDB's shared mapping. Every operation that would change the store raises EROFS.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import closing
from typing import Any, NoReturn

import pyfuse3

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.config import MountSettings
from tierfs.base.system.metrics import Count, MetricSink
from tierfs.base.words.errors import Fenced, NotFound
from tierfs.base.words.types import DirectoryId, EntryKind, Opener, SegmentId
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.metadata import directories
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.store import MetadataStore
from tierfs.mount import attributes, xattrs
from tierfs.mount.access_log import AccessLog
from tierfs.mount.control_files import ControlFiles, OpenControl, Text
from tierfs.mount.errors import operation, reported
from tierfs.mount.forgotten import ForgottenInodes
from tierfs.mount.growth import GrowingFiles, forget_attributes
from tierfs.mount.inodes import InodeEntry, Inodes
from tierfs.mount.last_pages import LastPages
from tierfs.mount.listing import DOTS, DirectoryListing
from tierfs.mount.options import MountOptions
from tierfs.mount.subjects import Subjects
from tierfs.mount.tree import Tree
from tierfs.reading.handle import ReadHandle
from tierfs.reading.reader import StoreReader

_NAME_MAX = 255


async def _refuse(self: pyfuse3.Operations, *arguments: Any) -> NoReturn:
    raise pyfuse3.FUSEError(errno.EROFS)


# One method for twelve operations with different parameters.
_refused: Any = _refuse


class ReadOnlyOperations(pyfuse3.Operations):
    """Operations of a read-only filesystem."""

    supports_dot_lookup = True
    enable_writeback_cache = False

    create = _refused
    link = _refused
    mkdir = _refused
    mknod = _refused
    rename = _refused
    removexattr = _refused
    rmdir = _refused
    setattr = _refused
    setxattr = _refused
    symlink = _refused
    unlink = _refused
    write = _refused


async def _after_tail(known: InodeEntry, reading: ReadHandle, start: int, size: int) -> Buffer:
    """Read a page in which the head of the file was dropped: the kernel has the bytes before it, which are deleted.

    A reader behind them goes on. Raises Fenced where they are not at hand.
    """
    begin = reading.segment.start_offset
    gone = known.before_head(start, begin)
    if gone is None or begin - start > size:
        raise Fenced(f"bytes from {start} on are deleted")
    return gone + bytes(await reading.read(begin, size - len(gone)))


@dataclass(slots=True)
class _OpenFile:
    """One open handle: its view begins at the segment's start as of the open."""

    opener: Opener
    known: InodeEntry
    segment_id: SegmentId
    start_offset: int
    paged: bool
    """Whether the kernel reads it through its page cache."""
    reading: ReadHandle | None = None
    """Made by the first read: a file whose pages the kernel has is opened and closed without one."""


class Operations(ReadOnlyOperations):
    """Serves one store."""

    def __init__(
        self,
        metadata: MetadataStore,
        files: ChunkFiles,
        reader: StoreReader,
        options: MountOptions,
        settings: MountSettings,
        metrics: MetricSink,
        control: ControlFiles,
        access_log: AccessLog,
    ) -> None:
        super().__init__()
        self.metrics = metrics
        self.access_log = access_log
        self.inodes = Inodes()
        self.subjects = Subjects(metadata, self.inodes, control)
        self.counts = dict[str, Count]()
        self._tree = Tree(self.inodes, options, settings.attribute_timeout_s)
        self.growth = GrowingFiles(metadata, self._tree)
        self._metadata = metadata
        self._files = files
        self._reader = reader
        self._options = options
        reader.mount_option = options.read_priority
        self._forgotten = ForgottenInodes(metadata)
        self.last_pages = LastPages(reader, lambda handle: handle in self._files_open)
        self._next_handle = 1
        self._files_open: dict[int, _OpenFile] = {}
        self._control = control
        self._control_open: dict[int, OpenControl] = {}
        self._listings: dict[int, DirectoryListing] = {}

    @operation
    async def lookup(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        """Find a name: one get for the entry, one for its record."""
        control = self._control.find(parent_inode, name)
        if control is not None or self._control.owns(parent_inode):
            return attributes.missing() if control is None else self._control.attributes(control)
        if name == b"." and self.inodes.get(parent_inode) is None:
            return await self._by_handle(parent_inode)
        parent = self._tree.require(parent_inode)
        with self._metadata.read() as txn:
            entry = self._tree.find(txn, parent, name)
            if entry is None:
                return attributes.missing()
            return self._tree.count_lookup(entry, self._tree.attributes(txn, entry))

    async def _by_handle(self, inode: int) -> pyfuse3.EntryAttributes:
        """Return the attributes of an inode that the kernel has forgotten. Raises Fenced if it is gone."""
        entry = await self._forgotten.find(inode)
        if entry is None:
            raise Fenced(f"the file of inode {inode} was removed or replaced")
        with self._metadata.read() as txn:
            shown = self._tree.attributes(txn, entry)
            if shown.attributes.st_ino != inode:
                raise Fenced("the name now refers to a newer file")
            return self._tree.count_lookup(entry, shown)

    @operation
    async def getattr(self, inode: int, ctx: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        """Return the attributes of an inode the kernel knows."""
        if self._control.owns(inode):
            return self._control.attributes(inode)
        with self._metadata.read() as txn:
            return self._tree.attributes_of_inode(txn, inode)

    @operation
    async def opendir(self, inode: int, ctx: pyfuse3.RequestContext) -> int:
        """Open a directory for listing."""
        handle = self._new_handle(inode, Opener(ctx.pid, ctx.uid))
        if self._control.owns(inode):
            self._control_open[handle] = Text(b"")
            return handle
        self._listings[handle] = DirectoryListing(DirectoryId(self._tree.require(inode).id))
        return handle

    @operation
    async def readdir(self, handle: int, start: int, token: pyfuse3.ReaddirToken) -> None:
        """List entries with their attributes in name order, after the one with token `start`."""
        if handle in self._control_open:
            self._control.list(token, start)
            return
        listing = self._listings[handle]
        with self._metadata.read() as txn, closing(listing.entries(txn, start)) as entries:
            for entry, after in entries:
                shown = self._tree.attributes(txn, entry)
                if not pyfuse3.readdir_reply(token, entry.name.encode(), shown.attributes, after):
                    return
                if entry.name not in DOTS:
                    listing.given(entry)
                    self._tree.count_lookup(entry, shown)

    @reported
    async def releasedir(self, handle: int) -> None:
        """Close a listing; never raises."""
        self.subjects.closed(handle)
        if self._control_open.pop(handle, None) is None:
            del self._listings[handle]

    @operation
    async def open(self, inode: int, flags: int, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        """Open a segment for reading, with all bytes that it has."""
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC:
            raise pyfuse3.FUSEError(errno.EROFS)
        opener = Opener(ctx.pid, ctx.uid)
        if self._control.owns(inode):
            handle = self._new_handle(inode, opener)
            self._control_open[handle] = self._control.open(inode)
            return pyfuse3.FileInfo(fh=handle, direct_io=True)
        known = self._tree.require(inode)
        segment = await self._to_open(inode, known)
        size_bytes, keep = known.opened(segment), False
        # Without pages also a file of which the kernel keeps old ones.
        paged = not self._options.direct_io and not (known.paged_handles and known.pages_end < size_bytes)
        if known.size_shown < size_bytes:
            forget_attributes(inode)  # those of before an append
        if paged:
            keep = known.opened_paged(size_bytes)
        handle = self._new_handle(inode, opener)
        file = _OpenFile(opener, known, SegmentId(known.id), segment.start_offset, paged)
        self._files_open[handle] = file
        if paged and known.sealed_end is None:
            self.last_pages.opened(handle, known, segment.length, opener.uid)
        self._reader.open_handles.opened(file.segment_id, file.opener)
        return pyfuse3.FileInfo(fh=handle, direct_io=not paged, keep_cache=keep)

    async def _to_open(self, inode: int, known: InodeEntry) -> pb.SegmentRecord:
        """Return the row of a segment that is opened, once readers of its pages may see its size."""
        with self._metadata.read() as txn:
            segment, _ = self._tree.segment(txn, known.id)
        if segment.inode != inode:
            raise Fenced("the name now refers to a newer file")
        if known.paged_handles:  # not one that grows on: it is as long as it was when it was opened
            await self.growth.finish(inode, known, known.size_in(segment))
        return segment

    @operation
    async def read(self, handle: int, offset: int, size: int) -> Buffer:  # type: ignore[override]  # any buffer will do
        """Read; offset 0 of the file is the segment's start offset. A short answer means end of file."""
        if handle in self._control_open:
            return await self._control_open[handle].read(offset, size)
        file = self._files_open[handle]
        known, reading = file.known, file.reading or self._begin(file)
        start = file.start_offset + offset
        if known.sealed_end is not None:
            size = max(0, min(size, known.sealed_end - start))
        if file.paged:
            known.pages_kept = True  # the kernel has dropped older pages before it reads by this handle
        try:
            data = await reading.read(start, size)
        except Fenced:
            if not file.paged:
                raise
            data = await _after_tail(known, reading, start, size)
        if file.paged:
            if len(data) < size and known.sealed_end is None:
                known.note_tail(start, data)
        else:
            known.size_shown = max(known.size_shown, offset + len(data))
        known.served_from = reading.served_from
        self._reader.open_handles.served(reading, start + len(data), len(data))
        return data

    def _begin(self, file: _OpenFile) -> ReadHandle:
        """Make the handle of a file's reads. Raises Fenced when the segment was deleted since the open."""
        try:
            file.reading = self._reader.open(file.segment_id, uid=file.opener.uid)
        except NotFound as exc:
            raise Fenced("the segment was deleted") from exc
        return file.reading

    @reported
    async def release(self, handle: int) -> None:
        """Close a segment; never raises."""
        self.subjects.closed(handle)
        control = self._control_open.pop(handle, None)
        if control is not None:
            control.close()
            return
        file = self._files_open.pop(handle)
        file.known.open_handles -= 1
        file.known.paged_handles -= file.paged
        self._reader.open_handles.closed(file.segment_id, file.opener, file.reading)
        if file.reading is not None:
            file.reading.close()

    @reported
    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        """Forget inodes the kernel dropped; never raises."""
        for inode, lookups in inode_list:
            self.inodes.forget(inode, lookups)

    @operation
    async def statfs(self, ctx: pyfuse3.RequestContext) -> pyfuse3.StatvfsData:
        """Return the local disk's sizes."""
        status = os.statvfs(self._files.root)
        answer = pyfuse3.StatvfsData()
        for field in ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail"):
            setattr(answer, field, getattr(status, field))
        answer.f_namemax = _NAME_MAX
        return answer

    @operation
    async def getxattr(self, inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> bytes:
        """Return a `user.tierfs.` attribute."""
        if not self._options.xattr:
            # The kernel never asks again: ls asks for two attributes of each file.
            raise pyfuse3.FUSEError(errno.ENOSYS)
        if self._control.owns(inode):
            raise pyfuse3.FUSEError(pyfuse3.ENOATTR)
        known = self._tree.require(inode)
        value: bytes | None = None
        if known.kind is EntryKind.SEGMENT and name.startswith(xattrs.PREFIX):
            with self._metadata.read() as txn:
                segment = directories.segment_by_id(txn, SegmentId(known.id))
                budget = self._reader.budget_of(ctx.uid)
                shown = xattrs.XattrContext(txn, segment, self._reader.read_priority, known.served_from, budget)
                value = xattrs.value_of(shown, name)
        if value is None:
            raise pyfuse3.FUSEError(pyfuse3.ENOATTR)
        return value

    @operation
    async def listxattr(self, inode: int, ctx: pyfuse3.RequestContext) -> Sequence[bytes]:
        """List no attribute, so that `cp -a` copies none."""
        if not self._options.xattr:
            raise pyfuse3.FUSEError(errno.ENOSYS)
        return []

    @operation
    async def access(self, inode: int, mode: int, ctx: pyfuse3.RequestContext) -> bool:
        """Return True unless the mode includes writing. Raises EROFS for that."""
        if mode & os.W_OK:
            raise pyfuse3.FUSEError(errno.EROFS)
        return True

    def _new_handle(self, inode: int, opener: Opener) -> int:
        self._next_handle += 1
        self.subjects.opened(self._next_handle, inode, opener)
        return self._next_handle
