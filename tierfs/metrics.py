"""Every metric tierfs has, in one table. Labels are few and fixed: never a segment's or an object's name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class MetricKind(Enum):
    """How a metric moves."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricName(StrEnum):
    """What callers name a metric by."""

    STORAGE_REQUESTS = "tierfs_storage_requests_total"
    STORAGE_BYTES = "tierfs_storage_bytes_total"
    STORAGE_ERRORS = "tierfs_storage_errors_total"
    STORAGE_SECONDS = "tierfs_storage_request_seconds"
    STORAGE_RETRIES = "tierfs_storage_retries_total"
    PRESIGNED_FALLBACKS = "tierfs_storage_presigned_fallbacks_total"
    READ_REQUESTS = "tierfs_read_requests_total"
    READ_BYTES = "tierfs_read_bytes_total"
    READ_FALLBACKS = "tierfs_read_fallbacks_total"
    READ_HEDGES = "tierfs_read_hedges_total"
    CACHE_HITS = "tierfs_cache_hits_total"
    CACHE_MISSES = "tierfs_cache_misses_total"
    CACHE_BYTES = "tierfs_cache_bytes"
    CACHE_ERRORS = "tierfs_cache_errors_total"
    CHECKSUM_FAILURES = "tierfs_checksum_failures_total"
    FUSE_OPERATIONS = "tierfs_fuse_operations_total"
    FUSE_ERRORS = "tierfs_fuse_errors_total"


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One row of the table."""

    name: MetricName
    kind: MetricKind
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram, in the unit."""


_LATENCY_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""From a warm GET on the same machine (measured 1.7 ms) to the read deadline."""

_COUNTER, _GAUGE, _HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

TABLE: tuple[MetricRow, ...] = (
    MetricRow(MetricName.STORAGE_REQUESTS, _COUNTER, "requests", "Calls to chunk storage.", ("tier", "verb")),
    MetricRow(
        MetricName.STORAGE_BYTES,
        _COUNTER,
        "bytes",
        "Bytes stored and fetched, of calls that succeeded.",
        ("tier", "verb"),
    ),
    MetricRow(
        MetricName.STORAGE_ERRORS,
        _COUNTER,
        "errors",
        "Calls to chunk storage that failed, by error class.",
        ("tier", "verb", "error"),
    ),
    MetricRow(
        MetricName.STORAGE_SECONDS,
        _HISTOGRAM,
        "seconds",
        "Duration of calls to chunk storage.",
        ("tier", "verb"),
        _LATENCY_BUCKETS_S,
    ),
    MetricRow(
        MetricName.STORAGE_RETRIES, _COUNTER, "retries", "Calls to chunk storage that were tried again.", ("verb",)
    ),
    MetricRow(
        MetricName.PRESIGNED_FALLBACKS,
        _COUNTER,
        "requests",
        "Ranged GETs whose presigned URL was refused and that used get_object.",
    ),
    MetricRow(MetricName.READ_REQUESTS, _COUNTER, "requests", "Reads of segments, by serving tier.", ("tier",)),
    MetricRow(MetricName.READ_BYTES, _COUNTER, "bytes", "Bytes of segments read, by serving tier.", ("tier",)),
    MetricRow(
        MetricName.READ_FALLBACKS,
        _COUNTER,
        "requests",
        "Reads served by another tier than the preferred one.",
        ("tier",),
    ),
    MetricRow(MetricName.READ_HEDGES, _COUNTER, "requests", "Second GETs for fetches whose first byte was late."),
    MetricRow(MetricName.CACHE_HITS, _COUNTER, "blocks", "Blocks found in a cache.", ("cache",)),
    MetricRow(MetricName.CACHE_MISSES, _COUNTER, "blocks", "Blocks not found in a cache.", ("cache",)),
    MetricRow(MetricName.CACHE_BYTES, _GAUGE, "bytes", "Bytes a cache holds.", ("cache",)),
    MetricRow(
        MetricName.CACHE_ERRORS,
        _COUNTER,
        "errors",
        "Failures that switched a cache off.",
        ("cache",),
    ),
    MetricRow(
        MetricName.CHECKSUM_FAILURES,
        _COUNTER,
        "blocks",
        "Blocks whose CRC32C was wrong, by where they came from.",
        ("source",),
    ),
    MetricRow(MetricName.FUSE_OPERATIONS, _COUNTER, "operations", "Requests of the kernel.", ("operation",)),
    MetricRow(
        MetricName.FUSE_ERRORS,
        _COUNTER,
        "operations",
        "Requests of the kernel that failed, by errno.",
        ("operation", "errno"),
    ),
)


class MetricSink(Protocol):
    """Where measurements go. Thread-safe; cheap; raises only for a name or label not in the table."""

    def count(self, name: MetricName, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        ...

    def observe(self, name: MetricName, value: float, **labels: str) -> None:
        """Put a value into a histogram."""
        ...

    def set_gauge(self, name: MetricName, value: float, **labels: str) -> None:
        """Set a gauge."""
        ...


class NullMetrics:
    """Forgets everything: commands that end before anybody could ask."""

    def count(self, name: MetricName, amount: float = 1, **labels: str) -> None:
        """Do nothing."""

    def observe(self, name: MetricName, value: float, **labels: str) -> None:
        """Do nothing."""

    def set_gauge(self, name: MetricName, value: float, **labels: str) -> None:
        """Do nothing."""


class Metrics:
    """A registry of its own with every metric of the table. prometheus-client is imported on construction."""

    def __init__(self, table: tuple[MetricRow, ...] = TABLE) -> None:
        from prometheus_client import CollectorRegistry

        self.registry: CollectorRegistry = CollectorRegistry()
        self._metrics: dict[str, Any] = {row.name: _registered(row, self.registry) for row in table}

    def count(self, name: MetricName, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        self._child(name, labels).inc(amount)

    def observe(self, name: MetricName, value: float, **labels: str) -> None:
        """Put a value into a histogram."""
        self._child(name, labels).observe(value)

    def set_gauge(self, name: MetricName, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._child(name, labels).set(value)

    def exposition(self) -> bytes:
        """Everything in Prometheus text format."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)

    def _child(self, name: str, labels: dict[str, str]) -> Any:
        metric = self._metrics[name]
        return metric.labels(**labels) if labels else metric


def _registered(row: MetricRow, registry: CollectorRegistry) -> Any:
    from prometheus_client import Counter, Gauge, Histogram

    if row.kind is MetricKind.HISTOGRAM:
        return Histogram(row.name, row.help, row.labels, registry=registry, buckets=row.buckets)
    vendor = Counter if row.kind is MetricKind.COUNTER else Gauge
    return vendor(row.name, row.help, row.labels, registry=registry)
