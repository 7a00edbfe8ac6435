"""Truncate, concat and unseal: what they refuse, what a crash leaves of them, what they tell names and the journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.segments.changes import Crash, crashing, journaled
from tests.stores import TestStore, assert_layout
from tierfs.errors import Conflict, Fenced, InvalidRequest, IsDirectory, NotFound, Sealed, TierfsError
from tierfs.metadata import changes as journal
from tierfs.metadata import directories, policies, tables
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import GARBAGE, POLICIES, SEGMENTS
from tierfs.segments.concat import concat
from tierfs.segments.create import create
from tierfs.segments.ownership import WriterLocks
from tierfs.segments.seal import unseal
from tierfs.segments.truncate import truncate
from tierfs.tiering.candidates import objects_to_make
from tierfs.types import ByteRange, SegmentKind, SegmentStatus

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


def test_a_crash_before_the_commit_changes_nothing(store: TestStore, edit: str) -> None:
    before = store.segment("d/t"), store.segment("d/s")
    with pytest.raises(Crash):
        EDITS[edit](crashing(store.metadata), store.engine._locks)
    assert (store.segment("d/t"), store.segment("d/s")) == before
    assert_layout(store, "d/s", local=[4, 4, 4], cold=[8, 4])
    with store.metadata.read() as txn:
        assert txn.count(GARBAGE.name) == 0


def test_a_crash_after_the_commit_leaves_all_of_it(store: TestStore, edit: str) -> None:
    EDITS[edit](store.metadata, store.engine._locks)  # files that end are not made read-only, nothing is collected
    store.reopen()
    name, data = ("d/t", b"01234567abcdefghijkl") if edit == "concat" else ("d/s", b"abcdefghijkl")
    if edit != "truncate":
        store.append(name, b"z")
        data += b"z"
    store.settle()
    assert len(list(store.files.names())) == {"truncate": 3, "concat": 6, "unseal": 6}[edit]
    store.offload()
    store.evict()
    start = store.segment(name).start_offset
    assert start == (9 if edit == "truncate" else 0)
    assert store.read(name)[start:] == data[start:]


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
        EDITS[edit](store.metadata, store.engine._locks)
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


def test_an_edit_of_local_bytes_is_one_change(store: TestStore) -> None:
    store.append("s", b"abcdefghijkl")
    with journaled(store) as changes:
        store.engine.truncate("s", 9, cold_due_ms=0)
    assert bodies(changes) == [("segment", 9, 12, 0, SegmentStatus.OPEN)]


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
    EDITS[edit](store.metadata, store.engine._locks)
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


def test_an_offload_under_way_is_not_disturbed(store: TestStore) -> None:
    store.append("s", b"abcdef", seal=True)
    with store.metadata.read() as txn:
        (action,) = objects_to_make(txn, store.segment("s"))
    store.engine.unseal("s")
    writer = store.engine.open_writer("s")
    assert writer.append(b"gh") == ByteRange(6, 8)
    store.cold_work().tools.offload.run(action)
    assert_layout(store, "s", local=[4, 2, 2], cold=[6])
