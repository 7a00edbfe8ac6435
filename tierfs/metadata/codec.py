"""The only place where dataclasses meet protobuf.

Encoding starts from the message a record was decoded from, so fields of a newer version survive a
rewrite by this one. Decoding damaged bytes raises DataLoss.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any, Generic, TypeVar, get_type_hints

from google.protobuf.message import DecodeError, Message

from tierfs.errors import DataLoss
from tierfs.metadata.records import RECORD_VERSION, Record

R = TypeVar("R", bound=Record)

_UNSET = ("stored",)


class Codec(Generic[R]):
    """Turns one record type into the bytes of one message type and back, matching fields by name."""

    def __init__(self, record_type: type[R], message_type: type[Message]) -> None:
        self._record_type = record_type
        self._message_type = message_type
        self._fields = _Fields(record_type)

    def decode(self, data: bytes) -> R:
        """The record in `data`. Raises DataLoss for damage and for a version this code cannot read."""
        return self.from_message(self._parse(data), data)

    def from_message(self, message: Message, stored: bytes | None = None) -> R:
        """The record of a message that is already parsed, as in journal entries."""
        values = self._fields.read(message)
        record = self._record_type(**values, stored=message.SerializeToString() if stored is None else stored)
        if record.version > RECORD_VERSION:
            raise DataLoss(
                f"a {self._record_type.__name__} has format version {record.version}, "
                f"this tierfs reads up to {RECORD_VERSION}",
                remedy="upgrade tierfs",
            )
        return record

    def to_message(self, record: R) -> Message:
        """The message of `record`, with what its stored form holds beyond the known fields."""
        message = self._parse(record.stored) if record.stored else self._message_type()
        self._fields.write(message, record)
        return message

    def encode(self, record: R) -> bytes:
        """The bytes of `record`; deterministic, so that golden files hold."""
        record.check()
        return self.to_message(record).SerializeToString(deterministic=True)

    def parse_or_none(self, data: bytes) -> Any | None:
        """The message in `data`; None for damage. For checks, which go on."""
        try:
            return self._message_type.FromString(data)
        except DecodeError:
            return None

    def _parse(self, data: bytes) -> Message:
        try:
            return self._message_type.FromString(data)
        except DecodeError as exc:
            raise DataLoss(f"a {self._record_type.__name__} cannot be decoded", remedy="run: tierfs fsck") from exc


class _Fields:
    """How the fields of one dataclass are read from and written to a message."""

    def __init__(self, record_type: type[Any]) -> None:
        hints = get_type_hints(record_type)
        self._plain: list[tuple[str, type[Enum] | None]] = []
        self._optional: list[str] = []
        self._nested: list[tuple[str, type[Any], _Fields]] = []
        self._maps: list[str] = []
        for item in dataclasses.fields(record_type):
            if item.name in _UNSET:
                continue
            kind = hints[item.name]
            if dataclasses.is_dataclass(kind):
                self._nested.append((item.name, kind, _Fields(kind)))  # type: ignore[arg-type]
            elif getattr(kind, "__origin__", None) is Mapping:
                self._maps.append(item.name)
            elif type(None) in getattr(kind, "__args__", ()):
                self._optional.append(item.name)
            else:
                enum = kind if isinstance(kind, type) and issubclass(kind, Enum) else None
                self._plain.append((item.name, enum))

    def read(self, message: Message) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, enum in self._plain:
            value = getattr(message, name)
            values[name] = _member(enum, value) if enum is not None else value
        for name in self._optional:
            values[name] = getattr(message, name) if message.HasField(name) else None
        for name, kind, fields in self._nested:
            values[name] = kind(**fields.read(getattr(message, name)))
        for name in self._maps:
            values[name] = dict(getattr(message, name))
        return values

    def write(self, message: Message, record: object) -> None:
        for name, _ in self._plain:
            setattr(message, name, getattr(record, name))
        for name in self._optional:
            value = getattr(record, name)
            if value is None:
                message.ClearField(name)
            else:
                setattr(message, name, value)
        for name, kind, fields in self._nested:
            value = getattr(record, name)
            if message.HasField(name) or value != kind():
                fields.write(getattr(message, name), value)
        for name in self._maps:
            target = getattr(message, name)
            target.clear()
            target.update(getattr(record, name))


def _member(enum: type[Enum], value: int) -> Enum:
    try:
        return enum(value)
    except ValueError as exc:
        raise DataLoss(
            f"{enum.__name__} {value} is unknown to this tierfs", remedy="upgrade tierfs, or run: tierfs fsck"
        ) from exc
