"""Blocks: golden headers, sizes as Pulsar plans them, and an encoder that yields the plan or nothing."""

from __future__ import annotations

import re
import struct
import weakref
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.ledger import independent
from tests.engine.ledger.objects import (
    DEADLINE_MS,
    NAME,
    frame,
    padding,
    payloads_of,
    read,
    scanned,
    streaming_block,
    write,
)
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.types import MIB
from tierfs.engine.ledger.block_reader import BlockRange, read_entries
from tierfs.engine.ledger.blocks import BlockHeader, BlockPlan, encode_blocks, plan_blocks
from tierfs.engine.ledger.deviations import MAX_MESSAGES, Deviations

HEADER = "fbdbabcb 0000000000000080 0000000000100000 0000000000000d05" + "00" * 100

STREAMING_HEADER = "26a66d32 0000000000000080 0000000000100000 0000000000000d05 000000000000000c" + "00" * 92


@pytest.mark.parametrize(("ledger_id", "golden"), [(None, HEADER), (12, STREAMING_HEADER)], ids=["1", "streaming"])
def test_a_header_has_its_golden_bytes(ledger_id: int | None, golden: str) -> None:
    """DataBlockHeaderTest: a block of 1 MiB that begins with entry 3333."""
    header = BlockHeader(MIB, 3333, ledger_id=ledger_id)
    assert header.encode() == bytes.fromhex(golden)
    assert BlockHeader.decode(header.encode(), "o") == header


@pytest.mark.parametrize("golden", [HEADER, STREAMING_HEADER], ids=["1", "streaming"])
def test_a_header_needs_all_its_bytes(golden: str) -> None:
    """DataBlockHeaderTest: 127 bytes are EOF; so is everything shorter."""
    for size in range(128):
        with pytest.raises(DataLoss, match="o"):
            BlockHeader.decode(bytes.fromhex(golden)[:size], "o")


@pytest.mark.parametrize("length", [-1, 0, 27])
def test_a_header_is_not_shorter_than_its_fields(length: int) -> None:
    with pytest.raises(DataLoss, match="too short"):
        BlockHeader.decode(struct.pack(">Iqqq", 0xFBDBABCB, length, 128, 0).ljust(128, b"\0"), "o")


@pytest.mark.parametrize(
    ("lengths", "max_block_bytes", "blocks"),
    [
        ([65], MIB, [(0, 1, 65, 205, 0)]),
        ([60, 72], MIB, [(0, 2, 132, 284, 0)]),
        ([8] * 161, 3153, [(0, 151, 1208, 3153, 0), (151, 10, 80, 328, 3153)]),
        ([8] * 121, 2148, [(0, 101, 808, 2148, 0), (101, 20, 160, 528, 2148)]),
        ([10, 0, 10], 162, [(0, 2, 10, 162, 0), (2, 1, 10, 150, 162)]),
        ([10, 1, 10], 162, [(0, 1, 10, 162, 0), (1, 1, 1, 162, 162), (2, 1, 10, 150, 324)]),
        ([], MIB, []),
    ],
    ids=["fixture-of-205", "fixture-of-284", "testHaveEndPadding", "testNoEndPadding", "fits", "one-more", "empty"],
)
def test_blocks_have_the_sizes_that_pulsar_plans(
    lengths: list[int], max_block_bytes: int, blocks: list[tuple[int, ...]]
) -> None:
    """BlockAwareSegmentInputStreamTest: first entry, entries, payload, size and offset of each block."""
    assert plan_blocks(lengths, max_block_bytes) == [BlockPlan(*block) for block in blocks]


@settings(deadline=DEADLINE_MS)
@given(st.lists(st.integers(0, 100), max_size=60), st.integers(240, 2000))
def test_sizes_are_those_of_pulsars_formula(lengths: list[int], max_block_bytes: int) -> None:
    written_bytes = 0
    for plan in plan_blocks(lengths, max_block_bytes):
        left = len(lengths) - plan.first_entry_id
        assert plan.length_bytes == min(max_block_bytes, left * 12 + sum(lengths) - written_bytes + 128)
        written_bytes += plan.payload_bytes
    assert written_bytes == sum(lengths)


@pytest.mark.parametrize("lengths", [[1000], [1, 1000], [1, 989]], ids=["testNoEntryPutIn", "second", "one-too-long"])
def test_an_entry_that_fits_no_block_is_refused_before_anything_is_written(lengths: list[int]) -> None:
    """testNoEntryPutIn: 1000 bytes in blocks of 1128. Pulsar writes a short object and reports success."""
    with pytest.raises(InvalidRequest, match=f"entry {len(lengths) - 1} of {lengths[-1]} bytes does not fit") as error:
        plan_blocks(lengths, 1128)
    assert error.value.remedy == f"use blocks of at least {lengths[-1] + 140} bytes"


@pytest.mark.parametrize("max_block_bytes", [-1, 0, 139, 2**31])
def test_impossible_block_sizes_are_refused(max_block_bytes: int) -> None:
    with pytest.raises(InvalidRequest, match="a block has 140 to 2147483647 bytes"):
        plan_blocks([0], max_block_bytes)


@pytest.mark.parametrize("size", range(41))
def test_padding_of_every_length(size: int) -> None:
    """It begins with its first byte after the last entry, and is cut at the end of the block."""
    ledger = write([b"x" * 7, b"y" * size], 147 + size)
    assert ledger.blocks[0] == bytes.fromhex(
        f"fbdbabcb 0000000000000080 {147 + size:016x} 0000000000000000 {'00' * 100}"
        "00000007 0000000000000000 78787878787878"
    ) + padding(size)
    assert payloads_of(read(ledger.data, ledger.index.blocks())[0]) == ledger.payloads


PAYLOADS = [b"0" * 50, b"1" * 50, b"2" * 50]


@pytest.mark.parametrize(
    ("entries", "message", "blocks"),
    [
        ([(0, b"0" * 50)], "entry 1 was planned, but is missing", 1),
        ([(0, b"0" * 50), (2, b"2" * 50)], "entry 1 was planned, but is entry 2", 1),
        ([(0, b"0" * 51), (1, b"1" * 50)], "entry 0 was planned, but is entry 0 of 51 bytes", 0),
        ([(0, b"0" * 49), (1, b"1" * 50)], "entries from 0 on do not have the lengths that were planned", 0),
        ([*enumerate(PAYLOADS), (3, b"")], "entry 3 follows the last one that was planned", 2),
    ],
    ids=["missing", "skipped", "longer", "shorter", "more"],
)
def test_entries_other_than_planned_are_refused_before_the_last_block(
    entries: list[tuple[int, bytes]], message: str, blocks: int
) -> None:
    encoder = encode_blocks(entries, plan_blocks([50, 50, 50], 190))
    assert [len(next(encoder)) for _ in range(blocks)] == [190] * blocks
    with pytest.raises(InvalidRequest, match=message):
        next(encoder)


def test_entries_of_an_empty_ledger_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="entry 0 follows"):
        list(encode_blocks([(0, b"")], []))
    assert list(encode_blocks([], [])) == []


class Payload(bytearray):
    """Bytes whose end can be watched."""


def test_only_the_entries_of_one_block_are_held() -> None:
    """testCloseReleaseResources: nothing is read ahead, and nothing of a block is kept once it was yielded."""
    alive: list[weakref.ref[Payload]] = []

    def entries() -> Iterator[tuple[int, Payload]]:
        for entry_id in range(9):
            payload = Payload(50)
            alive.append(weakref.ref(payload))
            yield entry_id, payload
            del payload

    encoder = encode_blocks(entries(), plan_blocks([50] * 9, 128 + 3 * 62))
    next(encoder)
    assert len(alive) == 3
    next(encoder)
    assert [ref() for ref in alive[:5]] == [None] * 5
    encoder.close()
    assert [ref() for ref in alive] == [None] * 6


@settings(deadline=DEADLINE_MS)
@given(st.lists(st.binary(max_size=80), max_size=40), st.integers(220, 900))
def test_what_is_written_is_read(payloads: list[bytes], max_block_bytes: int) -> None:
    """Of both decoders; the sizes of the blocks make up the object, and each block can be read alone."""
    ledger = write(payloads, max_block_bytes)
    assert sum(map(len, ledger.blocks)) == ledger.index.data_object_length == len(ledger.data)
    assert independent.decode_ledger(ledger.index_bytes, ledger.data) == payloads
    entries, deviations = read(ledger.data, ledger.index.blocks(), piece_bytes=97)
    assert (payloads_of(entries), deviations) == (payloads, [])
    assert [entry.entry_id for entry in entries] == list(range(len(payloads)))
    for entry in entries:
        assert ledger.data[entry.offset : entry.offset + len(entry.payload)] == entry.payload


AWKWARD = [
    bytes(range(128, 256)),
    bytes.fromhex("fedcdead" * 3),
    bytes.fromhex("fbdbabcb") + bytes(124),
    bytes.fromhex("26a66d32") + bytes(124),
    b"",
]
"""Payloads that look like padding, headers or nothing."""


def scan(data: bytes) -> tuple[list[bytes], list[str]]:
    """Return the payloads of an object without an index, and the deviations."""
    deviations = Deviations()
    return [entry.payload for entry in scanned([data], NAME, deviations)], deviations.messages


@pytest.mark.parametrize("block_bytes", [280, 20128])
def test_bytes_that_look_like_padding_or_headers_are_payload(block_bytes: int) -> None:
    """testOnlyNegativeOnEOF, testOnlyNegativeOnEOFWithBufferedRead: only the end is the end."""
    ledger = write([*AWKWARD, b"\xfe" * 100], block_bytes)
    assert payloads_of(read(ledger.data, ledger.index.blocks())[0]) == ledger.payloads
    assert scan(ledger.data) == (ledger.payloads, [])


ONE = write([b"one", b"two"], 400)
"""One block: 128 + 2 * 15 bytes."""

SPAN = ONE.index.blocks()[0]


@pytest.mark.parametrize(
    ("head", "deviation"),
    [
        (bytes(128), "00000000, which is not its magic word; it is at 0"),
        (b"\xff" * 128, "ffffffff, which is not its magic word"),
        (BlockHeader(159, 0).encode(), "the header of the block at 0 has magic word fbdbabcb, .* block length 159"),
        (BlockHeader(158, 9).encode(), "first entry 9"),
        (BlockHeader(158, 0, 130).encode(), "header length 130"),
        (BlockHeader(158, 0, ledger_id=5).encode(), "ledger 5"),
        (BlockHeader(158, 0).encode()[:127] + b"x", "does not end with zeros"),
    ],
    ids=["zeros", "ones", "length", "first", "header", "streaming", "reserved"],
)
def test_headers_are_not_needed_with_an_index(head: bytes, deviation: str) -> None:
    entries, (found,) = read(head + ONE.data[128:], [SPAN])
    assert payloads_of(entries) == [b"one", b"two"]
    assert re.search(deviation, found)


def one_block(end: bytes, length_bytes: int = 0) -> bytes:
    """ONE with something behind its entries."""
    return BlockHeader(length_bytes or 158 + len(end), 0).encode() + ONE.data[128:] + end


NOT_PADDING = f"{NAME}: the block at 0 ends with bytes other than padding"
TOP_BITS = [b"\x80", b"\xff\xff\xff\xff", b"\xfe" * 9, b"\xdc\xde\xad\xfe", b"\x80" + bytes(40)]
JUNK = [b"\0", b"dirty data", b"\x7f" * 11, bytes(12), frame(2, b"more"), frame(9, b"")]
REPEATED = bytes(128) + frame(0, b"one") + frame(0, b"uno") + frame(1, b"two") + frame(1, b"due")
NO_HEADER = "the header of the block at 0"

ACCEPTED: list[tuple[bytes, BlockRange, list[str]]] = [
    # Headers of other lengths.
    *(
        (b"h" * size + ONE.data[128:], replace(SPAN, header_bytes=size, length_bytes=size + 30), [NO_HEADER])
        for size in (0, 5, 28, 200)
    ),
    # A reader that does not know how many entries there are stops at a top bit, and notes that it is not Pulsar's.
    *((one_block(end), replace(SPAN, entries=None, length_bytes=158 + len(end)), [NOT_PADDING]) for end in TOP_BITS),
    # BlobStoreBackedReadHandleImplTest.testRead: dirty bytes between entries, each the start of a block.
    *((one_block(end) + ONE.data, replace(SPAN, length_bytes=158 + len(end)), [NOT_PADDING]) for end in JUNK),
    (
        one_block(padding(7), 200),
        replace(SPAN, length_bytes=200),
        [f"{NAME} ends at 165, within the padding of the block at 0"],
    ),
    (
        REPEATED,
        BlockRange(0, len(REPEATED), 0, 2),
        [NO_HEADER, f"{NAME}: entry 0 is repeated at 155", NOT_PADDING],
    ),
]


@pytest.mark.parametrize(("data", "span", "expected"), ACCEPTED)
def test_what_pulsars_reader_accepts_is_read_and_noted(data: bytes, span: BlockRange, expected: list[str]) -> None:
    entries, deviations = read(data, [span])
    assert payloads_of(entries) == [b"one", b"two"]
    assert len(deviations) == len(expected)
    for deviation, words in zip(deviations, expected, strict=True):
        assert words in deviation or words == NO_HEADER


@pytest.mark.parametrize(
    ("body", "entries", "message"),
    [
        (frame(0, b"one"), 2, "entry 1 is missing: the entries of the block at 0 end before it"),
        (frame(0, b"one") + padding(9), 2, "entry 1 is missing"),
        (frame(0, b"one") + padding(40), 2, "entry 1 is missing"),
        (padding(100), 1, "entry 0 is missing"),
        (frame(0, b"one") + frame(2, b"two"), 3, "entry 2 is at 155, where entry 1 is expected"),
        (frame(0, b"one") + frame(-1, b""), 2, "entry -1 is at 155, where entry 1 is expected"),
        (frame(1, b"one"), 1, "entry 1 is at 140, where entry 0 is expected"),
        (frame(0, b"one")[:-1], 1, "entry 0 of 3 bytes extends past the end of the block at 0"),
        (b"\x7f\xff\xff\xff" + bytes(8), 1, "entry 0 of 2147483647 bytes extends past the end"),
        (frame(0, b"one") + bytes(11), None, "entry 1 is cut: the block at 0 ends within its frame"),
        (frame(0, b"one") + bytes(3), 2, "entry 1 is missing"),
    ],
)
def test_missing_entries_end_the_reader(body: bytes, entries: int | None, message: str) -> None:
    """Pulsar's reader would seek to the same block again, forever."""
    with pytest.raises(DataLoss, match=f"^{NAME}: {message}"):
        read(bytes(128) + body, [BlockRange(0, 128 + len(body), 0, entries)])


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([replace(SPAN, header_bytes=-1)], NAME),
        ([replace(SPAN, header_bytes=159)], NAME),
        ([replace(SPAN, header_bytes=2**62)], NAME),
        ([replace(SPAN, offset=-1)], NAME),
        ([replace(SPAN, length_bytes=-5)], NAME),
        ([SPAN, replace(SPAN, offset=100, first_entry_id=2)], "the block at 100 starts before the previous block"),
    ],
)
def test_impossible_and_overlapping_spans_end_the_reader(spans: list[BlockRange], message: str) -> None:
    with pytest.raises(DataLoss, match=message):
        read(ONE.data, spans)


@pytest.mark.parametrize("last_entry_id", [0, 1])
def test_entries_beyond_the_last_are_left_out(last_entry_id: int) -> None:
    ledger = write([b"x" * 50] * 4, 260)
    index = replace(ledger.index, metadata=replace(ledger.index.metadata, last_entry_id=last_entry_id))
    entries, deviations = read(ledger.data, index.blocks())
    assert [entry.entry_id for entry in entries] == list(range(last_entry_id + 1))
    assert deviations[-1] == f"{NAME}: the block at 260 starts with an entry after the ledger's last"


def test_deviations_are_counted_and_not_kept_without_end() -> None:
    data = bytes(128) + frame(0, b"") + frame(0, b"") * 1000 + frame(1, b"")
    deviations = Deviations()
    assert len(list(read_entries([data], [BlockRange(0, len(data), 0, 2)], NAME, deviations))) == 2
    assert (deviations.count, len(deviations.messages)) == (1001, MAX_MESSAGES)


STREAMED = (
    streaming_block(3, 7, [b"a", b"bb", *AWKWARD], 720)
    + streaming_block(3, 14, [b"c"], 141)
    + streaming_block(4, 0, [b"d"], 151)
)


def test_blocks_of_the_streaming_form() -> None:
    """BufferedOffloadStreamTest: testHavePadding (10 bytes) and testNoPadding, with and without an index."""
    spans = [BlockRange(0, 720, 7, 7, ledger_id=3), BlockRange(720, 141, 14, None, ledger_id=3)]
    entries, deviations = read(STREAMED, spans)
    assert ([entry.entry_id for entry in entries], deviations) == (list(range(7, 15)), [])
    assert read(STREAMED, [BlockRange(861, 151, 0, None, ledger_id=4)]) == ([(0, b"d", 1001)], [])
    assert scan(STREAMED) == ([b"a", b"bb", *AWKWARD, b"c", b"d"], [])


def test_another_ledgers_block_is_never_read() -> None:
    with pytest.raises(DataLoss, match="the block at 861 is of ledger 4, not 3"):
        read(STREAMED, [BlockRange(861, 151, 0, None, ledger_id=3)])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (ONE.data + b"x", "it ends at 159, bytes up to 186 are missing"),
        (ONE.data + bytes(128), "a block starts with 00000000"),
        (ONE.data + ONE.data, "the block at 158 starts with entry 0, not 2"),
        (BlockHeader(159, 0).encode() + ONE.data[128:], "the block at 0 cannot have 159 bytes"),
        (BlockHeader(100, 0).encode() + ONE.data[128:], "the block at 0 cannot have 100 bytes"),
        (BlockHeader(158, 0, 2**40).encode() + ONE.data[128:], "the block at 0 cannot have 158 bytes"),
        (BlockHeader(158, 1).encode() + ONE.data[128:], "entry 0 is at 140, where entry 1 is expected"),
    ],
    ids=["junk", "zeros", "again", "long", "short", "header", "first"],
)
def test_a_scan_ends_where_headers_do_not_fit(data: bytes, message: str) -> None:
    with pytest.raises(DataLoss, match=f"^{NAME}: {message}"):
        scan(data)
