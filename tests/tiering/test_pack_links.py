"""Links of appends to their pack: the quick way writes what the other one writes, or leaves it to that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.engine.segments.test_append import rows_after
from tests.stores import TestStore
from tierfs.base.bytes.byte_times import TimedBytes
from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.base.words.types import ByteRange, LocationId, ObjectId, SegmentId, Tier
from tierfs.engine.metadata import chains, tables
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.tiering.packs.format import PackEntry
from tierfs.tiering.packs.links import PackLinks

PACK = ObjectRecord(
    id=ObjectId(1000), tier=Tier.COLD, location_id=LocationId(1), name="packs/1", length=1 << 20, etag="etag"
)

Link = Callable[[PackLinks, WriteTransaction, PackEntry], None]


def quickly(links: PackLinks, _txn: WriteTransaction, entry: PackEntry) -> None:
    links.append(entry)


def by_editor(links: PackLinks, txn: WriteTransaction, entry: PackEntry) -> None:
    segment = txn.must_get(SEGMENTS, tables.u64(entry.segment_id), "the segment")
    links.add(links.newest(segment), entry, (TimedBytes(entry.length, txn.now_ms, txn.now_ms),))


def linked(txn: WriteTransaction, way: Link, held: Sequence[PackEntry]) -> None:
    links = PackLinks(txn, PACK)
    for entry in held:
        way(links, txn, entry)
    links.end()


def entries_of(segment_id: SegmentId, *held: tuple[int, int]) -> list[PackEntry]:
    """One for each start and end, in one pack."""
    return [PackEntry(segment_id, "s", start, end - start, 100 * at, 7 + at) for at, (start, end) in enumerate(held)]


@pytest.fixture
def segment_id(store: TestStore) -> SegmentId:
    """A segment whose first three bytes are cold, and seven are not."""
    store.append("s", b"abc")
    store.offload()
    store.append("s", b"defghij")
    return store.segment("s").id


@pytest.mark.parametrize(
    "held",
    [
        [(3, 10)],
        [(3, 4)],
        [(5, 10)],
        [(3, 5), (6, 10)],
        [(6, 10), (3, 5)],
        [(9, 10), (5, 7), (3, 5)],
        [(5, 7), (9, 10), (3, 5)],
    ],
)
@pytest.mark.parametrize("first", ["cold", "lost", "not there"])
def test_the_quick_way_writes_the_rows_of_the_other_one(
    store: TestStore, segment_id: SegmentId, held: list[tuple[int, int]], first: str
) -> None:
    with store.metadata.write() as txn:
        editor = Editor(txn, txn.must_get(SEGMENTS, tables.u64(segment_id), "the segment"))
        if first == "lost":
            editor.lose(ByteRange(0, 3))
        elif first == "not there":
            chunks = list(chains.chunks(txn, segment_id, Tier.COLD))
            editor.swap(Tier.COLD, chunks, (), due_ms=None)
        txn.put(SEGMENTS, tables.u64(segment_id), editor.segment)
    entries = entries_of(segment_id, *held)
    quick, edited = (
        rows_after(store.metadata, lambda txn, way=way: linked(txn, way, entries)) for way in (quickly, by_editor)
    )
    assert quick == edited


@pytest.mark.parametrize("way", [quickly, by_editor])
@pytest.mark.parametrize("held", [(2, 10), (0, 3), (1, 2)])
def test_bytes_that_are_linked_already_are_refused(
    store: TestStore, segment_id: SegmentId, way: Link, held: tuple[int, int]
) -> None:
    before = store.segment("s")
    with pytest.raises(DataLoss), store.metadata.write() as txn:
        linked(txn, way, entries_of(segment_id, held))
    assert store.segment("s") == before


@pytest.mark.parametrize("way", [quickly, by_editor])
def test_a_segment_that_is_gone_is_refused(store: TestStore, way: Link) -> None:
    with pytest.raises(NotFound), store.metadata.write() as txn:
        linked(txn, way, [replace(entry, segment_id=SegmentId(999)) for entry in entries_of(SegmentId(1), (0, 1))])
