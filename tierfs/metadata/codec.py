"""The only place where dataclasses meet protobuf.

Encoding starts from the message a record was decoded from, so fields of a newer version survive a
rewrite by this one. Decoding damaged bytes raises DataLoss.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from operator import attrgetter
from typing import Any, Generic, NoReturn, TypeVar, get_type_hints

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
        self._fields.write(message, record, is_new=not record.stored)
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
    """How the fields of one dataclass are read from and written to a message.

    Every metadata operation passes here several times, so fields at their default are skipped: a proto3 message
    does not store them either. Measured: a segment's record is decoded in a quarter of the time.
    """

    def __init__(self, record_type: type[Any]) -> None:
        hints = get_type_hints(record_type)
        self._plain: list[str] = []
        self._enums: list[tuple[str, type[Enum], dict[int, Enum]]] = []
        self._optional: list[str] = []
        self._nested: list[tuple[str, type[Any], _Fields, Any]] = []
        self._maps: list[str] = []
        for item in dataclasses.fields(record_type):
            if item.name in _UNSET:
                continue
            kind = hints[item.name]
            if dataclasses.is_dataclass(kind):
                self._nested.append((item.name, kind, _Fields(kind), kind()))  # type: ignore[arg-type,operator]
            elif getattr(kind, "__origin__", None) is Mapping:
                self._maps.append(item.name)
            elif type(None) in getattr(kind, "__args__", ()):
                self._optional.append(item.name)
            elif isinstance(kind, type) and issubclass(kind, Enum):
                self._enums.append((item.name, kind, {member.value: member for member in kind}))
            else:
                self._plain.append(item.name)
        self._get_plain = attrgetter(*self._plain) if len(self._plain) > 1 else None

    def read(self, message: Message) -> dict[str, Any]:
        if self._get_plain is not None:
            values: dict[str, Any] = dict(zip(self._plain, self._get_plain(message), strict=True))
        else:
            values = {name: getattr(message, name) for name in self._plain}
        for name, enum, members in self._enums:
            number = getattr(message, name)
            values[name] = members[number] if number in members else _unknown(enum, number)
        for name in self._optional:
            values[name] = getattr(message, name) if message.HasField(name) else None
        for name, kind, fields, default in self._nested:
            # Records are frozen: all that hold the default may share it.
            values[name] = kind(**fields.read(getattr(message, name))) if message.HasField(name) else default
        for name in self._maps:
            values[name] = dict(getattr(message, name))
        return values

    def write(self, message: Message, record: object, *, is_new: bool) -> None:
        for name in self._plain:
            value = getattr(record, name)
            if value or not is_new:
                setattr(message, name, value)
        for name, _, _ in self._enums:
            value = getattr(record, name)
            if value or not is_new:
                setattr(message, name, value)
        for name in self._optional:
            value = getattr(record, name)
            if value is not None:
                setattr(message, name, value)
            elif not is_new:
                message.ClearField(name)
        for name, _, fields, default in self._nested:
            value = getattr(record, name)
            if value is default or value == default:
                if not is_new and message.HasField(name):
                    fields.write(getattr(message, name), value, is_new=False)
            else:
                fields.write(getattr(message, name), value, is_new=is_new)
        for name in self._maps:
            target = getattr(message, name)
            target.clear()
            target.update(getattr(record, name))


def _unknown(enum: type[Enum], value: int) -> NoReturn:
    raise DataLoss(f"{enum.__name__} {value} is unknown to this tierfs", remedy="upgrade tierfs, or run: tierfs fsck")
