"""Particulars of a directory as the cold tier: files, links, modes, and the remains of a crash."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.conformance.storages import without_xattrs
from tests.doubles.manual_clock import ManualClock
from tierfs.base.system.clock import SystemClock
from tierfs.base.words.errors import (
    AlreadyExists,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    StorageFull,
    TierfsError,
    Unavailable,
)
from tierfs.engine.chunkstore.directory import tree as directory_tree
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
from tierfs.engine.chunkstore.directory.tree import RootDirectory, map_os_errors
from tierfs.engine.chunkstore.directory.write import STALE_AFTER_MS, TEMPORARY_DIRECTORY
from tierfs.engine.chunkstore.protocol import BufferSource, ObjectPiece
from tierfs.engine.chunkstore.read_only import ReadOnlyDirectory
from tierfs.engine.chunkstore.wrappers import Wrapped


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cold"


@pytest.fixture
def storage(root: Path) -> Iterator[DirectoryStorage]:
    with closing(DirectoryStorage.create(root)) as storage:
        yield storage


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_an_object_is_a_plain_file_of_its_name(storage: DirectoryStorage, root: Path) -> None:
    storage.put("a/b/object", BufferSource(b"bytes"), metadata={"attempt": "17"})
    assert (root / "a/b/object").read_bytes() == b"bytes"
    assert stat.S_IMODE((root / "a/b/object").stat().st_mode) == 0o440
    for directory in ("", "a", "a/b", ".tmp"):
        assert stat.S_IMODE((root / directory).stat().st_mode) == 0o700
    assert os.getxattr(root / "a/b/object", "user.tierfs.attempt") == b"17"
    with closing(DirectoryStorage.create(root)) as again:
        assert again.stat("a/b/object").length_bytes == 5
    storage.put("a/other", BufferSource(b""))
    storage.delete("a/b/object")
    assert files(root) == ["a/other"]
    assert not (root / "a/b").exists()


def test_missing_root_is_not_created_by_opening(root: Path) -> None:
    with pytest.raises(NotFound, match=str(root)):
        DirectoryStorage(root)
    assert not root.exists()


def test_sidecar_goes_with_its_object(storage: DirectoryStorage, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_xattrs(monkeypatch)
    storage.put("a/object", BufferSource(b"bytes"), metadata={"attempt": "1"})
    assert len(files(root)) == 2
    with pytest.raises(AlreadyExists):
        storage.put("a/object", BufferSource(b"other"), metadata={"attempt": "2"})
    assert len(files(root)) == 2
    assert storage.stat("a/object").metadata == {"attempt": "1"}
    assert [found.name for found in storage.list("")] == ["a/object"]
    storage.delete("a/object")
    assert files(root) == []


OURS = "tierfs-" + "a" * 32


def test_temporary_files_go_with_the_first_write_once_stale(storage: DirectoryStorage, root: Path) -> None:
    storage.put("object", BufferSource(b"bytes"))
    (root / ".tmp" / OURS).write_bytes(b"half")
    now_ms = SystemClock().now_ms()
    early = DirectoryStorage(root, sweep=ManualClock(now_ms + STALE_AFTER_MS - 60_000))
    early.put("early", BufferSource(b"bytes"))
    assert files(root) == [f".tmp/{OURS}", "early", "object"]
    late = DirectoryStorage(root, sweep=ManualClock(now_ms + STALE_AFTER_MS + 60_000))
    assert files(root) == [f".tmp/{OURS}", "early", "object"]
    late.put("late", BufferSource(b"bytes"))
    assert files(root) == ["early", "late", "object"]


def test_temporary_files_of_others_stay(storage: DirectoryStorage, root: Path) -> None:
    storage.put("object", BufferSource(b"bytes"))
    theirs = ["mine.txt", "a" * 32, OURS + ".part", "tierfs-x"]
    for name in theirs:
        (root / ".tmp" / name).write_bytes(b"theirs")
        os.utime(root / ".tmp" / name, (0, 0))
    late = DirectoryStorage(root, sweep=SystemClock())
    late.put("other", BufferSource(b"bytes"))
    assert sorted(path.name for path in (root / ".tmp").iterdir()) == sorted(theirs)
    (root / ".tmp" / OURS).write_bytes(b"half")
    base = Wrapped(late)  # wrappers pass it on
    (upload,) = base.uploads("")
    assert (upload.name, list(base.uploads("segments/"))) == (f"{TEMPORARY_DIRECTORY}/{OURS}", [])
    for _ in range(2):
        base.abort_upload(upload)
    assert list(late.uploads("")) == []


def test_reading_changes_nothing(storage: DirectoryStorage, root: Path) -> None:
    storage.put("a/object", BufferSource(b"bytes"), metadata={"attempt": "1"})
    (root / ".tmp" / OURS).write_bytes(b"half")
    os.utime(root / ".tmp" / OURS, (0, 0))
    before = {path: path.lstat().st_ctime_ns for path in [root, *root.rglob("*")]}
    reader = DirectoryStorage(root, sweep=SystemClock())
    reader.read_into("a/object", 0, memoryview(bytearray(5)))
    assert reader.stat("a/object").metadata == {"attempt": "1"}
    assert [found.name for found in reader.list("")] == ["a/object"]
    assert len(list(reader.uploads(""))) == 1
    reader.close()
    assert {path: path.lstat().st_ctime_ns for path in [root, *root.rglob("*")]} == before


def test_symbolic_links_are_not_followed(storage: DirectoryStorage, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (root / "link").symlink_to(outside / "secret")
    (root / "directory").symlink_to(outside)
    for name in ("link", "directory/secret"):
        with pytest.raises((PermissionDenied, NotFound)):
            storage.stat(name)
        with pytest.raises((PermissionDenied, NotFound)):
            storage.read_into(name, 0, memoryview(bytearray(1)))
        storage.delete(name)
    with pytest.raises(TierfsError):
        storage.put("directory/planted", BufferSource(b""))
    assert list(storage.list("")) == []
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (root / "link").is_symlink()


@pytest.mark.timeout(10)
def test_fifo_is_not_waited_for(storage: DirectoryStorage, root: Path) -> None:
    os.mkfifo(root / "fifo")
    with pytest.raises(NotFound):
        storage.stat("fifo")
    assert list(storage.list("")) == []


@pytest.mark.parametrize("name", [".tmp/x", ".metadata/x", ".tmp", "x" * 256, "a/object"])
def test_names_that_the_directory_does_not_take(storage: DirectoryStorage, root: Path, name: str) -> None:
    storage.put("a", BufferSource(b""))
    with pytest.raises(InvalidRequest):
        storage.put(name, BufferSource(b""))
    assert list(storage.list(name)) == []
    assert files(root) == ["a"]


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EACCES, PermissionDenied),
        (errno.EROFS, PermissionDenied),
        (errno.ELOOP, PermissionDenied),
        (errno.ENOENT, NotFound),
        (errno.EEXIST, AlreadyExists),
        (errno.ENAMETOOLONG, InvalidRequest),
        (errno.EIO, Unavailable),
        (errno.ESTALE, Unavailable),
        (errno.ETIMEDOUT, Unavailable),
    ],
)
def test_errors_of_the_system(number: int, error: type[TierfsError]) -> None:
    with pytest.raises(error, match=r"^object: ") as raised, map_os_errors("object"):
        raise OSError(number, "text")
    assert isinstance(raised.value.__cause__, OSError)
    assert "\n" not in str(raised.value)


def test_full_disk_leaves_nothing(storage: DirectoryStorage, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFull):
        storage.put("object", BufferSource(b"bytes"))
    assert files(root) == []


@pytest.fixture
def syncs(root: Path, monkeypatch: pytest.MonkeyPatch) -> Syncs:
    return Syncs(monkeypatch)


class Syncs:
    """Records syncs, and fails some: a directory whose disk fails once."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.failing: set[str] = set()
        self._sync = os.fsync
        patch.setattr(os, "fsync", self._fsync)

    def _fsync(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if path in self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._sync(fd)
        self.done.append(path)


def test_a_name_that_is_taken_is_durable_before_anybody_calls_it_their_own(
    storage: DirectoryStorage, root: Path, syncs: Syncs
) -> None:
    syncs.failing = {str(root / "journal")}
    with pytest.raises(Unavailable):
        storage.put("journal/1", BufferSource(b"entry"), metadata={"attempt": "a"})
    with pytest.raises(Unavailable):  # not AlreadyExists: nobody may take it for theirs yet
        storage.put("journal/1", BufferSource(b"entry"), metadata={"attempt": "a"})
    syncs.failing.clear()
    syncs.done.clear()
    with closing(DirectoryStorage(root)) as next_process, pytest.raises(AlreadyExists):
        next_process.put("journal/1", BufferSource(b"entry"), metadata={"attempt": "a"})
    assert {str(root / "journal" / "1"), str(root / "journal"), str(root)} <= set(syncs.done)


def test_what_could_not_be_synced_is_not_told_of(storage: DirectoryStorage, root: Path, syncs: Syncs) -> None:
    """A repeated compose looks whether the one before had succeeded, and does not copy again."""
    storage.put("a", BufferSource(b"part"))
    piece = ObjectPiece("a", 0, 4, storage.stat("a").etag)
    syncs.failing = {str(root / "b")}
    with pytest.raises(Unavailable):
        storage.compose("b/whole", [piece], metadata={"attempt": "a"})
    with pytest.raises(Unavailable):
        storage.stat("b/whole")
    syncs.failing.clear()
    syncs.done.clear()
    assert storage.stat("b/whole").length_bytes == 4
    assert str(root / "b") in syncs.done


def test_descriptors_are_given_back(storage: DirectoryStorage) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for number in range(20):
        name = f"a/b/{number}"
        storage.put(name, BufferSource(b"bytes"))
        storage.stat(name)
        storage.read_into(name, 0, memoryview(bytearray(5)))
        next(storage.list("a/b/"))
        storage.delete(name)
        with pytest.raises(NotFound):
            storage.stat(name)
    assert len(os.listdir("/proc/self/fd")) == before


def test_adopted_files_are_found_by_a_process_that_began_before_the_mount(tmp_path: Path) -> None:
    root, away = tmp_path / "root", tmp_path / "away"
    root.mkdir()
    away.mkdir()
    (away / "s").write_bytes(b"theirs")
    buffer = bytearray(len(b"theirs"))
    with closing(ReadOnlyDirectory(root)) as directory:
        assert list(directory.list("")) == []
        with pytest.raises(Unavailable, match="nothing seems to be mounted"):
            directory.read_into("s", 0, memoryview(buffer))
        with pytest.raises(NotFound):  # of which the check makes one finding for the place
            directory.stat("s")
        root.rmdir()
        away.rename(root)
        assert [(stored.name, stored.length_bytes) for stored in directory.list("")] == [("s", len(buffer))]
        directory.read_into("s", 0, memoryview(buffer))
    assert buffer == b"theirs"


def test_a_mount_that_goes_away_while_it_is_looked_at_costs_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "cold"
    root.mkdir()
    tree = RootDirectory(root)
    root.rename(tmp_path / "away")
    root.mkdir()
    before = len(os.listdir("/proc/self/fd"))

    def gone(_: int) -> bool:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    monkeypatch.setattr(directory_tree, "_is_mount", gone)
    assert not tree.follow()
    assert len(os.listdir("/proc/self/fd")) == before
    tree.close()
