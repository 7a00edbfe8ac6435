"""Unseal and head truncation: a new file under the name, and the old view for open handles."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import verbs
from tests.mount.conftest import Mount, append
from tests.mount.waiting import errno_of, eventually
from tests.reality.reference import reference
from tierfs.app.store import Store
from tierfs.engine.metadata import directories
from tierfs.mount.last_pages import LOOK_S

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread"), pytest.mark.xdist_group(__name__)]


@pytest.fixture(scope="module")
def store(common_store: Store) -> Store:
    return common_store


@pytest.fixture(scope="module")
def mount(common_mount: Mount) -> Mount:
    return common_mount


CUT = 1 << 20
"""One chunk of the stores these tests mount."""

OPTIONS = ["", "direct_io"]


def cut(store: Store, name: str, before: int) -> None:
    """The bytes below `before` go, and the files that held nothing else."""
    verbs.truncate_head(store, name, before)


def grow(store: Store, name: str, count: int, *, seal: bool = False) -> None:
    """Append the next bytes of the reference stream, one chunk's worth at a time."""
    for number in range(count):
        with store.metadata.read() as txn:
            found = directories.find(txn, name)
            start = 0 if found is None else directories.segment_by_name(txn, name).length
        append(store, name, reference(start, start + CUT), seal=seal and number == count - 1)


@contextmanager
def opened(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    descriptor = os.open(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def size_of(descriptor: int) -> int:
    return os.fstat(descriptor).st_size


def pread_or_errno(descriptor: int, offset: int) -> bytes | int | None:
    try:
        return os.pread(descriptor, 1000, offset)
    except OSError as exc:
        return exc.errno


def has_changed(path: Path, descriptor: int) -> bool:
    """Whether the name stands for another file than the open one."""
    return eventually(lambda: path.stat().st_ino != os.fstat(descriptor).st_ino)


@pytest.mark.parametrize("options", OPTIONS)
def test_a_new_inode_is_a_new_file_and_the_old_view_stays(store: Store, mount: Mount, options: str) -> None:
    mnt = mount(options).path
    for kind in ("sealed", "open"):
        name = f"new{options}/{kind}"
        path = mnt / name
        grow(store, name, 3, seal=kind == "sealed")
        with opened(path) as old:
            before = os.fstat(old)
            cut(store, name, CUT + 1000)
            assert has_changed(path, old)
            assert path.stat().st_size == 2 * CUT - 1000
            assert path.read_bytes() == reference(CUT + 1000, 3 * CUT)
            after = os.fstat(old)
            assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
            assert os.pread(old, 1000, 2_000_000) == reference(2_000_000, 2_001_000)


def test_a_file_that_was_opened_sealed_and_empty_stays_empty(store: Store, mount: Mount) -> None:
    append(store, "empty", b"", seal=True)
    path = mount().path / "empty"
    with opened(path) as old:
        store.engine.unseal("empty")
        append(store, "empty", b"later")
        assert has_changed(path, old)
        assert path.read_bytes() == b"later"
        assert size_of(old) == 0
        assert os.pread(old, 10, 0) == b""


def test_bytes_that_are_gone_are_stale(store: Store, mount: Mount) -> None:
    mnt = mount("direct_io").path
    for name in ("sealed", "open"):
        path = mnt / name
        grow(store, name, 3, seal=name == "sealed")
        with opened(path) as old:
            cut(store, name, CUT)
            assert has_changed(path, old)
            assert errno_of(lambda fd=old: os.pread(fd, 1000, 0)) == errno.ESTALE
            assert os.pread(old, 1000, CUT) == reference(CUT, CUT + 1000)
            assert size_of(old) == 3 * CUT


@pytest.mark.parametrize("kept", [0, 1, 4095, 4096, 4097])
def test_a_reader_behind_a_dropped_head_goes_on(store: Store, mount: Mount, kept: int) -> None:
    """The kernel reads whole pages: that of the reader has bytes of the head, too."""
    name, size = f"tail/{kept}", CUT + 5000
    append(store, name, reference(0, size))
    with opened(mount().path / name) as tail:
        os.lseek(tail, size - 10, os.SEEK_SET)
        assert os.read(tail, 100) == reference(size - 10, size)
        cut(store, name, size - kept)
        for number in range(3):
            end = size + 3000 * number
            append(store, name, reference(end, end + 3000))
            assert eventually(lambda end=end: size_of(tail) == end + 3000)
            assert os.read(tail, 1 << 20) == reference(end, end + 3000)
        for offset in range(0, size, 1000):
            assert pread_or_errno(tail, offset) in (errno.ESTALE, reference(offset, offset + 1000))


@pytest.mark.parametrize(
    ("size", "kept"), [(1, 0), (9, 4), (4095, 0), (4096, 0), (4097, 0), (CUT + 5000, 0), (CUT + 5000, 9)]
)
def test_a_reader_at_the_end_goes_on_though_nobody_has_read_the_last_page(
    store: Store, mount: Mount, size: int, kept: int
) -> None:
    """`tail -n 0 -f` of a log whose bytes are all dropped before its next line."""
    name = f"waiting/{size}.{kept}"
    append(store, name, reference(0, size))
    with opened(mount().path / name) as waiting:
        os.lseek(waiting, 0, os.SEEK_END)
        assert not eventually(lambda: False, within_s=4 * LOOK_S), "the mount has read the page by now"
        cut(store, name, size - kept)
        append(store, name, reference(size, size + 3000))
        assert eventually(lambda: size_of(waiting) == size + 3000)
        assert os.read(waiting, 1 << 20) == reference(size, size + 3000)
        for offset in range(0, size, 1000):
            assert pread_or_errno(waiting, offset) in (errno.ESTALE, reference(offset, offset + 1000))


def test_tail_goes_on_behind_a_dropped_head(store: Store, mount: Mount) -> None:
    lines = [b"%d\n" % number for number in range(8)]
    append(store, "followed", b"".join(lines[:4]))
    command = ["tail", "-n", "+1", "-s", "0.1", "-f", str(mount().path / "followed")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tail:
        assert tail.stdout is not None
        try:
            assert [tail.stdout.readline() for _ in range(4)] == lines[:4]
            for line, before in zip(lines[4:], (4, 8, 12, 13), strict=True):
                cut(store, "followed", before)
                append(store, "followed", line)
                assert tail.stdout.readline() == line
        finally:
            tail.kill()


def test_an_old_inode_that_nobody_has_open_is_stale(store: Store, mount: Mount) -> None:
    grow(store, "unopened", 2, seal=True)
    path = mount().path / "unopened"
    with opened(path, os.O_PATH) as old:
        link = Path(f"/proc/self/fd/{old}")
        assert link.stat().st_size == 2 * CUT
        cut(store, "unopened", CUT)
        assert eventually(lambda: errno_of(link.stat) == errno.ESTALE)
        assert errno_of(link.open) == errno.ESTALE
        assert path.read_bytes() == reference(CUT, 2 * CUT)


def test_the_old_view_of_a_growing_segment_grows(store: Store, mount: Mount) -> None:
    grow(store, "growing", 2)
    path = mount().path / "growing"
    with opened(path) as old:
        cut(store, "growing", CUT)
        assert has_changed(path, old)
        append(store, "growing", b"more")
        assert eventually(lambda: size_of(old) == 2 * CUT + 4)
        assert os.pread(old, 100, 2 * CUT) == b"more"
        assert path.stat().st_size == CUT + 4


def test_the_old_view_of_a_sealed_segment_ends_where_it_ended(store: Store, mount: Mount) -> None:
    """Pages of its end are in the page cache: bytes after it would show as NULs."""
    size = CUT + 1000
    append(store, "ended", reference(0, size))
    path = mount("xattr").path / "ended"
    with opened(path) as uncached:
        store.engine.seal("ended")
        assert eventually(lambda: os.getxattr(path, "user.tierfs.sealed") == b"1")
        with opened(path) as cached:
            assert os.pread(cached, 1 << 20, CUT) == reference(CUT, size)
            store.engine.unseal("ended")
            append(store, "ended", reference(size, size + 50_000))
            assert has_changed(path, cached)
            for descriptor in (uncached, cached):
                assert os.pread(descriptor, 1 << 20, CUT) == reference(CUT, size)
                assert size_of(descriptor) == size
            assert os.pread(uncached, 1000, size) == b""
            assert path.read_bytes() == reference(0, size + 50_000)


@pytest.mark.parametrize("options", OPTIONS)
def test_open_files_read_on_through_a_concat(store: Store, mount: Mount, options: str) -> None:
    """The target grows; the source's name goes, and its open handles read its bytes or get an error."""
    target_name, source_name = f"concat{options}/t", f"concat{options}/s"
    append(store, target_name, reference(0, CUT))
    append(store, source_name, reference(CUT, 3 * CUT), seal=True)
    path = mount(options).path
    with opened(path / target_name) as target, opened(path / source_name) as source:
        assert os.pread(source, 1000, 0) == reference(CUT, CUT + 1000)
        store.engine.concat(target_name, source_name)
        assert eventually(lambda: not (path / source_name).exists())
        assert eventually(lambda: size_of(target) == 3 * CUT)
        assert os.pread(target, 1000, CUT - 500) == reference(CUT - 500, CUT + 500)
        assert (path / target_name).read_bytes() == reference(0, 3 * CUT)
        for offset in range(0, 2 * CUT, CUT // 2):
            found = pread_or_errno(source, offset)
            assert found in (errno.ESTALE, reference(CUT + offset, CUT + offset + 1000))
