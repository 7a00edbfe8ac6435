"""Every metric tierfs has, in one table. Labels are few and fixed: never a segment's or an object's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum, StrEnum, unique
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from tierfs.base.words import units
from tierfs.base.words.errors import InvalidRequest, Unavailable

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import GaugeMetricFamily


class MetricKind(Enum):
    """The behaviour of a metric's value."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SAMPLED = "sampled"
    """A gauge computed at each exposition; not shown where its value is unknown."""


# From a warm GET on the same machine (measured 1.7 ms) to the read deadline.
_LATENCY_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)

_COUNTER, _GAUGE, _HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM
_SAMPLED = MetricKind.SAMPLED


@unique
class MetricName(StrEnum):
    """The table: a name for callers, and what is shown."""

    kind: MetricKind
    help: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...]
    """Upper bounds of a histogram."""

    def __new__(
        cls, name: str, kind: MetricKind, shown: str, labels: tuple[str, ...] = (), buckets: tuple[float, ...] = ()
    ) -> Self:
        """Make a string, so that a member is the metric's name wherever one is needed."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.kind, member.help, member.labels, member.buckets = kind, shown, labels, buckets
        return member

    STORAGE_REQUESTS = ("tierfs_storage_requests_total", _COUNTER, "Calls to chunk storage.", ("tier", "verb"))
    STORAGE_BYTES = (
        "tierfs_storage_bytes_total",
        _COUNTER,
        "Bytes stored and fetched, of calls that succeeded.",
        ("tier", "verb"),
    )
    COMPOSED_BYTES = (
        "tierfs_storage_composed_bytes_total",
        _COUNTER,
        "Bytes of objects made from others, by way: copied by the server, or read and uploaded by the client.",
        ("tier", "way"),
    )
    STORAGE_ERRORS = (
        "tierfs_storage_errors_total",
        _COUNTER,
        "Calls to chunk storage that failed, by error class.",
        ("tier", "verb", "error"),
    )
    STORAGE_SECONDS = (
        "tierfs_storage_request_seconds",
        _HISTOGRAM,
        "Duration of calls to chunk storage.",
        ("tier", "verb"),
        _LATENCY_BUCKETS_S,
    )
    STORAGE_RETRIES = (
        "tierfs_storage_retries_total",
        _COUNTER,
        "Calls to chunk storage that were tried again.",
        ("verb",),
    )
    PRESIGNED_FALLBACKS = (
        "tierfs_storage_presigned_fallbacks_total",
        _COUNTER,
        "Ranged GETs whose presigned URL was refused and that used get_object.",
    )
    READ_REQUESTS = ("tierfs_read_requests_total", _COUNTER, "Reads of segments, by serving tier.", ("tier",))
    READ_BYTES = ("tierfs_read_bytes_total", _COUNTER, "Bytes of segments read, by serving tier.", ("tier",))
    READ_FALLBACKS = (
        "tierfs_read_fallbacks_total",
        _COUNTER,
        "Reads served by another tier than the preferred one.",
        ("tier",),
    )
    READ_HEDGES = ("tierfs_read_hedges_total", _COUNTER, "Second GETs for fetches whose first byte was late.")
    CACHE_HITS = ("tierfs_cache_hits_total", _COUNTER, "Blocks found in a cache.", ("cache",))
    CACHE_MISSES = ("tierfs_cache_misses_total", _COUNTER, "Blocks not found in a cache.", ("cache",))
    CACHE_BYTES = ("tierfs_cache_bytes", _GAUGE, "Bytes a cache holds.", ("cache",))
    CACHE_ERRORS = ("tierfs_cache_errors_total", _COUNTER, "Failures that switched a cache off.", ("cache",))
    CHECKSUM_FAILURES = (
        "tierfs_checksum_failures_total",
        _COUNTER,
        "Blocks whose CRC32C was wrong, by their source.",
        ("source",),
    )
    FUSE_OPERATIONS = ("tierfs_fuse_operations_total", _COUNTER, "Requests of the kernel.", ("operation",))
    FUSE_ERRORS = (
        "tierfs_fuse_errors_total",
        _COUNTER,
        "Requests of the kernel that failed, by errno.",
        ("operation", "errno"),
    )
    UPTIME = ("tierfs_uptime_seconds", _SAMPLED, "Time since the mount began.")
    MEMORY_BUDGET = ("tierfs_memory_budget_bytes", _SAMPLED, "Memory that fetched bytes may take.")
    MEMORY_USED = ("tierfs_memory_used_bytes", _SAMPLED, "Memory that fetched bytes take.")
    FETCHES_IN_FLIGHT = ("tierfs_fetches_in_flight", _SAMPLED, "Fetches from the cold tier under way.")
    FETCHES_WAITING = ("tierfs_fetches_waiting", _SAMPLED, "Fetches from the cold tier that wait for their turn.")
    STREAMS = ("tierfs_streams", _SAMPLED, "Large fetches at once that fill the link to the cold tier, as measured.")
    READS_WAITING = ("tierfs_reads_waiting", _SAMPLED, "Reads that wait for a tier which does not answer.")
    OPEN_HANDLES = ("tierfs_open_handles", _SAMPLED, "Open handles of segments.")
    READ_SESSIONS = ("tierfs_read_sessions", _SAMPLED, "Readers with a read-ahead window.")
    DISK_CACHE_LIMIT = ("tierfs_disk_cache_limit_bytes", _SAMPLED, "Disk space that the cache of cold bytes may take.")
    SEALED_BY_POLICY = ("tierfs_sealed_by_policy_total", _COUNTER, "Segments that the holder sealed by policy.")
    RETENTION_BYTES = ("tierfs_retention_bytes_total", _COUNTER, "Bytes of segments that retention took away.")
    DELETIONS_PAUSED = (
        "tierfs_timed_deletions_paused",
        _GAUGE,
        "1 while deletions by time pause because the clocks disagree; reported by the holder.",
    )
    HOLDER = ("tierfs_holder", _SAMPLED, "1 if this process does the store's background work, else 0.")
    BACKLOG_BYTES = (
        "tierfs_offload_backlog_bytes",
        _SAMPLED,
        "Complete chunks that wait to be offloaded; reported by the holder.",
    )
    BACKLOG_AGE = (
        "tierfs_offload_backlog_age_seconds",
        _SAMPLED,
        "Time since which the oldest byte has been on the local disk alone; reported by the holder.",
    )
    LOST_BYTES = ("tierfs_lost_bytes", _SAMPLED, "Bytes of the store of which no copy proved right.")
    SUSPECT_BYTES = ("tierfs_suspect_bytes", _SAMPLED, "Bytes in chunks of which a copy was missing or damaged.")
    COLD_USED_BYTES = ("tierfs_cold_used_bytes", _SAMPLED, "Bytes in the cold tier that the store is to be billed for.")
    COLD_QUOTA_BYTES = ("tierfs_cold_quota_bytes", _SAMPLED, "The limit of these, cold.quota_bytes, if there is one.")


# Adds an amount to one counter.
Count = Callable[[float], None]

# Returns the values of sampled metrics as of now; those it leaves out are not shown.
Sample = Callable[[], Mapping[MetricName, float]]


class MetricSink(Protocol):
    """Sink of measurements. Thread-safe; cheap; raises only for a name or label not in the table."""

    def count(self, name: MetricName, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        ...

    def counter(self, name: MetricName, **labels: str) -> Count:
        """Return a function that adds to one counter, which shows from now on.

        A caller that keeps it pays half the cost of `count`.
        """
        ...

    def observe(self, name: MetricName, value: float, **labels: str) -> None:
        """Put a value into a histogram."""
        ...

    def set_gauge(self, name: MetricName, value: float, **labels: str) -> None:
        """Set a gauge."""
        ...


class NullMetrics:
    """Forgets everything: for commands that end before they could be scraped."""

    def count(self, name: MetricName, amount: float = 1, **labels: str) -> None:
        """Do nothing."""

    def counter(self, name: MetricName, **labels: str) -> Count:
        """Return a function that does nothing."""
        return _forget

    def observe(self, name: MetricName, value: float, **labels: str) -> None:
        """Do nothing."""

    def set_gauge(self, name: MetricName, value: float, **labels: str) -> None:
        """Do nothing."""


_MOST_PORT = 65535


class Metrics:
    """A registry of its own with every metric of the table. prometheus-client is imported on construction."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, disable_created_metrics

        # A fifth of all samples, which nothing reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry: CollectorRegistry = CollectorRegistry()
        kept = [name for name in MetricName if name.kind is not MetricKind.SAMPLED]
        self._metrics: dict[str, Any] = {name: _registered(name, self.registry) for name in kept}
        self._children: dict[tuple[object, ...], Any] = {}
        self._sampler = _Sampler()
        self.registry.register(self._sampler)

    def count(self, name: MetricName, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        self._child(name, labels).inc(amount)

    def counter(self, name: MetricName, **labels: str) -> Count:
        """Return a function that adds to one counter."""
        increase: Count = self._child(name, labels).inc
        return increase

    def observe(self, name: MetricName, value: float, **labels: str) -> None:
        """Put a value into a histogram."""
        self._child(name, labels).observe(value)

    def set_gauge(self, name: MetricName, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._child(name, labels).set(value)

    def sample_with(self, sample: Sample) -> None:
        """Ask `sample` for the values of sampled metrics from now on; it is called once per exposition."""
        self._sampler.sample = sample

    def values(self, name: MetricName) -> dict[tuple[str, ...], float]:
        """Return the values of a counter, by its labels' values in the table's order."""
        return {
            tuple(sample.labels[label] for label in name.labels): sample.value
            for family in self._metrics[name].collect()
            for sample in family.samples
            if sample.name == name
        }

    def exposition(self) -> bytes:
        """Return everything in Prometheus text format."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)

    def serve(self, address: str) -> Callable[[], None]:
        """Serve the text at HOST:PORT from a thread; return what ends that. Raises InvalidRequest and Unavailable."""
        from prometheus_client import start_http_server

        host, _, port = address.rpartition(":")
        number = units.decimal(port, _MOST_PORT)
        if not host or number is None:
            raise InvalidRequest(f"metrics.listen = {address!r} is not HOST:PORT", remedy="like 127.0.0.1:9150")
        try:
            server, thread = start_http_server(number, host.strip("[]"), registry=self.registry)
        except OSError as exc:
            remedy = "set metrics.listen to a free address of this machine"
            raise Unavailable(f"metrics cannot be served at {address}: {exc.strerror or exc}", remedy=remedy) from exc

        def end() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return end

    def write(self, path: Path) -> None:
        """Write the text to a file, which is replaced as a whole. Raises OSError."""
        from prometheus_client import write_to_textfile

        write_to_textfile(str(path), self.registry)

    def _child(self, name: str, labels: dict[str, str]) -> Any:
        if not labels:
            return self._metrics[name]
        # The vendor's own lookup takes half of a count's time (measured: 1.7 us with it, 0.7 us without).
        key = (name, *labels.items())
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self._metrics[name].labels(**labels)
        return child


def _forget(amount: float) -> None:
    """Do nothing."""


def _nothing() -> Mapping[MetricName, float]:
    return {}


class _Sampler:
    """Makes the gauges of sampled metrics at each exposition."""

    def __init__(self) -> None:
        self.sample: Sample = _nothing

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield the names alone, for the registry."""
        return self._families({})

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the current values."""
        return self._families(self.sample())

    def _families(self, values: Mapping[MetricName, float]) -> Iterator[GaugeMetricFamily]:
        from prometheus_client.core import GaugeMetricFamily

        for name in MetricName:
            if name.kind is MetricKind.SAMPLED:
                family = GaugeMetricFamily(name, name.help)
                if name in values:
                    family.add_metric([], values[name])
                yield family


def _registered(name: MetricName, registry: CollectorRegistry) -> Any:
    from prometheus_client import Counter, Gauge, Histogram

    if name.kind is MetricKind.HISTOGRAM:
        return Histogram(name, name.help, name.labels, registry=registry, buckets=name.buckets)
    vendor = Counter if name.kind is MetricKind.COUNTER else Gauge
    return vendor(name, name.help, name.labels, registry=registry)
