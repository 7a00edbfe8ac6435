"""Stores and their mounts; nothing stays mounted or running after a test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import forked
from tests.mount.waiting import eventually
from tierfs.app import store as app
from tierfs.metadata import policies
from tierfs.setup.create import ColdChoice, init_store
from tierfs.system.mounts import mounts
from tierfs.types import ROOT_DIRECTORY

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


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    """A store with 1 MiB chunks."""
    init_store(tmp_path / "store", ColdChoice())
    with app.open_store(tmp_path / "store") as opened:
        with opened.metadata.write() as txn:
            settings = {"chunk_bytes": str(1 << 20), "object_bytes": str(4 << 20), "read_priority": "local-first"}
            settings |= {"chunk_age": NEVER_S, "offload_after": NEVER_S}  # bytes move when a test says so
            policies.put(txn, ROOT_DIRECTORY, settings)
        yield opened


@pytest.fixture
def mount(store: app.Store, tmp_path: Path) -> Iterator[Mount]:
    """Mounts the store; several at once are fine."""
    made: list[Mounted] = []

    with ExitStack() as served:

        def start(options: str = "", fault: str = "") -> Mounted:
            path = tmp_path / f"mnt{len(made)}"
            path.mkdir()
            made.append(served.enter_context(serving(store.path, path, options, fault)))
            return made[-1]

        yield start


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
