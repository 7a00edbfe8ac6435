"""File handles, as an NFS server keeps them: they open the same file once the kernel has forgotten it, and no other."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import verbs
from tests.commands import tierfs
from tests.mount.conftest import Mount, Mounted, append
from tests.mount.waiting import eventually
from tierfs.app.store import Store
from tierfs.engine.segments import trash

pytestmark = [
    pytest.mark.mount,
    pytest.mark.timeout(120, method="thread"),
    pytest.mark.skipif(os.geteuid() != 0, reason="to open a file by its handle needs CAP_DAC_READ_SEARCH"),
]

_LIBC = ctypes.CDLL(None, use_errno=True)
_MOST_BYTES = 128
_AT_FDCWD = -100


class FileHandle(ctypes.Structure):
    """struct file_handle of open_by_handle_at(2)."""

    _fields_ = (("size", ctypes.c_uint), ("kind", ctypes.c_int), ("data", ctypes.c_ubyte * _MOST_BYTES))


def handle_of(path: Path) -> FileHandle:
    handle, mount_id = FileHandle(_MOST_BYTES), ctypes.c_int()
    done = _LIBC.name_to_handle_at(_AT_FDCWD, os.fsencode(path), ctypes.byref(handle), ctypes.byref(mount_id), 0)
    assert done == 0, os.strerror(ctypes.get_errno())
    return handle


@contextmanager
def by_handle(mounted: Path, handle: FileHandle, flags: int = os.O_RDONLY) -> Iterator[int]:
    """The file of a handle, opened in a mount. Raises OSError."""
    root = os.open(mounted, os.O_RDONLY)
    try:
        descriptor = _LIBC.open_by_handle_at(root, ctypes.byref(handle), flags)
        if descriptor < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(root)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_by(mounted: Path, handle: FileHandle) -> bytes | int:
    """What the file of a handle holds, or the number of the error."""
    try:
        with by_handle(mounted, handle) as descriptor:
            return os.read(descriptor, 1000)
    except OSError as exc:
        return exc.errno or 0


@pytest.fixture
def other(mount: Mount) -> Mounted:
    """A second mount of the store: its kernel side has never heard of an inode, as after a dropped cache."""
    return mount()


def test_a_handle_opens_its_file_in_a_mount_that_never_saw_it(
    store: Store, mount: Mount, other: Mounted, tmp_path: Path
) -> None:
    append(store, "d/e/one", b"one")
    append(store, "d/sealed", b"sealed", seal=True)
    (tmp_path / "files").mkdir()
    for number in range(20):
        (tmp_path / "files" / f"f{number}").write_bytes(b"%d" % number)
    assert tierfs("ingest", tmp_path / "files", "--into", "ingested", store=store.path, check=False).code == 0
    mnt = mount().path
    wanted = {"d/e/one": b"one", "d/sealed": b"sealed"} | {f"ingested/f{at}": b"%d" % at for at in range(20)}
    handles = {name: handle_of(mnt / name) for name in wanted}
    assert {name: read_by(other.path, handle) for name, handle in handles.items()} == wanted
    for directory in ("", "d", "d/e", "ingested"):
        with by_handle(other.path, handle_of(mnt / directory), os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            assert sorted(os.listdir(descriptor)) == sorted(os.listdir(mnt / directory))
            assert os.readlink(f"/proc/self/fd/{descriptor}") == str(other.path / directory).rstrip("/")
    with by_handle(other.path, handle_of(mnt / ".tierfs/config")) as descriptor:
        assert os.read(descriptor, 1)


def test_a_handle_opens_its_file_after_the_mount_was_made_anew(store: Store, mount: Mount) -> None:
    append(store, "d/s", b"bytes")
    first = mount()
    handle = handle_of(first.path / "d/s")
    subprocess.run(["umount", first.path], check=True)
    assert read_by(mount().path, handle) == b"bytes"


def test_a_handle_opens_its_file_through_a_bind_mount(
    store: Store, mount: Mount, other: Mounted, tmp_path: Path
) -> None:
    append(store, "d/s", b"bytes")
    handle = handle_of(mount().path / "d/s")
    bound = tmp_path / "bound"
    bound.mkdir()
    subprocess.run(["mount", "--bind", other.path / "d", bound], check=True)
    try:
        assert handle_of(bound / "s").data[:8] == handle.data[:8]
        assert read_by(bound, handle) == b"bytes"
    finally:
        subprocess.run(["umount", bound], check=True)


def test_a_handle_of_a_file_that_is_gone_is_stale(store: Store, mount: Mount, other: Mounted) -> None:
    """Also where another file has the name: it never opens that one."""
    for name in ("removed", "d/below", "cut", "unsealed"):
        append(store, name, b"older" * 3, seal=name == "unsealed")
    mnt = mount().path
    handles = {name: handle_of(mnt / name) for name in ("removed", "d/below", "d", "cut", "unsealed")}
    for name in ("removed", "d"):
        store.engine.delete(name, recursive=True, cold_due_ms=0, to_trash=True)
    verbs.truncate_head(store, "cut", 5)
    store.engine.unseal("unsealed")
    append(store, "removed", b"newer")
    for name, handle in handles.items():
        assert read_by(other.path, handle) == errno.ESTALE, name
    trash.restore(store.metadata, "d")
    assert read_by(other.path, handles["d/below"]) == b"older" * 3
    for name in ("removed", "cut", "unsealed"):
        assert eventually(lambda name=name: (mnt / name).read_bytes() == (other.path / name).read_bytes())
        assert read_by(mount().path, handle_of(mnt / name)) == (other.path / name).read_bytes()


def test_a_handle_of_a_file_that_is_made_later_opens_it(store: Store, mount: Mount, other: Mounted) -> None:
    append(store, "first", b"first")
    verbs.truncate_head(store, "first", 1)
    mnt = mount().path
    assert read_by(other.path, handle_of(mnt / "first")) == b"irst"
    append(store, "second", b"second")
    verbs.truncate_head(store, "second", 1)
    assert read_by(other.path, handle_of(mnt / "second")) == b"econd"
