"""Damage of compressed objects: where their frames are, what becomes of them, and which plain bytes differ then."""

from __future__ import annotations

from dataclasses import dataclass

from zstandard import ZstdCompressor

from tests.simulation.damages import Harm
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import ByteRange
from tierfs.engine.frames import zstd
from tierfs.engine.frames.seek_table import FrameSize, object_frames, read_sections, seek_table

_LEVEL = 19

_BOMB_HEADER = b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little")
"""Of one segment, and a TiB long."""

_RAW_BLOCK = 0x01
"""The last one; its length is from the fourth bit on."""

_BLOCK_HEADER_BYTES = 3

_END = 1 << 62


@dataclass(frozen=True, slots=True)
class _Frame:
    plain: ByteRange
    stored: ByteRange


@dataclass(frozen=True, slots=True)
class HarmedObject:
    """What stands in place of a compressed object, and the plain bytes that it does not have any more."""

    data: bytes
    plain: ByteRange


def harmed(stored: bytes, harm: Harm, at: int) -> HarmedObject | None:
    """Return a compressed object with harm to the frame that has the plain byte at `at`; None where nothing differs."""
    frames, end = _frames(stored)
    frame = next(frame for frame in frames if frame.plain.start <= at < frame.plain.end)
    if harm is Harm.TABLE:
        return HarmedObject(_flipped(stored, end + (at % (len(stored) - end))), ByteRange(0, 0))
    if harm is Harm.SHORT:
        return HarmedObject(stored[: frame.stored.start + at % frame.stored.length_bytes], _behind(frame.plain.start))
    if harm is Harm.OTHER_FORM:
        other = _in_other_form(stored, frames)
        return HarmedObject(other, _behind(0))
    if harm is Harm.BOMB:
        bomb = _bomb(frame.stored.length_bytes)
        return None if bomb is None else _with_frame(stored, frame, bomb)
    held = _of(stored, frame.stored)
    for number in range(len(held)):  # not every bit of a frame matters
        found = _with_frame(stored, frame, _flipped(held, (at + number) % len(held)))
        if found is not None:
            return found
    return None


def _frames(stored: bytes) -> tuple[list[_Frame], int]:
    """Return the frames of an object, and where the last of them ends."""
    sections = read_sections(lambda start, end: stored[start:end], len(stored), len(stored))
    frames, plain, at = list[_Frame](), 0, 0
    for size in object_frames(sections):
        frames.append(_Frame(ByteRange(plain, plain + size.plain_bytes), ByteRange(at, at + size.stored_bytes)))
        plain, at = plain + size.plain_bytes, at + size.stored_bytes
    return frames, max(frame.stored.end for frame in frames if frame.plain)


def _with_frame(stored: bytes, frame: _Frame, held: bytes) -> HarmedObject | None:
    before, after = _read(_of(stored, frame.stored), frame.plain), _read(held, frame.plain)
    wrong = [number for number, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    if not wrong:
        return None
    plain = ByteRange(frame.plain.start + wrong[0], frame.plain.start + wrong[-1] + 1)
    return HarmedObject(stored[: frame.stored.start] + held + stored[frame.stored.end :], plain)


def _read(held: bytes, plain: ByteRange) -> bytes:
    """Return what a reader makes of a frame."""
    view = bytearray(plain.length_bytes)
    try:
        zstd.decompress_into(memoryview(held), memoryview(view))
    except DataLoss:
        return bytes(len(view))
    return bytes(view)


def _bomb(size_bytes: int) -> bytes | None:
    content = size_bytes - len(_BOMB_HEADER) - _BLOCK_HEADER_BYTES
    if content < 0:
        return None
    return _BOMB_HEADER + (content << 3 | _RAW_BLOCK).to_bytes(_BLOCK_HEADER_BYTES, "little") + bytes(content)


def _in_other_form(stored: bytes, frames: list[_Frame]) -> bytes:
    compressor = ZstdCompressor(level=_LEVEL, write_checksum=False)
    parts = [
        (compressor.compress(_read(_of(stored, frame.stored), frame.plain)), frame.plain.length_bytes)
        for frame in frames
        if frame.plain
    ]
    return b"".join(part for part, _ in parts) + seek_table(FrameSize(len(part), size) for part, size in parts)


def _behind(start: int) -> ByteRange:
    return ByteRange(start, _END)


def _of(stored: bytes, span: ByteRange) -> bytes:
    return stored[span.start : span.end]


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :]
