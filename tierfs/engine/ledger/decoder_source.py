"""The bytes of an object in order, whatever the sizes of the pieces they arrive in, for decoders. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.names import printable


class DecoderSource:
    """The bytes of an object in order, whatever the sizes of the pieces they arrive in."""

    def __init__(self, pieces: Iterable[Buffer], position: int, name: str) -> None:
        self._pieces = iter(pieces)
        self._piece = memoryview(b"")
        self.position = position
        self.name = printable(name)

    @property
    def piece(self) -> memoryview:
        """Return the rest of the piece that arrived last; more may follow it."""
        return self._piece

    def advance(self, size: int) -> None:
        """Skip bytes of that piece."""
        self._piece = self._piece[size:]
        self.position += size

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes. Raises DataLoss when the object ends before."""
        if size <= len(self._piece):
            self.position += size
            data, self._piece = self._piece[:size].tobytes(), self._piece[size:]
            return data
        end = self.position + size
        data = b"".join(self.pieces_to(end))
        self._require(end)
        return data

    def skip_to(self, offset: int) -> None:
        """Drop the bytes in front of `offset`. Raises DataLoss when the object ends before."""
        for _ in self.pieces_to(offset):
            pass
        self._require(offset)

    def pieces_to(self, end: int) -> Iterator[memoryview]:
        """Yield the bytes up to `end`; fewer when the object ends before."""
        while self.position < end:
            if not self._piece and not self._next_piece():
                return
            part = self._piece[: end - self.position]
            self._piece = self._piece[len(part) :]
            self.position += len(part)
            yield part

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        """Unpack the next fields. Raises DataLoss when the object ends before."""
        return form.unpack(self.take(form.size))

    def damage(self, why: str) -> DataLoss:
        """Return the error for damage of this object."""
        return DataLoss(f"{self.name}: {why}")

    def _next_piece(self) -> bool:
        for piece in self._pieces:
            self._piece = memoryview(piece)
            if self._piece:
                return True
        return False

    def _require(self, offset: int) -> None:
        if self.position < offset:
            raise self.damage(f"it ends at {self.position}, bytes up to {offset} are missing")
