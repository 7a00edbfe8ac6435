"""Ledgers as segments: entries are committed together with the length, whole, once, and in order."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from tests.fsck.looking import findings
from tests.stores import TestStore, assert_layout
from tierfs.errors import AlreadyExists, DataLoss, InvalidRequest, NotFound, Sealed, StorageFull
from tierfs.fsck.findings import Kind, Mend
from tierfs.metadata import entries, tables
from tierfs.metadata.tables import ENTRIES

NAME = "topic/00000000000000000007"


@pytest.fixture(autouse=True)
def ledger(store: TestStore) -> None:
    store.engine.create_ledger(NAME)


def append(store: TestStore, *payloads: bytes) -> range:
    writer = store.engine.open_ledger(NAME)
    written = writer.append_entries(payloads)
    store.engine.close_writer(writer)
    return written


def found(store: TestStore, start: int = 0, end: int = 1 << 40) -> list[bytes]:
    """The payloads of entries [start, end)."""
    data = store.read(NAME)
    with store.metadata.read() as txn:
        places = list(entries.placed(txn, store.segment(NAME).id, start, end))
    assert [one.entry_id for one in places] == list(range(start, start + len(places)))
    return [data[one.range.start : one.range.end] for one in places]


def wrong(store: TestStore) -> list[tuple[Kind, Mend | None]]:
    return [(one.kind, one.mend) for one in findings(store) if one.kind is Kind.ENTRIES]


@pytest.mark.parametrize(
    ("groups", "local"),
    [
        ([[b""]], []),
        ([[b"", b""], [b""]], []),
        ([[b"abcd"], [b"e"]], [4, 1]),
        ([[b"abc", b"", b"defghi"], [b""], [b"j"]], [4, 4, 2]),
    ],
    ids=["one empty", "all empty", "a chunk each", "across chunks"],
)
@pytest.mark.parametrize("crash", [False, True])
def test_entries_cross_chunks_and_may_be_empty(
    store: TestStore, groups: list[list[bytes]], local: list[int], crash: bool
) -> None:
    held: list[bytes] = []
    for group in groups:
        assert append(store, *group) == range(len(held), len(held) + len(group))
        held += group
    if crash:
        writer = store.engine.open_ledger(NAME)
        writer.append_entries([b"abcdef", b"g"])
        store.reopen()  # whole entries stay, and the next writer goes on
        held += [b"abcdef", b"g", b"hi"]
        assert append(store, b"hi").stop == len(held)
    else:
        assert_layout(store, NAME, local=local, cold=[])
    assert found(store) == held
    for start in range(len(held)):
        assert found(store, start, start + 2) == held[start : start + 2]
    assert wrong(store) == []
    store.engine.delete("topic", recursive=True, cold_due_ms=0)
    with store.metadata.read() as txn:
        assert txn.count(ENTRIES.name) == 0


def test_a_full_disk_leaves_no_entry(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    append(store, b"abcdef")
    writer = store.engine.open_ledger(NAME)

    def full(*_: object) -> None:
        raise StorageFull("no room")

    with monkeypatch.context() as patched:
        patched.setattr("tierfs.segments.writer.write_all", full)
        with pytest.raises(StorageFull):
            writer.append_entries([b"gh", b"ij"])
    assert writer.append_entries([b"k"]) == range(1, 2)
    assert found(store) == [b"abcdef", b"k"]
    assert wrong(store) == []


def test_threads_append_whole_batches(store: TestStore) -> None:
    writer = store.engine.open_ledger(NAME)
    told: dict[int, tuple[bytes, ...]] = {}

    def work(number: int) -> None:
        for turn in range(20):
            payloads = tuple(b"%d-%d-%d" % (number, turn, part) for part in range(3))
            told[writer.append_entries(payloads).start] = payloads

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found(store) == [payload for first in sorted(told) for payload in told[first]]
    assert wrong(store) == []


def test_bytes_and_entries_do_not_mix_and_a_closed_ledger_takes_neither(store: TestStore) -> None:
    store.append("s", b"abc")
    ledger, writer = store.engine.open_ledger(NAME), store.engine.open_writer("s")
    for act, error, words in (
        (lambda: store.engine.open_writer(NAME), InvalidRequest, f"{NAME} is a ledger"),
        (lambda: store.engine.open_ledger("s"), InvalidRequest, "s is not a ledger"),
        (lambda: ledger.append(b"abc"), InvalidRequest, "is a ledger: it takes entries"),
        (lambda: writer.append_entries([b"abc"]), InvalidRequest, "s takes bytes"),
        (lambda: store.engine.create_ledger(NAME), AlreadyExists, "already exists"),
        (lambda: store.engine.open_ledger("topic/8"), NotFound, "topic/8"),
    ):
        with pytest.raises(error, match=words):
            act()
    store.engine.close_writer(ledger)
    append(store, b"abc")
    store.engine.seal(NAME)
    with pytest.raises(Sealed):
        store.engine.open_ledger(NAME)
    with pytest.raises(InvalidRequest):
        store.engine.unseal(NAME)
    assert found(store) == [b"abc"]


def test_offload_makes_closed_ledgers_cold_and_leaves_open_ones(store: TestStore) -> None:
    append(store, b"abc", b"defgh")
    store.append("s", b"abcd")
    left = store.offload()
    assert (left.objects, left.bytes, left.ledger_bytes) == (1, 4, 8)
    assert_layout(store, NAME, local=[4, 4], cold=[])
    store.engine.seal(NAME)
    done = store.offload()
    assert (done.objects, done.bytes, done.ledger_bytes, done.already_cold_bytes) == (1, 8, 0, 4)
    assert_layout(store, NAME, local=[4, 4], cold=[8])
    assert store.offload().objects == 0
    assert store.evict().bytes == 12
    assert_layout(store, NAME, local=[], cold=[8])


def test_offload_tries_every_ledger_and_tells_of_one_that_is_damaged(store: TestStore) -> None:
    append(store, b"abcd")
    store.engine.seal(NAME)
    (file,) = store.files.root.glob("*/*")
    file.chmod(0o600)
    file.write_bytes(b"ABCD")
    store.engine.create_ledger("topic/8")
    writer = store.engine.open_ledger("topic/8")
    writer.append_entries([b"efgh"], seal=True)
    with pytest.raises(DataLoss):
        store.offload()
    assert_layout(store, NAME, local=[4], cold=[])
    assert_layout(store, "topic/8", local=[4], cold=[4])


@pytest.mark.parametrize(("lengths", "mend"), [((3, 2), None), ((), None)], ids=["too short", "missing"])
def test_fsck_finds_entries_that_do_not_end_with_their_ledger(
    store: TestStore, lengths: Sequence[int], mend: Mend | None
) -> None:
    append(store, b"abc", b"def")
    segment_id = store.segment(NAME).id
    with store.metadata.write() as txn:
        entries.remove(txn, segment_id)
        if lengths:
            entries.append(txn, segment_id, 0, lengths)
    assert wrong(store) == [(Kind.ENTRIES, mend)]


def test_fsck_finds_a_gap_between_runs_and_entries_of_no_ledger(store: TestStore) -> None:
    append(store, b"abc")
    segment_id = store.segment(NAME).id
    with store.metadata.write() as txn:
        run = next(iter(entries.runs(txn, segment_id)))
        txn.delete(ENTRIES.name, tables.pair(segment_id, 0))
        txn.put(ENTRIES, tables.pair(segment_id, 1), run)
        txn.put(ENTRIES, tables.pair(99, 0), run)
    assert (Kind.ENTRIES, None) in wrong(store)
    assert (Kind.ENTRIES, Mend.DROP_ROW) in wrong(store)
