"""What an entry of Pulsar holds: the entry, its messages, and the JSON line of a message. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field

from tierfs.ledger.message_compression import Compression


@dataclass(frozen=True, slots=True)
class MessageChunk:
    """Place of a chunk in a message that was too large for one entry.

    The message was compressed before it was cut, so a chunk can be unpacked together with the others only.
    """

    uuid: str
    chunk_id: int
    num_chunks: int
    total_bytes: int
    compression: Compression


@dataclass(frozen=True, slots=True)
class Message:
    """One message as its producer sent it. Times are milliseconds since the epoch; None: the entry does not say."""

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
        """The message as one JSON object: what it does not have is left out."""
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
        return place | ({} if chunk.compression is Compression.NONE else {"compression": chunk.compression.name})

    def _payload_as_json(self) -> dict[str, object]:
        """Text when it is UTF-8, else base64; a chunk is always base64, since a cut may part a character."""
        if not self.payload and (self.null_value or self.compacted_out):
            return {}
        if self.chunk is None:
            try:
                return {"payload": self.payload.decode()}
            except UnicodeDecodeError:
                pass
        return {"payload_base64": _base64(self.payload)}


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
"""Fields of a message whose names and values are those of its JSON line, in this order."""


@dataclass(frozen=True, slots=True)
class DecodedEntry:
    """One entry: what brokers and producer say of it, and its messages.

    An encrypted entry (`encryption_keys`) and a marker (`marker`) have no messages.
    """

    producer_name: str
    sequence_id: int
    publish_time_ms: int
    compression: Compression
    messages: tuple[Message, ...]
    broker_timestamp_ms: int | None = None
    broker_index: int | None = None
    """Of a batch: the index of its last message."""
    checksum: int | None = None
    """CRC32C, proved right; None: the entry has none."""
    batch_size: int | None = None
    """Messages of the batch; None: it is none."""
    encryption_keys: tuple[str, ...] = ()
    """Names of the keys that the payload is encrypted with."""
    marker: str | None = None
    chunk: MessageChunk | None = None


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")
