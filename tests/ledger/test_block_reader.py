"""Reading blocks: input that Pulsar's reader accepts is accepted and noted, all other input ends with one line."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.ledger.objects import NAME, frame, padding, payloads_of, read, streaming_block, write
from tierfs.errors import DataLoss
from tierfs.ledger.block_reader import BlockSpan, read_entries, scan_blocks
from tierfs.ledger.blocks import MAX_MESSAGES, BlockHeader, Deviations

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
    return [entry.payload for _, entry in scan_blocks([data], len(data), NAME, deviations)], deviations.messages


@pytest.mark.parametrize("piece_bytes", [1, 3, 12, 127, 128, 129, 1000])
def test_pieces_of_any_size_give_the_same_entries(piece_bytes: int) -> None:
    """testReadTillLacWithSmallBuffer."""
    ledger = write([bytes([n]) * n for n in range(100)], 700)
    entries, deviations = read(ledger.data, ledger.index.spans(), piece_bytes=piece_bytes)
    assert (payloads_of(entries), deviations) == (ledger.payloads, [])


@pytest.mark.parametrize("block_bytes", [280, 20128])
def test_bytes_that_look_like_padding_or_headers_are_payload(block_bytes: int) -> None:
    """testOnlyNegativeOnEOF, testOnlyNegativeOnEOFWithBufferedRead: only the end is the end."""
    ledger = write([*AWKWARD, b"\xfe" * 100], block_bytes)
    assert payloads_of(read(ledger.data, ledger.index.spans())[0]) == ledger.payloads
    assert scan(ledger.data) == (ledger.payloads, [])


@pytest.mark.parametrize("piece_bytes", [1, 20128])
def test_an_entry_of_negative_bytes_only(piece_bytes: int) -> None:
    """testOnlyNegativeOnEOF: one entry of 10,000 bytes."""
    ledger = write([b"\x80\xff" * 5000], 20128)
    assert read(ledger.data, ledger.index.spans(), piece_bytes=piece_bytes)[0][0].payload == b"\x80\xff" * 5000


def test_every_block_is_read_alone() -> None:
    ledger = write([b"%03d" % n * 20 for n in range(40)], 500)
    for span, block in zip(ledger.index.spans(), ledger.blocks, strict=True):
        entries = list(read_entries([block], [span], NAME, Deviations(), span.offset))
        assert entries[0].entry_id == span.first_entry_id
        assert payloads_of(entries) == ledger.payloads[span.first_entry_id :][: len(entries)]
        assert len(scan_one(block)) == len(entries)


def scan_one(block: bytes) -> list[bytes]:
    """The payloads of one block, whose header is all that is known of it."""
    return scan(block)[0]


ONE = write([b"one", b"two"], 400)
"""One block: 128 + 2 * 15 bytes."""

SPAN = ONE.index.spans()[0]


@pytest.mark.parametrize(
    ("head", "deviation"),
    [
        (bytes(128), "00000000, which is not its magic word; it lies at 0"),
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


@pytest.mark.parametrize("header_bytes", [0, 5, 28, 200])
def test_headers_of_other_lengths_are_skipped(header_bytes: int) -> None:
    entries, deviations = read(
        b"h" * header_bytes + ONE.data[128:], [replace(SPAN, header_bytes=header_bytes, length_bytes=header_bytes + 30)]
    )
    assert payloads_of(entries) == [b"one", b"two"]
    assert len(deviations) == 1


@pytest.mark.parametrize("end", [b"\x80", b"\xff\xff\xff\xff", b"\xfe" * 9, b"\xdc\xde\xad\xfe", b"\x80" + bytes(40)])
def test_padding_is_anything_that_begins_with_a_top_bit(end: bytes) -> None:
    """A reader that does not know how many entries there are stops at it, and notes that it is not Pulsar's."""
    span = replace(SPAN, entries=None, length_bytes=158 + len(end))
    data = BlockHeader(158 + len(end), 0).encode() + ONE.data[128:] + end
    assert read(data, [span])[1] == [f"{NAME}: the block at 0 ends with something else than padding"]
    assert payloads_of(read(data, [span])[0]) == [b"one", b"two"]


@pytest.mark.parametrize("end", [b"\0", b"dirty data", b"\x7f" * 11, bytes(12), frame(2, b"more"), frame(9, b"")])
def test_junk_behind_the_last_entry_is_not_read(end: bytes) -> None:
    """BlobStoreBackedReadHandleImplTest.testRead: dirty bytes between entries, each the start of a block."""
    data = BlockHeader(158 + len(end), 0).encode() + ONE.data[128:] + end
    entries, deviations = read(data + ONE.data, [replace(SPAN, length_bytes=158 + len(end))])
    assert payloads_of(entries) == [b"one", b"two"]
    assert deviations == [f"{NAME}: the block at 0 ends with something else than padding"]


def test_padding_may_be_cut_off() -> None:
    data = BlockHeader(200, 0).encode() + ONE.data[128:] + padding(7)
    entries, deviations = read(data, [replace(SPAN, length_bytes=200)])
    assert payloads_of(entries) == [b"one", b"two"]
    assert deviations == [f"{NAME} ends at 165, within the padding of the block at 0"]


def test_entries_that_are_there_again_are_skipped() -> None:
    data = bytes(128) + frame(0, b"one") + frame(0, b"uno") + frame(1, b"two") + frame(1, b"due") + frame(2, b"three")
    entries, deviations = read(data, [BlockSpan(0, len(data), 0, 3)])
    assert payloads_of(entries) == [b"one", b"two", b"three"]
    assert deviations[1:] == [
        f"{NAME}: entry 0 is repeated at 155",
        f"{NAME}: entry 1 is repeated at 185",
    ]


@pytest.mark.parametrize(
    ("body", "entries", "message"),
    [
        (frame(0, b"one"), 2, "entry 1 is missing: the entries of the block at 0 end before it"),
        (frame(0, b"one") + padding(9), 2, "entry 1 is missing"),
        (frame(0, b"one") + padding(40), 2, "entry 1 is missing"),
        (padding(100), 1, "entry 0 is missing"),
        (frame(0, b"one") + frame(2, b"two"), 3, "entry 2 lies at 155, where entry 1 is expected"),
        (frame(0, b"one") + frame(-1, b""), 2, "entry -1 lies at 155, where entry 1 is expected"),
        (frame(1, b"one"), 1, "entry 1 lies at 140, where entry 0 is expected"),
        (frame(0, b"one")[:-1], 1, "entry 0 of 3 bytes runs past the end of the block at 0"),
        (b"\x7f\xff\xff\xff" + bytes(8), 1, "entry 0 of 2147483647 bytes runs past the end"),
        (frame(0, b"one") + bytes(11), None, "entry 1 is cut: the block at 0 ends within its frame"),
        (frame(0, b"one") + bytes(3), 2, "entry 1 is missing"),
    ],
)
def test_missing_entries_end_the_reader(body: bytes, entries: int | None, message: str) -> None:
    """Pulsar's reader would seek to the same block again, forever."""
    with pytest.raises(DataLoss, match=f"^{NAME}: {message}"):
        read(bytes(128) + body, [BlockSpan(0, 128 + len(body), 0, entries)])


def test_an_index_that_lacks_later_blocks_ends_the_reader() -> None:
    """Pulsar's reader finds the next block's magic word, and returns to the start of the one before forever."""
    ledger = write([b"x" * 50] * 5, 260)
    index = replace(ledger.index, entries=ledger.index.entries[:1])
    with pytest.raises(DataLoss, match="entry 2 is missing"):
        read(ledger.data, index.spans())


def test_a_ledger_whose_large_entry_pulsar_lost() -> None:
    """Pulsar's last block is then nothing but padding, and its index leaves it out of the object's length."""
    written = write([b"x" * 50] * 2, 260)
    lost = BlockHeader(260, 2).encode() + padding(132)
    index = replace(
        written.index,
        metadata=replace(written.index.metadata, last_entry_id=3),
        entries=(*written.index.entries, replace(written.index.entries[0], first_entry_id=2, part_id=2, offset=252)),
    )
    entries = read_entries([written.data + lost], index.spans(), NAME, Deviations())
    assert [next(entries).entry_id, next(entries).entry_id] == [0, 1]
    with pytest.raises(DataLoss, match="entry 2 is missing: the block at 252 has 0 bytes"):
        next(entries)
    assert scan(written.data + lost) == (written.payloads, [f"{NAME}: the block at 252 holds no entries"])


def test_a_truncated_object_ends_the_reader() -> None:
    for size in range(len(ONE.data)):
        with pytest.raises(DataLoss, match=f"{NAME}: it ends at {size}, bytes up to"):
            read(ONE.data[:size], [SPAN])


@pytest.mark.parametrize(
    "span",
    [
        replace(SPAN, header_bytes=-1),
        replace(SPAN, header_bytes=159),
        replace(SPAN, header_bytes=2**62),
        replace(SPAN, offset=-1),
        replace(SPAN, length_bytes=-5),
    ],
)
def test_impossible_spans_end_the_reader(span: BlockSpan) -> None:
    with pytest.raises(DataLoss, match=NAME):
        read(ONE.data, [span])


def test_overlapping_blocks_end_the_reader() -> None:
    with pytest.raises(DataLoss, match="the block at 100 begins before the one in front of it ends"):
        read(ONE.data, [SPAN, replace(SPAN, offset=100, first_entry_id=2)])


@pytest.mark.parametrize("last_entry_id", [0, 1])
def test_entries_beyond_the_last_are_left_out(last_entry_id: int) -> None:
    ledger = write([b"x" * 50] * 4, 260)
    index = replace(ledger.index, metadata=replace(ledger.index.metadata, last_entry_id=last_entry_id))
    entries, deviations = read(ledger.data, index.spans())
    assert [entry.entry_id for entry in entries] == list(range(last_entry_id + 1))
    assert deviations[-1] == f"{NAME}: the block at 260 begins with an entry beyond the ledger's last"


def test_deviations_are_counted_and_not_kept_without_end() -> None:
    data = bytes(128) + frame(0, b"") + frame(0, b"") * 1000 + frame(1, b"")
    deviations = Deviations()
    assert len(list(read_entries([data], [BlockSpan(0, len(data), 0, 2)], NAME, deviations))) == 2
    assert (deviations.count, len(deviations.messages)) == (1001, MAX_MESSAGES)


STREAMED = (
    streaming_block(3, 7, [b"a", b"bb", *AWKWARD], 720)
    + streaming_block(3, 14, [b"c"], 141)
    + streaming_block(4, 0, [b"d"], 151)
)


def test_blocks_of_the_streaming_form() -> None:
    """BufferedOffloadStreamTest: testHavePadding (10 bytes) and testNoPadding, with and without an index."""
    spans = [BlockSpan(0, 720, 7, 7, ledger_id=3), BlockSpan(720, 141, 14, None, ledger_id=3)]
    entries, deviations = read(STREAMED, spans)
    assert ([entry.entry_id for entry in entries], deviations) == (list(range(7, 15)), [])
    assert read(STREAMED, [BlockSpan(861, 151, 0, None, ledger_id=4)]) == ([(0, b"d", 1001)], [])
    assert scan(STREAMED) == ([b"a", b"bb", *AWKWARD, b"c", b"d"], [])


def test_another_ledgers_block_is_never_read() -> None:
    with pytest.raises(DataLoss, match="the block at 861 is of ledger 4, not 3"):
        read(STREAMED, [BlockSpan(861, 151, 0, None, ledger_id=3)])


def test_a_streaming_block_that_is_more_than_full_ends_the_reader() -> None:
    """Pulsar wrote lengths that are short by the first entry, and its reader loops on them."""
    block = streaming_block(3, 0, [b"first", b"second"], 163)
    short = BlockHeader(146, 0, ledger_id=3).encode() + block[128:]
    with pytest.raises(DataLoss, match="entry 1 is cut: the block at 0 ends within its frame"):
        read(short, [BlockSpan(0, 146, 0, None, ledger_id=3), BlockSpan(146, 17, 1, None, ledger_id=3)])
    with pytest.raises(DataLoss, match="entry 1 is cut: the block at 0 ends within its frame"):
        scan(short)


def test_a_scan_follows_the_lengths_in_the_headers() -> None:
    ledger = write([b"%03d" % n * 20 for n in range(40)], 500)
    assert scan(ledger.data) == (ledger.payloads, [])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (ONE.data + b"x", "it ends at 159, bytes up to 186 are missing"),
        (ONE.data + bytes(128), "a block begins with 00000000"),
        (ONE.data + ONE.data, "the block at 158 begins with entry 0, not 2"),
        (BlockHeader(159, 0).encode() + ONE.data[128:], "the block at 0 cannot have 159 bytes"),
        (BlockHeader(100, 0).encode() + ONE.data[128:], "the block at 0 cannot have 100 bytes"),
        (BlockHeader(158, 0, 2**40).encode() + ONE.data[128:], "the block at 0 cannot have 158 bytes"),
        (BlockHeader(158, 1).encode() + ONE.data[128:], "entry 0 lies at 140, where entry 1 is expected"),
    ],
    ids=["junk", "zeros", "again", "long", "short", "header", "first"],
)
def test_a_scan_ends_where_headers_do_not_fit(data: bytes, message: str) -> None:
    with pytest.raises(DataLoss, match=f"^{NAME}: {message}"):
        scan(data)
