"""kill -9 of the store's holder in each phase of its work, and of a mount during reads."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import forked, verbs
from tests.faults.test_kill import ROUNDS, check_bytes, check_no_orphans, grow
from tests.faults.worker import reference
from tests.mount.waiting import eventually
from tierfs.app import store as app
from tierfs.app.verbs import garbage
from tierfs.metadata import policies
from tierfs.setup.create import ColdChoice, init_store
from tierfs.types import ROOT_DIRECTORY

NAME = "logs/s"
GROWTH_BYTES = 450_000
POLICY = {"chunk_bytes": "100000", "object_bytes": "200000", "read_priority": "local-first", "deletion_lag": "0"}
MAX_WAIT_S = 0.03
"""Latest kill after the start of a phase: a phase takes some milliseconds."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600, method="thread")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    init_store(tmp_path / "store", ColdChoice())
    with app.open_store(tmp_path / "store") as opened:
        with opened.metadata.write() as txn:
            policies.put(txn, ROOT_DIRECTORY, POLICY)
        yield opened


@contextmanager
def victim(module: str, *words: object) -> Iterator[forked.Talking]:
    """A process that is killed at the end of the block."""
    process = forked.Talking(module, *words)
    try:
        yield process
    finally:
        _, error = process.end()
    assert "Traceback" not in error, error


@pytest.mark.parametrize("phase", ["offload", "publish", "evict", "collect"])
def test_a_killed_holder_loses_nothing_and_the_next_goes_on(store: app.Store, phase: str) -> None:
    chosen = random.Random(phase)
    for number in range(1, ROUNDS + 1):
        with victim("tests.faults.holder", store.path, phase) as process:
            grow(store, GROWTH_BYTES)
            assert any(line == f"{phase}\n" for line in iter(process.line, ""))
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(chosen.random() * MAX_WAIT_S)
        check_bytes(store, GROWTH_BYTES * number)
    with victim("tests.faults.holder", store.path, phase):
        # Without help: the next holder resolves everything and finishes the work.
        assert eventually(lambda: verbs.status(store).local.bytes < 100_000, 30)
    verbs.offload(store)
    check_no_orphans(store)
    assert garbage(store, grace_s=0).orphans == ()
    check_bytes(store, GROWTH_BYTES * ROUNDS)


def test_a_mount_killed_during_reads_is_mounted_again(store: app.Store, tmp_path: Path) -> None:
    chosen = random.Random(5)
    grow(store, 8_000_000)
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    for _ in range(ROUNDS):
        with victim("tests.mount.runner", store.path, mnt) as process:
            assert process.line() == "ready\n"
            reader = subprocess.Popen(["cat", mnt / NAME], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(chosen.random() * MAX_WAIT_S)
        reader.wait(30)  # it ends with an error or with everything, but it ends
    with victim("tests.mount.runner", store.path, mnt) as process:
        assert process.line() == "ready\n"
        assert (mnt / NAME).read_bytes() == reference(0, 8_000_000)
    subprocess.run(["umount", "-l", mnt] if os.geteuid() == 0 else ["fusermount3", "-uz", mnt], check=True)
    check_bytes(store, 8_000_000)
