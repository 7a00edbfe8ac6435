"""Random bytes and damaged objects: every decoder ends, in time, with the right result or with one typed error."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.engine.ledger import test_single_object as single
from tests.engine.ledger.objects import DEADLINE_MS, closed, scanned, streaming_block, streaming_index, write
from tests.engine.ledger.test_metadata import INFO, METADATA
from tierfs.base.words.errors import DataLoss, InvalidRequest, TierfsError
from tierfs.engine.ledger.block_reader import BlockRange, read_entries
from tierfs.engine.ledger.blocks import BlockHeader
from tierfs.engine.ledger.deviations import Deviations
from tierfs.engine.ledger.index import LedgerIndex
from tierfs.engine.ledger.index_codec import decode_index
from tierfs.engine.ledger.metadata import LedgerInfo, LedgerMetadata

LEDGER = write([bytes([n]) * (n % 20) for n in range(20)], 300)
STREAMED = streaming_block(1, 5, [b"a" * 30, b"b"], 220) + streaming_block(2, 0, [b"c"] * 4, 190)
STREAMED_INDEX = streaming_index(
    len(STREAMED),
    [(LedgerInfo(ledger_id=1, entries=7), [(5, 1, 0)]), (LedgerInfo(ledger_id=2, entries=4), [(0, 2, 220)])],
)
SINGLE = bytes.fromhex(single.GOLDEN)


class TooMuchWork(Exception):
    """A decoder takes more bytes than its object has."""


def pieces(data: bytes, size: int = 64) -> list[bytes]:
    """An object in pieces."""
    return [data[at : at + size] for at in range(0, len(data), size)]


def read_index(data: bytes) -> None:
    """Decode an index, and read all blocks it names."""
    index = decode_index(data, "o", Deviations())
    if isinstance(index, LedgerIndex):
        read_by(index.blocks(), LEDGER.data)
        index.check(len(LEDGER.data), "o", Deviations())
        index.find(15)
    else:
        for section in index.sections:
            read_by(index.blocks(section.ledger_id), STREAMED)
            section.find(section.info.last_entry_id)


def read_by(spans: list[BlockRange], data: bytes) -> None:
    """Read the entries of some blocks: never more of them than there are bytes for."""
    found = list(read_entries(pieces(data), spans, "o", Deviations()))
    if 12 * len(found) > len(data):
        raise TooMuchWork


def scan(data: bytes) -> None:
    """Read an object without its index."""
    found = list(scanned(pieces(data), "o", Deviations()))
    if 12 * len(found) > len(data):
        raise TooMuchWork


DECODERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "header": (lambda data: BlockHeader.decode(data, "o"), BlockHeader(5, 6).encode()),
    "streaming-header": (lambda data: BlockHeader.decode(data, "o"), BlockHeader(5, 6, ledger_id=7).encode()),
    "metadata": (lambda data: LedgerMetadata.decode(data, "o").encode(), METADATA.encode()),
    "info": (lambda data: LedgerInfo.decode(data, "o").encode(), INFO.encode()),
    "index": (read_index, LEDGER.index_bytes),
    "streaming-index": (read_index, STREAMED_INDEX),
    "entries": (lambda data: read_by(LEDGER.index.blocks(), data), LEDGER.data),
    "scan": (scan, LEDGER.data),
    "streaming-scan": (scan, STREAMED),
    "single-object": (single.read, SINGLE),
}


@pytest.mark.parametrize("name", DECODERS)
def test_the_undamaged_object_is_read(name: str) -> None:
    decode, data = DECODERS[name]
    decode(data)


def tried(decode: Callable[[bytes], object], data: bytes) -> None:
    """Only typed errors, of one line that names the object where it is to blame. Hypothesis watches the time."""
    error: TierfsError | None = None
    try:
        decode(data)
    except (DataLoss, InvalidRequest) as exc:
        error = exc
    message = str(error or "o")
    assert "\n" not in message
    assert message.startswith(
        ("o", "no block of the index") if error is None or isinstance(error, DataLoss) else "entry "
    )


@pytest.mark.parametrize("name", DECODERS)
@settings(deadline=DEADLINE_MS)
@given(data=st.binary(max_size=300))
@example(data=b"")
def test_random_bytes_end_every_decoder_in_time(name: str, data: bytes) -> None:
    decode, valid = DECODERS[name]
    tried(decode, data)
    tried(decode, valid[:4] + data)
    tried(decode, valid[:-20] + data)


def test_lengths_are_not_believed() -> None:
    """A ledger of 2^62 entries is not counted, and a block of 2^62 bytes is not awaited."""
    index = LedgerIndex(closed(2**62, 2**62), 2**62, LEDGER.index.entries[:1])
    with pytest.raises(DataLoss, match=r"^o: entry \d+ is missing"):
        list(read_entries(pieces(LEDGER.data), index.blocks(), "o", Deviations()))
