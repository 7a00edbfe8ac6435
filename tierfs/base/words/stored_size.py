"""Plain bytes next to the bytes that are stored for them, and what compression saves: every face asks here."""

from __future__ import annotations

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.units import size


@dataclass(frozen=True, slots=True)
class StoredSize:
    """The size of some bytes, and of what is stored for them."""

    plain_bytes: int = 0
    stored_bytes: int = 0

    @property
    def ratio(self) -> float | None:
        """Plain bytes per stored byte, to two places; None for nothing."""
        return round(self.plain_bytes / self.stored_bytes, 2) if self.stored_bytes else None

    @property
    def saved_bytes(self) -> int:
        """Bytes that are not stored; 0 where more are stored than are plain."""
        return max(0, self.plain_bytes - self.stored_bytes)

    def plus(self, other: StoredSize) -> StoredSize:
        """Return the sums."""
        return StoredSize(self.plain_bytes + other.plain_bytes, self.stored_bytes + other.stored_bytes)

    def __str__(self) -> str:
        """Format the stored bytes, with the ratio where it tells something."""
        ratio = None if self.stored_bytes == self.plain_bytes else self.ratio
        return f"{size(self.stored_bytes)} stored" + ("" if ratio is None else f" (ratio {ratio:.2f})")


NOTHING_STORED = StoredSize()
