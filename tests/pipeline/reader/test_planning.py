"""Partitions own every byte once, end where objects do, and keep small segments together."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path

import pytest

from tests import verbs
from tests.doubles.manual_clock import ManualClock
from tests.ledgers import new_ledger
from tests.mount.conftest import append
from tests.pipeline.reader.reading import fill, planned, store_of
from tests.pipeline.reader.reading import rows_of as lines
from tests.reading.test_times import published
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest, Unavailable
from tierfs.base.words.types import CRC_BLOCK_BYTES, ByteRange, Tier
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.ledger_records import MAX_RUN_ENTRIES
from tierfs.pipeline.reader.entry_batches import EntryBatch, read_entries
from tierfs.pipeline.reader.extents import PlaceConnections
from tierfs.pipeline.reader.fetching import ScanFetcher
from tierfs.pipeline.reader.planning import Partition, Reach, Sizes
from tierfs.pipeline.reader.selection import Selection, Tail
from tierfs.pipeline.spark.options import ReadOptions
from tierfs.pipeline.spark.planning import plan_read

WHOLE = Reach()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    with store_of(tmp_path / "store", chunk_bytes=8, object_bytes=16) as opened:
        yield opened


def partitions_of(
    store: app.Store, split_bytes: int, reach: Reach = WHOLE, tail: Tail = Tail.LOCAL, **sizes: int
) -> list[Partition]:
    limits = Sizes(**{"max_partition_bytes": split_bytes, "open_cost_bytes": 1, **sizes})
    partitions = planned(store, Selection(("",), recursive=True), limits, reach, tail)[1]
    return sorted(partitions, key=lambda one: (one.parts[0].source.name, one.parts[0].owned.start))


def owned(partitions: list[Partition]) -> list[list[tuple[str, int, int]]]:
    return [
        [(part.source.name, part.owned.start, part.owned.end) for part in partition.parts] for partition in partitions
    ]


@pytest.mark.parametrize(
    ("length", "split_bytes", "ends"), [(64, 20, [16, 32, 48, 64]), (32, 5, [5, 10, 16, 21, 26, 32])]
)
def test_splits_end_where_objects_do_or_are_as_long_as_wanted(
    store: app.Store, length: int, split_bytes: int, ends: list[int]
) -> None:
    fill(store, b"x" * length, cold_bytes=length, seal=True)
    assert owned(partitions_of(store, split_bytes)) == [
        [("s", start, end)] for start, end in zip([0, *ends], ends, strict=False)
    ]


def test_small_segments_share_partitions(store: app.Store) -> None:
    for number in range(100):
        fill(store, b"x" * 4, name=f"d/{number:03}", seal=True)
    partitions = partitions_of(store, 50)
    assert 8 <= len(partitions) <= 12
    assert sorted(part.source.name for one in partitions for part in one.parts) == [f"d/{n:03}" for n in range(100)]


def test_a_reader_gets_what_lies_beside_its_bytes(store: app.Store) -> None:
    fill(store, b"x" * 48, cold_bytes=48, seal=True)
    partitions = partitions_of(store, 16, Reach(before_bytes=2, behind_bytes=5))
    reached = [ByteRange(one.parts[0].extents[0].range.start, one.parts[0].extents[-1].range.end) for one in partitions]
    assert reached == [ByteRange(0, 21), ByteRange(14, 37), ByteRange(30, 48)]
    assert len(partitions_of(store, 1000, min_partitions=4)) == 4, "fewer bytes make as many as wanted"


def test_tails_on_this_disk_alone(store: app.Store) -> None:
    fill(store, b"x" * 24, cold_bytes=16)
    assert owned(partitions_of(store, 100)) == [[("s", 0, 24)]]
    assert owned(partitions_of(store, 100, tail=Tail.COLD_ONLY)) == [[("s", 0, 16)]]
    with pytest.raises(Unavailable, match="segment s: 8 bytes are only in the store's directory") as caught:
        partitions_of(store, 100, tail=Tail.ERROR)
    assert "tail" in str(caught.value.remedy)
    tiers = {
        copy.object.tier
        for one in partitions_of(store, 100, tail=Tail.COLD_ONLY)[0].parts[0].extents
        for copy in one.copies
    }
    assert tiers == {Tier.COLD}


def entries_of(store: app.Store, split_bytes: int) -> list[list[tuple[str, int, int, bytes]]]:
    """Entries by partition: segment, entry id, offset, payload."""
    limits = Sizes(max_partition_bytes=split_bytes, open_cost_bytes=1)
    place, partitions = planned(store, Selection(("ml",)), limits, Reach(cuts_at_entries=True))
    found = []
    for partition in partitions:
        with ScanFetcher(place, PlaceConnections(), tuple(part.source for part in partition.parts)) as fetcher:
            found.append(
                [row for batch in read_entries(fetcher, partition, with_payloads=True) for row in rows_of(batch)]
            )
    return found


def rows_of(batch: EntryBatch) -> Iterator[tuple[int | None, int, int, bytes]]:
    at = 0
    for entry_id, length in enumerate(batch.lengths, batch.first_entry_id):
        yield batch.ledger_id, entry_id, batch.start_offset + at, batch.payloads[at : at + length]
        at += length


@pytest.mark.parametrize("cold", [False, True], ids=["local", "cold"])
@pytest.mark.parametrize("split_bytes", [1, 7, 1000])
def test_entries_once_whatever_their_length(store: app.Store, split_bytes: int, cold: bool) -> None:
    payloads = [b"", b"a", b"bcd", b"", b"", b"efghijklmnop", b"q", b""]
    ids = [names.ledger_id(new_ledger(store, payloads, "ml").rpartition("/")[2]) for _ in range(2)]
    if cold:
        verbs.offload(store, "ml")
        verbs.evict(store, "ml", force=True)
    found = sorted(row for rows in entries_of(store, split_bytes) for row in rows)
    starts = list(accumulate(map(len, payloads), initial=0))
    assert found == [
        (number, entry_id, starts[entry_id], payload) for number in ids for entry_id, payload in enumerate(payloads)
    ]


def test_ledgers_are_cut_between_entries(store: app.Store) -> None:
    new_ledger(store, [b"x" * 5] * 20, "ml")
    partitions = [[entry_id for _, entry_id, _, _ in rows] for rows in entries_of(store, 25)]
    assert len(partitions) == 4
    assert sorted(entry_id for ids in partitions for entry_id in ids) == list(range(20))


def test_parts_know_the_entries_of_the_whole_blocks_they_read(tmp_path: Path) -> None:
    payloads = [b"%020d" % n for n in range(4 * MAX_RUN_ENTRIES)]  # a row of them is shorter than a block
    with store_of(tmp_path / "store", chunk_bytes=1 << 20, object_bytes=1 << 20) as store:
        new_ledger(store, payloads, "ml")
        verbs.offload(store, "ml")
        verbs.evict(store, "ml", force=True)
        found = entries_of(store, CRC_BLOCK_BYTES // 2)
    assert len(found) > 4
    assert sorted(payload for rows in found for *_, payload in rows) == payloads


@pytest.mark.parametrize(("start", "end"), [(0, 3), (1, 3), (2, 9), (3, 4), (3, 3), (8, 100), (100, 200)])
def test_bounds_select_whole_lines(store: app.Store, start: int, end: int) -> None:
    fill(store, b"ab\ncd\nef\ngh", cold_bytes=6)
    options = ReadOptions.of(
        {"store": str(store.path), "path": "s", "startOffset": str(start), "endOffset": str(end), "minPartitions": "1"}
    )
    planned_read = plan_read(options)
    rows = [row for one in planned_read.partitions for row in lines(planned_read.place, one, options.lines)]
    all_lines = [("s", 0, b"ab"), ("s", 3, b"cd"), ("s", 6, b"ef"), ("s", 9, b"gh")]
    assert rows == [row for row in all_lines if start <= row[1] < end]


@pytest.mark.parametrize(("start", "end"), [(None, None), (0, None), (7, 12), (None, 3), (19, 20), (5, 5), (30, None)])
@pytest.mark.parametrize("form", ["milliseconds", "text"])
def test_times_select_entries_as_their_ids_do(tmp_path: Path, form: str, start: int | None, end: int | None) -> None:
    times = [1_700_000_000_000 + number * 1000 for number in range(31)]
    payloads = [published(time_ms) for time_ms in times[:20]]
    with store_of(tmp_path / "store", chunk_bytes=1 << 16, object_bytes=1 << 16) as store:
        new_ledger(store, payloads, "ml")
        verbs.offload(store, "ml")
        verbs.evict(store, "ml", force=True)
        options = {"store": str(store.path), "path": "ml", "type": "entries"}
        for name, bound in (("startingTimestamp", start), ("endingTimestamp", end)):
            if bound is not None:
                at = datetime.fromtimestamp(times[bound] / 1000, UTC)
                options[name] = str(times[bound]) if form == "milliseconds" else at.isoformat()
        planned_read = plan_read(ReadOptions.of(options))
        rows = []
        for partition in planned_read.partitions:
            sources = tuple(part.source for part in partition.parts)
            with ScanFetcher(planned_read.place, PlaceConnections(), sources) as fetcher:
                rows += [
                    row for batch in read_entries(fetcher, partition, with_payloads=True) for row in rows_of(batch)
                ]
    assert [payload for *_, payload in rows] == payloads[slice(start, end)]
    assert [entry_id for _, entry_id, *_ in rows] == list(range(20))[slice(start, end)]


def test_times_select_lines_by_whole_chunks(store: app.Store) -> None:
    fill(store, b"ab\ncd\nef\ngh", cold_bytes=6)
    common = {"store": str(store.path), "path": "s", "minPartitions": "1"}
    kept = {"startingTimestamp": "2020-01-01T00:00:00"}, {"endingTimestamp": "2100-01-01T00:00:00"}
    for times, expected in ((kept[0], 4), (kept[1], 4), ({"startingTimestamp": "2100-01-01T00:00:00"}, 0)):
        options = ReadOptions.of(common | times)
        planned_read = plan_read(options)
        rows = [row for one in planned_read.partitions for row in lines(planned_read.place, one, options.lines)]
        assert len(rows) == expected
    with pytest.raises(InvalidRequest, match="invalid value 'soon' for option endingTimestamp"):
        ReadOptions.of(common | {"endingTimestamp": "soon"})
    for bare in ("0", "1", "1700000000", "20260131"):  # as the command line does
        with pytest.raises(InvalidRequest, match=rf"invalid value '{bare}' for option startingTimestamp"):
            ReadOptions.of(common | {"startingTimestamp": bare})


def test_times_select_lines_by_chunks_that_became_one_object(tmp_path: Path) -> None:
    clock, times = ManualClock(2_000_000_000_000), []  # a store never goes back behind the time of its making
    init_store(tmp_path / "store")
    with app.open_store(tmp_path / "store", clock) as store:
        for number in range(4):
            clock.advance(3600)
            times.append(clock.now_ms())
            append(store, "s", b"line %d\n" % number)
            with store.metadata.read() as txn:
                segment_id = directories.segment_by_name(txn, "s").id
            store.engine.roll(segment_id)
        verbs.offload(store, "s")
        verbs.evict(store, "s", force=True)
        with store.metadata.read() as txn:
            assert directories.segment_by_name(txn, "s").cold.count == 1

        def read(**bounds: int) -> list[int]:
            given = {name: str(time_ms) for name, time_ms in bounds.items()}
            options = ReadOptions.of({"store": str(store.path), "path": "s", **given})
            planned_read = plan_read(options)
            rows = [row for one in planned_read.partitions for row in lines(planned_read.place, one, options.lines)]
            return [int(line[-1:]) for *_, line in rows]

        assert read(endingTimestamp=times[0]) == read(startingTimestamp=times[3] + 1) == []
        for number, time_ms in enumerate(times):
            assert read(startingTimestamp=time_ms) == list(range(number, 4))
            assert read(endingTimestamp=time_ms + 1) == list(range(number + 1))
            assert read(startingTimestamp=time_ms - 1000, endingTimestamp=time_ms + 1000) == [number]


def test_entries_without_times_are_refused_and_empty_ledgers_are_not(tmp_path: Path) -> None:
    with store_of(tmp_path / "store", chunk_bytes=1 << 16, object_bytes=1 << 16) as store:
        new_ledger(store, [], "ml")
        options = {"store": str(store.path), "path": "ml", "type": "messages", "startingTimestamp": "1700000000000"}
        plan_read(ReadOptions.of(options))
        new_ledger(store, [b"text"], "ml")
        with pytest.raises(InvalidRequest, match="have no times: they are not Pulsar's"):
            plan_read(ReadOptions.of(options))


# The first look imports everything: the other user may be unable to go where the project is, such as below /root.
ASKS = """
import os, pickle, sys
from tierfs.pipeline.reader.extents import PlaceConnections
place = pickle.load(sys.stdin.buffer)
connections = PlaceConnections()
assert connections.metadata(place) and connections.sees(place)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
connections = PlaceConnections()
print(connections.metadata(place), connections.sees(place))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has two users")
def test_an_executor_of_another_user_sees_no_store(store: app.Store) -> None:
    """As on a cluster whose workers run as a user of their own: its error is that of the place, and no raw one."""
    append(store, "s", b"one\n")
    place, _ = planned(store, Selection(("s",)), Sizes(), WHOLE)
    for directory in (above for above in store.path.parents if "pytest" in str(above)):
        directory.chmod(0o711)
    asked = subprocess.run(
        [sys.executable, "-c", ASKS], input=pickle.dumps(place), capture_output=True, cwd="/", check=True
    )
    assert asked.stdout.decode().split() == ["None", "False"]
