"""Followed files: recorded with the append of their bytes, true of what the stream has, and bounded in number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.stores import TestStore, open_test_store
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.errors import OffsetMismatch
from tierfs.base.words.types import ROOT_DIRECTORY, ByteRange, DirectoryId
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.metadata import followed, policies
from tierfs.engine.metadata.followed_range import FollowedRange, FollowedSource
from tierfs.engine.metadata.tables import FOLLOWED
from tierfs.engine.segments import create
from tierfs.engine.segments.writer import PlannedAppend, append_all

A_WEEK_S = 7 * 24 * 3600


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", clock=clock) as opened:
        yield opened


def part(inode: int, start: int, end: int, **fields: object) -> FollowedRange:
    return replace(FollowedRange(path=b"/l", inode=inode, file_start=start, file_end=end), **fields)


def append(store: TestStore, name: str, *parts: FollowedRange, lead: bytes = b"") -> None:
    """Append as many bytes as each part has."""
    writer = store.engine.open_writer(name)
    for each in parts:
        data = lead + bytes(each.file_end - each.file_start)
        done = append_all([PlannedAppend(writer, data, followed=each)])
        assert done == [ByteRange(writer.length - len(data), writer.length)]
    store.engine.close_writer(writer)


def places(store: TestStore, name: str) -> list[tuple[int, int, int, int]]:
    """Inode, and start and end in the file, and the start in the stream of each range."""
    with store.metadata.read() as txn:
        return [(each.inode, each.file_start, each.file_end, each.segment_start) for each in followed.of(txn, name)]


def gaps(store: TestStore) -> list[tuple[str, str]]:
    """The streams with gaps, and why."""
    with store.metadata.read() as txn:
        shown = [(name, row.gap) for name, row in followed.gaps(txn)]
        assert followed.gap_count(txn) >= len(shown)
        return shown


def test_appends_of_one_file_are_one_range(store: TestStore) -> None:
    append(store, "d/s", part(1, 0, 3), part(1, 3, 5))
    append(store, "d/s", part(1, 5, 9), part(2, 0, 2))
    assert places(store, "d/s") == [(1, 0, 9, 0), (2, 0, 2, 9)]
    store.reopen()
    assert places(store, "d/s") == [(1, 0, 9, 0), (2, 0, 2, 9)]
    assert [places(store, name) for name in ("s", "d/other", "none/s")] == [[], [], []]


def test_bytes_between_two_appends_end_a_range(store: TestStore) -> None:
    append(store, "s", part(1, 0, 3))
    store.append("s", b"by hand")
    append(store, "s", part(1, 3, 5))
    append(store, "s", part(1, 5, 6), lead=b"\n")
    assert places(store, "s") == [(1, 0, 3, 0), (1, 3, 5, 10), (1, 5, 6, 13)]


def test_a_range_is_found_in_a_stream_that_went_on(store: TestStore) -> None:
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"seal_bytes": "4"})
    append(store, "s", part(1, 0, 4), part(1, 4, 8), part(1, 8, 9))
    assert places(store, "s") == [(1, 0, 9, 0)]


def test_a_refused_append_leaves_no_range(store: TestStore) -> None:
    writer = store.engine.open_writer("s")
    refused = append_all([PlannedAppend(writer, b"one", 7, followed=part(1, 0, 3))])
    assert isinstance(refused[0], OffsetMismatch)
    assert places(store, "s") == []


@pytest.mark.parametrize(
    ("length", "held"),
    [
        (9, [(1, 0, 5), (2, 0, 4)]),
        (8, [(1, 0, 5), (2, 0, 3)]),
        (5, [(1, 0, 5)]),
        (2, [(1, 0, 2)]),
        (0, [(1, 0, 0)]),
    ],
)
def test_ranges_say_no_more_than_the_stream_has(length: int, held: list[tuple[int, int, int]]) -> None:
    """A stream that lost its end continues with the bytes of the file that it lost."""
    known = (part(1, 0, 5, tail_length=4), part(2, 0, 4, segment_start=5, tail_length=4))
    kept = followed.held(known, length)
    assert [(each.inode, each.file_start, each.file_end) for each in kept] == held
    assert all(each.tail_length == 0 for each in kept if each.file_end not in (5, 4)), "of bytes that no one has read"


def test_an_append_to_a_shorter_stream_replaces_what_it_lost(store: TestStore) -> None:
    append(store, "s", part(1, 0, 5), part(2, 0, 5), part(3, 0, 5))
    store.engine.delete("s", recursive=False, cold_due_ms=0)
    append(store, "s", part(1, 0, 2))
    assert places(store, "s") == [(1, 0, 2, 0)]


def test_late_lines_do_not_hide_the_newest_file(store: TestStore) -> None:
    append(store, "s", part(1, 0, 5), part(2, 0, 5), part(1, 5, 7, late=True))
    with store.metadata.read() as txn:
        newest = followed.newest_file(followed.of(txn, "s"))
    assert newest is not None
    assert newest.inode == 2


def test_ranges_are_bounded_and_keep_the_newest_file(store: TestStore) -> None:
    append(store, "s", part(1, 0, 5), *(part(100 + number % 2, number, number + 1, late=True) for number in range(40)))
    kept = places(store, "s")
    assert len(kept) == followed.MOST_RANGES + 1
    assert kept[0] == (1, 0, 5, 0)


def test_a_gap_stays_for_a_week(store: TestStore, clock: ManualClock) -> None:
    append(store, "s", part(1, 0, 1), part(2, 0, 1, gap="why"))
    append(store, "s", *(part(number, 0, 1) for number in range(3, 60)))
    assert places(store, "s")[0] == (2, 0, 1, 1)
    assert gaps(store) == [("s", "why")]
    clock.advance(A_WEEK_S)
    append(store, "s", part(60, 0, 1))
    assert places(store, "s")[0][0] > 40
    assert gaps(store) == []


def test_a_gap_is_gone_with_the_directory_of_its_stream(store: TestStore) -> None:
    append(store, "d/s", part(1, 0, 1), part(2, 0, 1, gap="why"), part(2, 1, 2))
    assert gaps(store) == [("d/s", "why")]
    store.engine.delete("d", recursive=True, cold_due_ms=0, to_trash=True)
    assert gaps(store) == []


def source(path: bytes, begun_ms: int, directory_id: int = 1, below: str = "") -> FollowedSource:
    return FollowedSource(path=path, begun_ms=begun_ms, directory_id=DirectoryId(directory_id), below=below)


def test_a_source_begins_once_with_the_files_that_are_read_first(store: TestStore) -> None:
    with store.metadata.write() as txn:
        create.make_directory(txn, "d")
        followed.begin(txn, [source(b"/logs", 5)], [("d/s", part(7, 0, 0))])
        followed.begin(txn, [source(b"/logs", 6), source(b"/logs", 7, below="x")], [("d/s", part(8, 0, 0))])
        followed.begin(txn, [source(b"/logs", 8, directory_id=2)], [])
    with store.metadata.read() as txn:
        assert [each.begun_ms for each in followed.sources(txn)] == [5, 7, 8]
        assert [name for name, _ in followed.streams(txn)] == ["d/s"], "a source is no stream"
    assert places(store, "d/s") == [(7, 0, 0, 0)]
    store.append("d/s", b"by hand")
    append(store, "d/s", part(7, 0, 3))
    assert places(store, "d/s") == [(7, 0, 3, 7)]


def test_the_holder_follows_chosen_sources(store: TestStore) -> None:
    with store.metadata.write() as txn:
        followed.begin(txn, [source(b"/a", 1), source(b"/b", 2)], [])
        followed.in_background(txn, [source(b"/b", 0)], background=True)
        assert [each.background for each in followed.sources(txn)] == [False, True]
        followed.begin(txn, [source(b"/b", 3)], [])
        followed.in_background(txn, [source(b"/a", 0)], background=True)
        followed.in_background(txn, [source(b"/b", 0)], background=False)
        assert [each.background for each in followed.sources(txn)] == [True, False]


def test_streams_of_a_removed_directory_are_left_out(store: TestStore) -> None:
    append(store, "d/s", part(1, 0, 5))
    append(store, "t", part(2, 0, 5))
    store.engine.delete("d", recursive=True, cold_due_ms=0)
    with store.metadata.read() as txn:
        assert [name for name, _ in followed.streams(txn)] == ["t"]


def test_an_older_store_gets_the_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tierfs.engine.metadata.environment.LATER_NAMES", ())
    cold, clock = MemoryStorage(ManualClock()), ManualClock()
    with open_test_store(tmp_path / "store", cold=cold, clock=clock) as store, store.metadata.read() as txn:
        assert FOLLOWED.name not in txn.database_names
    monkeypatch.undo()
    store = TestStore.opened(tmp_path / "store", cold, clock, OffloadSettings())
    append(store, "s", part(1, 0, 5))
    assert places(store, "s") == [(1, 0, 5, 0)]
    store.close()
