"""A store with small chunks, and the filesystem of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import verbs
from tests.mount.conftest import NEVER_S, append
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.words.types import ROOT_DIRECTORY
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.metadata import policies
from tierfs.faces.fsspec import TierfsFileSystem

CHUNK_BYTES = 100_000
"""No multiple of anything: chunks end in the middle of blocks and buffers."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    """Its cold tier is a directory, and bytes move when a test says so."""
    (tmp_path / "cold").mkdir()
    init_store(tmp_path / "store", Place.in_directory(tmp_path / "cold"))
    with app.open_store(tmp_path / "store") as opened:
        with opened.metadata.write() as txn:
            settings = {"chunk_bytes": str(CHUNK_BYTES), "object_bytes": str(3 * CHUNK_BYTES)}
            settings |= {"chunk_age": NEVER_S, "offload_after": NEVER_S, "read_priority": "local-first"}
            policies.put(txn, ROOT_DIRECTORY, settings)
        yield opened


@pytest.fixture
def fs(store: app.Store) -> Iterator[TierfsFileSystem]:
    """The filesystem; the test's alone."""
    made = TierfsFileSystem(store=store.path, skip_instance_cache=True)
    yield made
    made.close()


def put(store: app.Store, name: str, data: bytes, place: str) -> None:
    """A segment with these bytes in one tier, or one half in each."""
    if place == "both":
        put(store, name, data[: len(data) // 2], "cold")
        append(store, name, data[len(data) // 2 :])
        return
    append(store, name, data)
    if place == "cold":
        make_cold(store, name)


def make_cold(store: app.Store, name: str) -> None:
    """Leave no byte of a segment in the local tier."""
    verbs.offload(store, name)
    verbs.evict(store, name, force=True)
