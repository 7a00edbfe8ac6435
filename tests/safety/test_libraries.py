"""Files of fsspec where a read ends early, and in a child of fork."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.safety.refused import refused
from tierfs.app import store as app
from tierfs.app.connection import CONNECTIONS
from tierfs.app.setup.create import init_store
from tierfs.engine.segments import stat
from tierfs.faces.fsspec import TierfsFileSystem, files
from tierfs.reading.read_loop import ReadLoop

DATA = bytes(range(256)) * 2000
"""More than is read at once."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    init_store(tmp_path / "store")
    with app.open_store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def fs(store: app.Store) -> Iterator[TierfsFileSystem]:
    made = TierfsFileSystem(store=store.path, skip_instance_cache=True)
    made.pipe_file("s", DATA)
    yield made
    made.close()


@pytest.mark.parametrize("short", [0, 1])
def test_a_read_that_ends_early_is_an_error(fs: TierfsFileSystem, monkeypatch: pytest.MonkeyPatch, short: int) -> None:
    read_into = ReadLoop.read_into
    with fs.open("s") as file:
        monkeypatch.setattr(ReadLoop, "read_into", lambda *args: read_into(*args) - short)
        with refused(short, OSError, "1 bytes early"):
            assert file.read() == DATA


def test_a_child_of_fork_reads_by_a_thread_of_its_own(fs: TierfsFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    with fs.open("s") as file:
        assert file.read(10) == DATA[:10]
        parents = file._raw_segment.opened._connection
        monkeypatch.setattr(parents, "pid", -1)  # as in a child
        CONNECTIONS.forget()
        assert file.read() == DATA[10:]
        assert file._raw_segment.opened._connection is not parents


def test_a_thread_without_python_reads_where_it_sought(fs: TierfsFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_runs_no_python", lambda: True)
    with fs.open("s") as file, ThreadPoolExecutor(1) as other:
        file.seek(10)
        other.submit(file.seek, 20).result()
        assert file.read(5) == DATA[10:15]
        assert other.submit(file.read, 5).result() == DATA[20:25]


@pytest.mark.parametrize("is_child", [False, True])
def test_a_child_of_fork_ends_nothing_that_its_parent_writes(
    store: app.Store, fs: TierfsFileSystem, monkeypatch: pytest.MonkeyPatch, is_child: bool
) -> None:
    file = fs.open("t", "wb", seal=True)
    file.write(DATA)
    file.flush()
    connection = file._append._connection
    with monkeypatch.context() as patch:
        if is_child:
            patch.setattr(connection, "pid", -1)
        file.close()
    with store.metadata.read() as txn:
        assert stat.stat(txn, "t").record.sealed is not is_child
