"""What a mount says of its disk cache in `.tierfs/cache`: one JSON object, for people and for `tierfs warmup`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tierfs.reading.cache_health import CacheState
from tierfs.reading.reader import Reader

CACHE_REPORT_NAME = "cache"
"""The control file."""

OFF = "off"
"""The state of a mount that has no cache: switched off, or another process has it."""

USABLE = (CacheState.ON, CacheState.FULL_DISK)


@dataclass(frozen=True, slots=True)
class CacheReport:
    """One look at a mount's cache."""

    state: str
    directory: str
    used_bytes: int = 0
    size_bytes: int = 0
    hits: int = 0
    misses: int = 0
    fetches: int = 0
    """Under way, or waiting for their turn."""
    unstored_bytes: int = 0
    """Fetched, and waiting for the cache's disk."""

    @property
    def usable(self) -> bool:
        """Whether it stores what is fetched."""
        return self.state in USABLE

    @property
    def settled(self) -> bool:
        """Whether all that was asked for is fetched and stored, or will never be."""
        return self.fetches == 0 and self.unstored_bytes == 0

    def encode(self) -> bytes:
        """The content of the control file."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, content: bytes) -> CacheReport:
        """Read one; what a newer version adds is ignored. Raises ValueError."""
        values = json.loads(content)
        known = {field.name for field in fields(cls)}
        try:
            return cls(**{key: value for key, value in values.items() if key in known})
        except (TypeError, AttributeError) as exc:
            raise ValueError(f"no report of a cache: {exc}") from exc


def report_of(reader: Reader, directory: Path) -> CacheReport:
    """The report of a reader whose cache, if it has one, is in `directory`. On the trio loop."""
    if reader.cache is None:
        return CacheReport(OFF, str(directory))
    stats = reader.cache.stats
    return CacheReport(
        stats.state.value,
        str(directory),
        stats.used_bytes,
        stats.size_bytes,
        stats.hits,
        stats.misses,
        reader.spans.transfers,
        reader.fetcher.unstored_bytes,
    )
