"""Growth of files that somebody reads through the kernel's pages: pages first, the size later, so that no NUL shows.

The kernel drops its pages, which fill again with the newest bytes; only then is the new size shown. In between passes
more time than a reader spends between taking a page and looking at the size.
"""

from __future__ import annotations

import errno
import logging

import pyfuse3
import trio

from tierfs.base.words.errors import Fenced
from tierfs.engine.metadata.store import MetadataStore
from tierfs.mount.inodes import InodeEntry
from tierfs.mount.tree import Tree

log = logging.getLogger(__name__)

# Linux 6.18 bounds this by nothing. A read takes its pages, and looks at the size after that (mm/filemap.c,
# filemap_read), with no lock and no sleep in between: some instructions, unless the reader is preempted or its CPU
# stands still. Dropping pages (fs/fuse/inode.c, fuse_reverse_inval_inode; mm/truncate.c,
# invalidate_inode_pages2_range) waits for reads that fill one, not for who has a reference to a full one. Storing pages
# from here (FUSE_NOTIFY_STORE) raises the size before it copies the bytes, so it shows NULs by itself; membarrier()
# waits for preempted readers in no kernel that can preempt them. So: some fifteen turns of the scheduler
# (base_slice_ns, about 3 ms), after which a reader that can run has run, unless many others wait for its CPU.
_SETTLE_S = 0.05

# Files renewed at once: the kernel waits for reads in flight, and those of an absent server take their deadline.
_AT_ONCE = 64

# The kernel has forgotten the inode, or the mount is being taken down.
_GONE = frozenset({errno.ENOENT, errno.ENOTCONN, errno.ENODEV})


class GrowingFiles:
    """Tells the kernel that inodes changed. On the trio loop, in the mount's nursery."""

    def __init__(self, metadata: MetadataStore, tree: Tree) -> None:
        self._metadata = metadata
        self._tree = tree
        self._limiter = trio.CapacityLimiter(_AT_ONCE)
        self.nursery: trio.Nursery | None = None
        """Of the mount; set before it serves."""

    def changed(self, inode: int) -> None:
        """Tell the kernel of a change; of a growth that has to wait for pages, a moment later."""
        known = self._tree.inodes.get(inode)
        if known is None:
            return
        if known.paged_handles and known.growing is None and self._size(known) > known.pages_end:
            known.growing = trio.Event()
            assert self.nursery is not None
            self.nursery.start_soon(self._grow, inode, known)
        elif known.growing is None:
            forget_attributes(inode)

    async def finish(self, inode: int, known: InodeEntry, size_bytes: int) -> None:
        """Wait until readers of the pages may see a size, or the kernel did not drop the pages."""
        while known.paged_handles and known.pages_end < size_bytes:
            self.changed(inode)
            growing, before = known.growing, known.pages_end
            if growing is None:
                return
            await growing.wait()
            if known.pages_end == before:
                return

    async def _grow(self, inode: int, known: InodeEntry) -> None:
        assert known.growing is not None
        try:
            while (size_bytes := self._size(known)) > known.pages_end:
                await trio.to_thread.run_sync(_forget_pages, inode, limiter=self._limiter, abandon_on_cancel=True)
                await trio.sleep(_SETTLE_S)
                if size_bytes > known.pages_end:  # else the last reader closed it, and the next has dropped the pages
                    # Every page is of a read that began after the size was looked up.
                    known.pages_end, known.pages_kept = size_bytes, True
                    known.size_shown = size_bytes
                # Each time: a file that grows without a pause is opened, and looked at, all the same.
                forget_attributes(inode)
                known.growing.set()
                known.growing = trio.Event()
        except OSError as exc:
            log.warning("the kernel does not drop pages of inode %d, so its growth shows later: %s", inode, exc)
        except Exception:
            log.exception("the growth of inode %d shows with its next change", inode)
        finally:
            known.growing.set()
            known.growing = None

    def _size(self, known: InodeEntry) -> int:
        """Return the file's size by the newest row; that of its pages once the segment is gone."""
        with self._metadata.read() as txn:
            try:
                return known.size_in(self._tree.segment(txn, known.id)[0])
            except Fenced:
                return known.pages_end


def forget_attributes(inode: int) -> None:
    """Have the kernel ask for attributes again. Never waits: it drops no pages."""
    try:
        _invalidate(inode, attr_only=True)
    except OSError as exc:
        log.warning("the kernel does not forget inode %d: %s", inode, exc)


def _forget_pages(inode: int) -> None:
    """Have the kernel drop the pages. In a thread: it waits for reads in flight, which the loop serves.

    Raises OSError when they are still there.
    """
    _invalidate(inode, attr_only=False)


def _invalidate(inode: int, *, attr_only: bool) -> None:
    try:
        # fuse_lowlevel_notify_inval_inode(): attributes alone are dropped at once, pages after the reads of them.
        pyfuse3.invalidate_inode(inode, attr_only=attr_only)
    except OSError as exc:
        if exc.errno not in _GONE:
            raise
