"""What the page cache has, as a test says: the file system of temporary files does not choose which path is proved.

ext4 and XFS tell what they have (RWF_NOWAIT); a tmpfs refuses, and every read of a local file takes a thread.
"""

from __future__ import annotations

import os

import pytest

from tierfs.base.system import osio


class ToldPages(osio.PageCache):
    """Tells of every file that is asked for: all of its bytes are there, or none while `holds` is false."""

    holds = True

    def read(self, fd: int, view: memoryview, offset: int) -> int:
        """Copy what is there, as the kernel does."""
        return os.preadv(fd, [view], offset) if self.holds else 0


class UntoldPages(osio.PageCache):
    """Cannot tell, as on a filesystem without RWF_NOWAIT."""

    def __init__(self) -> None:
        super().__init__()
        self.tells = False


PAGE_CACHES: dict[str, type[osio.PageCache]] = {
    "told": ToldPages,
    "untold": UntoldPages,
    "kernel": osio.PageCache,
}

both_local_paths = pytest.mark.parametrize("page_cache", ["told", "untold"], indirect=True)
"""Runs a test, or a module's, once for each path of local reads."""

kernels_page_cache = pytest.mark.parametrize("page_cache", ["kernel"], indirect=True)
"""Lets a test ask the real one."""
