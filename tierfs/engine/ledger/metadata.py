"""Records of a ledger as BookKeeper and Pulsar keep them. ledger.proto documents every field.

Each is a frozen dataclass read from a protobuf message and written to it. None means that a field was not written,
which differs from a written zero: a decoded record encodes to the same bytes. Unknown fields of newer versions survive
a rewrite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, ClassVar, Self, TypeAlias
from uuid import UUID

from google.protobuf.message import DecodeError, Message

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.engine.ledger import ledger_pb2 as pb

# The fields of a record: our names and Pulsar's.
Names: TypeAlias = Mapping[str, str]

# Conversions from Pulsar's values to ours, for fields that are enums or records.
Readers: TypeAlias = Mapping[str, Callable[[Any], Any]]

_UUID_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufRecord:
    """Base of the records. A subclass names its message and the fields."""

    unknown: bytes = field(default=b"", repr=False)

    MESSAGE: ClassVar[type[Message]]
    NAMES: ClassVar[Names]
    READ: ClassVar[Readers] = {}

    def encode(self) -> bytes:
        """Return its bytes. Raises InvalidRequest for values that do not fit."""
        try:
            return self.to_message().SerializeToString(deterministic=True)
        except (ValueError, TypeError) as exc:
            raise InvalidRequest(f"{type(self).__name__} cannot be encoded: {exc}") from exc

    @classmethod
    def decode(cls, data: bytes, name: str) -> Self:
        """Decode the record in `data`. Raises DataLoss naming the object it was read from."""
        try:
            message = cls.MESSAGE.FromString(data)
        except DecodeError as exc:
            raise DataLoss(f"{printable(name)}: its {cls.__name__} cannot be decoded") from exc
        if not message.IsInitialized():
            raise DataLoss(f"{printable(name)}: its {cls.__name__} lacks a required field")
        return cls.from_message(message)

    def to_message(self) -> Message:
        """Return the record as Pulsar's message."""
        message = self.MESSAGE(**{theirs: _theirs(getattr(self, ours)) for ours, theirs in self.NAMES.items()})
        message.MergeFromString(self.unknown)
        return message

    def as_json(self) -> dict[str, Any]:
        """Return it as protobuf's JSON mapping has it: Pulsar's names, numbers of 64 bits as texts."""
        from google.protobuf.json_format import MessageToDict

        data: dict[str, Any] = MessageToDict(self.to_message(), preserving_proto_field_name=True)
        return data

    @classmethod
    def from_message(cls, message: Message) -> Self:
        """Return the record of a message that has all its required fields."""
        values = {ours: _ours(message, theirs, cls.READ.get(ours)) for ours, theirs in cls.NAMES.items()}
        return cls(**values, unknown=_unknown(message))


def _theirs(value: Any) -> Any:
    if isinstance(value, ProtobufRecord):
        return value.to_message()
    return [_theirs(item) for item in value] if isinstance(value, tuple) else value


def _ours(message: Message, name: str, read: Callable[[Any], Any] | None) -> Any:
    theirs = message.DESCRIPTOR.fields_by_name[name]
    if read is None:
        read = _text if theirs.type == theirs.TYPE_STRING else _as_it_is
    value = getattr(message, name)
    if theirs.is_repeated:
        return tuple(map(read, value))
    return read(value) if message.HasField(name) else None


def _as_it_is(value: Any) -> Any:
    return value


def _text(value: str | bytes) -> str:
    """Return text; text that is not UTF-8 arrives as bytes and gets replacement characters, as in Java."""
    return value if isinstance(value, str) else value.decode(errors="replace")


def _unknown(message: Message) -> bytes:
    """Return the rest of a message, without the fields that this version knows."""
    rest = type(message)()
    rest.CopyFrom(message)
    for descriptor, _ in message.ListFields():
        rest.ClearField(descriptor.name)
    return rest.SerializePartialToString()


class LedgerState(IntEnum):
    """Life of a ledger; only a closed one is offloaded."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


class DigestType(IntEnum):
    """Checksum by which bookies check an entry."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensemble(ProtobufRecord):
    """The bookies that hold a ledger's entries from one on."""

    first_entry_id: int
    members: tuple[str, ...] = ()

    MESSAGE = pb.LedgerMetadataFormat.Segment
    NAMES: ClassVar[Names] = {"first_entry_id": "firstEntryId", "members": "ensembleMember"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomMetadata(ProtobufRecord):
    """One of a ledger's custom properties, in the order in which they were written."""

    key: str | None
    value: bytes | None

    MESSAGE = pb.LedgerMetadataFormat.cMetadataMapEntry
    NAMES: ClassVar[Names] = {"key": "key", "value": "value"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerMetadata(ProtobufRecord):
    """BookKeeper's description of a ledger, in the index object of format 1."""

    write_quorum: int
    ensemble_size: int
    length: int
    last_entry_id: int | None
    state: LedgerState
    ensembles: tuple[Ensemble, ...] = ()
    digest_type: DigestType | None = None
    password: bytes | None = field(default=None, repr=False)
    ack_quorum: int | None = None
    created_ms: int | None = None
    custom: tuple[CustomMetadata, ...] = ()

    MESSAGE = pb.LedgerMetadataFormat
    NAMES: ClassVar[Names] = {
        "write_quorum": "quorumSize",
        "ensemble_size": "ensembleSize",
        "length": "length",
        "last_entry_id": "lastEntryId",
        "state": "state",
        "ensembles": "segment",
        "digest_type": "digestType",
        "password": "password",
        "ack_quorum": "ackQuorumSize",
        "created_ms": "ctime",
        "custom": "customMetadata",
    }
    READ: ClassVar[Readers] = {
        "state": LedgerState,
        "ensembles": Ensemble.from_message,
        "digest_type": DigestType,
        "custom": CustomMetadata.from_message,
    }

    @property
    def readable_last_entry_id(self) -> int:
        """Return the last entry that may be read; 0 if it was not written, as in Pulsar's reader."""
        return self.last_entry_id or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue(ProtobufRecord):
    """One property."""

    key: str
    value: str

    MESSAGE = pb.KeyValue
    NAMES: ClassVar[Names] = {"key": "key", "value": "value"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverMetadata(ProtobufRecord):
    """The offloader that wrote an object, and its destination."""

    name: str
    properties: tuple[KeyValue, ...] = ()

    MESSAGE = pb.OffloadDriverMetadata
    NAMES: ClassVar[Names] = {"name": "name", "properties": "properties"}
    READ: ClassVar[Readers] = {"properties": KeyValue.from_message}


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadSegment(ProtobufRecord):
    """One object of a streaming offload."""

    uuid_upper: int | None = None
    uuid_lower: int | None = None
    complete: bool | None = None
    assigned_ms: int | None = None
    offloaded_ms: int | None = None
    end_entry_id: int | None = None
    driver: DriverMetadata | None = None

    MESSAGE = pb.OffloadSegment
    NAMES: ClassVar[Names] = {
        "uuid_upper": "uidMsb",
        "uuid_lower": "uidLsb",
        "complete": "complete",
        "assigned_ms": "assignedTimestamp",
        "offloaded_ms": "offloadedTimestamp",
        "end_entry_id": "endEntryId",
        "driver": "driverMetadata",
    }
    READ: ClassVar[Readers] = {"driver": DriverMetadata.from_message}

    @property
    def uuid(self) -> UUID | None:
        """Return the attempt, or None when none began."""
        return join_uuid(self.uuid_upper, self.uuid_lower)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadContext(ProtobufRecord):
    """Progress of the offload of one ledger."""

    uuid_upper: int | None = None
    uuid_lower: int | None = None
    complete: bool | None = None
    local_deleted: bool | None = None
    offloaded_ms: int | None = None
    driver: DriverMetadata | None = None
    segments: tuple[OffloadSegment, ...] = ()

    MESSAGE = pb.OffloadContext
    NAMES: ClassVar[Names] = {
        "uuid_upper": "uidMsb",
        "uuid_lower": "uidLsb",
        "complete": "complete",
        "local_deleted": "bookkeeperDeleted",
        "offloaded_ms": "timestamp",
        "driver": "driverMetadata",
        "segments": "offloadSegment",
    }
    READ: ClassVar[Readers] = {"driver": DriverMetadata.from_message, "segments": OffloadSegment.from_message}

    @property
    def uuid(self) -> UUID | None:
        """Return the attempt, or None when none began."""
        return join_uuid(self.uuid_upper, self.uuid_lower)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerInfo(ProtobufRecord):
    """A ledger in Pulsar's metadata store, and in the index object of the streaming form."""

    ledger_id: int
    entries: int | None = None
    size: int | None = None
    closed_ms: int | None = None
    offload: OffloadContext | None = None
    properties: tuple[KeyValue, ...] = ()

    MESSAGE = pb.LedgerInfo
    NAMES: ClassVar[Names] = {
        "ledger_id": "ledgerId",
        "entries": "entries",
        "size": "size",
        "closed_ms": "timestamp",
        "offload": "offloadContext",
        "properties": "properties",
    }
    READ: ClassVar[Readers] = {"offload": OffloadContext.from_message, "properties": KeyValue.from_message}

    @property
    def last_entry_id(self) -> int:
        """Return the last entry id; -1 for none, or while the entries are unknown."""
        return (self.entries or 0) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedPosition(ProtobufRecord):
    """An entry, by its ledger's id and its own."""

    ledger_id: int
    entry_id: int

    MESSAGE = pb.NestedPositionInfo
    NAMES: ClassVar[Names] = {"ledger_id": "ledgerId", "entry_id": "entryId"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedLedgerInfo(ProtobufRecord):
    """A managed ledger in Pulsar's metadata store."""

    ledgers: tuple[LedgerInfo, ...] = ()
    terminated: NestedPosition | None = None
    properties: tuple[KeyValue, ...] = ()

    MESSAGE = pb.ManagedLedgerInfo
    NAMES: ClassVar[Names] = {
        "ledgers": "ledgerInfo",
        "terminated": "terminatedPosition",
        "properties": "properties",
    }
    READ: ClassVar[Readers] = {
        "ledgers": LedgerInfo.from_message,
        "terminated": NestedPosition.from_message,
        "properties": KeyValue.from_message,
    }


def split_uuid(uuid: UUID) -> tuple[int, int]:
    """Split a UUID as Pulsar stores it: two signed numbers, upper half first."""
    upper, lower = uuid.int >> 64, uuid.int & _UUID_MASK
    return upper - ((upper >> 63) << 64), lower - ((lower >> 63) << 64)


def join_uuid(upper: int | None, lower: int | None) -> UUID | None:
    """Return the UUID of both halves; None if one is missing."""
    if upper is None or lower is None:
        return None
    return UUID(int=(upper & _UUID_MASK) << 64 | (lower & _UUID_MASK))
