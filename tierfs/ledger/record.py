"""The base of frozen dataclasses that are read from Pulsar's protobuf messages and written to them.

None means that a field was not written, which differs from a zero that was: a record that was decoded encodes to
the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeAlias

from google.protobuf.message import DecodeError, Message

from tierfs.errors import DataLoss, InvalidRequest
from tierfs.names import printable

Names: TypeAlias = Mapping[str, str]
"""The fields of a record: our names and Pulsar's."""

Readers: TypeAlias = Mapping[str, Callable[[Any], Any]]
"""Conversions from Pulsar's values to ours, for fields that are enums or records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Base of the records. A subclass names its message and the fields."""

    unknown: bytes = field(default=b"", repr=False)

    MESSAGE: ClassVar[type[Message]]
    NAMES: ClassVar[Names]
    READ: ClassVar[Readers] = {}

    def encode(self) -> bytes:
        """Its bytes. Raises InvalidRequest for values that do not fit."""
        try:
            return self.to_message().SerializeToString(deterministic=True)
        except (ValueError, TypeError) as exc:
            raise InvalidRequest(f"{type(self).__name__} cannot be encoded: {exc}") from exc

    @classmethod
    def decode(cls, data: bytes, name: str) -> Self:
        """The record in `data`. Raises DataLoss naming the object it was read from."""
        try:
            message = cls.MESSAGE.FromString(data)
        except DecodeError as exc:
            raise DataLoss(f"{printable(name)}: its {cls.__name__} cannot be decoded") from exc
        if not message.IsInitialized():
            raise DataLoss(f"{printable(name)}: its {cls.__name__} lacks a required field")
        return cls.from_message(message)

    def to_message(self) -> Message:
        """The record as Pulsar's message."""
        message = self.MESSAGE(**{theirs: _theirs(getattr(self, ours)) for ours, theirs in self.NAMES.items()})
        message.MergeFromString(self.unknown)
        return message

    @classmethod
    def from_message(cls, message: Message) -> Self:
        """The record of a message whose required fields are all there."""
        values = {ours: _ours(message, theirs, cls.READ.get(ours)) for ours, theirs in cls.NAMES.items()}
        return cls(**values, unknown=_unknown(message))


def _theirs(value: Any) -> Any:
    if isinstance(value, Record):
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
    """Text that is not UTF-8 arrives as bytes; as in Java, it gets replacement characters."""
    return value if isinstance(value, str) else value.decode(errors="replace")


def _unknown(message: Message) -> bytes:
    """The rest of a message, without the fields that this version knows."""
    rest = type(message)()
    rest.CopyFrom(message)
    for known, _ in message.ListFields():
        rest.ClearField(known.name)
    return rest.SerializePartialToString()
