"""kill -9 at random moments: no acknowledged byte is lost, and the next command works without help."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests import forked, verbs
from tests.conftest import Bucket
from tests.faults.worker import reference
from tierfs.app import store as app
from tierfs.garbage.orphans import chunk_objects
from tierfs.metadata import policies
from tierfs.metadata.tables import INTENTS, OBJECTS
from tierfs.setup.create import ColdChoice, init_store
from tierfs.types import ROOT_DIRECTORY, Tier

ROUNDS = int(os.environ.get("TIERFS_TEST_KILLS", "12"))
"""Kills of each test; `make test-all` makes 50."""

NAME = "logs/s"
POLICY = {"chunk_bytes": "200000", "object_bytes": "500000", "read_priority": "local-first"}
MAX_LIFE_S = 0.4
"""Longest life of a victim once it works; long enough for some to finish."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    init_store(tmp_path / "store", ColdChoice())
    return with_policy(tmp_path / "store")


@pytest.fixture
def s3_store_path(tmp_path: Path, rgw_bucket: Bucket) -> Path:
    endpoint, bucket = rgw_bucket
    choice = ColdChoice(bucket_url=f"s3://{bucket}/p", endpoint_url=endpoint.endpoint_url)
    init_store(tmp_path / "store", choice)
    return with_policy(tmp_path / "store")


def with_policy(path: Path) -> Path:
    with app.open_store(path) as store, store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, POLICY)
    return path


class Victim:
    """A worker process that is killed."""

    def __init__(self, verb: str, store: Path, seed: int) -> None:
        self._process = forked.Talking("tests.faults.worker", verb, store, NAME, seed)

    def kill_after(self, life_s: float) -> list[str]:
        """Let it live that long after it began, kill it, and return its output."""
        assert self._process.line() == "working\n"
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(life_s)
        lines, error = self._process.end()
        assert "Traceback" not in error, error
        return [line.rstrip("\n") for line in lines if line.endswith("\n")]


def seeds() -> Iterator[tuple[int, float]]:
    chosen = random.Random(7)
    for seed in range(ROUNDS):
        yield seed, chosen.random() * MAX_LIFE_S


def check_bytes(store: app.Store, least: int) -> int:
    """The segment holds the reference stream, at least as far as it was acknowledged."""
    pieces: list[bytes] = []
    length = verbs.cat(store, NAME, None, None, None, lambda data: pieces.append(bytes(data)))
    assert length >= least
    assert b"".join(pieces) == reference(0, length)
    return length


def check_no_orphans(store: app.Store) -> None:
    """Every object of the cold tier is one the records name, once due garbage is gone."""
    assert verbs.settle(store) is None
    with store.metadata.read() as txn:
        assert txn.count(INTENTS.name) == 0
        cold = {holder.name for _, holder in txn.scan(OBJECTS) if holder.tier is Tier.COLD}
        location_id = txn.store.cold_location_id
    found = {item.name for item in chunk_objects(store.storage_of(location_id))}
    assert found == cold


def grow(store: app.Store, by: int) -> None:
    writer = store.engine.open_writer(NAME)
    writer.append(reference(writer.length, writer.length + by), last=True)
    store.engine.close_writer(writer)


def test_a_killed_appender_loses_no_acknowledged_byte(store_path: Path) -> None:
    acknowledged = 0
    for seed, life_s in seeds():
        said = Victim("append", store_path, seed).kill_after(life_s)
        acknowledged = max(acknowledged, *map(int, said), 0)
        with app.open_store(store_path) as store:
            acknowledged = check_bytes(store, acknowledged)
    assert acknowledged > 0


@pytest.mark.parametrize("tier", ["store_path", pytest.param("s3_store_path", marks=pytest.mark.s3)])
def test_a_killed_offload_loses_nothing_and_leaves_no_orphan(tier: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(tier)
    for seed, life_s in seeds():
        with app.open_store(path) as store:
            grow(store, 700_000)
        Victim("offload", path, seed).kill_after(life_s)
        with app.open_store(path) as store:
            check_bytes(store, 700_000 * (seed + 1))
    with app.open_store(path) as store:
        verbs.offload(store, NAME)
        check_no_orphans(store)
        verbs.evict(store, NAME)
        check_bytes(store, 700_000 * ROUNDS)


def test_a_killed_evict_loses_nothing(store_path: Path) -> None:
    for seed, life_s in seeds():
        with app.open_store(store_path) as store:
            grow(store, 300_000)
            verbs.offload(store, NAME)
        Victim("evict", store_path, seed).kill_after(life_s / 10)
        with app.open_store(store_path) as store:
            check_bytes(store, 300_000 * (seed + 1))
    with app.open_store(store_path) as store:
        verbs.evict(store, NAME)
        check_no_orphans(store)
        check_bytes(store, 300_000 * ROUNDS)
        assert list(store.files.names()) == []
