"""The content of `.tierfs/cache`: a mount's disk cache as one JSON object, for people and for `tierfs warmup`."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path

from tierfs.base.bytes.frozen import dataclass
from tierfs.reading.reader import StoreReader

# Name of the control file.
CACHE_REPORT_NAME = "cache"

# The state of a mount without a cache: switched off, or used by another process.
OFF = "off"


@dataclass(frozen=True, slots=True)
class CacheReport:
    """A mount's cache at one instant."""

    state: str
    directory: str
    used_bytes: int = 0
    size_bytes: int = 0
    hits: int = 0
    misses: int = 0
    fetches: int = 0
    """Running or queued."""
    unstored_bytes: int = 0
    """Fetched, and waiting for the cache's disk."""
    fills_on_request: bool = False
    """Whether it serves `tierfs warmup`, as every cache that is on."""

    def encode(self) -> bytes:
        """Return the content of the control file."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, content: bytes) -> CacheReport:
        """Decode a report, ignoring fields of newer versions. Raises ValueError."""
        values = json.loads(content)
        known = {field.name for field in fields(cls)}
        try:
            return cls(**{key: value for key, value in values.items() if key in known})
        except (TypeError, AttributeError) as exc:
            raise ValueError(f"not a report of a cache: {exc}") from exc


def report_of(reader: StoreReader, directory: Path) -> CacheReport:
    """Return the report of a reader whose cache, if it has one, is in `directory`. On the trio loop."""
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
        fills_on_request=True,
    )
