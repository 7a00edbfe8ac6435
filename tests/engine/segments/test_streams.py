"""Streams: a segment that policy seals continues in successors, and no append notices."""

from __future__ import annotations

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.engine.segments.test_trash import listed, remove, restore
from tests.stores import TestStore, assert_layout
from tests.upkeep.check.looking import findings
from tierfs.base.words.errors import Conflict, Fenced, NotFound, OffsetMismatch, Sealed
from tierfs.base.words.types import ROOT_DIRECTORY, ByteRange, SegmentStatus
from tierfs.engine.metadata import changes as journal
from tierfs.engine.metadata import directories, policies
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.segments import seal, streams

POLICY = {"chunk_bytes": "4", "object_bytes": "8", "seal_bytes": "10"}
DAY_S = 86_400


def members(store: TestStore, directory: str = "") -> dict[str, tuple[int, int, str]]:
    """Start, end and status by name."""
    with store.metadata.read() as txn:
        entry = directories.find(txn, directory)
        assert entry is not None
        found = dict(directories.segments_below(txn, entry, directory))
    return {name: (one.start_offset, one.length, one.status.name) for name, one in found.items()}


def set_policy(store: TestStore, **settings: str) -> None:
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": "4", "object_bytes": "8", **settings})


@pytest.mark.parametrize(
    ("parts", "ends"),
    [
        ([9, 1], []),
        ([10, 1], [10]),
        ([11, 1], [11]),
        ([9, 2, 1], [11]),
        ([25, 1], [25]),
        ([7] * 5, [14, 28]),
    ],
)
def test_a_stream_goes_on_in_successors_at_append_boundaries(
    store: TestStore, parts: list[int], ends: list[int]
) -> None:
    writer, at = store.engine.open_writer("d/s"), 0
    for length in parts:
        assert writer.append(b"abcdefghijklmnopqrstuvwxy"[:length]) == ByteRange(at, at + length)
        at += length  # offsets are the stream's
    starts = [0, *ends]
    names = [f"d/s.{start}" if start else "d/s" for start in starts]
    statuses = ["SEALED_BY_POLICY"] * len(ends) + ["OPEN"]
    spans = zip(starts, [*ends, at], statuses, strict=True)
    assert members(store) == dict(zip(names, spans, strict=True))
    records = [store.segment(name) for name in names]
    assert [one.successor_id for one in records] == [*(one.id for one in records[1:]), 0]
    assert [one.predecessor_id for one in records] == [0, *(one.id for one in records[:-1])]
    assert whole(store, "d/s") == b"".join(b"abcdefghijklmnopqrstuvwxy"[:length] for length in parts)
    store.engine.close_writer(writer)


def test_any_name_of_the_stream_appends_to_its_newest_segment(store: TestStore) -> None:
    store.append("s", b"0123456789", b"a")
    store.append("s", b"b")
    store.append("s.10", b"c")
    assert store.read("s.10")[10:] == b"abc"
    with pytest.raises(OffsetMismatch, match="its length is 13"):
        store.engine.open_writer("s", expected_offset=10)
    store.engine.open_writer("s", expected_offset=13)
    assert list(members(store)) == ["s", "s.10"]


def test_what_the_user_seals_ends_the_stream(store: TestStore) -> None:
    store.append("s", b"0123456789", b"a")
    sealed = store.engine.seal("s")
    assert (sealed.name, sealed.status) == ("s.10", SegmentStatus.SEALED)
    for name in ("s", "s.10"):
        with pytest.raises(Sealed):
            store.engine.open_writer(name)


def test_a_name_that_is_taken_gets_a_further_number(store: TestStore) -> None:
    store.append("s.10", b"somebody's")
    store.append("s.10.1/below", b"")
    store.append("s", b"0123456789", b"a")
    assert members(store)["s.10.2"] == (10, 11, "OPEN")
    assert store.segment("s.10.2").stream == "s"


def test_a_segment_whose_successor_would_have_too_long_a_name_stays_open(store: TestStore) -> None:
    name = "n" * 254
    writer = store.engine.open_writer(name)
    for _ in range(5):
        writer.append(b"0123456789")
    assert members(store) == {name: (0, 50, "OPEN")}


def test_age_counts_from_the_first_byte_and_the_holder_ends_what_no_writer_does(
    store: TestStore, clock: ManualClock
) -> None:
    set_policy(store, seal_age=str(DAY_S), seal_bytes="100")
    store.append("empty")
    writer = store.engine.open_writer("s")
    clock.advance(3 * DAY_S)
    writer.append(b"a")
    clock.advance(DAY_S - 1)
    writer.append(b"b")
    assert not store.engine.end_if_due(writer.segment_id)
    clock.advance(1)
    writer.append(b"c")
    assert members(store) == {"empty": (0, 0, "OPEN"), "s": (0, 2, "SEALED_BY_POLICY"), "s.2": (2, 3, "OPEN")}
    store.engine.close_writer(writer)
    clock.advance(DAY_S)
    ids = {name: store.segment(name).id for name in members(store)}
    assert [name for name in ids if store.engine.end_if_due(ids[name])] == ["s.2"]
    assert not store.engine.end_if_due(ids["s.2"])
    assert members(store)["s.3"] == (3, 3, "OPEN")
    assert {store.files.length_and_mode(name)[1] & 0o777 for name in store.files.names()} == {0o440}


def test_a_writer_of_one_segment_keeps_all_its_appends_together(store: TestStore) -> None:
    writer = store.engine.open_writer("s", one_segment=True)
    for _ in range(3):
        writer.append(b"0123456789")
    assert members(store) == {"s": (0, 30, "OPEN")}
    assert store.engine.end_if_due(writer.segment_id)  # the locks of one process are no hindrance to itself
    with pytest.raises(Sealed, match="by policy"):
        writer.append(b"x")


def test_sealing_and_the_successor_are_one_change_for_the_journal(store: TestStore) -> None:
    store.append("s", b"0123456789")
    with store.metadata.write() as txn:
        policies.put(txn, store.segment("s").id, {"chunk_bytes": "2", "seal_bytes": "10"})
    before = len(changes(store))
    store.append("s", b"abc")
    segments = [change.segment for change in changes(store)[before:] if change.HasField("segment")]
    assert [(one.name, one.status, one.start_offset) for one in segments] == [("s.10", 0, 10), ("s", 2, 0)]
    assert segments[1].successor_id == segments[0].id
    assert_layout(store, "s.10", local=[2, 1], cold=[])  # it has its predecessor's own policy


def changes(store: TestStore) -> list[pb.Change]:
    with store.metadata.read() as txn:
        return [pb.Change.FromString(data) for _, data in journal.outbox(txn, 0)]


def test_neighbours_of_a_deleted_member_are_linked(store: TestStore) -> None:
    store.append("s", *[b"0123456789"] * 3, b"a")
    store.engine.delete("s.10", recursive=False, cold_due_ms=0)
    store.append("s", b"b")
    assert store.read("s.30")[30:] == b"ab"
    assert store.segment("s.20").predecessor_id == store.segment("s").id
    writer = store.engine.open_writer("s")
    store.engine.delete("s.30", recursive=False, cold_due_ms=0)
    with pytest.raises(NotFound):
        writer.append(b"x")
    store.append("s", b"c")  # what was behind s.20 is gone: it is made anew
    assert members(store)["s.30"] == (30, 31, "OPEN")
    assert store.read("s.30")[30:] == b"c"


def whole(store: TestStore, name: str) -> bytes:
    """All of a stream's bytes, each member from where it starts."""
    directory = name.rpartition("/")[0]
    found = sorted(
        (start, one) for one, (start, _, _) in members(store, directory).items() if one.split(".")[0] == name
    )
    out = b""
    for start, one in found:
        assert start == len(out)
        out += store.read(one)[start:]
    return out


def test_two_processes_one_writes_one_seals(store: TestStore) -> None:
    set_policy(store, seal_age="1")
    other = store.another_engine()
    writer, data = other.open_writer("s"), b""
    for turn in range(12):
        line = b"line %d\n" % turn
        assert writer.append(line) == ByteRange(len(data), len(data) + len(line))
        if turn % 3 == 0 and turn:
            assert f"s.{len(data)}" in members(store)
        data += line
        if turn % 3 == 2:
            with store.metadata.write() as txn:
                segment = streams.newest(txn, directories.segment_by_name(txn, "s"))
                due_ms = segment.began_ms + 1000
                assert seal.end_if_due(txn, store.engine.locks, segment.id, now_ms=due_ms)
            with pytest.raises(Conflict, match="is being written by process"):
                store.engine.open_writer("s")
    assert whole(store, "s") == data
    assert store.engine.open_writer("s", take_over=True).append(b"mine") == ByteRange(len(data), len(data) + 4)
    with pytest.raises(Fenced):
        writer.append(b"theirs")
    other.close()
    assert whole(store, "s") == data + b"mine"


def test_a_fenced_writer_does_not_follow(store: TestStore) -> None:
    old = store.engine.open_writer("s")
    old.append(b"abc")
    old_id, old_epoch = old.segment_id, old.epoch
    new = store.engine.open_writer("s", take_over=True)
    new.append(b"0123456789")
    new.append(b"d")
    assert new.segment_id != old_id
    old._closed = False  # a writer of another process does not know
    with pytest.raises(Fenced):
        old.append(b"x")
    assert (old.segment_id, old.epoch) == (old_id, old_epoch)


@pytest.mark.parametrize("order", [(0,), (1,), (2,), (0, 1), (1, 0), (1, 2), (2, 1), (0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_a_member_of_a_stream_comes_back_into_its_place(store: TestStore, order: tuple[int, ...]) -> None:
    store.append("s", b"")
    set_policy(store, seal_bytes="2")
    for number in range(4):
        store.append("s", f"{number}{number}".encode())
    names = sorted(listed(store), key=lambda name: store.segment(name).first_offset)
    assert len(names) >= 4
    for member in order:
        remove(store, names[member])
    for member in order:
        restore(store, names[member])
    assert stream(store, names[0]) == names
    assert findings(store) == []


def stream(store: TestStore, name: str) -> list[str]:
    members = [store.segment(name)]
    with store.metadata.read() as txn:
        while members[-1].successor_id:
            following = directories.segment(txn, members[-1].successor_id)
            assert following is not None
            assert following.predecessor_id == members[-1].id
            members.append(following)
    return [member.name for member in members]


def test_a_member_whose_place_was_taken_stands_alone(store: TestStore) -> None:
    set_policy(store, seal_bytes="2")
    for data in (b"00", b"1"):
        store.append("s", data)
    remove(store, "s.2")
    store.append("s", b"9")
    assert restore(store, "s.2", to="back") == "back"
    assert store.segment("back").predecessor_id == 0
    assert store.read("back")[2:] == b"1"
    assert stream(store, "s") == ["s", "s.2"]
