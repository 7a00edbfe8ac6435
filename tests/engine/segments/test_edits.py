"""Truncate, concat and unseal: what they refuse, what a crash leaves of them, what they tell names and the journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.stores import TestStore, assert_layout
from tierfs.base.words.errors import (
    Conflict,
    DataLoss,
    Fenced,
    InvalidRequest,
    IsDirectory,
    NotFound,
    Sealed,
    TierfsError,
)
from tierfs.base.words.types import ObjectId, SegmentId, SegmentKind, SegmentStatus, Tier
from tierfs.engine.metadata import changes as journal
from tierfs.engine.metadata import directories, policies, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.records import ChunkRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import GARBAGE, POLICIES, SEGMENTS
from tierfs.engine.segments.concat import concat
from tierfs.engine.segments.create import create
from tierfs.engine.segments.seal import unseal
from tierfs.engine.segments.truncate import Truncation, truncate
from tierfs.engine.segments.writer_locks import WriterLocks
from tierfs.tiering.candidates import offload_actions

Edit = Callable[[MetadataStore, WriterLocks], object]

EDITS: dict[str, Edit] = {
    "truncate": lambda metadata, _: truncate(metadata, "d/s", 9, cold_due_ms=0),
    "concat": lambda metadata, locks: concat(metadata, locks, "d/t", "d/s"),
    "unseal": lambda metadata, _: unseal(metadata, "d/s"),
}


@pytest.fixture(params=EDITS)
def edit(request: pytest.FixtureRequest, store: TestStore) -> str:
    """Each verb, on a sealed segment of both tiers and an open one behind whose end it can come."""
    store.append("d/t", b"01234567")
    store.append("d/s", b"abcdefghijkl", seal=True)
    store.offload()
    store.clock.advance(5)
    return str(request.param)


def bodies(changes: list[pb.Change]) -> list[tuple[object, ...]]:
    """Kind of each change, and what it says of the segment."""
    said: list[tuple[object, ...]] = []
    for change in changes:
        kind = str(change.WhichOneof("body"))
        said.append(
            {
                "cold_link": lambda one=change: (
                    [(chunk.start_offset, chunk.length) for chunk in one.cold_link.chunks],
                    len(one.cold_link.objects) + len(one.cold_link.checksums),
                ),
                "cold_unlink": lambda one=change: (list(one.cold_unlink.start_offsets),),
                "segment": lambda one=change: (
                    one.segment.start_offset,
                    one.segment.length,
                    one.segment.cold.count,
                    one.segment.status,
                ),
                "segment_removed": lambda one=change: (one.segment_removed,),
            }[kind]()
        )
        said[-1] = (kind, *said[-1])
    return said


def test_the_journal_never_shows_a_byte_missing(store: TestStore, edit: str) -> None:
    source = store.segment("d/s")
    with journaled(store) as changes:
        EDITS[edit](store.metadata, store.engine.locks)
    assert (
        bodies(changes)
        == {
            "truncate": [("cold_unlink", [0]), ("segment", 9, 12, 1, SegmentStatus.SEALED)],
            "concat": [
                ("cold_link", [(8, 8), (16, 4)], 0),
                ("segment", 0, 20, 3, SegmentStatus.OPEN),
                ("segment_removed", source.id),
            ],
            "unseal": [("segment", 0, 12, 2, SegmentStatus.OPEN)],
        }[edit]
    )
    if edit == "unseal":
        assert changes[0].segment.inode == store.segment("d/s").inode


def test_the_journal_gets_chunks_in_changes_that_an_entry_can_hold(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "CHUNKS_PER_CHANGE", 2)
    store.append("t", b"")
    store.append("s", b"a" * 40, seal=True)
    store.offload()
    with journaled(store) as changes:
        store.engine.concat("t", "s")
    assert [len(change.cold_link.chunks) for change in changes] == [2, 2, 1, 0, 0]
    with journaled(store) as changes:
        store.engine.truncate("t", 40, cold_due_ms=0)
    assert [len(change.cold_unlink.start_offsets) for change in changes] == [2, 2, 1, 0]


def test_times_inode_generation_and_policy(store: TestStore, edit: str) -> None:
    """A file that loses bytes or grows after it was whole is another one for those who keep it open."""
    with store.metadata.write() as txn:
        policies.change(txn, "d/s", put_settings={"chunk_bytes": "9"})
    name = "d/t" if edit == "concat" else "d/s"
    before, source = store.segment(name), store.segment("d/s")
    store.clock.advance(5)
    EDITS[edit](store.metadata, store.engine.locks)
    after, now_ms = store.segment(name), store.clock.now_ms()
    assert (after.inode == before.inode) is (edit == "concat")
    assert after.generation == before.generation + 1
    assert after.modified_ms == (now_ms if edit == "concat" else before.modified_ms)
    assert after.changed_ms == now_ms
    with store.metadata.read() as txn:
        assert directories.directory(txn, after.parent_id).modified_ms == now_ms
        assert (txn.get(POLICIES, tables.u64(source.id)) is None) is (edit == "concat")


def set_status(store: TestStore, name: str, status: SegmentStatus, successor_id: int = 0) -> None:
    segment = store.segment(name)
    with store.metadata.write() as txn:
        txn.put(SEGMENTS, tables.u64(segment.id), replace(segment, status=status, successor_id=successor_id))


REFUSALS: list[tuple[str, tuple[str | int, ...], type[TierfsError], str]] = [
    ("truncate", ("missing", 1), NotFound, "missing"),
    ("truncate", ("d", 1), IsDirectory, "d"),
    ("truncate", ("ledger", 0), InvalidRequest, "ledger"),
    ("truncate", ("t", 4), InvalidRequest, "its length is 3"),
    ("concat", ("t", "missing"), NotFound, "missing"),
    ("concat", ("missing", "sealed"), NotFound, "missing"),
    ("concat", ("t", "d"), IsDirectory, "d"),
    ("concat", ("d", "sealed"), IsDirectory, "d"),
    ("concat", ("t", "t"), InvalidRequest, "to itself"),
    ("concat", ("t", "ledger"), InvalidRequest, "ledger"),
    ("concat", ("ledger", "sealed"), InvalidRequest, "ledger"),
    ("concat", ("sealed", "d/s"), Sealed, "it is sealed"),
    ("concat", ("t", "open"), Conflict, "not sealed"),
    ("seal", ("missing",), NotFound, "missing"),
    ("unseal", ("missing",), NotFound, "missing"),
    ("unseal", ("d",), IsDirectory, "d"),
    ("unseal", ("ledger",), InvalidRequest, "ledger"),
    ("unseal", ("d/s",), Conflict, "it continues in d/next"),
]


def test_what_is_refused_changes_nothing(store: TestStore) -> None:
    for name in ("t", "open", "d/next"):
        store.append(name, b"abc")
    for name in ("d/s", "sealed"):
        store.append(name, b"abc", seal=True)
    set_status(store, "d/s", SegmentStatus.SEALED_BY_POLICY, store.segment("d/next").id)
    with store.metadata.write() as txn:
        create(txn, "ledger", SegmentKind.LEDGER)
    set_status(store, "ledger", SegmentStatus.SEALED)
    before = store.metadata.last_transaction_id()
    for verb, arguments, error, words in REFUSALS:
        with pytest.raises(error, match=words) as caught:
            getattr(store.engine, verb)(*arguments, **({"cold_due_ms": 0} if verb == "truncate" else {}))
        assert type(caught.value) is error
        assert "open" not in arguments or caught.value.remedy == "tierfs seal open"
    assert store.metadata.last_transaction_id() == before
    store.engine.delete("d/next", recursive=False, cold_due_ms=0)  # then nothing forbids it
    record, changed = store.engine.unseal("d/s")
    assert (changed, record.successor_id) == (True, 0)


@pytest.mark.parametrize("status", [SegmentStatus.SEALED, SegmentStatus.SEALED_BY_POLICY])
def test_appends_go_on_in_a_new_chunk(store: TestStore, status: SegmentStatus) -> None:
    store.append("s", b"abcdef", seal=True)
    set_status(store, "s", status)
    record, changed = store.engine.unseal("s")
    assert (record.status, record.sealed_ms, changed) == (SegmentStatus.OPEN, 0, True)
    assert store.engine.unseal("s") == (record, False)
    store.append("s", b"gh", seal=True)
    assert_layout(store, "s", local=[4, 2, 2], cold=[])
    assert store.read("s") == b"abcdefgh"


@pytest.mark.parametrize("own", [False, True], ids=["another sealed", "its last append sealed"])
def test_who_wrote_before_the_seal_is_fenced(store: TestStore, own: bool) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"ab", seal=own)
    if not own:
        store.engine.seal("s")
    store.engine.unseal("s")
    assert store.segment("s").writer_epoch == writer.epoch + (1 if own else 2)
    if not own:
        with pytest.raises(Fenced):
            writer.append(b"cd")
    store.append("s", b"ef")
    assert store.read("s") == b"abef"


DATA = b"abcdefghijkl"

GRACE_MS = 3_600_000


def cut(store: TestStore, name: str, before: int) -> Truncation:
    return store.engine.truncate(name, before, cold_due_ms=store.clock.now_ms() + GRACE_MS)


def readable(store: TestStore, name: str) -> bytes:
    return store.read(name)[store.segment(name).start_offset :]


CUTS = [
    (0, [4, 4, 4], [8, 4]),
    (1, [4, 4, 4], [8, 4]),
    (3, [4, 4, 4], [8, 4]),
    (4, [4, 4], [8, 4]),
    (5, [4, 4], [8, 4]),
    (7, [4, 4], [8, 4]),
    (8, [4], [4]),
    (9, [4], [4]),
    (11, [4], [4]),
    (12, [], []),
]


@pytest.mark.parametrize(("before", "local", "cold"), CUTS, ids=[f"at {row[0]}" for row in CUTS])
@pytest.mark.parametrize("state", ["open local", "open both", "sealed local", "sealed both", "sealed cold"])
def test_truncate_at_and_inside_chunks_of_both_tiers(
    store: TestStore, before: int, local: list[int], cold: list[int], state: str
) -> None:
    store.append("s", DATA, seal="sealed" in state)
    if "local" in state:
        cold = []
    else:
        store.offload()
    if "cold" in state:
        local = []
        store.evict()
    held = store.segment("s")
    done = cut(store, "s", before)
    assert_layout(store, "s", local=local, cold=cold)
    after = store.segment("s")
    assert (after.start_offset, after.length) == (before, 12)
    assert done == Truncation(
        start_offset=before,
        bytes=before,
        local_chunks=held.local.count - len(local),
        local_bytes=held.local.bytes - sum(local),
        cold_chunks=held.cold.count - len(cold),
        cold_bytes=held.cold.bytes - sum(cold),
    )
    assert readable(store, "s") == DATA[before:]
    for lower in (before, max(0, before - 1), 0):
        assert cut(store, "s", lower) == Truncation(start_offset=before)
    assert store.segment("s") == after
    store.offload()
    store.evict()
    assert (store.segment("s").local.count, readable(store, "s")) == (0, DATA[before:])


def test_local_files_go_at_once_and_cold_objects_after_grace_and_journal(store: TestStore) -> None:
    store.append("s", DATA, seal=True)
    store.offload()
    cut(store, "s", 8)
    with store.metadata.read() as txn:
        rows = {row.tier: row for _, row in txn.scan(GARBAGE)}
        changes = [(number, pb.Change.FromString(data)) for number, data in journal.outbox(txn, 0)]
    cut_sequence = max(number for number, change in changes if change.HasField("segment"))
    assert rows[Tier.LOCAL].due_ms == store.clock.now_ms()
    assert rows[Tier.COLD].due_ms == store.clock.now_ms() + GRACE_MS
    assert rows[Tier.COLD].after_sequence == cut_sequence
    for passed_s, local, cold in ((0, 1, [8, 4]), (GRACE_MS / 1000 - 1, 1, [8, 4]), (1, 1, [4])):
        store.clock.advance(passed_s)
        store.settle()
        assert len(list(store.files.names())) == local
        assert [found.length_bytes for found in store.cold.list("segments/")] == cold


@pytest.mark.parametrize(("start", "planned"), [(3, 1), (4, 0), (6, 0), (8, 0)])
def test_bytes_below_the_start_need_no_cold_copy(start: int, planned: int) -> None:
    local = ChunkRecord(start_offset=0, length=8, object_id=ObjectId(1))
    cold = ChunkRecord(start_offset=4, length=4, object_id=ObjectId(2))
    actions = offload_actions(SegmentId(1), [local], [cold], 8, start_offset=start)
    assert len(list(actions)) == planned


def test_a_suspect_head_can_be_cut_off(store: TestStore) -> None:
    store.append("s", DATA, seal=True)
    path = store.files.root / store.layout("s").local[0].object.name
    path.chmod(0o600)
    path.write_bytes(b"XXXX")
    with pytest.raises(DataLoss):
        store.offload()
    cut(store, "s", 8)
    store.offload()
    assert_layout(store, "s", local=[4], cold=[4])


@contextmanager
def journaled(store: TestStore) -> Iterator[list[pb.Change]]:
    """Collect the changes that the block adds to the outbox, except garbage; filled when it ends."""
    changes: list[pb.Change] = []
    with store.metadata.read() as txn:
        before = txn.store.next_outbox - 1
    yield changes
    with store.metadata.read() as txn:
        added = [pb.Change.FromString(data) for _, data in journal.outbox(txn, before)]
    changes.extend(change for change in added if not change.HasField("garbage"))
