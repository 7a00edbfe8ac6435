"""Stores and their mounts; nothing stays mounted or running after a test."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests import forked
from tests.mount.waiting import eventually
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.system.places import mounts
from tierfs.base.words.types import ROOT_DIRECTORY
from tierfs.engine.metadata import policies

STOP_S = 30
NEVER_S = "1000000000"


@dataclass(slots=True)
class Mounted:
    """One mount and the process that serves it."""

    path: Path
    process: forked.Talking

    def is_mounted(self) -> bool:
        return any(mount.mountpoint == self.path for mount in mounts())


Mount = Callable[..., Mounted]


@contextmanager
def opened_store(path: Path) -> Iterator[app.Store]:
    """A store with 1 MiB chunks."""
    init_store(path)
    with app.open_store(path) as opened:
        with opened.metadata.write() as txn:
            settings = {"chunk_bytes": str(1 << 20), "object_bytes": str(4 << 20), "read_priority": "local-first"}
            settings |= {"chunk_age": NEVER_S, "offload_after": NEVER_S}  # bytes move when a test says so
            policies.put(txn, ROOT_DIRECTORY, settings)
        yield opened


@contextmanager
def mounts_of(store: app.Store, directory: Path) -> Iterator[Mount]:
    """Mount a store as often as it is asked to; several at once are fine."""
    with ExitStack() as served:

        def start(options: str = "", fault: str = "") -> Mounted:
            path = Path(tempfile.mkdtemp(prefix="mnt", dir=directory))
            return served.enter_context(serving(store.path, path, options, fault))

        yield start


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    with opened_store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def mount(store: app.Store, tmp_path: Path) -> Iterator[Mount]:
    with mounts_of(store, tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def common_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[app.Store]:
    """The store of a module, whose tests use other names each."""
    with opened_store(tmp_path_factory.mktemp("common") / "store") as opened:
        yield opened


@pytest.fixture(scope="module")
def common_mount(common_store: app.Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    """Its mounts, one for each set of options."""
    with mounts_of(common_store, tmp_path_factory.mktemp("mounts")) as start:
        yield cache(start)


@contextmanager
def serving(store: Path, path: Path, *words: str) -> Iterator[Mounted]:
    """Mount a store, with the options and the fault of `runner`, until the end of the block."""
    mounted = Mounted(path, forked.Talking("tests.mount.runner", store, path, *words))
    try:
        assert mounted.process.line() == "ready\n"
        yield mounted
    finally:
        stop(mounted)


def stop(mounted: Mounted) -> None:
    mounted.process.terminate()
    try:
        mounted.process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        mounted.process.kill()
        mounted.process.wait(STOP_S)
    _, error = mounted.process.end()
    sys.stderr.write(error)  # for the reader of a test that failed
    if mounted.is_mounted():
        command = ["umount", "-l"] if os.geteuid() == 0 else ["fusermount3", "-uz"]
        subprocess.run([*command, str(mounted.path)], check=True)
    assert eventually(lambda: not mounted.is_mounted())


def append(store: app.Store, name: str, data: bytes, *, seal: bool = False) -> None:
    """Append and close the writer."""
    writer = store.engine.open_writer(name)
    writer.append(data, last=True, seal=seal)
    store.engine.close_writer(writer)
