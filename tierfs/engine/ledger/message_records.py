"""Decoded entries and messages of Apache Pulsar, and the JSON lines of messages."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.engine.ledger.compression import MessageCompression
from tierfs.engine.ledger.message_bytes import payload_as_json

# Fields of a message whose names and values are those of its JSON line, in this order.
_AS_THEY_ARE = (
    "ledger_id",
    "entry_id",
    "batch_index",
    "index",
    "broker_timestamp_ms",
    "publish_time_ms",
    "event_time_ms",
    "deliver_at_time_ms",
    "producer_name",
    "sequence_id",
    "key",
    "key_is_base64",
    "null_value",
    "compacted_out",
)


@dataclass(frozen=True, slots=True)
class MessageChunk:
    """Place of a chunk in a message that was too large for one entry.

    The message was compressed before it was cut, so a chunk can be unpacked only together with the others.
    """

    uuid: str
    chunk_id: int
    num_chunks: int
    total_bytes: int
    compression: MessageCompression


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """One message as its producer sent it. Times are milliseconds since the epoch; None: not in the entry."""

    producer_name: str
    sequence_id: int
    publish_time_ms: int
    payload: bytes
    ledger_id: int | None = None
    entry_id: int | None = None
    batch_index: int | None = None
    index: int | None = None
    broker_timestamp_ms: int | None = None
    event_time_ms: int | None = None
    deliver_at_time_ms: int | None = None
    key: str | None = None
    key_is_base64: bool = False
    ordering_key: bytes | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    schema_version: bytes | None = None
    txn_id: tuple[int, int] | None = None
    """Most and least significant bits."""
    null_value: bool = False
    compacted_out: bool = False
    chunk: MessageChunk | None = None

    def as_json(self) -> dict[str, object]:
        """Return the message as one JSON object, without absent fields."""
        line = {name: getattr(self, name) for name in _AS_THEY_ARE}
        line["ordering_key_base64"] = None if self.ordering_key is None else _base64(self.ordering_key)
        line["properties"] = dict(self.properties) or None
        line["schema_version"] = None if self.schema_version is None else self.schema_version.hex()
        line["txn_id"] = None if self.txn_id is None else f"({self.txn_id[0]},{self.txn_id[1]})"
        present = {name: value for name, value in line.items() if value is not None and value is not False}
        return present | self._chunk_as_json() | self._payload_as_json()

    def _chunk_as_json(self) -> dict[str, object]:
        if (chunk := self.chunk) is None:
            return {}
        place: dict[str, object] = {
            "chunk_uuid": chunk.uuid,
            "chunk_id": chunk.chunk_id,
            "num_chunks": chunk.num_chunks,
            "chunks_bytes": chunk.total_bytes,
        }
        return place | ({} if chunk.compression is MessageCompression.NONE else {"compression": chunk.compression.name})

    def _payload_as_json(self) -> dict[str, object]:
        if not self.payload and (self.null_value or self.compacted_out):
            return {}
        return payload_as_json(self.payload, is_text=self.chunk is None)  # a cut may split a character


@dataclass(frozen=True, slots=True)
class DecodedEntry:
    """One entry: the fields set by broker and producer, and its messages.

    An encrypted entry (`encryption_keys`) and a marker (`marker`) have no messages.
    """

    producer_name: str
    sequence_id: int
    publish_time_ms: int
    compression: MessageCompression
    messages: tuple[MessageRecord, ...]
    broker_timestamp_ms: int | None = None
    broker_index: int | None = None
    """For a batch, the index of its last message."""
    checksum: int | None = None
    """CRC32C, verified; None: the entry has none."""
    batch_size: int | None = None
    """Messages of the batch; None: not a batch."""
    encryption_keys: tuple[str, ...] = ()
    """Names of the keys that the payload is encrypted with."""
    marker: str | None = None
    chunk: MessageChunk | None = None


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")
