"""Entries made to do harm: every outcome is a decoded entry or a DataLoss, in bounded memory."""

from __future__ import annotations

import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.ledger.message_entries import TEXT, TEXT_AS, batch, entry, in_batch, metadata, proto, sized, zeros
from tierfs.base.words.errors import DataLoss
from tierfs.engine.ledger import message_bytes
from tierfs.engine.ledger.messages import decode

MIB = 1024 * 1024

BATCH = in_batch(b"one", (2, "k"), (1, proto((1, "a"), (2, "b")))) + in_batch(b"", (4, 1)) + in_batch(b"three", (9, 1))

VALID = {
    "single": entry(metadata((6, "k")), b"payload", broker=proto((1, 5), (2, 6))),
    "batch": entry(metadata((11, 3)), BATCH, checksum=False, broker=proto((2, 6))),
    "zlib batch": entry(metadata((8, 2), (9, len(BATCH)), (11, 3)), zlib.compress(BATCH), checksum=False),
    "chunk": entry(metadata((26, "u"), (27, 2), (29, 0)), b"part"),
    "marker": entry(metadata((20, 21))),
    "encrypted": entry(metadata((13, proto((1, "k"), (2, "v")))), b"cipher"),
} | {
    f"compression {number}": entry(metadata((8, number), (9, len(TEXT))), data, checksum=False)
    for number, data in TEXT_AS.items()
    if number
}

NEEDLESS_BYTES = {"compression 2": 5, "zlib batch": 6}
"""At the end: the mark of zlib's flush; the end of its stream and its checksum, which Pulsar omits."""


@pytest.mark.parametrize("name", VALID)
def test_a_cut_at_any_byte_is_refused(name: str) -> None:
    data = VALID[name]
    decode(data)
    for end in range(len(data) - NEEDLESS_BYTES.get(name, 0)):
        with pytest.raises(DataLoss, match=r"entry 3:7 is damaged"):
            decode(data[:end], ledger_id=3, entry_id=7)


def test_bytes_behind_a_batch_are_refused() -> None:
    with pytest.raises(DataLoss, match="2 bytes follow the 1 messages of its batch"):
        decode(entry(metadata((11, 1)), in_batch(b"x") + b"yz"))
    with pytest.raises(DataLoss, match="1 bytes follow the 0 messages"):
        decode(entry(metadata((11, 0)), b"x"))
    assert decode(batch()).messages == ()


@pytest.mark.parametrize("count", [-1, -(2**31), 100_001, 2**31 - 1])
def test_impossible_numbers_of_messages_are_refused(count: int) -> None:
    with pytest.raises(DataLoss, match=f"entry is damaged: its batch has {count} messages"):
        decode(entry(metadata((11, count)), in_batch(b"x")))


@pytest.mark.parametrize("size", [-1, -(2**31), 2, 2**31 - 1])
def test_impossible_payload_sizes_are_refused(size: int) -> None:
    with pytest.raises(DataLoss, match=f"message 0 of an entry is damaged: the payload has {size} bytes, but 1 remain"):
        decode(entry(metadata((11, 1)), sized(proto((3, size))) + b"x"))


def test_all_metadata_of_a_batch_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = batch(*[in_batch(b"x", (2, "k" * 50)) for _ in range(10)])
    assert len(decode(data).messages) == 10
    monkeypatch.setattr(message_bytes, "MAX_METADATA_BYTES", 200)
    with pytest.raises(DataLoss, match="message 3 of an entry is damaged: SingleMessageMetadata increases"):
        decode(data)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_payload_unpacks_to_the_size_it_announces(number: int) -> None:
    packed = zeros(number, MIB)

    def unpacked(size: int, limit_bytes: int = 2 * MIB) -> bytes:
        data = entry(metadata((8, number), (9, size)), packed, checksum=False)
        return decode(data, limit_bytes=limit_bytes).messages[0].payload

    assert unpacked(MIB, limit_bytes=MIB) == bytes(MIB)
    for size in (0, 1, MIB - 1, MIB + 1, 2 * MIB):
        with pytest.raises(DataLoss, match=r"an entry is damaged: its (LZ4|ZLIB|ZSTD|SNAPPY) payload"):
            unpacked(size)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [100, 2**32 - 1], ids=["understated", "overstated"])
def test_bombs_take_no_memory(number: int, size: int) -> None:
    bomb = entry(metadata((8, number), (9, size)), zeros(number, 128 * MIB), checksum=False)
    decode(VALID[f"compression {number}"])  # imports
    tracemalloc.start()
    try:
        with pytest.raises(DataLoss, match="more than the limit of 67108864" if size > 100 else "is damaged"):
            decode(bomb)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


def test_the_limit_is_the_callers() -> None:
    data = entry(metadata((8, 4), (9, len(TEXT))), TEXT_AS[4])
    assert decode(data, limit_bytes=len(TEXT)).messages[0].payload == TEXT
    with pytest.raises(DataLoss, match="entry 7 unpacks to 120 bytes, more than the limit of 119"):
        decode(data, limit_bytes=len(TEXT) - 1, entry_id=7)


FRAMED = {
    "LZ4 with its length": (1, len(TEXT).to_bytes(4, "little") + TEXT_AS[1]),
    "LZ4 with another length": (1, (100).to_bytes(4, "little") + TEXT_AS[1]),
    "LZ4 with a greater length": (1, (125).to_bytes(4, "little") + TEXT_AS[1]),
    "framed Snappy": (4, bytes.fromhex("ff060000734e61507059") + TEXT_AS[4]),
    "Snappy of another length": (4, b"\x79" + TEXT_AS[4][1:]),
    "bytes behind Zstandard": (3, TEXT_AS[3] + b"junk"),
    "bytes behind LZ4": (1, TEXT_AS[1] + b"junk"),
    "a wrong checksum of zlib": (2, zlib.compress(TEXT)[:-1] + b"!"),
    "nothing": (1, b""),
}


@pytest.mark.parametrize(("number", "packed"), FRAMED.values(), ids=FRAMED)
def test_other_forms_of_a_compression_are_refused(number: int, packed: bytes) -> None:
    with pytest.raises(DataLoss, match=r"is damaged: its (LZ4|ZLIB|ZSTD|SNAPPY) payload cannot be unpacked"):
        decode(entry(metadata((8, number), (9, len(TEXT))), packed))


def test_a_block_of_lz4_whose_first_bytes_are_the_length_is_read() -> None:
    """A token of 0x32 for 3 literals and a match of 6, three zeros, and 50 = 0x32 bytes in all."""
    behind = bytes(range(41))
    block = b"\x32\0\0\0" + b"\1\0" + b"\xf0\x1a" + behind
    assert decode(entry(metadata((8, 1), (9, 50)), block)).messages[0].payload == bytes(9) + behind


own = st.tuples(st.binary(max_size=30), st.one_of(st.none(), st.text(max_size=5)), st.integers(0, 2**64 - 1))


@given(st.lists(own, max_size=20), st.booleans())
def test_what_a_producer_sends_is_decoded(sent: list[tuple[bytes, str | None, int]], packed: bool) -> None:
    rows = [in_batch(payload, *([] if key is None else [(2, key)]), (8, number)) for payload, key, number in sent]
    payload = b"".join(rows)
    compression = ((8, 2), (9, len(payload))) if packed else ()
    whole = decode(entry(metadata((11, len(sent)), *compression), zlib.compress(payload) if packed else payload))
    assert [(message.payload, message.key, message.sequence_id) for message in whole.messages] == sent
