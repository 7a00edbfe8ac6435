"""Decode an Apache Pulsar entry: its metadata, and its message or batch of messages. Pure.

    [0x0E02 | u32 size | BrokerEntryMetadata]  [0x0E01 | u32 CRC32C of the rest]  u32 size | MessageMetadata | payload

Parts in brackets may be absent; integers are big-endian. An unpacked batch is, for each of its messages,
`u32 size | SingleMessageMetadata | payload`. Every byte is hostile: sizes are bounded before anything is allocated.
Encrypted entries and markers are named and have no messages.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import replace

from tierfs.base.bytes.checksum import crc32c
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import MIB
from tierfs.engine.ledger import pulsar_api_pb2 as pb
from tierfs.engine.ledger.compression import MessageCompression, decompress
from tierfs.engine.ledger.message_bytes import MessageReader, damaged
from tierfs.engine.ledger.message_records import DecodedEntry, MessageChunk, MessageRecord

# Default limit of an unpacked payload. Pulsar's messages are at most 5 MiB by default.
MAX_PAYLOAD_BYTES = 64 * MIB

# Limit of messages per batch. Producers stop at 1,000 by default.
MAX_MESSAGES = 100_000

BROKER_MAGIC = b"\x0e\x02"
CHECKSUM_MAGIC = b"\x0e\x01"

# Pulsar's MarkerType.
_MARKERS = {
    0: "UNKNOWN_MARKER",
    10: "REPLICATED_SUBSCRIPTION_SNAPSHOT_REQUEST",
    11: "REPLICATED_SUBSCRIPTION_SNAPSHOT_RESPONSE",
    12: "REPLICATED_SUBSCRIPTION_SNAPSHOT",
    13: "REPLICATED_SUBSCRIPTION_UPDATE",
    21: "TXN_COMMIT",
    22: "TXN_ABORT",
}


def decode(
    entry: bytes | memoryview,
    *,
    ledger_id: int | None = None,
    entry_id: int | None = None,
    limit_bytes: int = MAX_PAYLOAD_BYTES,
) -> DecodedEntry:
    """Decode `entry`. Its ids, if given, are set in each message and named in errors.

    Raises DataLoss for an entry that is damaged, or whose payload unpacks to more than `limit_bytes`.
    """
    reader = MessageReader(memoryview(entry).cast("B"), _name(ledger_id, entry_id))
    broker = reader.metadata(pb.BrokerEntryMetadata) if reader.skip(BROKER_MAGIC) else pb.BrokerEntryMetadata()
    checksum = _checksum(reader)
    metadata = reader.metadata(pb.MessageMetadata)
    compression = _compression(metadata, reader.where)
    batch_size = _batch_size(metadata, reader.where)
    head = _head(metadata, broker, _chunk(metadata, compression, reader.where), (ledger_id, entry_id))
    marker = _marker(metadata)
    messages: Iterable[MessageRecord] = ()
    if marker is None and not metadata.encryption_keys:
        messages = _messages(head, metadata, reader, compression, limit_bytes)
    return DecodedEntry(
        head.producer_name,
        head.sequence_id,
        head.publish_time_ms,
        compression,
        tuple(messages),
        broker_timestamp_ms=head.broker_timestamp_ms,
        broker_index=head.index,
        checksum=checksum,
        batch_size=batch_size,
        encryption_keys=tuple(_text(key.key) for key in metadata.encryption_keys),
        marker=marker,
        chunk=head.chunk,
    )


def entry_time_ms(head: memoryview) -> int | None:
    """Return the time by which a broker seeks: its own if it recorded one, else the producer's; None if not in `head`.

    `head`: the first bytes of an entry. None also stands for an entry that is not Pulsar's.
    """
    reader = MessageReader(head, "an entry")
    try:
        if reader.skip(BROKER_MAGIC):
            broker = reader.metadata(pb.BrokerEntryMetadata)
            if broker.HasField("broker_timestamp"):
                return broker.broker_timestamp
        if reader.skip(CHECKSUM_MAGIC):
            reader.number("the checksum")
        return reader.metadata(pb.MessageMetadata).publish_time
    except DataLoss:
        return None


def _checksum(reader: MessageReader) -> int | None:
    """Return the CRC32C before the metadata, if any. Raises DataLoss unless it is that of all that follows."""
    if not reader.skip(CHECKSUM_MAGIC):
        return None
    stored = reader.number("the checksum")
    actual = crc32c(reader.rest)
    if stored != actual:
        raise damaged(reader.where, f"its checksum is {stored:08x}, but its bytes have {actual:08x}")
    return stored


def _compression(metadata: pb.MessageMetadata, where: str) -> MessageCompression:
    try:
        return MessageCompression(metadata.compression)
    except ValueError:
        raise DataLoss(f"{where} has the unknown compression {metadata.compression}", remedy="upgrade tierfs") from None


def _batch_size(metadata: pb.MessageMetadata, where: str) -> int | None:
    """Return the number of messages in a batch; None when the entry is not a batch."""
    if not metadata.HasField("num_messages_in_batch"):
        return None
    size = metadata.num_messages_in_batch
    if not 0 <= size <= MAX_MESSAGES:
        raise damaged(where, f"its batch has {size} messages")
    return size


def _marker(metadata: pb.MessageMetadata) -> str | None:
    """Return the name of the marker; None for another entry."""
    if not metadata.HasField("marker_type"):
        return None
    return _MARKERS.get(metadata.marker_type, f"marker {metadata.marker_type}")


def _chunk(metadata: pb.MessageMetadata, compression: MessageCompression, where: str) -> MessageChunk | None:
    """Return the place of the chunk; None for another entry. A message of one chunk is an ordinary one."""
    count = metadata.num_chunks_from_msg
    if count <= 1:
        return None
    if not (metadata.uuid and metadata.HasField("chunk_id") and 0 <= metadata.chunk_id < count):
        raise damaged(where, f"it is chunk {metadata.chunk_id} of {count} of message {_text(metadata.uuid)!r}")
    if metadata.HasField("num_messages_in_batch"):
        raise damaged(where, "it is a chunk and a batch")
    return MessageChunk(_text(metadata.uuid), metadata.chunk_id, count, metadata.total_chunk_msg_size, compression)


def _head(
    metadata: pb.MessageMetadata,
    broker: pb.BrokerEntryMetadata,
    chunk: MessageChunk | None,
    ids: tuple[int | None, int | None],
) -> MessageRecord:
    """Return the message of an entry without its payload; the messages of a batch take their defaults from it."""
    key, key_is_base64 = _key(metadata, is_null=metadata.null_partition_key)
    has_txn_id = metadata.HasField("txnid_most_bits") and metadata.HasField("txnid_least_bits")
    return MessageRecord(
        _text(metadata.producer_name),
        metadata.sequence_id,
        metadata.publish_time,
        b"",
        *ids,
        index=broker.index if broker.HasField("index") else None,
        broker_timestamp_ms=broker.broker_timestamp if broker.HasField("broker_timestamp") else None,
        event_time_ms=metadata.event_time or None,
        deliver_at_time_ms=metadata.deliver_at_time if metadata.HasField("deliver_at_time") else None,
        key=key,
        key_is_base64=key_is_base64,
        ordering_key=metadata.ordering_key if metadata.HasField("ordering_key") else None,
        properties=_properties(metadata.properties),
        schema_version=metadata.schema_version if metadata.HasField("schema_version") else None,
        txn_id=(metadata.txnid_most_bits, metadata.txnid_least_bits) if has_txn_id else None,
        null_value=metadata.null_value,
        chunk=chunk,
    )


def _messages(
    head: MessageRecord,
    metadata: pb.MessageMetadata,
    reader: MessageReader,
    compression: MessageCompression,
    limit_bytes: int,
) -> Iterator[MessageRecord]:
    """Yield the messages in the payload, which is the rest of `reader`."""
    if head.chunk is not None:
        yield replace(head, payload=bytes(reader.rest))
        return
    payload = decompress(compression, reader.rest, metadata.uncompressed_size, limit_bytes, reader.where)
    if not metadata.HasField("num_messages_in_batch"):
        yield replace(head, payload=bytes(payload))
        return
    batch = MessageReader(memoryview(payload), reader.where)
    count = metadata.num_messages_in_batch
    for at in range(count):
        batch.where = f"message {at} of {reader.where}"
        yield _from_batch(head, metadata, batch, at, count)
    if batch.rest:
        raise damaged(reader.where, f"{len(batch.rest)} bytes follow the {count} messages of its batch")


def _from_batch(
    head: MessageRecord, metadata: pb.MessageMetadata, batch: MessageReader, at: int, count: int
) -> MessageRecord:
    """Return the next message of a batch: fields it lacks are taken from `head`, except key and properties."""
    own = batch.metadata(pb.SingleMessageMetadata)
    is_null = own.null_partition_key if own.HasField("null_partition_key") else metadata.null_partition_key
    key, key_is_base64 = _key(own, is_null=is_null)
    # The broker counts messages and records the index of the last. An index that is too low counts something else.
    index = None if head.index is None or head.index < count - 1 else head.index - count + 1 + at
    return MessageRecord(  # dataclasses.replace would take twice as long (measured)
        head.producer_name,
        own.sequence_id if own.HasField("sequence_id") else head.sequence_id,
        head.publish_time_ms,
        bytes(batch.take(own.payload_size, "the payload")),
        head.ledger_id,
        head.entry_id,
        at,
        index,
        head.broker_timestamp_ms,
        (own.event_time or None) if own.HasField("event_time") else head.event_time_ms,
        head.deliver_at_time_ms,
        key,
        key_is_base64,
        own.ordering_key if own.HasField("ordering_key") else None,
        _properties(own.properties),
        head.schema_version,
        head.txn_id,
        null_value=own.null_value if own.HasField("null_value") else head.null_value,
        compacted_out=own.compacted_out,
    )


def _key(metadata: pb.MessageMetadata | pb.SingleMessageMetadata, *, is_null: bool) -> tuple[str | None, bool]:
    """Return the key and whether it is base64 of the bytes meant; bytes that are not UTF-8 are encoded so."""
    if is_null or not metadata.HasField("partition_key"):
        return None, False
    try:
        return metadata.partition_key.decode(), metadata.partition_key_b64_encoded
    except UnicodeDecodeError:
        return b64encode(metadata.partition_key).decode("ascii"), True


def _properties(pairs: Iterable[pb.KeyValue]) -> dict[str, str]:
    return {_text(pair.key): _text(pair.value) for pair in pairs}


def _text(data: bytes) -> str:
    """Decode text as Pulsar's Java client does."""
    return data.decode(errors="replace")


def _name(ledger_id: int | None, entry_id: int | None) -> str:
    if entry_id is None:
        return "an entry" if ledger_id is None else f"an entry of ledger {ledger_id}"
    return f"entry {entry_id}" if ledger_id is None else f"entry {ledger_id}:{entry_id}"
