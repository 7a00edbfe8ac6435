"""Rows of entries that are lost come back as they were, out of the objects of adopted ledgers, or not at all."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.doubles.scripted_storage import ScriptedStorage
from tests.pipeline.reader.test_scrubbing import cold_ledger
from tests.tiering.adoption.foreign import write_files
from tests.tiering.adoption.pulsar import attempt, in_files, in_first_form, offloaded, streamed
from tierfs.app import store as app
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.engine.metadata import directories, entries
from tierfs.engine.metadata.ledger_records import EntryRun
from tierfs.pipeline.reader.selection import Selection, select
from tierfs.tiering.adoption.lost_rows import LostRows, lost_rows, rescan

PAYLOADS = [b"entry %d" % number * (number % 14) for number in range(300)]
IN_PARTS = [
    streamed(2, [(8, 0, [b"a", b"bb"]), (9, 0, [b"x"])], {8: 2, 9: 1}),
    streamed(3, [(8, 2, [b"ccc"])], {8: 3}),
]
"""Ledger 8 lies in two objects, and ledger 9 in one of them."""

Rows = dict[str, tuple[EntryRun, ...]]


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    return write_files(tmp_path / "theirs", in_files(offloaded(PAYLOADS), *IN_PARTS))


@pytest.fixture
def store(tmp_path: Path, theirs: Path) -> Iterator[app.Store]:
    """Three adopted ledgers, and one of the store's own."""
    with adopted(tmp_path / "store", theirs) as opened:
        cold_ledger(opened)
        yield opened


def adopted(path: Path, theirs: Path, *words: object) -> app.Store:
    tierfs("-q", "init", store=path)
    tierfs("-q", "adopt", "--as", "pulsar", theirs, "--into", "in", *words, store=path)
    return app.open_store(path)


def rows(store: app.Store) -> Rows:
    with store.metadata.read() as txn:
        found = select(txn, Selection(recursive=True))
        return {name: tuple(entries.runs(txn, segment.id)) for name, segment in found}


def lose(store: app.Store, *, copies: bool = True) -> None:
    """Take away all rows, and their copies in the bucket."""
    with store.metadata.write() as txn:
        for _, segment in list(select(txn, Selection(recursive=True))):
            entries.remove(txn, segment.id)
    if copies:
        for lost in lost_rows(store.metadata):
            for holder in lost.records:
                (store.path / "cold" / holder.entries_name).unlink(missing_ok=True)


def found(store: app.Store) -> Rows:
    """The rows of all ledgers that lack them, after the way that the question goes to executors."""
    wanted: list[LostRows] = pickle.loads(pickle.dumps(list(lost_rows(store.metadata))))
    return {lost.name: rescan(lost, store.storage_of, Meter()) for lost in wanted}


@pytest.mark.parametrize("copies", [True, False], ids=["without copies", "from copies"])
def test_rows_come_back_as_they_were(store: app.Store, copies: bool) -> None:
    before = rows(store)
    assert (len(before), found(store)) == (4, {})
    lose(store, copies=copies)
    assert found(store) == before


def test_a_wrong_byte_on_the_wire_is_no_change(store: app.Store) -> None:
    before = rows(store)
    lose(store)
    for lost in lost_rows(store.metadata):
        cold = ScriptedStorage(store.storage_of(lost.records[0].location_id))
        cold.damage(-1, of=lost.records[0].name)
        assert rescan(lost, lambda _, cold=cold: cold, Meter()) == before[lost.name]  # type: ignore[misc]


def test_a_dump_is_loaded_with_a_warning_where_the_rows_of_adopted_entries_are_gone(store: app.Store) -> None:
    name = next(name for name in rows(store) if name.startswith("in/") and name.endswith("7"))
    tierfs("-q", "offload", store=store.path)
    tierfs("-q", "backup", "--to-bucket", name, store=store.path)
    with store.metadata.read() as txn:
        segment_id = directories.segment_by_name(txn, name).id
    (lost,) = (store.path / "cold/ledgers").glob(f"entries-{segment_id}-*")
    tierfs("rm", name, "--now", "--yes", store=store.path)
    tierfs("-q", "gc", "--delete", store=store.path)
    lost.unlink(missing_ok=True)
    loaded = tierfs("restore", name, store=store.path, check=False)
    assert loaded.code == 0
    assert f"warning: ledger {name} cannot be read, its entries are unknown" in loaded.err
    assert "adopt it again" in loaded.err


def test_the_first_form_tells_its_magic_words_itself(tmp_path: Path) -> None:
    theirs = write_files(tmp_path / "first", in_files(in_first_form(PAYLOADS)))
    with adopted(tmp_path / "store", theirs, "--magic", f"{b'INDX'.hex()}:{b'BLCK'.hex()}") as store:
        before = rows(store)
        lose(store)
        assert found(store) == before != {}


def test_entries_that_are_others_than_were_adopted_are_refused(store: app.Store, theirs: Path) -> None:
    lose(store)
    (path,) = theirs.glob("*-ledger-7")
    data = bytearray(path.read_bytes())
    data[data.index(b"entry 41")] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataLoss, match="its entries differ from the adopted ones") as refused:
        found(store)
    assert refused.value.remedy == "adopt it again"


def test_an_object_that_is_gone_is_told(store: app.Store, theirs: Path) -> None:
    lose(store)
    (theirs / str(attempt(3))).unlink()
    with pytest.raises(NotFound, match=str(attempt(3))):
        found(store)
