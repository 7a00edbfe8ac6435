"""Objects that Pulsar's own offloader wrote: read, written again byte by byte, or reported as lost."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.ledger.objects import payloads_of, read, scanned
from tests.engine.ledger.pulsar_goldens import PULSAR, digests, golden, goldens, made_of, user_metadata
from tierfs.base.words import names
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import MIB
from tierfs.engine.ledger import keys
from tierfs.engine.ledger.block_reader import BlockRange, LedgerEntry, read_entries
from tierfs.engine.ledger.blocks import encode_blocks, plan_blocks
from tierfs.engine.ledger.compression import MessageCompression, decompress
from tierfs.engine.ledger.deviations import Deviations
from tierfs.engine.ledger.index import LedgerIndex
from tierfs.engine.ledger.index_codec import encode_index
from tierfs.engine.ledger.message_records import MessageRecord
from tierfs.engine.ledger.messages import decode
from tierfs.engine.ledger.metadata import CustomMetadata, DigestType, Ensemble, LedgerInfo, LedgerMetadata, LedgerState

WHOLE = (1, 2, 3, 4, 5, 6, 7, 8, 2**63 - 1)

LOST = {11: 2, 12: 1, 13: 2}
"""Ledgers that Pulsar lost the tail of, and how many entries are left."""


@pytest.mark.parametrize("ledger_id", WHOLE)
def test_what_pulsar_wrote_is_read_with_and_without_the_index_and_written_byte_by_byte(ledger_id: int) -> None:
    ledger, deviations = golden("whole", ledger_id), Deviations()
    index = ledger.plain_index()
    index.check(len(ledger.data), "o", deviations)
    entries, differs = read(ledger.data, index.blocks())
    by_scan = list(scanned([ledger.data], "o", deviations))
    assert digests(entries) == digests(by_scan) == made_of("whole")[ledger_id]
    assert deviations.messages + differs == []
    payloads = payloads_of(entries)
    block_bytes = index.entries[1].offset if len(index.entries) > 1 else 64 * MIB
    plans = plan_blocks(list(map(len, payloads)), block_bytes)
    assert b"".join(encode_blocks(enumerate(payloads), plans)) == ledger.data
    assert encode_index(LedgerIndex.of_plans(index.metadata, plans)) == ledger.index_bytes


@pytest.mark.parametrize("ledger_id", WHOLE)
def test_keys_and_user_metadata_are_those_of_pulsar(ledger_id: int) -> None:
    ledger = golden("whole", ledger_id)
    key = names.ledger_key(ledger.index_path.name)
    assert key is not None
    assert key.ledger_id == ledger_id
    assert keys.data_key(key.uuid, ledger_id) == ledger.data_path.name
    assert keys.index_key(key.uuid, ledger_id) == ledger.index_path.name
    for role, path in ((keys.Role.DATA, ledger.data_path), (keys.Role.INDEX, ledger.index_path)):
        written = keys.user_metadata(role, "public/default/persistent/topic", "4.0.8", "0000000", "standalone")
        assert user_metadata(path) == written


def test_every_field_of_the_metadata() -> None:
    assert golden("whole", 7).plain_index().metadata == LedgerMetadata(
        write_quorum=3,
        ensemble_size=3,
        length=220,
        last_entry_id=5,
        state=LedgerState.CLOSED,
        ensembles=(
            Ensemble(first_entry_id=0, members=("b1:3181", "b2:3181", "b3:3181")),
            Ensemble(first_entry_id=3, members=("b4:3181", "b2:3181", "b3:3181")),
        ),
        digest_type=DigestType.CRC32C,
        ack_quorum=2,
        created_ms=1_700_000_000_000,
        custom=(
            CustomMetadata(key="application", value=b"pulsar"),
            CustomMetadata(key="component", value=b"managed-ledger"),
            CustomMetadata(key="pulsar/managed-ledger", value=b"public/default/persistent/topic"),
            CustomMetadata(key="ü", value=b"\0\xff"),
        ),
    )


def until_loss(data: bytes, spans: list[BlockRange]) -> tuple[list[LedgerEntry], str]:
    """Return the entries before a loss, and its error."""
    entries: list[LedgerEntry] = []
    try:
        for entry in read_entries([data], spans, "o", Deviations()):
            entries.append(entry)
    except DataLoss as exc:
        return entries, str(exc)
    pytest.fail("nothing is lost")


@pytest.mark.parametrize(("ledger_id", "left"), LOST.items())
def test_a_lost_tail_is_told(ledger_id: int, left: int) -> None:
    """Pulsar reported success: the data object has a block that its index does not count, and no entries in it."""
    ledger, deviations = golden("lost", ledger_id), Deviations()
    index = ledger.plain_index()
    index.check(len(ledger.data), "o", deviations)
    assert deviations.messages == ["o has 600 bytes, its index has 300"]
    entries, lost = until_loss(ledger.data, index.blocks())
    assert digests(entries) == made_of("lost")[ledger_id][:left]
    assert lost == f"o: entry {left} is missing: the block at 300 has 0 bytes"


def test_the_streaming_form() -> None:
    """Four ledgers in two objects; blocks with paddings, and blocks that are more than full after an empty entry."""
    found: dict[int, list[LedgerEntry]] = defaultdict(list)
    for segment in goldens("streaming"):
        index = segment.streaming_index()
        assert index.data_object_length == len(segment.data)
        for section in index.sections:
            entries, deviations = read(segment.data, index.blocks(section.ledger_id))
            assert deviations == []
            found[section.ledger_id] += entries
    assert {ledger_id: digests(sorted(entries)) for ledger_id, entries in found.items()} == made_of("streaming")
    assert [entry.entry_id for entry in sorted(found[22])] == [0, 1, 2, 3, 4, 5, 6]


def test_records_in_the_streaming_form() -> None:
    """Of closed ledgers, as in Pulsar's metadata store; for an open one the offloader fills in the entries alone."""
    found = [section.info for segment in goldens("streaming") for section in segment.streaming_index().sections]
    assert sorted(found, key=lambda info: (info.ledger_id, info.entries)) == [
        LedgerInfo(ledger_id=21, entries=11, size=750, closed_ms=1_700_000_000_000),
        LedgerInfo(ledger_id=22, entries=3, size=12, closed_ms=1_700_000_000_000),
        LedgerInfo(ledger_id=22, entries=7, size=123, closed_ms=1_700_000_000_000),
        LedgerInfo(ledger_id=23, entries=1, size=0, closed_ms=1_700_000_000_000),
        LedgerInfo(ledger_id=24, entries=2),
    ]


def test_keys_and_user_metadata_of_the_streaming_form() -> None:
    """Neither role nor managed ledger is there, unlike in format 1."""
    for segment in goldens("streaming"):
        data, index = (names.ledger_key(path.name) for path in (segment.data_path, segment.index_path))
        assert data is not None
        assert (data.ledger_id, data.is_index) == (None, False)
        assert index == replace(data, is_index=True)
        for path in (segment.data_path, segment.index_path):
            metadata = user_metadata(path)
            keys.check_version(metadata, path.name)
            assert metadata.keys() == {
                keys.VERSION_KEY,
                keys.SOFTWARE_VERSION_KEY,
                keys.SOFTWARE_COMMIT_KEY,
                keys.CLUSTER_KEY,
            }


@pytest.mark.parametrize(("ledger_id", "left"), [(31, 6), (32, 1)])
def test_blocks_that_are_more_than_full_end_the_reading(ledger_id: int, left: int) -> None:
    """Their lengths are short by the first entry, so the objects are longer than their indexes say. Pulsar loops."""
    (segment,) = [found for found in goldens("overfull") if found.streaming_index().sections[0].ledger_id == ledger_id]
    index = segment.streaming_index()
    assert len(segment.data) > index.data_object_length
    entries, lost = until_loss(segment.data, index.blocks(ledger_id))
    assert digests(entries) == made_of("overfull")[ledger_id][:left]
    assert "extends past the end of the block at 0" in lost


def entries_of_messages() -> list[bytes]:
    """The entries of ledger 8."""
    ledger = golden("whole", 8)
    return payloads_of(read(ledger.data, ledger.plain_index().blocks())[0])


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
    assert len(decompress(MessageCompression.ZSTD, memoryview(packed), 150, 150, "o")) == 150
