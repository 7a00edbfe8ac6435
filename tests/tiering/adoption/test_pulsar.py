"""Adopting what Pulsar offloaded, in a bucket in memory: every entry at its id, and nothing copied."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.scripted_storage import ScriptedStorage
from tests.stores import TestStore, assert_layout, open_test_store
from tests.tiering.adoption.adopting import planned, read, run, states
from tests.tiering.adoption.planned import left_out, refused
from tests.tiering.adoption.pulsar import TOPIC, VERSION, attempt, in_memory, offloaded, without_tail
from tierfs.base.words.errors import Unavailable
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.metadata import entries, entries_object
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.tables import ENTRIES, GARBAGE, INTENTS, LEDGERS, OBJECTS, SEGMENTS
from tierfs.reading import ledger_objects
from tierfs.tiering.adoption import ledger_link
from tierfs.tiering.adoption.adopt import State

NAME = f"in/{TOPIC}/00000000000000000007"
PAYLOADS = [b"first", b"", b"x" * 120, b"y" * 121, *(b"%d" % number for number in range(40)), b""]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        opened.cold_work().publish()
        yield opened


def holders(store: TestStore) -> list[ObjectRecord]:
    with store.metadata.read() as txn:
        return [holder for _, holder in txn.scan(OBJECTS)]


def rows(store: TestStore) -> dict[bytes, int]:
    with store.metadata.read() as txn:
        return {table.name: txn.count(table.name) for table in (SEGMENTS, OBJECTS, ENTRIES, LEDGERS, INTENTS, GARBAGE)}


def test_a_ledger_is_read_entry_by_entry_from_where_it_lies(store: TestStore) -> None:
    theirs = in_memory(offloaded(PAYLOADS))
    assert states(run(store, theirs)) == [State.ADOPTED]
    assert read(store, theirs, NAME) == PAYLOADS
    assert_layout(store, NAME, local=[], cold=[sum(map(len, PAYLOADS))])
    (holder,) = holders(store)
    assert (holder.foreign, holder.references, holder.stored_length) == (True, 1, len(offloaded(PAYLOADS).data))
    with store.metadata.read() as txn:
        known = entries.find(txn, store.segment(NAME).id)
    assert (known.ledger_id, known.entries, known.bytes) == (7, len(PAYLOADS), sum(map(len, PAYLOADS)))
    progress = known.offload
    assert (progress.uuid, progress.complete, progress.driver_name) == (attempt(1), True, "pulsar")
    assert progress.driver_properties == {"bucket": "theirs", "prefix": "offloaded"}


def test_our_bucket_gets_a_copy_of_the_rows_and_theirs_gets_nothing(store: TestStore) -> None:
    theirs = in_memory(offloaded(PAYLOADS))
    before = [(one.name, one.etag) for one in theirs.list("")]
    run(store, theirs)
    (copy,) = (one.name for one in store.cold.list("ledgers/"))
    assert [holder.entries_name for holder in holders(store)] == [copy]
    data = bytearray(store.cold.stat(copy).length_bytes)
    store.cold.read_into(copy, 0, memoryview(data))
    with store.metadata.read() as txn:
        expected = list(entries.runs(txn, store.segment(NAME).id))
    assert list(entries_object.decode(io.BytesIO(data), copy, store.segment(NAME).id)) == expected
    assert [(one.name, one.etag) for one in theirs.list("")] == before
    assert rows(store)[INTENTS.name] == 0


def test_adopting_again_reads_nothing(store: TestStore) -> None:
    theirs = ScriptedStorage(in_memory(offloaded(PAYLOADS)))
    run(store, theirs)
    before, plan = rows(store), planned(theirs)
    theirs.calls.clear()
    assert states(run(store, theirs, plan)) == [State.ALREADY]
    assert (rows(store), theirs.calls["read"]) == (before, 0)


def test_random_ledgers_in_random_blocks(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_objects, "STEP_BYTES", 1000)
    monkeypatch.setattr(ledger_link, "_RUNS_AT_ONCE", 2)
    random_ = random.Random(3)
    kinds = [0, 1, 12, 90, 400, 5000]
    written = {
        number: [random_.randbytes(random_.choice(kinds)) for _ in range(random_.randrange(1, 200))]
        for number in range(12)
    }
    theirs = in_memory(
        *(offloaded(payloads, number, block_bytes=5140 + 777 * number) for number, payloads in written.items())
    )
    assert set(states(run(store, theirs))) == {State.ADOPTED}
    for number, payloads in written.items():
        assert read(store, theirs, f"in/{TOPIC}/{number:020d}") == payloads


def test_rows_are_full_whatever_pieces_arrive(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_objects, "STEP_BYTES", 50_001)
    payloads = [b"%d" % number for number in range(10_000)]
    theirs = in_memory(offloaded(payloads, block_bytes=10**6))
    assert states(run(store, theirs)) == [State.ADOPTED]
    with store.metadata.read() as txn:
        runs = list(entries.runs(txn, store.segment(NAME).id))
    assert [len(one.lengths) for one in runs] == [4096, 4096, 1808]
    assert read(store, theirs, NAME) == payloads


def test_ledgers_without_bytes_need_no_object(store: TestStore) -> None:
    theirs = in_memory(offloaded([b""] * 3), offloaded([], 8))
    assert states(run(store, theirs)) == [State.ADOPTED, State.ADOPTED]
    assert read(store, theirs, NAME) == [b"", b"", b""]
    assert read(store, theirs, NAME.replace("7", "8")) == []
    assert holders(store) == []
    assert states(run(store, theirs)) == [State.ALREADY, State.ALREADY]


def test_lost_entries_fail_a_ledger_unless_that_is_accepted(store: TestStore) -> None:
    theirs = in_memory(without_tail(PAYLOADS, 10))
    (outcome,) = run(store, theirs)
    assert outcome.state is State.FAILED
    assert str(outcome.error) == f"{NAME}: 35 of 45 entries are not in its object, from entry 10 on"
    assert rows(store)[ENTRIES.name] == rows(store)[SEGMENTS.name] == 0
    (outcome,) = run(store, theirs, accept_loss=True)
    assert outcome.state is State.ADOPTED
    assert outcome.ledger is not None
    assert (outcome.ledger.entries, outcome.ledger.lost_entries) == (10, 35)
    assert read(store, theirs, NAME) == PAYLOADS[:10]


def test_a_hole_is_no_lost_tail(store: TestStore) -> None:
    whole = offloaded(PAYLOADS)
    second = whole.data.index(bytes.fromhex("fbdbabcb"), 1)
    at = second + 128
    data = whole.data[:at] + b"\xfe\xdc\xde\xad" + whole.data[at + 4 :]
    (outcome,) = run(store, in_memory(replace(whole, data=data)), accept_loss=True)
    assert (outcome.state, "is missing" in str(outcome.error)) == (State.FAILED, True)


def test_a_ledger_appears_after_what_was_committed_while_it_was_read(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_copy = ledger_link.copies.put_copy

    def append_meanwhile(*arguments: Any, **options: Any) -> None:
        store.append("meanwhile", b"x")
        put_copy(*arguments, **options)

    monkeypatch.setattr(ledger_link.copies, "put_copy", append_meanwhile)
    run(store, in_memory(offloaded(PAYLOADS)))
    ledger, other = store.segment(NAME), store.segment("meanwhile")
    assert ledger.id < other.id == other.birth < ledger.birth


def test_of_two_attempts_the_newest_complete_one_counts(store: TestStore) -> None:
    theirs = MemoryStorage(store.clock)
    first, second, cut = (offloaded([b"%d" % number], uuid=attempt(number)) for number in (1, 2, 3))
    for one in (second, first, replace(cut, data=cut.data[:-1])):
        store.clock.advance(5000)  # type: ignore[attr-defined]
        for key, data in one.objects.items():
            theirs.put(key, BufferSource(data), metadata=one.said)
    plan = planned(theirs)
    assert left_out(plan) == {second.key, cut.key}
    run(store, theirs, plan)
    assert read(store, theirs, NAME) == [b"1"]


def test_what_is_no_whole_ledger_is_named(store: TestStore) -> None:
    whole, headless = offloaded(PAYLOADS), offloaded(PAYLOADS, 8)
    theirs = in_memory(whole, headless)
    theirs.delete(f"{headless.key}-index")
    theirs.put("something/else", BufferSource(b"x"))
    gone = offloaded(PAYLOADS, 9)
    theirs.put(f"{gone.key}-index", BufferSource(gone.index), metadata=gone.said)
    plan = planned(theirs)
    assert left_out(plan) == {headless.key, "something/else"}
    assert refused(plan) == {f"{gone.key}-index": "DataLoss"}
    assert states(run(store, theirs, plan)) == [State.ADOPTED]


@pytest.mark.parametrize(
    ("metadata", "says"),
    [({}, "has no format version"), ({**VERSION, **dict.fromkeys(VERSION, "12346")}, "has format version 12346")],
)
def test_objects_of_another_format_version_are_refused(metadata: dict[str, str], says: str) -> None:
    theirs = in_memory(offloaded(PAYLOADS, metadata=metadata))
    plan = planned(theirs)
    ((name, error),) = plan.refused
    assert (plan.segments, says in str(error), name in str(error)) == ([], True, True)


@pytest.mark.parametrize(
    ("said", "custom", "directory"),
    [
        (TOPIC, "other", TOPIC),
        ("", "t/n/persistent/of%20the-index", "t/n/persistent/of%20the-index"),
        ("", "", "unknown"),
        ("", "a/../b//c\x01", "a/%2E%2E/b/c%01"),
        ("n" * 300, "", f"{'n' * 160}~{sha256(b'n' * 300).hexdigest()[:16]}"),
    ],
)
def test_the_managed_ledger_is_a_directory(said: str, custom: str, directory: str) -> None:
    theirs = in_memory(offloaded(PAYLOADS, metadata={**VERSION, "managedledgername": said}, custom=custom))
    plan = planned(theirs)
    (segment,) = plan.segments
    assert segment.name == f"in/{directory}/00000000000000000007"
    assert bool(plan.warnings) == (directory == "unknown")


def test_rows_and_bytes_that_were_lost_are_taken_back(store: TestStore) -> None:
    theirs = in_memory(offloaded(PAYLOADS))
    run(store, theirs)
    with store.metadata.write() as txn:
        entries.remove(txn, store.segment(NAME).id)
    assert states(run(store, theirs)) == [State.TAKEN_BACK]
    assert read(store, theirs, NAME) == PAYLOADS


def test_what_is_in_doubt_and_stays_so_keeps_its_entries(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_link, "_RUNS_AT_ONCE", 1)
    ledger = offloaded([*PAYLOADS, b"last"])
    theirs = in_memory(ledger)
    run(store, theirs)
    before = rows(store)
    last = ledger.data.rindex(bytes.fromhex("fbdbabcb")) + 128
    half_way = ledger.data[:last] + b"\x70" + ledger.data[last + 1 :]
    for other, says in (
        (ledger.data[:-1] + b"?", "has changed"),
        (half_way, "extends past the end of the block"),
    ):
        theirs.put(ledger.key, BufferSource(other), metadata=ledger.said, create_only=False)
        (outcome,) = run(store, theirs)
        assert (outcome.state, says in str(outcome.error)) == (State.FAILED, True), outcome.error
        assert rows(store) == before
    theirs.put(ledger.key, BufferSource(ledger.data), metadata=ledger.said, create_only=False)
    assert states(run(store, theirs)) == [State.ALREADY]
    assert read(store, theirs, NAME) == [*PAYLOADS, b"last"]


def test_deleting_forgets_everything_and_leaves_their_objects(store: TestStore) -> None:
    theirs = in_memory(offloaded(PAYLOADS))
    names = [one.name for one in theirs.list("")]
    run(store, theirs)
    store.engine.delete("in", recursive=True, cold_due_ms=0)
    store.cold_work().publish()
    store.cold_work().collect()
    assert list(store.cold.list("ledgers/")) == []
    found = rows(store)
    assert (found[SEGMENTS.name], found[OBJECTS.name], found[ENTRIES.name], found[LEDGERS.name]) == (0, 0, 0, 0)
    assert [one.name for one in theirs.list("")] == names


def test_when_our_bucket_is_away_nothing_of_the_ledger_is_there(store: TestStore) -> None:
    theirs, ours = in_memory(offloaded(PAYLOADS)), ScriptedStorage(store.cold)
    ours.fail("put", Unavailable("down"), on=range(1, 9))
    store.cold = ours
    (outcome,) = run(store, theirs)
    assert isinstance(outcome.error, Unavailable)
    found = rows(store)
    assert (found[SEGMENTS.name], found[OBJECTS.name], found[ENTRIES.name], found[INTENTS.name]) == (0, 0, 0, 0)
