"""The form of the first PIP: golden bytes, the index by range, and blocks that contradict it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.ledger import independent
from tests.engine.ledger.objects import DEADLINE_MS, closed, payloads_of
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.engine.ledger.block_reader import BlockRange, LedgerEntry
from tierfs.engine.ledger.decoder_source import DecoderSource
from tierfs.engine.ledger.deviations import Deviations
from tierfs.engine.ledger.single_object import (
    START_BYTES,
    MagicWords,
    SingleObjectIndex,
    decode_index,
    index_range,
    plan_object,
    read_batches,
)

MAGIC = MagicWords(b"INDX", b"BLCK")
PAYLOADS = [b"abc", b"", b"defgh", b"i"]

GOLDEN = (
    "494e4458 00000042 00000002 0000000a 08011001180920032803"
    "0000000000000000 00000002 0000000000000042"
    "0000000000000002 00000003 0000000000000065"
    "424c434b 00000023 00000002 0000000000000000 00000003 616263 00000000 dead1234"
    "424c434b 00000022 00000002 0000000000000002 00000005 6465666768 00000001 69"
)
"""Two blocks of at most 35 bytes after an index of 66; the first has 4 bytes of padding."""


def write(payloads: list[bytes], max_block_bytes: int) -> bytes:
    """A ledger in one object."""
    metadata = closed(len(payloads), sum(map(len, payloads)))
    plan = plan_object(metadata, list(map(len, payloads)), max_block_bytes, MAGIC)
    return b"".join(plan.encode(enumerate(payloads)))


def index_of(data: bytes) -> tuple[SingleObjectIndex, list[str]]:
    """Read the index as a reader does: the start, then the range that it names."""
    deviations = Deviations()
    there = index_range(data[:START_BYTES], len(data), MAGIC, "o")
    assert there.start == 0
    return decode_index(data[: there.end], len(data), MAGIC, "o", deviations), deviations.messages


def read_entries(
    data: bytes, blocks: Iterable[BlockRange], deviations: Deviations, start_offset: int = 0
) -> Iterator[LedgerEntry]:
    """The entries of blocks, from the object's bytes from `start_offset` on."""
    source = DecoderSource([data], start_offset, "o")
    for batch in read_batches(source, blocks, MAGIC, deviations):
        offset = source.position
        yield LedgerEntry(batch.first_entry_id, source.take(batch.lengths[0]), offset)


def read(data: bytes) -> tuple[list[LedgerEntry], list[str]]:
    """Return all entries of an object, and the deviations."""
    index, messages = index_of(data)
    deviations = Deviations(messages)
    return list(read_entries(data, index.blocks(len(data)), deviations)), deviations.messages


def test_an_object_of_the_first_form_has_its_golden_bytes() -> None:
    data = write(PAYLOADS, 35)
    assert data == bytes.fromhex(GOLDEN)
    entries, deviations = read(data)
    assert (payloads_of(entries), deviations) == (PAYLOADS, [])
    assert independent.decode_single_object(data, MAGIC.index, MAGIC.block) == PAYLOADS


def test_offsets_may_begin_behind_the_index() -> None:
    """The PIP's example has its first block at 0, its text counts from the start of the object."""
    data = bytearray(bytes.fromhex(GOLDEN))
    data[38:46], data[58:66] = struct.pack(">q", 0), struct.pack(">q", 35)
    entries, deviations = read(bytes(data))
    assert payloads_of(entries) == PAYLOADS
    assert deviations == ["o: its offsets count from the end of the index"]


def test_blocks_are_found_and_read_alone() -> None:
    data = write([b"%03d" % n for n in range(100)], 100)
    index, _ = index_of(data)
    for span in index.blocks(len(data)):
        assert index.find(span.first_entry_id).offset == span.offset
        block = data[span.offset : span.end_offset]
        entries = list(read_entries(block, [span], Deviations(), span.offset))
        assert entries[0] == (span.first_entry_id, b"%03d" % span.first_entry_id, span.offset + 24)
    with pytest.raises(InvalidRequest, match="entry 100 is not in the ledger, whose last entry is 99"):
        index.find(100)


def test_an_entry_that_fits_no_block_is_refused() -> None:
    assert len(write([b"x" * 76], 100)) == 16 + 10 + 20 + 100
    with pytest.raises(InvalidRequest, match="entry 0 of 77 bytes does not fit into a block of 100 bytes"):
        write([b"x" * 77], 100)


@pytest.mark.parametrize("words", [(b"", b"BLCK"), (b"INDX", b"LONGER")])
def test_magic_words_have_four_bytes(words: tuple[bytes, bytes]) -> None:
    with pytest.raises(InvalidRequest, match="four bytes"):
        MagicWords(*words)


@pytest.mark.parametrize(
    ("at", "bad", "message"),
    [
        (0, b"XXXX", "it starts with 58585858, which is not the magic word of an index"),
        (4, b"\0\0\0\x43", "an index of 67 bytes with 2 blocks cannot be in 135 bytes"),
        (8, b"\xff\xff\xff\xff", "an index of 66 bytes with 4294967295 blocks cannot be in 135 bytes"),
        (12, b"\xff\xff\xff\xff", "an index of 66 bytes with 2 blocks cannot be in 135 bytes"),
        (16, b"\xff", "its LedgerMetadata cannot be decoded|its LedgerMetadata lacks a required field"),
        (38, b"\xff", "the block at -"),
        (66, b"XXXX", "the block at 66 starts with 58585858, which is not its magic word"),
        (70, b"\0\0\0\x22", "the block at 66 has 34 bytes and 2 entries from 0 on, its index says 35, 2 and 0"),
        (77, b"\x03", "the block at 66 has 35 bytes and 3 entries"),
        (85, b"\x07", "the block at 66 has 35 bytes and 2 entries from 7 on"),
        (86, b"\x7f", "entry 0 of 2130706435 bytes extends past the end of its block"),
    ],
)
def test_damage_is_refused(at: int, bad: bytes, message: str) -> None:
    data = bytearray(bytes.fromhex(GOLDEN))
    data[at : at + len(bad)] = bad
    with pytest.raises(DataLoss, match=f"^o: {message}"):
        read(bytes(data))


def test_an_index_that_is_longer_than_its_object() -> None:
    start = bytes.fromhex(GOLDEN)[:START_BYTES]
    assert index_range(start, 66, MAGIC, "o").end == 66
    with pytest.raises(DataLoss, match="an index of 66 bytes with 2 blocks cannot be in 65 bytes"):
        index_range(start, 65, MAGIC, "o")


def test_other_padding_is_noted() -> None:
    data = bytearray(bytes.fromhex(GOLDEN))
    data[97:101] = b"\xfe\xdc\xde\xad"
    entries, deviations = read(bytes(data))
    assert payloads_of(entries) == PAYLOADS
    assert deviations == ["o: the block at 66 ends with bytes other than padding"]


def test_a_truncated_object_ends_the_reader() -> None:
    data = bytes.fromhex(GOLDEN)
    index, _ = index_of(data)
    for size in range(66, len(data)):
        with pytest.raises(DataLoss, match=f"^o: it ends at {size}"):
            list(read_entries(data[:size], index.blocks(len(data)), Deviations()))
    for size in range(66):
        with pytest.raises(DataLoss, match=r"^o: "):
            index_of(data[:size])


def test_entries_beyond_the_last_are_not_made_up() -> None:
    data = bytes.fromhex(GOLDEN)
    index, _ = index_of(data)
    longer = replace(index, metadata=replace(index.metadata, last_entry_id=4))
    with pytest.raises(DataLoss, match="the block at 101 has 34 bytes and 2 entries from 2 on"):
        list(read_entries(data, longer.blocks(len(data)), Deviations()))


@settings(deadline=DEADLINE_MS)
@given(st.lists(st.binary(max_size=50), max_size=30), st.integers(74, 400))
def test_what_is_written_is_read(payloads: list[bytes], max_block_bytes: int) -> None:
    data = write(payloads, max_block_bytes)
    entries, deviations = read(data)
    assert (payloads_of(entries), deviations) == (payloads, [])
    assert independent.decode_single_object(data, MAGIC.index, MAGIC.block) == payloads
