"""Dumps: every row byte by byte, what newer versions wrote included; anything cut or damaged is refused."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.stores import TestStore, open_test_store
from tierfs.base.words.errors import DataLoss
from tierfs.engine.metadata import environment as lmdb_environment
from tierfs.engine.metadata import frames, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.sums import SUMS_KEY
from tierfs.engine.metadata.tables import SEGMENTS, STORE
from tierfs.tiering.backup import store as dump

Rows = dict[tuple[bytes, bytes], bytes]

UNKNOWN_FIELD = b"\xf8\x07\x2a"
"""Field 127 with the value 42."""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestStore]:
    monkeypatch.setattr(dump, "PART_BYTES", 500)
    with open_test_store(tmp_path / "store") as opened:
        for name in ("a/s", "a/t", "u"):
            opened.append(name, b"abcdefgh")
        opened.offload()
        opened.append("u", b"more")
        yield opened


def rows(metadata: MetadataStore) -> Rows:
    """Return all but the sums, which name a transaction of their own environment."""
    with metadata.read() as txn:
        found = {(name, key): value for name in txn.database_names for key, value in txn.scan_raw(name)}
    found.pop((STORE.name, SUMS_KEY), None)
    return found


def dumped(store: TestStore) -> bytes:
    file = io.BytesIO()
    with store.metadata.read() as txn:
        dump.write(txn, file, store.clock.now_ms())
    return file.getvalue()


def loaded(data: bytes, path: Path) -> Rows:
    summary = dump.verify(io.BytesIO(data), "dump")
    parts = (part for part, _ in dump.read(io.BytesIO(data), "dump"))
    dump.load(path, ManualClock(), parts, summary.rows)
    with closing(MetadataStore(path, ManualClock())) as metadata:
        return rows(metadata)


def test_every_row_comes_back_byte_by_byte(store: TestStore, tmp_path: Path) -> None:
    lmdb_environment.open_environment(store.metadata.path).add_databases([b"future"])
    with store.metadata.write() as txn:
        txn.put_raw(b"future", b"key", b"\xff\x00 not protobuf")
        segment = store.segment("u")
        key = tables.u64(segment.id)
        txn.put_raw(SEGMENTS.name, key, segment.stored + UNKNOWN_FIELD)
    before = rows(store.metadata)
    assert before[b"future", b"key"] == b"\xff\x00 not protobuf"
    data = dumped(store)
    assert loaded(data, tmp_path / "loaded") == before
    summary = dump.verify(io.BytesIO(data), "dump")
    assert summary.parts > 3
    assert sum(summary.rows.values()) == len(before)


def test_two_dumps_of_one_state_are_equal(store: TestStore) -> None:
    assert dumped(store) == dumped(store)


def test_a_cut_dump_is_refused_wherever_it_is_cut(store: TestStore) -> None:
    data = dumped(store)
    for end in range(len(data)):
        with pytest.raises(DataLoss):
            dump.verify(io.BytesIO(data[:end]), "dump")


def test_a_damaged_dump_is_refused_wherever_it_is_damaged(store: TestStore) -> None:
    data = dumped(store)
    for at in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        with pytest.raises(DataLoss):
            dump.verify(io.BytesIO(bytes(damaged)), "dump")


def test_parts_in_another_order_twice_or_of_another_store_are_refused(store: TestStore) -> None:
    parts = [framed for _, framed in dump.read(io.BytesIO(dumped(store)), "dump")]
    foreign = frames.parse_dump_part(parts[1], "part")
    foreign.store_id = "f" * 32
    for wrong in (
        [parts[1], parts[0], *parts[2:]],
        [parts[0], parts[0], *parts[1:]],
        [parts[0], *parts[2:]],
        [*parts, parts[-1]],
        [parts[0], frames.frame(foreign), *parts[2:]],
        [*parts, b"x"],
    ):
        with pytest.raises(DataLoss):
            dump.verify(io.BytesIO(b"".join(wrong)), "dump")


@pytest.mark.parametrize("database", [b"", b"../up", b"x" * 65, b"\xff"])
def test_an_impossible_database_is_refused(database: bytes) -> None:
    part = pb.DumpPart(version=1, last=True, rows=[pb.DumpRow(database=database, key=b"k", value=b"v")])
    with pytest.raises(DataLoss, match=r"database|order"):
        dump.verify(io.BytesIO(frames.frame(part)), "dump")


def test_a_part_that_claims_to_be_huge_is_refused_before_it_is_read(store: TestStore) -> None:
    data = bytearray(dumped(store))
    data[12:20] = (1 << 60).to_bytes(8, "big")
    with pytest.raises(DataLoss, match="damaged"):
        dump.verify(io.BytesIO(bytes(data)), "dump")
