"""Writing through fsspec: segments are created and appended to, never changed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier

import pytest

from tests.faces.fsspec.conftest import CHUNK_BYTES
from tests.mount.conftest import append
from tierfs.app import store
from tierfs.engine.segments import stat
from tierfs.faces.fsspec import TierfsFileSystem

THREADS = 8


def sealed(store: store.Store, name: str) -> bool:
    with store.metadata.read() as txn:
        return stat.stat(txn, name).record.sealed


def test_creating_appending_flushing_and_sealing(store: store.Store, fs: TierfsFileSystem) -> None:
    data = bytes(range(256)) * (3 * CHUNK_BYTES // 256)
    for mode in ("wb", "xb", "ab"):
        with fs.open(f"new/{mode}", mode) as file:
            for start in range(0, len(data), 1000):
                assert file.tell() == start
                file.write(data[start : start + 1000])
        assert (fs.cat_file(f"new/{mode}"), sealed(store, f"new/{mode}")) == (data, False)
    append(store, "s", b"one\n")
    with fs.open("s", "a", encoding="utf-8") as text:
        text.write("zwei ½\n")
    with fs.open("s", "ab") as file:
        assert file.tell() == len("one\nzwei ½\n".encode())
        file.write(b"1")
        assert fs.cat_file("s").decode() == "one\nzwei ½\n"
        file.flush()
        assert fs.cat_file("s").decode() == "one\nzwei ½\n1"
    fs.pipe_file("by call", b"1", seal=True)
    sealing = TierfsFileSystem(store=store.path, seal=True, skip_instance_cache=True)
    sealing.pipe_file("by option", b"1")
    sealing.pipe_file("not", b"1", seal=False)
    assert [sealed(store, name) for name in ("by call", "by option", "not")] == [True, True, False]


def test_a_block_that_fails_does_not_seal(store: store.Store, fs: TierfsFileSystem) -> None:
    with suppress(RuntimeError), fs.open("s", "wb", seal=True) as file:
        file.write(b"half")
        raise RuntimeError
    assert (fs.cat_file("s"), sealed(store, "s")) == (b"half", False)
    with fs.open("s", "ab", seal=True) as file:
        file.write(b" and half")
    assert (fs.cat_file("s"), sealed(store, "s")) == (b"half and half", True)


def test_of_many_that_create_one_is_first(fs: TierfsFileSystem) -> None:
    started = Barrier(THREADS)

    def create(number: int) -> bool:
        started.wait()
        with suppress(FileExistsError):
            fs.pipe_file("contended", b"%d" % number, mode="create")
            return True
        return False

    with ThreadPoolExecutor(THREADS) as pool:
        won = list(pool.map(create, range(THREADS)))
    assert won.count(True) == 1
    assert fs.cat_file("contended") == b"%d" % won.index(True)


def test_a_move_is_a_rename(store: store.Store, fs: TierfsFileSystem) -> None:
    for name in ("a/1", "a/2", "b", "[c]"):
        append(store, name, name.encode())
    created = [fs.created(name) for name in ("a/1", "b")]
    fs.mv("b", "d/e")
    fs.mv("tierfs://a", "f", recursive=True)
    assert [fs.created(name) for name in ("f/1", "d/e")] == created
    fs.rename("d/e", "f")
    fs.mv("f/e", "new/")
    fs.mv("f/*", "g/")
    fs.mv("f", "f")
    assert fs.find("") == ["[c]", "g/1", "g/2", "new/e"]
    with pytest.raises(FileExistsError):
        fs.mv("g/1", "g/2")
    with pytest.raises(FileNotFoundError):
        fs.mv("none", "h")
    assert fs.cat("g/*") == {"g/1": b"a/1", "g/2": b"a/2"}


def test_directories_copies_and_removals(store: store.Store, fs: TierfsFileSystem, tmp_path: Path) -> None:
    fs.mkdir("a/b")
    fs.makedirs("a/b", exist_ok=True)
    fs.rmdir("a/b")
    assert fs.ls("a") == []
    fs.touch("s")
    fs.pipe_file("s", b"bytes")  # an empty segment may be written
    fs.copy("s", "copies/t")
    fs.get_file("s", str(tmp_path / "out"))
    (tmp_path / "in").write_bytes(b"others")
    fs.put_file(str(tmp_path / "in"), "copies/u")
    assert fs.cat("copies/*") == {"copies/t": b"bytes", "copies/u": b"others"}
    assert (tmp_path / "out").read_bytes() == b"bytes"
    for name in ("a/1", "a/2", "b/c/3", "b/[4]"):
        append(store, name, b"x")
    for name in ("a/*", "b/[4]", "s"):
        fs.rm(name)
    fs.rm(["b/c", "copies"], recursive=True)
    assert fs.find("", withdirs=True) == ["a", "b"]
