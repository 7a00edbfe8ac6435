"""Directories that last, whole reads and writes, and precise errors."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disks import synced
from tests.doubles.manual_clock import ManualClock
from tests.doubles.page_cache import kernels_page_cache
from tierfs.app import store as app
from tierfs.app.dump import dump_store, load_store
from tierfs.app.setup.create import init_store
from tierfs.base.system import os_errors, osio
from tierfs.base.words.errors import DataLoss, NotFound, PermissionDenied, StorageFull, TierfsError, Unavailable
from tierfs.engine.metadata.store import MetadataStore


def test_a_new_store_lasts_with_all_directories_above_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = synced(monkeypatch)
    root = tmp_path / "a" / "b" / "store"
    init_store(root)
    above = {tmp_path, tmp_path / "a", tmp_path / "a" / "b"}
    within = {root, root / "metadata", root / "chunks.new"}  # chunks, before it has its name
    assert {str(path) for path in above | within} <= set(done)


def test_new_metadata_last_with_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = synced(monkeypatch)
    MetadataStore.create(tmp_path / "m", ManualClock()).close()
    assert {str(tmp_path), str(tmp_path / "m")} <= set(done)


def test_loaded_metadata_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init_store(tmp_path / "store")
    with app.open_store(tmp_path / "store") as store:
        dump_store(store, str(tmp_path / "dump"))
    done = synced(monkeypatch)
    load_store(tmp_path / "new" / "store", tmp_path / "dump")
    assert {str(tmp_path), str(tmp_path / "new"), str(tmp_path / "new" / "store")} <= set(done)


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    fd = osio.open_or_create(tmp_path / "file")
    yield fd
    os.close(fd)


def test_a_descriptor_of_any_number_is_waited_for() -> None:
    """select.select() raises ValueError above 1,023."""
    ours, theirs = os.pipe()
    high = fcntl.fcntl(ours, fcntl.F_DUPFD, 1024)
    os.close(ours)
    assert not osio.readable(high)
    os.write(theirs, b"x")
    assert osio.readable(high, 1e9)
    os.close(theirs)
    assert os.read(high, 2) == b"x"
    assert osio.readable(high)
    os.close(high)


def _one_byte_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.preadv, os.pwrite
    monkeypatch.setattr(os, "preadv", lambda fd, views, offset: read(fd, [views[0][:1]], offset))
    monkeypatch.setattr(os, "pwrite", lambda fd, view, offset: write(fd, view[:1], offset))


def test_what_the_kernel_does_in_parts_is_done_whole(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _one_byte_at_a_time(monkeypatch)
    osio.write_all(fd, b"abcdef", 2)
    view = memoryview(bytearray(8))
    assert osio.read_all(fd, view, 3) == 5
    assert bytes(view) == b"bcdef\0\0\0"


def test_a_damaged_disk_ends_a_read_for_those_who_ask_for_it(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "text")

    monkeypatch.setattr(os, "preadv", fail)
    view = memoryview(bytearray(1))
    assert osio.read_all(fd, view, 0, over=errno.EIO) == 0
    with pytest.raises(OSError, match="text"):
        osio.read_all(fd, view, 0)


@kernels_page_cache
def test_the_kernel_gives_what_its_page_cache_has_or_cannot_tell() -> None:
    data, cache = bytes(range(256)) * 64, osio.PageCache()
    view = memoryview(bytearray(len(data)))
    with tempfile.TemporaryFile(buffering=0) as file:  # on a disk, where there is one, unlike pytest's directories
        file.write(data)
        done = cache.read(file.fileno(), view, 0)
        assert (done, view == data) == ((len(data), True) if cache.tells else (0, False))


@kernels_page_cache
def test_the_page_cache_is_asked_no_more_where_it_cannot_tell(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [errno.EAGAIN, errno.EIO, errno.EOPNOTSUPP]

    def fail(*_: object) -> int:
        raise OSError(errors.pop(0), "text")

    monkeypatch.setattr(os, "preadv", fail)
    cache = osio.PageCache()
    view = memoryview(bytearray(1))
    assert [(cache.read(fd, view, 0), cache.tells) for _ in range(4)] == [(0, True), (0, True), (0, False), (0, False)]
    assert not errors


def test_a_durable_file_is_synced_with_all_of_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync, lengths = os.fsync, list[int]()

    def note(fd: int) -> None:
        lengths.append(os.fstat(fd).st_size)
        sync(fd)

    monkeypatch.setattr(os, "fsync", note)
    with osio.durable_file(tmp_path / "file", os.O_EXCL) as file:
        file.write(b"abc")
    assert lengths == [3]
    assert (tmp_path / "file").stat().st_mode & 0o777 == osio.OWNER_FILE


@pytest.mark.parametrize(
    ("number", "error", "text"),
    [
        (errno.ENOSPC, StorageFull, "a b: the local disk is full"),
        (errno.ENOENT, NotFound, "a b: No such file or directory"),
        (errno.ELOOP, PermissionDenied, "a b: Too many levels of symbolic links"),
        (errno.EIO, DataLoss, "a b: Input/output error"),
        (errno.EBUSY, Unavailable, "a b: Device or resource busy"),
    ],
)
def test_errors_of_the_local_disk(number: int, error: type[TierfsError], text: str) -> None:
    with pytest.raises(error) as raised, os_errors.map_os_errors("a b"):
        raise OSError(number, "text")
    assert str(raised.value) == text
    assert isinstance(raised.value.__cause__, OSError)


def test_other_errors_pass() -> None:
    with pytest.raises(ValueError, match="text"), os_errors.map_os_errors("a"):
        raise ValueError("text")
