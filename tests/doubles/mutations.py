"""Damaged and forged input, made from sound input by a seed: bytes that a disk or a wire changed, and messages that
somebody wrote on purpose. The same seed gives the same mutations; those of smaller counts come first."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

M = TypeVar("M", bound=Message)

TIMES_VARIABLE = "TIERFS_TEST_MUTATIONS"
"""A suite makes as many times its mutations as this number says; 1 if it is not set."""

NAMES = (
    "",
    ".",
    "..",
    "/",
    "../../precious",
    "/etc/precious",
    "00/../../precious",
    "a/b",
    "\0",
    "\n",
    "\u202e",
    "é" * 300,
    "x" * 70_000,
    "journal/00000000000000000001",
    "segments/../precious",
    "٣" * 16,
)
"""Texts that a door must refuse, or must at least not follow."""

_BOUNDS = (0, 1, 2, 127, 128, 4096, 2**31 - 1, 2**31, 2**32 - 1, 2**48, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
_WIDTHS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_MOST_STEPS = 3
"""Changes of one mutation: more of them are refused for the first, and show nothing of the others."""


def times() -> int:
    """Return by how much a test multiplies its number of mutations."""
    return int(os.environ.get(TIMES_VARIABLE, "1"))


def mutations(data: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Yield `count` damaged copies of `data`: bits flipped, parts cut, doubled, moved, zeroed or put in."""
    chance = random.Random(seed)
    for _ in range(count):
        damaged = bytearray(data)
        for _ in range(chance.randint(1, _MOST_STEPS)):
            _damage(damaged, chance)
        yield bytes(damaged)


def edits(message: M, seed: int, count: int, *, also: Sequence[Message] = ()) -> Iterator[M]:
    """Yield `count` copies of a message of which a few fields, at any depth, have other values.

    Numbers become limits and neighbours, texts become paths, list elements are dropped, doubled, moved or taken from
    another message of their type: of `message` itself, or of `also`, which the message would not hold by itself.
    """
    chance = random.Random(seed)
    spare = [part for whole in (message, *also) for part in parts(whole)]
    for _ in range(count):
        edited = type(message)()
        edited.CopyFrom(message)
        for _ in range(chance.randint(1, _MOST_STEPS)):
            _edit(chance.choice(list(parts(edited))), spare, chance)
        yield edited


def parts(message: Message) -> Iterator[Message]:
    """Yield a message and all messages inside it; entries of maps are none."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for inner in value if field.is_repeated else (value,):
            yield from parts(inner)


def _damage(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    end = min(len(data), at + chance.choice((1, 2, 8, 64, len(data))))
    match chance.randrange(7):
        case 0 | 1 if at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        case 2 if at < len(data):
            data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        case 3:
            del data[at:end]
        case 4:
            data[at:at] = data[at:end]
        case 5:
            data[at:end] = bytes(end - at)
        case _:
            data[at:at] = chance.randbytes(chance.choice((1, 4, 16)))


def _edit(message: Message, spare: Sequence[Message], chance: random.Random) -> None:
    field = chance.choice(message.DESCRIPTOR.fields)
    if chance.random() < 0.2:
        message.ClearField(field.name)
    elif field.message_type is not None and field.message_type.GetOptions().map_entry:
        _edit_map(getattr(message, field.name), field, chance)
    elif field.is_repeated:
        _edit_list(getattr(message, field.name), field, spare, chance)
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(_another(field, spare, chance))
    else:
        setattr(message, field.name, _value(field, getattr(message, field.name), chance))


def _edit_map(values: Any, field: FieldDescriptor, chance: random.Random) -> None:
    key, value = (field.message_type.fields_by_name[part] for part in ("key", "value"))
    keys = list(values)
    name = chance.choice(keys) if keys and chance.random() < 0.7 else _value(key, key.default_value, chance)
    if value.message_type is None:
        values[name] = _value(value, value.default_value, chance)


def _edit_list(values: Any, field: FieldDescriptor, spare: Sequence[Message], chance: random.Random) -> None:
    kept = list(values)
    at = chance.randrange(len(kept) + 1)
    match chance.randrange(5):
        case 0 if at < len(kept):
            del kept[at]
        case 1 if at < len(kept):
            kept.insert(chance.randrange(len(kept) + 1), kept[at])
        case 2 if at < len(kept):
            kept.insert(chance.randrange(len(kept)), kept.pop(at))
        case _ if field.message_type is not None:
            kept.insert(at, _another(field, spare, chance))
        case _:
            before = kept[at] if at < len(kept) else field.default_value or _zero(field)
            kept[at : at + 1] = [_value(field, before, chance)]
    copies = [_copy(value) for value in kept]  # clearing a list ends the messages in it
    del values[:]
    values.extend(copies)


def _copy(value: Any) -> Any:
    if not isinstance(value, Message):
        return value
    copy = type(value)()
    copy.CopyFrom(value)
    return copy


def _another(field: FieldDescriptor, spare: Sequence[Message], chance: random.Random) -> Message:
    """Return a message of the field's type: one there is, or an empty one of which a field is set."""
    alike = [part for part in spare if part.DESCRIPTOR is field.message_type]
    if alike and chance.random() < 0.8:
        return chance.choice(alike)
    made: Message = field.message_type._concrete_class()
    inner = chance.choice(made.DESCRIPTOR.fields) if made.DESCRIPTOR.fields else None
    if inner is not None and inner.message_type is None and not inner.is_repeated:
        setattr(made, inner.name, _value(inner, inner.default_value, chance))
    return made


def _value(field: FieldDescriptor, before: Any, chance: random.Random) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return not before
    if kind == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return next(mutations(before or b"", chance.randrange(2**32), 1))
        return chance.choice((*NAMES, before[:-1], before + "x", f"../{before}", before.upper()))
    if kind in _WIDTHS:
        low, high = _WIDTHS[kind]
        return min(max(chance.choice((*_BOUNDS, before - 1, before + 1, before * 2)), low), high)
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return chance.choice([value.number for value in field.enum_type.values])
    return chance.choice((0.0, -1.0, 1e300, float("inf"), float("nan")))


def _zero(field: FieldDescriptor) -> Any:
    return "" if field.cpp_type == FieldDescriptor.CPPTYPE_STRING else 0
