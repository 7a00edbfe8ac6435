"""A dump of a whole store, from a stranger: no name in it leads out of the store, and nothing it says breaks tierfs."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.doubles.mutations import edits, mutations, times
from tests.stores import TestStore, open_test_store
from tests.tiering.backup.dumps import everything, filled, framed
from tierfs.app.dump import load_store
from tierfs.app.store import open_store
from tierfs.base.words.errors import DataLoss, TierfsError
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.tables import DIRECTORIES, DIRENTS, GARBAGE, INTENTS, OBJECTS, SEGMENTS, Table
from tierfs.tiering.backup import store as dump


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        filled(opened)
        opened.append("a/s", b"active")
        yield opened


def part_of(store: TestStore) -> pb.DumpPart:
    with store.metadata.read() as txn:
        (part,) = dump.parts(txn, 1)
    return part


def row(table: Table[Any], **fields: object) -> pb.DumpRow:
    message = table.codec._message_type(version=1, **fields)
    return pb.DumpRow(database=table.name, key=tables.u64(2**60), value=message.SerializeToString())


def named(name: str) -> dict[str, pb.DumpRow]:
    """Return rows that hold a name, and nothing else of note."""
    key = tables.u64(1) + name.encode()[:500]
    return {
        "a file": row(OBJECTS, id=2**60, tier=0, name=name),
        "an object": row(OBJECTS, id=2**60, tier=1, location_id=1, name=name),
        "an adopted object": row(OBJECTS, id=2**60, tier=1, location_id=2, name=name, foreign=True),
        "a copy of entries": row(OBJECTS, id=2**60, tier=1, foreign=True, name="x", entries_name=name or "."),
        "an index": row(OBJECTS, id=2**60, tier=1, name="ledgers/x", index_name=name or "."),
        "a file to delete": row(GARBAGE, tier=0, name=name),
        "an object to delete": row(GARBAGE, tier=1, location_id=1, name=name),
        "an object that is being written": row(INTENTS, attempt="a", name=name),
        "a segment": row(SEGMENTS, id=2**60, name=name),
        "a directory": row(DIRECTORIES, id=2**60, name=name),
        "an entry": pb.DumpRow(database=DIRENTS.name, key=key, value=b""),
    }


def put_in(part: pb.DumpPart, extra: pb.DumpRow) -> bytes:
    """Return a dump with one row more, in its place."""
    whole = pb.DumpPart()
    whole.CopyFrom(part)
    rows = sorted([*part.rows, extra], key=lambda item: (item.database, item.key))
    del whole.rows[:]
    whole.rows.extend(rows)
    return framed(whole.SerializeToString())


@pytest.mark.parametrize("kind", named(""))
def test_a_name_that_leads_out_of_the_store_is_refused_with_nothing_written(
    store: TestStore, tmp_path: Path, kind: str
) -> None:
    part = part_of(store)
    hostile = ["..", "../../precious", "/etc/precious", "a/../b", "", "x" * 2000]
    if kind in ("a segment", "a directory", "an entry"):
        hostile += ["a/b", "\u202e", "new\nline"]
    elif kind != "an adopted object":
        hostile += ["precious", "journal/00000000000000000001", "segments/precious"]
    for name in hostile:
        source = tmp_path / "dump"
        source.write_bytes(put_in(part, named(name)[kind]))
        with pytest.raises(DataLoss, match="is refused, with nothing written: a row of ") as caught:
            load_store(tmp_path / "new", source, ManualClock())
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "new").exists()


def test_a_damaged_row_is_no_reason_to_refuse_a_dump(store: TestStore, tmp_path: Path) -> None:
    source = tmp_path / "dump"
    source.write_bytes(
        put_in(part_of(store), pb.DumpRow(database=OBJECTS.name, key=tables.u64(2**60), value=b"\xff\xff"))
    )
    assert dump.verify(io.BytesIO(source.read_bytes()), "dump").rows["objects"] > 1


def test_no_mutation_of_a_dump_breaks_the_load_or_leads_out_of_the_store(store: TestStore, tmp_path: Path) -> None:
    part, passed = part_of(store), 0
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    before = everything(store)
    rows = list(part.rows)
    for number, payload in enumerate(_payloads(part, rows, 1500 * times())):
        data = framed(payload)
        try:
            dump.verify(io.BytesIO(data), "dump")
        except TierfsError:
            continue
        passed += 1
        if number % 40:
            continue
        directory = tmp_path / f"new{number}"
        (tmp_path / "dump").write_bytes(data)
        try:
            load_store(directory, tmp_path / "dump", ManualClock())
            with open_store(directory, ManualClock()) as loaded:
                loaded.metadata.count_sums(anew=True)
        except TierfsError:
            continue
    assert passed > 100, "harmless mutations are verified"
    assert precious.read_bytes() == b"precious"
    assert everything(store) == before
    assert {path.name for path in tmp_path.iterdir()} <= {"store", "precious", "dump"} | {
        path.name for path in tmp_path.glob("new*")
    }


def _payloads(part: pb.DumpPart, rows: list[pb.DumpRow], count: int) -> Iterator[bytes]:
    """Yield dumps of which the part, or the record in one row, was edited."""
    for edited in edits(part, 1, count // 3):
        yield edited.SerializeToString()
    yield from mutations(part.SerializeToString(), 1, count // 3)
    by_name = {table.name: table for table in (OBJECTS, GARBAGE, INTENTS, SEGMENTS, DIRECTORIES)}
    records = [index for index, item in enumerate(rows) if item.database in by_name]
    for number in range(count // 3):
        index = records[number % len(records)]
        message = by_name[rows[index].database].codec._message_type.FromString(rows[index].value)
        changed = pb.DumpPart()
        changed.CopyFrom(part)
        changed.rows[index].value = next(edits(message, number, 1)).SerializeToString()
        yield changed.SerializeToString()
