"""Blocks: golden headers, sizes as Pulsar plans them, and an encoder that yields the plan or nothing."""

from __future__ import annotations

import struct
import weakref
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ledger import independent
from tests.ledger.objects import DEADLINE_MS, frame, padding, payloads_of, read, write
from tierfs.errors import DataLoss, InvalidRequest
from tierfs.ledger.blocks import BlockHeader, BlockPlan, encode_blocks, plan_blocks
from tierfs.types import MIB

HEADER = "fbdbabcb 0000000000000080 0000000000100000 0000000000000d05" + "00" * 100
STREAMING_HEADER = "26a66d32 0000000000000080 0000000000100000 0000000000000d05 000000000000000c" + "00" * 92


@pytest.mark.parametrize(("ledger_id", "golden"), [(None, HEADER), (12, STREAMING_HEADER)], ids=["1", "streaming"])
def test_golden_header(ledger_id: int | None, golden: str) -> None:
    """DataBlockHeaderTest: a block of 1 MiB that begins with entry 3333."""
    header = BlockHeader(MIB, 3333, ledger_id=ledger_id)
    assert header.encode() == bytes.fromhex(golden)
    assert BlockHeader.decode(header.encode(), "o") == header


def test_zeros_are_no_header() -> None:
    """DataBlockHeaderTest: bad magic."""
    with pytest.raises(DataLoss, match="o: a block begins with 00000000, which is not its magic word"):
        BlockHeader.decode(bytes(128), "o")


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


def test_headers_of_other_lengths_are_read() -> None:
    data = struct.pack(">Iqqq", 0xFBDBABCB, 130, 200, 5).ljust(130, b"x")
    assert BlockHeader.decode(data, "o") == BlockHeader(200, 5, 130)


def test_numbers_that_do_not_fit_a_header_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="cannot be encoded"):
        BlockHeader(2**63, 0).encode()


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
def test_planned_sizes(lengths: list[int], max_block_bytes: int, blocks: list[tuple[int, ...]]) -> None:
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


def test_the_block_with_end_padding() -> None:
    """testHaveEndPadding: 151 entries of 8 bytes in 3153 bytes leave 5 of padding."""
    ledger = write([bytes([n % 256]) * 8 for n in range(161)], 3153)
    assert len(ledger.blocks[0]) == 3153
    assert ledger.blocks[0].endswith(frame(150, b"\x96" * 8) + bytes.fromhex("fedcdeadfe"))
    assert independent.decode_ledger(ledger.index_bytes, ledger.data) == ledger.payloads


def test_the_block_without_end_padding() -> None:
    """testNoEndPadding: 101 entries of 8 bytes fill 2148 bytes."""
    ledger = write([b"\1" * 8] * 121, 2148)
    assert ledger.blocks[0].endswith(frame(100, b"\1" * 8))
    assert independent.decode_blocks(ledger.data)[0].padding == b""


@pytest.mark.parametrize("lengths", [[1000], [1, 1000], [1, 989]], ids=["testNoEntryPutIn", "second", "one-too-long"])
def test_an_entry_that_fits_no_block_is_refused_before_anything_is_written(lengths: list[int]) -> None:
    """testNoEntryPutIn: 1000 bytes in blocks of 1128. Pulsar writes a short object and reports success."""
    with pytest.raises(InvalidRequest, match=f"entry {len(lengths) - 1} of {lengths[-1]} bytes does not fit") as error:
        plan_blocks(lengths, 1128)
    assert error.value.remedy == f"use blocks of at least {lengths[-1] + 140} bytes"


def test_an_entry_may_have_all_of_a_block_but_140_bytes() -> None:
    ledger = write([b"a", b"b" * 988, b"c"], 1128)
    assert [len(block) for block in ledger.blocks] == [1128, 1128, 141]
    assert independent.decode_ledger(ledger.index_bytes, ledger.data) == ledger.payloads


@pytest.mark.parametrize("max_block_bytes", [-1, 0, 139, 2**31])
def test_impossible_block_sizes_are_refused(max_block_bytes: int) -> None:
    with pytest.raises(InvalidRequest, match="a block has 140 to 2147483647 bytes"):
        plan_blocks([0], max_block_bytes)


def test_negative_lengths_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="entry 1 has a length of -1"):
        plan_blocks([0, -1], 200)


@pytest.mark.parametrize("size", range(41))
def test_padding_of_every_length(size: int) -> None:
    """It begins with its first byte after the last entry, and is cut at the end of the block."""
    ledger = write([b"x" * 7, b"y" * size], 147 + size)
    assert ledger.blocks[0] == bytes.fromhex(
        f"fbdbabcb 0000000000000080 {147 + size:016x} 0000000000000000 {'00' * 100}"
        "00000007 0000000000000000 78787878787878"
    ) + padding(size)
    assert payloads_of(read(ledger.data, ledger.index.spans())[0]) == ledger.payloads


@pytest.mark.parametrize(
    "payloads",
    [[b""], [b""] * 30, [b"", b"x", b""], [b"x" * 60, b""]],
    ids=["one", "many", "around", "last"],
)
def test_entries_without_bytes(payloads: list[bytes]) -> None:
    ledger = write(payloads, 200)
    assert independent.decode_ledger(ledger.index_bytes, ledger.data) == payloads
    assert read(ledger.data, ledger.index.spans())[0][0].offset == 140


def test_a_hundred_blocks() -> None:
    ledger = write([n.to_bytes(2, "big") * 50 for n in range(300)], 480)
    assert len(ledger.blocks) == 100
    assert independent.decode_ledger(ledger.index_bytes, ledger.data) == ledger.payloads


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
    entries, deviations = read(ledger.data, ledger.index.spans(), piece_bytes=97)
    assert (payloads_of(entries), deviations) == (payloads, [])
    assert [entry.entry_id for entry in entries] == list(range(len(payloads)))
    for entry in entries:
        assert ledger.data[entry.offset : entry.offset + len(entry.payload)] == entry.payload
