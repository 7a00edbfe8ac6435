"""Ledgers that Pulsar offloaded again under another UUID: the attempt that is whole counts.

ManagedLedgerImpl records an attempt after its objects are there, and deletes the objects of one that it could not
record, then or later (cleanupOffloaded); BlobStoreManagedLedgerOffloader writes the index last, and deletes both by one
request.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.commands import tierfs
from tests.stores import TestStore, open_test_store
from tests.tiering.adoption.adopting import PLACE, planned, read, run, states
from tests.tiering.adoption.foreign import cat, write_files
from tests.tiering.adoption.pulsar import (
    BLOCK_BYTES,
    TOPIC,
    Offloaded,
    attempt,
    in_files,
    in_memory,
    offloaded,
    without_tail,
)
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.errors import Conflict
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.metadata import empty_ledgers, entries
from tierfs.reading.ledger_objects import Pieces
from tierfs.tiering.adoption.adopt import State
from tierfs.tiering.adoption.ledger_link import LedgerLinker
from tierfs.tiering.adoption.ledger_read import LedgerReader
from tierfs.tiering.adoption.plan import LedgerPlan

NAME = f"in/{TOPIC}/00000000000000000007"
PAYLOADS = [b"one", b"", b"two" * 40, b"three" * 30]
A = offloaded(PAYLOADS)
B = offloaded(PAYLOADS, uuid=attempt(2), block_bytes=2 * BLOCK_BYTES)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        opened.cold_work().publish()
        yield opened


def place(*objects: Offloaded, without: Sequence[str] = ()) -> MemoryStorage:
    theirs = in_memory(*objects)
    for name in without:
        theirs.delete(name)
    return theirs


# Each step, and the attempts that the ledger may be linked to.
STEPS: list[tuple[MemoryStorage, Any]] = [
    (place(A), {A.uuid}),
    (place(A, B, without=[f"{B.key}-index"]), {A.uuid}),
    (place(A, B), {A.uuid, B.uuid}),
    (place(A, B, without=[A.key]), {B.uuid}),
    (place(A, B, without=[f"{A.key}-index"]), {B.uuid}),
    (place(B), {B.uuid}),
]


@pytest.mark.parametrize("first", range(len(STEPS)))
def test_followed_from_each_step(store: TestStore, first: int) -> None:
    for theirs, uuids in STEPS[first:]:
        for again in (False, True):
            plan = planned(theirs)
            (outcome,) = run(store, theirs, plan)
            assert (plan.refused, outcome.error) == ([], None)
            assert outcome.state is State.ALREADY or not again
            assert read(store, theirs, NAME) == PAYLOADS
            with store.metadata.read() as txn:
                assert entries.find(txn, store.segment(NAME).id).offload.uuid in uuids


def test_an_index_alone_refuses_its_ledger() -> None:
    assert [name for name, _ in planned(place(A, without=[A.key])).refused] == [f"{A.key}-index"]


def test_readers_keep_their_file(store: TestStore) -> None:
    run(store, place(A))
    before = store.segment(NAME)
    assert states(run(store, place(B))) == [State.RELINKED]
    after = store.segment(NAME)
    assert (after.inode, after.length, after.sealed) == (before.inode, before.length, True)


def test_a_ledger_that_changed_meanwhile_is_left_alone(store: TestStore) -> None:
    theirs = place(A)
    run(store, theirs)
    linker = LedgerLinker(store.metadata, PLACE, None)
    (plan,) = planned(place(B)).segments
    assert isinstance(plan, LedgerPlan)
    with closing(Pieces(place(B), 1)) as pieces:
        rows = linker.rows_of(linker.segment(plan))
        found = LedgerReader(place(B), pieces, Meter()).read(plan, rows.take)
    linker.relink(plan, found, rows)
    rows = linker.rows_of(linker.segment(plan))
    with pytest.raises(Conflict, match="was changed meanwhile"):
        linker.relink(plan, found, rows)
    assert read(store, place(B), NAME) == PAYLOADS


@pytest.mark.parametrize(
    "other",
    [
        [b"one", b"", b"two" * 40, b"three" * 29 + b"THREE"],
        [b"on", b"e", b"two" * 40, b"three" * 30],
        [*PAYLOADS, b""],
        PAYLOADS[:-1],
    ],
    ids=["bytes", "entries of the same bytes", "more", "fewer"],
)
def test_an_attempt_with_other_entries_is_refused(store: TestStore, other: list[bytes]) -> None:
    theirs = place(A)
    run(store, theirs)
    before = store.segment(NAME)
    (outcome,) = run(store, place(offloaded(other, uuid=attempt(2))))
    assert (outcome.state, type(outcome.error).__name__) == (State.FAILED, "AlreadyExists")
    assert str(attempt(2)) in str(outcome.error)
    assert (store.segment(NAME), read(store, theirs, NAME)) == (before, PAYLOADS)


def test_of_two_whole_attempts_the_one_with_more_entries_counts_and_it_is_said(store: TestStore) -> None:
    fewer, more = offloaded(PAYLOADS[:2], uuid=attempt(9)), offloaded(PAYLOADS, uuid=attempt(1))
    theirs = place(fewer, more)
    plan = planned(theirs)
    assert states(run(store, theirs, plan)) == [State.ADOPTED]
    assert read(store, theirs, NAME) == PAYLOADS
    (said,) = plan.warnings
    assert f"the indexes differ: {more.key} has 4 entries, {fewer.key} has 2 entries" in said


@pytest.mark.parametrize("accept_loss", [False, True])
def test_an_attempt_that_lost_its_tail_does_not_hide_one_that_is_whole(store: TestStore, accept_loss: bool) -> None:
    cut = without_tail(PAYLOADS, 2)
    whole = offloaded(PAYLOADS, uuid=attempt(1))
    newest = Offloaded(7, cut.data, cut.index, attempt(2))
    theirs = place(whole, newest)
    assert planned(theirs).segments[0].others  # type: ignore[union-attr]
    (outcome,) = run(store, theirs, accept_loss=accept_loss)
    assert (outcome.state, outcome.ledger and outcome.ledger.lost_entries) == (State.ADOPTED, 0)
    assert read(store, theirs, NAME) == PAYLOADS
    # And where only that one is left, the ledger is not linked to it.
    (outcome,) = run(store, place(newest), accept_loss=accept_loss)
    assert outcome.state is State.FAILED


def test_a_recovered_store_has_the_attempt_that_was_linked_last(tmp_path: Path) -> None:
    store, cold, other, root = (tmp_path / name for name in ("store", "cold", "other", "theirs"))
    cold.mkdir()
    tierfs("-q", "init", "--cold-dir", cold, store=store, check=False)
    words = ("-q", "adopt", "--as", "pulsar", root, "--into", "in", "--json")
    write_files(root, in_files(A))
    tierfs(*words, store=store)
    write_files(root, in_files(B))
    done = tierfs(*words, store=store)
    assert [row["state"] for row in done.json["segments"]] == ["already adopted"]
    assert [row["name"] for row in done.json["left_out"]] == [B.key]
    for name in (A.key, f"{A.key}-index"):
        (root / name).unlink()
        (root / f"{name}.json").unlink()
    foreseen = tierfs(*words, "--dry-run", store=store)
    assert [row["state"] for row in foreseen.json["segments"]] == ["would be read again"]
    assert [row["state"] for row in tierfs(*words, store=store).json["segments"]] == ["linked anew"]
    assert tierfs("ledger", "verify", "in", "--json", store=store).json["state"] == "ok"
    assert cat(store, NAME) == b"".join(PAYLOADS)
    assert tierfs("-q", "check", "--read", store=store).code == 0
    tierfs("-q", "recover", "--cold-dir", cold, "--yes", store=other)
    assert [row["state"] for row in tierfs(*words, store=other).json["segments"]] == ["already adopted"]
    assert cat(other, NAME) == b"".join(PAYLOADS)
    assert tierfs("-q", "check", "--read", store=other).code == 0


def test_a_ledger_of_empty_entries_is_looked_at(tmp_path: Path) -> None:
    """No chunk refers to its objects: they were never read again, and it was verified though they were gone."""
    store, root = tmp_path / "store", tmp_path / "theirs"
    tierfs("-q", "init", "--cold", "none", store=store)
    empty, whole = offloaded([b"", b"", b""]), offloaded(PAYLOADS, 8, uuid=attempt(2))
    write_files(root, in_files(empty, whole))
    words = ("-q", "adopt", "--as", "pulsar", root, "--into", "in", "--json")
    tierfs(*words, store=store)

    def lines(*asked: object) -> list[dict[str, Any]]:
        done = tierfs(*asked, "--json", store=store, check=False)
        return [json.loads(line) for line in done.out.splitlines()]

    def verified() -> tuple[int, list[str], str]:
        done = tierfs("-q", "ledger", "verify", "in", store=store, check=False)
        return done.code, [row["state"] for row in lines("ledger", "verify", "in")], done.out

    assert verified()[:2] == (0, ["ok", "ok"])
    info = tierfs("ledger", "status", f"in/{TOPIC}", "--for-pulsar", "json", store=store, check=False).out
    assert "storageBasePath" in info
    assert "tierfs." not in info
    again = offloaded([b"", b"", b""], uuid=attempt(3))
    for name in (empty.key, f"{empty.key}-index"):
        (root / name).unlink()
        (root / f"{name}.json").unlink()
    code, states, said = verified()
    assert (code, states) == (74, ["damaged", "ok"]), said
    done = tierfs(*words, store=store, check=False)
    assert [gone["name"] for gone in done.json["vanished"]] == [NAME]
    write_files(root, in_files(again))
    assert [row["state"] for row in tierfs(*words, store=store).json["segments"]] == ["linked anew", "already adopted"]
    assert verified()[:2] == (0, ["ok", "ok"])
    # One of this store's own has no objects, as Pulsar offloads none without bytes: that is said.
    tierfs("-q", "ledger", "append", "own", store=store, stdin=b"")
    (ledger,) = (row["segment"] for row in lines("ledger", "ls", "own"))
    tierfs("-q", "seal", ledger, store=store)
    done = tierfs("ledger", "verify", "own", store=store)
    assert "0 ledgers verified; 0 damaged, 0 with warnings, 1 of 0 bytes: nothing to verify" in done.out
    assert "(0 bytes: nothing to verify)" in tierfs("check", ledger, store=store).out


def test_what_is_known_of_a_ledger_of_empty_entries(store: TestStore) -> None:
    empty = offloaded([b"", b""])
    run(store, place(empty))
    with store.metadata.read() as txn:
        record = empty_ledgers.find(txn, entries.find(txn, store.segment(NAME).id))
    assert record is not None
    assert (record.name, record.index_name, record.stored_bytes) == (empty.key, f"{empty.key}-index", len(empty.data))
    assert (record.length, record.foreign, record.location_id > 0) == (0, True, True)
    run(store, place(offloaded(PAYLOADS, 8)))
    with store.metadata.read() as txn:
        other = store.segment(f"in/{TOPIC}/00000000000000000008")
        assert empty_ledgers.find(txn, entries.find(txn, other.id)) is None
