"""Memory for the stored bytes of one request, of which plain ones are made."""

from __future__ import annotations

from tierfs.base.bytes.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory for stored bytes: of its own, or the end of the memory for the plain ones."""

    view: memoryview
    origin: int
    """Offset of its first byte in the stored object."""
    gap_bytes: int | None = None
    """Plain bytes in front of it in their memory; None: it has its own."""

    def bytes(self, start: int, end: int) -> memoryview:
        """Return the stored bytes at [start, end) of the object."""
        return self.view[start - self.origin : end - self.origin]

    def untouched(self, plain: memoryview) -> memoryview:
        """Return the part of the memory for plain bytes that no stored one is received into."""
        # A storage that tries again receives all stored bytes once more, even after it reported the last of them:
        # plain bytes that were shown must not change.
        return plain[: self.gap_bytes]
