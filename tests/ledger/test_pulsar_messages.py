"""Entries made by Pulsar's own producer and broker code, compared with the output of Pulsar's own parser."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.ledger.objects import payloads_of, read
from tests.ledger.pulsar_goldens import PULSAR, golden
from tierfs.ledger.message_bytes import Compression, decompress
from tierfs.ledger.messages import MessageRecord, decode


def entries_of_messages() -> list[bytes]:
    """The entries of ledger 8."""
    ledger = golden("whole", 8)
    return payloads_of(read(ledger.data, ledger.plain_index().spans())[0])


MESSAGES: list[dict[str, Any]] = list(map(json.loads, (PULSAR / "whole.messages").read_text().splitlines()))
"""The entries of ledger 8 as Pulsar's parser reads them."""

UNREAD = [line["entry_id"] for line in MESSAGES if "error" in line]
"""Those that it does not read: encrypted, and chunks of a compressed message."""


@pytest.mark.parametrize("expected", MESSAGES, ids=lambda line: str(line["entry_id"]))
def test_an_entry_is_what_pulsar_says(expected: dict[str, Any]) -> None:
    found = decode(entries_of_messages()[expected["entry_id"]])
    assert found.broker_timestamp_ms == expected.get("broker_timestamp_ms")
    assert found.broker_index == expected.get("broker_index")
    assert (found.batch_size, found.compression.name) == (expected["batch_size"], expected["compression"])
    assert (found.marker is None) == (expected["marker"] is None)
    if "error" not in expected:
        messages = [message for message in found.messages if not message.compacted_out]
        assert list(map(as_pulsar_says_it, messages)) == expected["messages"]


def as_pulsar_says_it(message: MessageRecord) -> dict[str, object]:
    """The fields that Pulsar's parser hands out."""
    chunk = message.chunk
    return {
        "producer_name": message.producer_name,
        "sequence_id": message.sequence_id,
        "publish_time_ms": message.publish_time_ms,
        "event_time_ms": message.event_time_ms or 0,
        "key": message.key,
        "key_is_base64": message.key_is_base64,
        "properties": message.properties,
        "schema_version": None if message.schema_version is None else message.schema_version.hex(),
        "chunk": None if chunk is None else [chunk.uuid, chunk.chunk_id, chunk.num_chunks, chunk.total_bytes],
        "payload": message.payload.hex(),
    }


def test_markers_of_pulsar() -> None:
    entries = entries_of_messages()
    assert [decode(entries[line["entry_id"]]).marker for line in MESSAGES if line["marker"] is not None] == [
        "TXN_COMMIT",
        "TXN_ABORT",
        "REPLICATED_SUBSCRIPTION_SNAPSHOT_REQUEST",
        "REPLICATED_SUBSCRIPTION_UPDATE",
    ]


def test_an_entry_that_pulsar_encrypted() -> None:
    found = decode(entries_of_messages()[UNREAD[0]])
    assert (found.encryption_keys, found.messages) == (("owner",), ())


def test_chunks_of_a_message_that_pulsar_compressed() -> None:
    """Together they are the codec's output for the message."""
    entries = entries_of_messages()
    messages = [decode(entries[entry_id]).messages[0] for entry_id in UNREAD[1:]]
    places = [message.chunk for message in messages]
    assert [(place.chunk_id, place.num_chunks) for place in places if place] == [(0, 3), (1, 3), (2, 3)]
    packed = b"".join(message.payload for message in messages)
    assert [place.total_bytes for place in places if place] == [len(packed)] * 3
    assert len(decompress(Compression.ZSTD, memoryview(packed), 150, 150, "o")) == 150
