"""The bytes of a pack whose payloads are in memory, in the form that its policy asks for."""

from __future__ import annotations

from collections.abc import Sequence

from tierfs.base.bytes.checksum import Buffer, GridBuilder
from tierfs.base.options.policy import Policy
from tierfs.base.words.types import Compression
from tierfs.engine.chunkstore.protocol import BufferSource, Source
from tierfs.tiering.compressed_source import compressed
from tierfs.tiering.packs.format import PackIndex, index_and_trailer, index_frame


class PackBytes:
    """Stored bytes of a pack, and the checksums of its plain ones. Close it."""

    def __init__(self, parts: Sequence[Buffer], index: PackIndex, policy: Policy) -> None:
        """`parts` are the payloads, in the order of their entries in `index`."""
        payload_bytes = sum(len(part) for part in parts)
        self.compressed = None
        """The compressed form, if that is stored."""
        if policy.compresses:
            data = b"".join(parts)
            self.compressed = compressed(BufferSource(data), policy, index_frame(index, payload_bytes))
            parts = (data,)
        if self.compressed is None:
            data = b"".join([*parts, index_and_trailer(index, payload_bytes)])
        self.kept_plain = self.compressed is None and policy.compression is Compression.AUTO
        """Whether it is stored plain because compressing it saves too little."""
        self.source: Source = self.compressed or BufferSource(data)
        """The stored bytes."""
        self.grid = GridBuilder()
        self.grid.feed(data)

    @property
    def crc32c(self) -> int:
        """CRC32C in the name of the pack."""
        return self.grid.crc32c

    @property
    def length_bytes(self) -> int:
        """Number of stored bytes."""
        return self.source.length_bytes

    def close(self) -> None:
        """Free the memory of compressed frames; idempotent."""
        if self.compressed is not None:
            self.compressed.close()
