"""Scans and scrubs of a copied place, whose etags are others: each object is refused once, not each request."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scan.scanning import fill, scan_lines, store_of
from tests.scan.test_scrubbing import reports
from tierfs.app import store as app
from tierfs.chunkstore.protocol import ChunkStorage, EtagDiffers
from tierfs.chunkstore.wrappers import Wrapped
from tierfs.errors import DataLoss
from tierfs.metadata.tables import OBJECTS as OBJECTS_TABLE
from tierfs.scan import extents
from tierfs.scan.line_format import LineFormat
from tierfs.types import MIB, Tier

DATA = b"".join(b"%07d\n" % number for number in range(MIB // 2))
OBJECTS = 4


class Counting(Wrapped):
    """Counts reads, and those that are refused for their etag."""

    reads = refused = 0

    def read_into(self, *some: Any, **more: Any) -> None:
        Counting.reads += 1
        try:
            super().read_into(*some, **more)
        except EtagDiffers:
            Counting.refused += 1
            raise


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[app.Store]:
    """A cold segment in four objects, each read by several requests."""
    connect = extents.connect

    def counted(*some: Any) -> ChunkStorage:
        return Counting(connect(*some))

    monkeypatch.setattr(extents, "connect", counted)
    name = f"store-{request.node.name}"  # connections of a process outlive the test, and know a store by its path
    with store_of(tmp_path / name, chunk_bytes=MIB, object_bytes=MIB) as opened:
        fill(opened, DATA, cold_bytes=len(DATA), seal=True)
        yield opened


def copy(store: app.Store) -> None:
    """Give each object another etag, as a copy does."""
    for path in (store.path / "cold").rglob("chunk-*"):
        os.utime(path, ns=(1, random.randrange(10**18)))


def counted(scan: Any) -> tuple[int, int]:
    Counting.reads = Counting.refused = 0
    scan()
    return Counting.reads, Counting.refused


def whole(store: app.Store) -> None:
    rows = [row for part in scan_lines(store, LineFormat(), split_bytes=2 * len(DATA)) for row in part]
    assert b"".join(line + b"\n" for _, _, line in rows) == DATA


def scrub(store: app.Store) -> None:
    assert not any(report.faults for report in reports(store, "s"))


@pytest.mark.parametrize("way", [whole, scrub])
def test_etags_of_a_copied_place_are_met_once_and_adopted(store: app.Store, way: Any) -> None:
    usual, none = counted(lambda: way(store))
    assert none == 0
    copy(store)
    first, refused = counted(lambda: way(store))
    assert OBJECTS <= refused <= usual, "requests in flight together each meet it"
    assert first == usual + refused
    assert counted(lambda: way(store)) == (usual, 0)


def test_a_wrong_copy_adopts_nothing(store: app.Store) -> None:
    (path, *_) = sorted((store.path / "cold").rglob("chunk-*"))
    with store.metadata.read() as txn:
        name = str(path.relative_to(store.path / "cold"))
        (before,) = {record.etag for _, record in txn.scan(OBJECTS_TABLE) if record.name == name}
    copy(store)
    path.chmod(0o600)
    content = bytearray(path.read_bytes())
    content[5] ^= 1
    path.write_bytes(content)
    for _ in range(2):
        with pytest.raises(DataLoss, match="does not match its checksums"):
            whole(store)
    with store.metadata.read() as txn:
        etags = {record.name: record.etag for _, record in txn.scan(OBJECTS_TABLE) if record.tier is Tier.COLD}
    assert etags[name] == before
