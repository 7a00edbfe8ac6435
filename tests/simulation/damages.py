"""Damage of files and objects: where a life flipped, cut or took away bytes, and what may be wrong because of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from tests.simulation.storage import SimStorage
from tierfs.base.words.types import ByteRange
from tierfs.engine.metadata.layout import PlacedChunk

_EVERYTHING = ByteRange(0, 1 << 62)


class Harm(StrEnum):
    """What happens to one file or object."""

    FLIP = "flip"
    SHORT = "short"
    VANISH = "vanish"
    TABLE = "table"
    """A bit of the seek table of a compressed object is flipped: its bytes stay readable."""
    BOMB = "bomb"
    """A frame says of itself that it has far more bytes than the buffer that it is unpacked into."""
    OTHER_FORM = "other form"
    """The same plain bytes stand there, compressed at another level into other frames."""


@dataclass
class Damages:
    """The bytes that are not what was written, of each file and object by its name."""

    of: dict[str, list[ByteRange]] = field(default_factory=dict)
    undo: list[Callable[[], None]] = field(default_factory=list)
    """Each takes one of them back: a disk is mounted again, an object restored."""

    def __bool__(self) -> bool:
        return bool(self.of)

    def note(self, name: str, harm: Harm, at: int) -> None:
        """Note what was done to plain bytes."""
        harmed = {Harm.FLIP: ByteRange(at, at + 1), Harm.SHORT: ByteRange(at, _EVERYTHING.end)}.get(harm, _EVERYTHING)
        self.of.setdefault(name, []).append(harmed)

    def hurts(self, placed: PlacedChunk, held: ByteRange, block_bytes: int) -> bool:
        """Return whether this copy may fail for some bytes of a segment: a block that holds them is harmed.

        The blocks of a joined object begin anywhere, so a block on each side counts too.
        """
        shift = placed.chunk.object_offset - placed.chunk.start_offset
        blocks = ByteRange(max(0, held.start + shift - block_bytes), held.end + shift + block_bytes)
        return any(harmed.intersect(blocks) for harmed in self.of.get(placed.object.name, []))


def harm_file(root: Path, name: str, harm: Harm, at: int) -> Callable[[], None]:
    """Do it to a chunk file; return what takes it back."""
    path = root / name
    before = path.read_bytes()
    _harm_file(path, harm, at)

    def undo() -> None:
        if harm is Harm.FLIP:
            if path.exists():
                _harm_file(path, harm, at)
        elif harm is Harm.VANISH or path.exists():
            path.unlink(missing_ok=True)
            path.write_bytes(before)

    return undo


def _harm_file(path: Path, harm: Harm, at: int) -> None:
    if harm is Harm.VANISH:
        path.unlink()
        return
    mode = path.stat().st_mode
    path.chmod(0o600)
    if harm is Harm.SHORT:
        os.truncate(path, at)
    else:
        data = bytearray(path.read_bytes())
        data[at] ^= 0x20
        with path.open("r+b") as file:
            file.write(data)
    path.chmod(mode & 0o7777)


def harm_object(storage: SimStorage, name: str, harm: Harm, at: int, other: bytes | None = None) -> Callable[[], None]:
    """Do it to an object, which keeps its etag: rot, no replacement. Return what takes it back.

    `other` is what then stands in place of a compressed one.
    """
    objects = storage.inner.objects
    held = objects[name]

    def undo() -> None:
        if harm is Harm.VANISH or name in objects:
            objects[name] = held

    if harm is Harm.VANISH:
        del objects[name]
        return undo
    if other is not None:
        _replace(storage, name, other)
        return undo
    data = bytearray(held.data)
    if harm is Harm.SHORT:
        del data[at:]
    else:
        data[at] ^= 0x20
    _replace(storage, name, bytes(data))
    return undo


def _replace(storage: SimStorage, name: str, data: bytes) -> None:
    held = storage.inner.objects[name]
    stored = replace(held.stored, length_bytes=len(data))
    storage.inner.objects[name] = replace(held, stored=stored, data=data)
