"""Read a Pulsar entry from the front, never beyond its end. Pure."""

from __future__ import annotations

from base64 import b64encode
from contextlib import suppress
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import MIB

M = TypeVar("M", bound=Message)

# Limit for all metadata of an entry and its batch together; more than Pulsar's largest entry by default.
MAX_METADATA_BYTES = 8 * MIB


class MessageReader:
    """Takes bytes and metadata from the front of `rest`. Raises DataLoss naming `where`."""

    def __init__(self, data: memoryview, where: str) -> None:
        self.rest = data
        self.where = where
        self._metadata_bytes = 0

    def take(self, count: int, what: str) -> memoryview:
        """Return the next `count` bytes."""
        if not 0 <= count <= len(self.rest):
            raise damaged(self.where, f"{what} has {count} bytes, but {len(self.rest)} remain")
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def number(self, what: str) -> int:
        """Return the next u32."""
        return int.from_bytes(self.take(4, what), "big")

    def skip(self, magic: bytes) -> bool:
        """Skip `magic` if it is next; return whether it was."""
        is_next = self.rest[: len(magic)] == magic
        if is_next:
            self.rest = self.rest[len(magic) :]
        return is_next

    def metadata(self, kind: type[M]) -> M:
        """Decode the next protobuf message, after its size. The sum of all their sizes is bounded."""
        name = kind.DESCRIPTOR.name
        size = self.number(f"the size of {name}")
        self._metadata_bytes += size
        if self._metadata_bytes > MAX_METADATA_BYTES:
            raise damaged(self.where, f"{name} increases its metadata to {self._metadata_bytes} bytes")
        try:
            message = kind.FromString(bytes(self.take(size, name)))
        except DecodeError as exc:
            raise damaged(self.where, f"{name} cannot be decoded") from exc
        if not message.IsInitialized():
            raise damaged(self.where, f"{name} is not complete")
        return message


def payload_as_json(payload: bytes, *, is_text: bool = True) -> dict[str, object]:
    """Return a payload as text if it may be one and is UTF-8, else as base64."""
    if is_text:
        with suppress(UnicodeDecodeError):
            return {"payload": payload.decode()}
    return {"payload_base64": b64encode(payload).decode("ascii")}


def damaged(where: str, why: str) -> DataLoss:
    """Return the error of an entry whose bytes contradict themselves."""
    return DataLoss(f"{where} is damaged: {why}")
