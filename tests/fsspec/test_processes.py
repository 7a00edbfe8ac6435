"""One filesystem in many threads and processes: what is open belongs to one process, and ends with its last user."""

from __future__ import annotations

import gc
import multiprocessing
import pickle
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.test_fork import NOTHING, in_child
from tests.fsspec.conftest import CHUNK_BYTES, put
from tests.mount.conftest import append
from tierfs.app import store
from tierfs.fsspec import TierfsFileSystem
from tierfs.fsspec.connection import CONNECTIONS

DATA = random.Random(3).randbytes(4 * CHUNK_BYTES)
THREADS = 16
READER = "tierfs-fsspec-reader"


def expect(value: object, wanted: object) -> None:
    assert value == wanted


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == READER]


def test_threads_share_a_filesystem_and_a_file(store: store.Store, fs: TierfsFileSystem) -> None:
    """Each read of a shared file is whole, and no byte is read twice."""
    put(store, "s", DATA, "both")
    before = readers()
    numbers = random.Random(4)
    starts = [numbers.randrange(len(DATA)) for _ in range(200)]

    def read(start: int) -> bytes:
        with fs.open("s") as file:
            file.seek(start)
            return file.read(70_000)

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(read, starts)) == [DATA[start : start + 70_000] for start in starts]
    assert len(set(readers()) - set(before)) == 1
    with fs.open("s") as file, ThreadPoolExecutor(THREADS) as pool:
        parts = list(pool.map(lambda _: file.read(1000), range(len(DATA) // 1000)))
    assert sorted(parts) == sorted(DATA[start : start + 1000] for start in range(0, len(DATA), 1000))
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda number: fs.pipe_file(f"out/{number:02}", b"%d" % number), range(THREADS)))
    assert [fs.cat_file(name) for name in fs.ls("out", detail=False)] == [b"%d" % n for n in range(THREADS)]


def test_a_child_of_fork_reads_and_writes(store: store.Store, fs: TierfsFileSystem) -> None:
    """With files that its parent opened, too; the parent reads on."""
    put(store, "s", DATA, "both")

    def end() -> None:
        fs.close()
        gc.collect()
        expect(fs.cat_file("s"), DATA)

    with fs.open("s", block_size=1000) as file:
        file.read(10)
        assert in_child(lambda: expect(file.read(), DATA[10:])) == NOTHING
        assert in_child(lambda: expect(fs.cat_file("s"), DATA)) == NOTHING
        assert in_child(lambda: fs.pipe_file("by child", b"1")) == NOTHING
        assert in_child(file.close) == NOTHING
        assert in_child(end) == NOTHING
        assert file.read() == DATA[10:]
    assert fs.cat_file("by child") == b"1"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pools_of_processes(store: store.Store, fs: TierfsFileSystem, method: str) -> None:
    append(store, "s", DATA)
    fs.cat_file("s")
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.starmap(fs.cat_file, [("s", 0, 5), ("s", 5, 10)]) == [DATA[:5], DATA[5:10]]


def test_a_pickle_holds_the_options_alone(store: store.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store of the environment too: a worker elsewhere has another one."""
    append(store, "s", DATA)
    monkeypatch.setenv("TIERFS_STORE", str(store.path))
    fs = TierfsFileSystem(read_priority="local-first")
    fs.cat_file("s")
    kept = pickle.dumps(fs)
    monkeypatch.delenv("TIERFS_STORE")
    again = pickle.loads(kept)
    assert again.storage_options == {"store": str(store.path), "read_priority": "local-first"}
    assert again.cat_file("s") == DATA
    TierfsFileSystem.clear_instance_cache()


def test_the_first_use_opens_and_the_last_user_closes(store: store.Store) -> None:
    append(store, "s", DATA)
    before = readers(), len(CONNECTIONS._open)
    one, other = (TierfsFileSystem(store=store.path, skip_instance_cache=True) for _ in range(2))
    assert (readers(), len(CONNECTIONS._open)) == before
    one.ls("")
    assert readers() == before[0], "listing needs no reader"
    file = one.open("s")
    assert other._connected() is one._connected()
    one.close()
    other.close()
    assert file.read() == DATA
    assert len(set(readers()) - set(before[0])) == 1
    file.close()
    del file
    assert set(readers()) <= set(before[0])
    assert one.cat_file("s") == DATA, "a filesystem opens its store again"


@pytest.mark.parametrize("end", ["", "del fs, file", "os._exit(0)", "fs.close()"])
def test_a_process_ends(store: store.Store, end: str) -> None:
    """The process ends with a file open, after any last operation."""
    append(store, "s", DATA)
    program = f"""
import fsspec, os
fs = fsspec.filesystem("tierfs", store={str(store.path)!r})
file = fs.open("s")
assert len(file.read(7)) == 7
{end}
"""
    done = subprocess.run([sys.executable, "-X", "dev", "-c", program], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_ctrl_c_ends_a_read_that_waits(store: store.Store) -> None:
    """Here the cold tier never answers."""
    put(store, "s", DATA, "cold")
    program = f"""
import fsspec, os, signal, threading
from tierfs.chunkstore.directory.storage import DirectoryStorage
waits = threading.Event()
def stalls(*some, **named):
    waits.set()
    threading.Event().wait()
DirectoryStorage.read_into = stalls
def interrupt():
    waits.wait()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
fs = fsspec.filesystem("tierfs", store={str(store.path)!r})
try:
    fs.cat_file("s")
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == (b"interrupted\n", b"")
