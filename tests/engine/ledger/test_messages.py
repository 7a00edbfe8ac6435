"""Entries of Pulsar, golden: single messages, batches, every compression, and entries without messages."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.engine.ledger.message_entries import TEXT, TEXT_AS, batch, entry, in_batch, metadata, proto
from tests.engine.ledger.test_pulsar_goldens import entries_of_messages
from tierfs.base.words.errors import DataLoss
from tierfs.engine.ledger.compression import MessageCompression
from tierfs.engine.ledger.message_records import MessageRecord
from tierfs.engine.ledger.messages import decode
from tierfs.engine.ledger.unbatch import unbatch

BROKER = proto((1, 1_700_000_000_500), (2, 41))

SMALLEST = bytes.fromhex("0e01 cd7e5234 00000008 0a0170 1002 18e807 6869")
"""Producer p, sequence id 2, published at 1000 ms, payload "hi"."""


def lines(data: bytes, **ids: int) -> list[dict[str, object]]:
    """The JSON lines of an entry."""
    made = [message.as_json() for message in decode(data, **ids).messages]
    assert json.loads(json.dumps(made)) == made
    return made


def test_the_smallest_message() -> None:
    assert lines(SMALLEST) == [{"publish_time_ms": 1000, "producer_name": "p", "sequence_id": 2, "payload": "hi"}]


def test_every_field_of_a_single_message() -> None:
    meta = metadata(
        (4, proto((1, "color"), (2, "red"))),
        (4, proto((1, "size"), (2, "10"))),
        (5, "a field that tierfs does not know"),
        (6, "key"),
        (9, 5),
        (12, 1_600_000_000_000),
        (16, (3).to_bytes(8, "big")),
        (18, b"\xff\0"),
        (19, 1_800_000_000_000),
        (22, 5),
        (23, 2**63),
    )
    data = entry(meta, "grün".encode(), broker=BROKER)
    assert lines(data, ledger_id=0, entry_id=9) == [
        {
            "ledger_id": 0,
            "entry_id": 9,
            "index": 41,
            "broker_timestamp_ms": 1_700_000_000_500,
            "publish_time_ms": 1_700_000_000_000,
            "event_time_ms": 1_600_000_000_000,
            "deliver_at_time_ms": 1_800_000_000_000,
            "producer_name": "standalone-0-1",
            "sequence_id": 7,
            "key": "key",
            "ordering_key_base64": "/wA=",
            "properties": {"color": "red", "size": "10"},
            "schema_version": "0000000000000003",
            "txn_id": "(9223372036854775808,5)",
            "payload": "grün",
        }
    ]


def test_what_an_entry_says_of_itself() -> None:
    whole = decode(entry(metadata((11, 1)), in_batch(b"x"), broker=BROKER))
    assert (whole.producer_name, whole.sequence_id, whole.publish_time_ms) == ("standalone-0-1", 7, 1_700_000_000_000)
    assert (whole.broker_timestamp_ms, whole.broker_index, whole.batch_size) == (1_700_000_000_500, 41, 1)
    assert (whole.marker, whole.chunk, whole.encryption_keys) == (None, None, ())
    assert decode(SMALLEST).checksum == 0xCD7E5234


@pytest.mark.parametrize("at", range(len(SMALLEST)))
def test_a_flipped_bit_is_found_where_there_is_a_checksum(at: int) -> None:
    damaged = bytearray(SMALLEST)
    damaged[at] ^= 1
    with pytest.raises(DataLoss, match=r"^entry 3:7 is damaged: "):
        decode(bytes(damaged), ledger_id=3, entry_id=7)


def test_a_wrong_checksum_is_named() -> None:
    with pytest.raises(
        DataLoss, match=r"^an entry is damaged: its checksum is cd7e5234, but its bytes have [0-9a-f]{8}$"
    ):
        decode(SMALLEST[:-1] + b"!")


@pytest.mark.parametrize("number", TEXT_AS)
def test_messages_of_each_compression_are_unpacked(number: int) -> None:
    whole = decode(entry(metadata((8, number), (9, len(TEXT))), TEXT_AS[number]))
    assert [message.payload for message in whole.messages] == [TEXT]
    assert whole.compression is MessageCompression(number)


def test_an_unknown_compression_is_not_taken_for_none() -> None:
    with pytest.raises(DataLoss, match="entry 1 has the unknown compression 7") as caught:
        decode(entry(metadata((8, 7)), b"x"), entry_id=1)
    assert caught.value.remedy == "upgrade tierfs"


def test_messages_of_a_batch_have_their_own_fields() -> None:
    data = entry(
        metadata((11, 4), (12, 555), (16, b"\1")),
        in_batch(b"a", (1, proto((1, "n"), (2, "1"))), (2, "k1"), (8, 7))
        + in_batch(b"b", (2, "azE="), (6, 1), (5, 99), (7, b"o"), (8, 8))
        + in_batch(b"", (2, "gone"), (4, 1), (8, 9))
        + in_batch(b"", (2, "deleted"), (9, 1), (8, 10)),
        broker=proto((2, 103)),
    )
    assert lines(data, ledger_id=3, entry_id=7) == [
        ours | {"ledger_id": 3, "entry_id": 7, "batch_index": at, "index": 100 + at, "sequence_id": 7 + at} | COMMON
        for at, ours in enumerate(
            [
                {"event_time_ms": 555, "key": "k1", "properties": {"n": "1"}, "payload": "a"},
                {
                    "event_time_ms": 99,
                    "key": "azE=",
                    "key_is_base64": True,
                    "ordering_key_base64": "bw==",
                    "payload": "b",
                },
                {"event_time_ms": 555, "key": "gone", "compacted_out": True},
                {"event_time_ms": 555, "key": "deleted", "null_value": True},
            ]
        )
    ]


COMMON = {"publish_time_ms": 1_700_000_000_000, "producer_name": "standalone-0-1", "schema_version": "01"}


ODD: dict[str, tuple[bytes, list[dict[str, object]], set[str]]] = {
    # what of the lines must be so, and what they must not have
    "key, ordering key and properties of a batch are not those of its messages": (
        batch(in_batch(b"x"), meta=((4, proto((1, "n"), (2, "1"))), (6, "batch key"), (18, b"batch"))),
        [{"payload": "x"}],
        {"key", "ordering_key_base64", "properties"},
    ),
    "values and keys of a whole batch are null": (
        batch(in_batch(b"", (2, "k")), meta=((25, 1), (30, 1))),
        [{"null_value": True}],
        {"key", "payload"},
    ),
    "but not those that say otherwise": (
        batch(in_batch(b"x", (2, "k"), (9, 0), (10, 0)), meta=((25, 1), (30, 1))),
        [{"key": "k", "payload": "x"}],
        {"null_value"},
    ),
    "an index that cannot count messages": (
        entry(metadata((11, 2)), in_batch(b"a") + in_batch(b"b"), broker=proto((2, 0))),
        [{"payload": "a"}, {"payload": "b"}],
        {"index"},
    ),
    "nulls of a single message": (
        entry(metadata((6, ""), (25, 1), (30, 1))),
        [{"producer_name": "standalone-0-1", "sequence_id": 7, "null_value": True}],
        {"key", "payload"},
    ),
    "an empty key and an empty payload": (entry(metadata((6, ""))), [{"key": "", "payload": ""}], {"null_value"}),
    "bytes that are not text": (
        entry(metadata((6, b"\xff")), b"\xff\xfe"),
        [{"payload_base64": "//4=", "key": "/w==", "key_is_base64": True}],
        {"payload"},
    ),
    "text that is not UTF-8 reads as in Java": (
        entry(proto((1, b"p\xff"), (2, 1), (3, 1), (4, proto((1, b"\xff"), (2, b"v\xff")))), b"x"),
        [{"producer_name": "p\ufffd", "properties": {"\ufffd": "v\ufffd"}}],
        set(),
    ),
    "a chunk keeps its bytes as they are": (
        entry(metadata((8, 1), (9, 10_000_000), (26, "p-7"), (27, 3), (28, 700), (29, 1)), b"part"),
        [
            {"chunk_uuid": "p-7", "chunk_id": 1, "num_chunks": 3, "chunks_bytes": 700, "compression": "LZ4"}
            | {"payload_base64": "cGFydA=="}
        ],
        {"payload"},
    ),
    "one chunk is an ordinary message": (
        entry(metadata((8, 1), (9, len(TEXT)), (26, "u"), (27, 1), (29, 0)), TEXT_AS[1]),
        [{"payload": TEXT.decode()}],
        {"chunk_uuid"},
    ),
    **{
        f"nothing, compressed by {number}": (
            entry(metadata((8, number)), bytes.fromhex(nothing)),
            [{"payload": ""}],
            set(),
        )
        for number, nothing in {2: "789c030000000001", 3: "28b52ffd 20 00 010000", 4: "00"}.items()
    },
}


@pytest.mark.parametrize("what", ODD)
def test_what_is_odd_of_a_message(what: str) -> None:
    data, expected, absent = ODD[what]
    for line, part in zip(lines(data), expected, strict=True):
        assert line.items() >= part.items()
        assert not line.keys() & absent


def test_an_encrypted_entry_names_its_keys_and_is_not_decoded() -> None:
    keys = ((13, proto((1, "ops.key"), (2, b"\0\1"))), (13, proto((1, "audit.key"), (2, b"\2"))))
    whole = decode(entry(metadata((8, 1), (9, 2**32 - 1), (11, 3), *keys), b"cipher"))
    assert whole.encryption_keys == ("ops.key", "audit.key")
    assert (whole.messages, whole.batch_size, whole.compression) == ((), 3, MessageCompression.LZ4)


@pytest.mark.parametrize(
    "fields",
    [
        ((27, 2), (29, 0)),
        ((26, "u"), (27, 2)),
        ((26, "u"), (27, 2), (29, 2)),
        ((26, "u"), (27, 2), (29, -1)),
        ((26, "u"), (27, 2), (29, 0), (11, 1)),
    ],
    ids=["no uuid", "no id", "id behind the last", "negative id", "a batch"],
)
def test_impossible_chunks_are_refused(fields: tuple[tuple[int, int | str], ...]) -> None:
    with pytest.raises(DataLoss, match=r"is damaged: it is (a )?chunk"):
        decode(entry(metadata(*fields), in_batch(b"x")))


def messages(entries: list[bytes]) -> list[MessageRecord]:
    """Fields in all of them, except the place in a batch."""
    found = [message for one in entries for message in decode(one).messages if not message.compacted_out]
    return [replace(message, batch_index=None, chunk=None) for message in found]


BATCH_OF_THREE = entry(
    metadata(
        (11, 3),
        *((4, proto((1, "of"), (2, "the batch"))), (6, "shared"), (12, 5), (16, b"v"), (19, 8), (25, 0), (77, "new")),
    ),
    in_batch(b"one", (1, proto((1, "a"), (2, "b"))), (2, "key"), (5, 9), (6, 1), (7, b"order"), (8, 3), (9, 1))
    + in_batch(b"two")
    + in_batch(b"", (4, 1)),
    broker=BROKER,
)
COMPRESSED = [
    entry(metadata((8, number), (9, len(TEXT))), packed, checksum=False) for number, packed in TEXT_AS.items()
]


@pytest.mark.parametrize("whole", [*entries_of_messages(), BATCH_OF_THREE, *COMPRESSED])
def test_unbatched_entries_have_the_same_messages(whole: bytes) -> None:
    alone = unbatch(whole)
    assert messages(alone) == messages([whole])
    for one in alone:
        decoded = decode(one)
        if one != whole:
            assert (decoded.batch_size, decoded.compression) == (None, MessageCompression.NONE)
            assert len(decoded.messages) == 1
            assert (decoded.checksum is None) == (decode(whole).checksum is None)
            assert one.endswith(decoded.messages[0].payload)
    if whole == BATCH_OF_THREE:
        assert [message.index for message in messages(alone)] == [39, 40]
        assert all(proto((77, "new")) in one for one in alone)


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
def test_what_unbatching_does_not_touch_stays_as_it_is(data: bytes) -> None:
    assert unbatch(data) == [data]
