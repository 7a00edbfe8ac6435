"""Unbatch Pulsar's entries: make one entry per message, without compression. Pure.

Encrypted entries, markers, chunks of a large message, and entries not written by Pulsar stay as they are. A message
that compaction dropped is left out, since only a batch can keep its place.
"""

from __future__ import annotations

from collections.abc import Iterator

from tierfs.base.bytes.checksum import crc32c
from tierfs.base.words.errors import DataLoss
from tierfs.engine.ledger import pulsar_api_pb2 as pb
from tierfs.engine.ledger.compression import MessageCompression, decompress
from tierfs.engine.ledger.message_bytes import MessageReader
from tierfs.engine.ledger.messages import BROKER_MAGIC, CHECKSUM_MAGIC, MAX_PAYLOAD_BYTES, decode

# Name of this transformation in the metadata of an object.
NAME = "unbatch"

# Fields that are taken from a message's own metadata only.
_FROM_BATCH = ("partition_key", "partition_key_b64_encoded", "ordering_key")

# Fields that are taken from the batch's metadata where the message's own lacks them.
_UNLESS_OWN = ("sequence_id", "event_time", "null_value", "null_partition_key")


def unbatch(entry: bytes) -> list[bytes]:
    """Return the entries that replace `entry`: itself if it cannot or need not be split."""
    try:
        decoded = decode(entry)
    except DataLoss:
        return [entry]
    if decoded.encryption_keys or decoded.marker is not None or decoded.chunk is not None:
        return [entry]
    if decoded.batch_size is None and decoded.compression is MessageCompression.NONE:
        return [entry]
    return list(_taken_apart(entry, has_checksum=decoded.checksum is not None))


def _taken_apart(entry: bytes, *, has_checksum: bool) -> Iterator[bytes]:
    """Yield the messages, as entries, of an entry that was decoded without an error."""
    reader = MessageReader(memoryview(entry), "an entry")
    broker = reader.metadata(pb.BrokerEntryMetadata) if reader.skip(BROKER_MAGIC) else None
    if reader.skip(CHECKSUM_MAGIC):
        reader.number("the checksum")
    metadata = reader.metadata(pb.MessageMetadata)
    compression = MessageCompression(metadata.compression)
    payload = decompress(compression, reader.rest, metadata.uncompressed_size, MAX_PAYLOAD_BYTES, reader.where)
    is_batch, count = metadata.HasField("num_messages_in_batch"), metadata.num_messages_in_batch
    for name in ("compression", "uncompressed_size", "num_messages_in_batch"):
        metadata.ClearField(name)
    if not is_batch:
        yield _encoded(broker, metadata, payload, has_checksum=has_checksum)
        return
    batch = MessageReader(memoryview(payload), reader.where)
    for at in range(count):
        own = batch.metadata(pb.SingleMessageMetadata)
        data = batch.take(own.payload_size, "the payload")
        if not own.compacted_out:
            alone = _alone(metadata, own)
            yield _encoded(_indexed(broker, at, count), alone, data, has_checksum=has_checksum)


def _alone(metadata: pb.MessageMetadata, own: pb.SingleMessageMetadata) -> pb.MessageMetadata:
    """Return the metadata of one message of a batch as that of an entry."""
    alone = pb.MessageMetadata()
    alone.CopyFrom(metadata)
    del alone.properties[:]
    for pair in own.properties:
        alone.properties.add(key=pair.key, value=pair.value)
    for name in _FROM_BATCH:
        alone.ClearField(name)
    for name in (*_FROM_BATCH, *_UNLESS_OWN):
        if own.HasField(name):
            setattr(alone, name, getattr(own, name))
    return alone


def _indexed(broker: pb.BrokerEntryMetadata | None, at: int, count: int) -> pb.BrokerEntryMetadata | None:
    """Return the broker's metadata for one message of a batch: the index it recorded is the last one's."""
    if broker is None or not broker.HasField("index"):
        return broker
    metadata = pb.BrokerEntryMetadata()
    metadata.CopyFrom(broker)
    if broker.index < count - 1:
        metadata.ClearField("index")
    else:
        metadata.index = broker.index - count + 1 + at
    return metadata


def _encoded(
    broker: pb.BrokerEntryMetadata | None,
    metadata: pb.MessageMetadata,
    payload: bytes | bytearray | memoryview,
    *,
    has_checksum: bool,
) -> bytes:
    body = _sized(metadata.SerializeToString(deterministic=True)) + bytes(payload)
    if has_checksum:
        body = CHECKSUM_MAGIC + crc32c(body).to_bytes(4, "big") + body
    return body if broker is None else BROKER_MAGIC + _sized(broker.SerializeToString(deterministic=True)) + body


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data
