"""Indexes: golden bytes, lookups, deviations and refusals."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.ledger.objects import DEADLINE_MS, closed, payloads_of, read, streaming_block, streaming_index, write
from tests.engine.ledger.test_metadata import METADATA, METADATA_GOLDEN
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.types import MIB
from tierfs.engine.ledger.block_reader import BlockRange
from tierfs.engine.ledger.deviations import Deviations
from tierfs.engine.ledger.index import IndexEntry, LedgerIndex, StreamingIndex
from tierfs.engine.ledger.index_codec import MAX_INDEX_BYTES, decode_index, encode_index
from tierfs.engine.ledger.metadata import LedgerInfo, LedgerState

BLOCKS = (IndexEntry(0, 2, 0), IndexEntry(1000, 3, 64 * MIB), IndexEntry(2000, 4, 128 * MIB))
INDEX = LedgerIndex(METADATA, 1, BLOCKS, 23455)
"""OffloadIndexTest.offloadIndexBlockImplTest: blocks of 64 MiB, the last entry is 5000."""

METADATA_BYTES = len(bytes.fromhex(METADATA_GOLDEN))
GOLDEN = (
    f"de47de47 {32 + METADATA_BYTES + 60:08x} 0000000000000001 0000000000005b9f 00000003 {METADATA_BYTES:08x}"
    f"{METADATA_GOLDEN}"
    "0000000000000000 00000002 0000000000000000"
    "00000000000003e8 00000003 0000000004000000"
    "00000000000007d0 00000004 0000000008000000"
)


def decoded(data: bytes) -> tuple[LedgerIndex | StreamingIndex, list[str]]:
    """Return the index in an object, and the deviations."""
    deviations = Deviations()
    return decode_index(data, "i", deviations), deviations.messages


def test_an_index_has_its_golden_bytes() -> None:
    """offloadIndexBlockImplTest: written, and read to its last byte."""
    assert encode_index(INDEX) == bytes.fromhex(GOLDEN)
    assert decoded(encode_index(INDEX)) == (INDEX, [])


@pytest.mark.parametrize(
    ("entry_id", "block"), [(0, 0), (500, 0), (999, 0), (1000, 1), (1300, 1), (2000, 2), (3000, 2), (5000, 2)]
)
def test_an_entry_is_in_the_last_block_that_begins_before_it(entry_id: int, block: int) -> None:
    """offloadIndexBlockImplTest."""
    assert INDEX.find(entry_id) == BLOCKS[block]


@pytest.mark.parametrize("entry_id", [-1, 5001, 6000])
def test_entries_that_the_ledger_does_not_have(entry_id: int) -> None:
    """offloadIndexBlockImplTest: entry 6000 is out of range."""
    with pytest.raises(InvalidRequest, match=f"entry {entry_id} is not in the ledger, whose last entry is 5000"):
        INDEX.find(entry_id)


def test_an_entry_in_front_of_all_blocks_is_lost() -> None:
    with pytest.raises(DataLoss, match="no block of the index contains entry 3"):
        replace(INDEX, entries=BLOCKS[1:]).find(3)


def test_an_index_needs_all_its_bytes() -> None:
    """offloadIndexBlockImplTest: cut by one byte; and by more."""
    data = encode_index(INDEX)
    for size in range(len(data)):
        with pytest.raises(DataLoss, match=r"^i: "):
            decoded(data[:size])


def test_what_pulsar_does_not_look_at_is_noted() -> None:
    """Bytes after the index, and its own record of its length."""
    data = encode_index(INDEX)
    assert decoded(data + b"more") == (INDEX, [f"i: the index has {len(data) + 4} bytes, but says {len(data)}"])
    assert decoded(data[:4] + bytes(4) + data[8:]) == (INDEX, [f"i: the index has {len(data)} bytes, but says 0"])


def test_blocks_out_of_order_are_sorted_and_the_first_of_two_counts() -> None:
    """As in the map that Pulsar reads them into."""
    rows = [(1000, 3, 300), (0, 2, 0), (1000, 9, 999)]
    index, deviations = decoded(raw(rows))
    assert isinstance(index, LedgerIndex)
    assert index.entries == (IndexEntry(0, 2, 0), IndexEntry(1000, 3, 300))
    assert deviations == ["i: its blocks are not in the order of their entries, or are repeated"]


def raw(rows: list[tuple[int, int, int]], count: int | None = None, metadata_bytes: int | None = None) -> bytes:
    """An index of format 1 with any rows and counts."""
    metadata = METADATA.encode()
    count = len(rows) if count is None else count
    metadata_bytes = len(metadata) if metadata_bytes is None else metadata_bytes
    body = metadata + b"".join(struct.pack(">qiq", *row) for row in rows)
    return struct.pack(">IIqqii", 0xDE47DE47, 32 + len(body), 500, 128, count, metadata_bytes) + body


@pytest.mark.parametrize(
    ("count", "metadata_bytes"), [(2, None), (2**31 - 1, None), (-1, None), (0, 2**31 - 1), (0, -1), (-1, 2**31 - 1)]
)
def test_counts_that_the_object_has_no_bytes_for(count: int, metadata_bytes: int | None) -> None:
    with pytest.raises(DataLoss, match=f"^i: {count} blocks and"):
        decoded(raw([(0, 1, 0)], count, metadata_bytes))


def test_a_huge_index_is_refused() -> None:
    with pytest.raises(DataLoss, match=f"is more than {MAX_INDEX_BYTES}"):
        decoded(encode_index(INDEX).ljust(MAX_INDEX_BYTES + 1, b"\0"))


@pytest.mark.parametrize(
    "entries",
    [
        (BLOCKS[1], BLOCKS[0]),
        (BLOCKS[0], BLOCKS[0]),
        (IndexEntry(2**63, 1, 0),),
        (IndexEntry(0, 2**31, 0),),
        (IndexEntry(0, 1, 2**63),),
    ],
    ids=["order", "twice", "id", "part", "offset"],
)
def test_indexes_that_cannot_be_read_again_are_not_written(entries: tuple[IndexEntry, ...]) -> None:
    with pytest.raises(InvalidRequest):
        encode_index(replace(INDEX, entries=entries))


def test_spans_follow_the_offsets_and_not_the_order() -> None:
    index = LedgerIndex(closed(9, 0), 900, (IndexEntry(0, 1, 500), IndexEntry(4, 2, 0), IndexEntry(6, 3, 1000)))
    assert index.blocks() == [BlockRange(500, 400, 0, 4), BlockRange(0, 500, 4, 2), BlockRange(1000, 0, 6, 3)]


@pytest.mark.parametrize(
    ("change", "object_bytes", "message"),
    [
        ({}, 709, "o has 709 of the 710 bytes in its index"),
        ({}, 260, "o has 260 of the 710 bytes in its index"),
        ({"entries": ()}, 710, "o: entries 0 to 4 are in no block of the index"),
        ({"entries": (IndexEntry(1, 1, 0),)}, 710, "o: entry 0 is in no block of the index"),
        ({"entries": (IndexEntry(2, 1, 0),)}, 710, "o: entries 0 to 1 are in no block of the index"),
        ({"entries": (IndexEntry(9, 1, 0),)}, 710, "o: entries 0 to 4 are in no block of the index"),
    ],
)
def test_an_object_that_cannot_hold_the_ledger(change: dict[str, object], object_bytes: int, message: str) -> None:
    index = replace(write([b"x" * 50] * 5, 260).index, **change)
    with pytest.raises(DataLoss, match=f"^{message}"):
        index.check(object_bytes, "o", Deviations())


def test_what_is_odd_of_an_object_is_noted() -> None:
    index, deviations = write([b"x" * 50] * 5, 260).index, Deviations()
    index.check(710, "o", deviations)
    assert deviations.count == 0
    replace(index, metadata=replace(index.metadata, state=LedgerState.OPEN)).check(711, "o", deviations)
    assert deviations.messages == [
        "o has 711 bytes, its index has 710",
        "o: its ledger was offloaded while it was OPEN",
    ]
    LedgerIndex(closed(0, 0), 0, ()).check(0, "o", deviations)
    LedgerIndex(closed(0, 0), 0, (IndexEntry(3, 1, 0),)).check(0, "o", deviations)
    assert deviations.count == 2


@settings(deadline=DEADLINE_MS)
@given(st.lists(st.binary(max_size=80), min_size=1, max_size=40), st.integers(220, 900), st.data())
def test_a_lookup_and_a_skip_find_every_entry(payloads: list[bytes], max_block_bytes: int, data: st.DataObject) -> None:
    ledger = write(payloads, max_block_bytes)
    assert decoded(ledger.index_bytes) == (ledger.index, [])
    wanted = data.draw(st.integers(0, len(payloads) - 1))
    at = ledger.index.find(wanted).offset + ledger.index.data_header_length
    while True:
        length, entry_id = struct.unpack(">iq", ledger.data[at : at + 12])
        if entry_id == wanted:
            break
        at += 12 + length
    assert ledger.data[at + 12 : at + 12 + length] == payloads[wanted]


INFO_1 = LedgerInfo(ledger_id=1, entries=5001, size=10000)
INFO_2 = LedgerInfo(ledger_id=2, entries=5001, size=10000)


def test_golden_bytes_of_the_streaming_form() -> None:
    """OffloadIndexV2Test.streamingOffloadIndexBlockImplTest."""
    data = bytes.fromhex(
        "3d1fb0bc 0000006c 0000000000000001 0000000000005b9f"
        "0000000000000001 00000003 00000008 0801108927 18904e"
        "0000000000000000 00000002 0000000000000000"
        "00000000000003e8 00000003 0000000004000000"
        "00000000000007d0 00000004 0000000008000000"
    )
    assert data == streaming_index(1, [(INFO_1, [(0, 2, 0), (1000, 3, 64 * MIB), (2000, 4, 128 * MIB)])], 23455)
    index, deviations = decoded(data)
    assert isinstance(index, StreamingIndex)
    assert (index.data_object_length, index.data_header_length, deviations) == (1, 23455, [])
    section = index.section(1)
    assert (section.info, section.entries) == (INFO_1, BLOCKS)
    assert [section.find(n).part_id for n in (0, 500, 1000, 1300, 2000, 3000)] == [2, 2, 3, 3, 4, 4]
    with pytest.raises(InvalidRequest, match="entry 6000 is not in the ledger, whose last entry is 5000"):
        section.find(6000)


def test_several_ledgers_in_one_object() -> None:
    """OffloadIndexV2Test.streamingMultiLedgerOffloadIndexBlockImplTest."""
    data = streaming_index(1, [(INFO_1, [(1000, 2, 0)]), (INFO_2, [(0, 3, 64 * MIB), (1000, 4, 128 * MIB)])])
    index, deviations = decoded(data)
    assert isinstance(index, StreamingIndex)
    assert deviations == []
    assert [index.section(1).find(n).offset for n in (1000, 1500)] == [0, 0]
    assert [index.section(2).find(n).part_id for n in (0, 300, 1000, 2000)] == [3, 3, 4, 4]
    with pytest.raises(DataLoss, match="no block of the index contains entry 999"):
        index.section(1).find(999)
    with pytest.raises(InvalidRequest, match="ledger 3 is not in this index"):
        index.section(3)
    first_section_end = 24 + 16 + 8 + 20
    for size in {*range(25, len(data))} - {first_section_end}:
        with pytest.raises(DataLoss, match=r"^i: "):
            decoded(data[:size])


FOUR_IN_TWO_BLOCKS = (
    streaming_block(1, 0, [b"a", b"b"], 154) + streaming_block(1, 2, [b"c", b"d"], 160),
    [(0, 1, 0), (2, 2, 154)],
)
"""Ledger 1 in a data object, and the rows of its blocks."""


@pytest.mark.parametrize("recorded", [0, 1, 2, 3, 4, 9])
def test_a_ledger_ends_at_its_record_or_goes_on_in_another_object(recorded: int) -> None:
    """As in Pulsar's reader, which takes none beyond the last one of the record."""
    data, rows = FOUR_IN_TWO_BLOCKS
    index, _ = decoded(streaming_index(len(data), [(replace(INFO_1, entries=recorded), rows)]))
    assert isinstance(index, StreamingIndex)
    assert payloads_of(read(data, index.blocks(1))[0]) == [b"a", b"b", b"c", b"d"][:recorded]


def test_sections_that_contradict_each_other() -> None:
    data = streaming_index(1, [(INFO_1, [(0, 1, 0)]), (INFO_1, [(9, 2, 0)])])
    index, deviations = decoded(data)
    assert isinstance(index, StreamingIndex)
    assert index.section(1).entries == (IndexEntry(9, 2, 0),)
    assert deviations == ["i: a section of ledger 1 repeats it or describes 1"]
