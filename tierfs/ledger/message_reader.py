"""Takes an entry of Pulsar apart from the front, and lets no size lead beyond its end. Pure."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from tierfs.errors import DataLoss
from tierfs.types import MIB

M = TypeVar("M", bound=Message)

MAX_METADATA_BYTES = 8 * MIB
"""All metadata of an entry, and all of the messages of its batch; more than Pulsar's largest entry by default."""


class MessageReader:
    """Takes bytes and metadata from the front of `rest`. Raises DataLoss naming `where`."""

    def __init__(self, data: memoryview, where: str) -> None:
        self.rest = data
        self.where = where
        self._metadata_bytes = 0

    def take(self, count: int, what: str) -> memoryview:
        """The next `count` bytes."""
        if not 0 <= count <= len(self.rest):
            raise damaged(self.where, f"{what} has {count} bytes, and {len(self.rest)} are left")
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def number(self, what: str) -> int:
        """The next u32."""
        return int.from_bytes(self.take(4, what), "big")

    def skip(self, magic: bytes) -> bool:
        """Whether `magic` came next; then it is taken."""
        found = self.rest[: len(magic)] == magic
        if found:
            self.rest = self.rest[len(magic) :]
        return found

    def metadata(self, kind: type[M]) -> M:
        """The next message of protobuf, behind its size. All of them together are bounded."""
        name = kind.DESCRIPTOR.name
        size = self.number(f"the size of {name}")
        self._metadata_bytes += size
        if self._metadata_bytes > MAX_METADATA_BYTES:
            raise damaged(self.where, f"{name} brings its metadata to {self._metadata_bytes} bytes")
        try:
            message = kind.FromString(bytes(self.take(size, name)))
        except DecodeError as exc:
            raise damaged(self.where, f"{name} cannot be decoded") from exc
        if not message.IsInitialized():
            raise damaged(self.where, f"{name} is not complete")
        return message


def damaged(where: str, why: str) -> DataLoss:
    """The error of an entry whose bytes contradict themselves."""
    return DataLoss(f"{where} is damaged: {why}")
