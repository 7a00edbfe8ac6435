"""One filesystem in many threads and processes: what is open belongs to one process, and ends with its last user."""

from __future__ import annotations

import gc
import pickle
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faces.fsspec.conftest import CHUNK_BYTES, put
from tests.faults.test_fork import NOTHING, in_child
from tierfs.app import store
from tierfs.app.connection import CONNECTIONS
from tierfs.faces.fsspec import TierfsFileSystem

DATA = random.Random(3).randbytes(4 * CHUNK_BYTES)
THREADS = 16
READER = "tierfs-reader"


@pytest.fixture(autouse=True)
def segment(store: store.Store) -> None:
    put(store, "s", DATA, "both")


def readers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == READER}


def test_threads_share_a_filesystem_and_a_file(fs: TierfsFileSystem) -> None:
    """Each read of a shared file is whole, and no byte is read twice."""
    before, starts = readers(), random.Random(4).sample(range(len(DATA)), 200)

    def read(start: int) -> bytes:
        with fs.open("s") as file:
            file.seek(start)
            return bytes(file.read(70_000))

    with ThreadPoolExecutor(THREADS) as pool, fs.open("s") as file:
        assert list(pool.map(read, starts)) == [DATA[start : start + 70_000] for start in starts]
        assert len(readers() - before) == 1
        parts = list(pool.map(lambda _: file.read(1000), range(len(DATA) // 1000)))
        assert sorted(parts) == sorted(DATA[start : start + 1000] for start in range(0, len(DATA), 1000))
        list(pool.map(lambda number: fs.pipe_file(f"out/{number:02}", b"%d" % number), range(THREADS)))
    assert [fs.cat_file(name) for name in fs.ls("out", detail=False)] == [b"%d" % n for n in range(THREADS)]


def test_a_child_of_fork_reads_and_writes_with_what_its_parent_opened(fs: TierfsFileSystem) -> None:
    with fs.open("s", block_size=1000) as file:
        file.read(10)

        def work() -> None:
            assert file.read() == DATA[10:]
            fs.pipe_file("by child", b"1")
            file.close()
            fs.close()
            gc.collect()
            assert fs.cat_file("s") == DATA

        assert in_child(work) == NOTHING
        assert file.read() == DATA[10:]
    assert fs.cat_file("by child") == b"1"


def test_a_pickle_holds_the_options_alone(store: store.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store of the environment too: a worker elsewhere has another one."""
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
    before, connections = readers(), len(CONNECTIONS._open)
    one, other = (TierfsFileSystem(store=store.path, skip_instance_cache=True) for _ in range(2))
    assert (readers(), len(CONNECTIONS._open)) == (before, connections)
    one.ls("")
    assert readers() == before, "listing needs no reader"
    file = one.open("s")
    assert other._connected() is one._connected()
    one.close()
    other.close()
    assert file.read() == DATA
    assert len(readers() - before) == 1
    file.close()
    del file
    assert readers() <= before
    assert one.cat_file("s") == DATA, "a filesystem opens its store again"


ENDS = """
for end in ("", "del fs, file", "os._exit(0)", "fs.close()"):
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0, end
        continue
    fs = fsspec.filesystem("tierfs", store=sys.argv[1])
    file = fs.open("s")
    assert len(file.read(7)) == 7
    exec(end)
    break
"""
STALLS = """
import signal, threading
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
waits = threading.Event()
def stalls(*some, **named):
    waits.set()
    threading.Event().wait()
DirectoryStorage.read_into = stalls
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what it puts in the background without it
threading.Thread(target=lambda: waits.wait() and os.kill(os.getpid(), signal.SIGINT), daemon=True).start()
try:
    fsspec.filesystem("tierfs", store=sys.argv[1]).cat_file("s")
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(0)
"""


@pytest.mark.parametrize(("program", "printed"), [(ENDS, b""), (STALLS, b"interrupted\n")], ids=["ends", "Ctrl-C"])
def test_a_process_ends(store: store.Store, program: str, printed: bytes) -> None:
    """With a file open, after any last operation; and by Ctrl-C while a cold tier never answers."""
    words = [
        sys.executable,
        "-X",
        "dev",
        "-c",
        f"import fsspec, os, sys, tierfs.faces.fsspec\n{program}",
        str(store.path),
    ]
    done = subprocess.run(words, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, b"")
