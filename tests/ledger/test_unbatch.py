"""Unbatching: the same messages, one in each entry, and nothing else changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.ledger.message_entries import TEXT, TEXT_AS, batch, entry, in_batch, metadata, proto
from tests.ledger.test_pulsar_messages import entries_of_messages
from tierfs.ledger.message_bytes import Compression
from tierfs.ledger.messages import MessageRecord, decode
from tierfs.ledger.unbatch import unbatch

BROKER = proto((1, 1_700_000_000_500), (2, 41))


def messages(entries: list[bytes]) -> list[MessageRecord]:
    """Fields in all of them, except the place in a batch."""
    found = [message for one in entries for message in decode(one).messages if not message.compacted_out]
    return [replace(message, batch_index=None, chunk=None) for message in found]


@pytest.mark.parametrize("number", range(len(entries_of_messages())))
def test_entries_of_pulsar_have_the_same_messages(number: int) -> None:
    whole = entries_of_messages()[number]
    alone = unbatch(whole)
    assert messages(alone) == messages([whole])
    for one in alone:
        decoded = decode(one)
        if one != whole:
            assert (decoded.batch_size, decoded.compression) == (None, Compression.NONE)
            assert len(decoded.messages) == 1
            assert (decoded.checksum is None) == (decode(whole).checksum is None)


def test_every_message_of_a_batch_keeps_what_it_says_itself() -> None:
    fields = ((1, proto((1, "a"), (2, "b"))), (2, "key"), (5, 9), (6, 1), (7, b"order"), (8, 3), (9, 1))
    shared = (
        (4, proto((1, "of"), (2, "the batch"))),
        (6, "shared"),
        (12, 5),
        (16, b"v"),
        (19, 8),
        (25, 0),
        (77, "new"),
    )
    payload = in_batch(b"one", *fields) + in_batch(b"two") + in_batch(b"", (4, 1))
    data = entry(metadata((11, 3), *shared), payload, broker=BROKER)
    alone = unbatch(data)
    assert messages(alone) == messages([data])
    assert [message.index for message in messages(alone)] == [39, 40]
    assert all(proto((77, "new")) in one for one in alone)


@pytest.mark.parametrize("compression", TEXT_AS)
def test_every_compression_is_undone(compression: int) -> None:
    data = entry(metadata((8, compression), (9, len(TEXT))), TEXT_AS[compression], checksum=False)
    (alone,) = unbatch(data)
    assert (messages([alone])[0].payload, decode(alone).compression) == (TEXT, Compression.NONE)
    assert alone.endswith(TEXT)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nothing of Pulsar's",
        entry(metadata(), b"alone"),
        entry(metadata((13, b"\x0a\x03key"), (11, 2)), b"secret"),
        entry(metadata((20, 21)), b""),
        entry(metadata((26, "u"), (27, 2), (28, 9), (29, 0), (8, 1), (9, 50)), b"chunk"),
        batch(in_batch(b"one"))[:-1],
    ],
)
def test_the_rest_stays_as_it_is(data: bytes) -> None:
    assert unbatch(data) == [data]
