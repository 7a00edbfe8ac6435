"""Every metric tierfs has, in one table. Labels are few and fixed: never a segment's or an object's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, StrEnum, unique
from typing import Protocol, Self

# From a warm GET on the same machine (measured 1.7 ms) to the read deadline.
_LATENCY_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)

# Adds an amount to one counter.
Count = Callable[[float], None]

# A value of a sampled metric; of one with a label, a value for each of the label's.
Sampled = float | Mapping[str, float]


class MetricKind(Enum):
    """The behaviour of a metric's value."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SAMPLED = "sampled"
    """A gauge computed at each exposition, with one label at most; not shown where its value is unknown."""


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
        "Calls to chunk storage that were retried.",
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
    BUDGET_REFUSALS = (
        "tierfs_read_budget_refusals_total",
        _COUNTER,
        "Reads refused because their user has spent the hourly budget.",
    )
    BUDGETS_SPENT = ("tierfs_read_budgets_spent", _SAMPLED, "Users who have spent their hourly budget of cold reads.")
    READ_HEDGES = ("tierfs_read_hedges_total", _COUNTER, "Second GETs for fetches whose first byte was late.")
    CACHE_HITS = (
        "tierfs_cache_hits_total",
        _COUNTER,
        "Blocks of 128 KiB that were in the cache when a reader wanted them.",
        ("cache",),
    )
    CACHE_MISSES = ("tierfs_cache_misses_total", _COUNTER, "Blocks of 128 KiB for which the reader waited.", ("cache",))
    CACHE_BYTES = ("tierfs_cache_bytes", _GAUGE, "Bytes stored in a cache.", ("cache",))
    CACHE_ERRORS = (
        "tierfs_cache_errors_total",
        _COUNTER,
        "Errors of the disk of a cache; the first one switches it off.",
        ("cache",),
    )
    UNPACKED_FRAMES = ("tierfs_unpacked_frames_total", _COUNTER, "Frames of compressed objects unpacked for readers.")
    UNPACKED_BYTES = (
        "tierfs_unpacked_bytes_total",
        _COUNTER,
        "Bytes read from compressed objects: stored, as they were received, and plain, as readers got them.",
        ("form",),
    )
    CHECKSUM_FAILURES = (
        "tierfs_checksum_failures_total",
        _COUNTER,
        "Blocks of 128 KiB whose CRC32C was wrong, by their source.",
        ("source",),
    )
    FUSE_OPERATIONS = ("tierfs_fuse_operations_total", _COUNTER, "Requests of the kernel.", ("operation",))
    FUSE_ERRORS = (
        "tierfs_fuse_errors_total",
        _COUNTER,
        "Requests of the kernel that failed, by errno.",
        ("operation", "errno"),
    )
    BUILD_INFO = ("tierfs_build_info", _SAMPLED, "1, with the version of tierfs.", ("version",))
    UPTIME = ("tierfs_uptime_seconds", _SAMPLED, "Time since this process started to serve the store.")
    MEMORY_BUDGET = ("tierfs_memory_budget_bytes", _SAMPLED, "Limit of memory for fetched bytes.")
    MEMORY_USED = ("tierfs_memory_used_bytes", _SAMPLED, "Memory used by fetched bytes.")
    FETCHES_IN_FLIGHT = ("tierfs_fetches_in_flight", _SAMPLED, "Fetches from the cold tier in progress.")
    FETCHES_WAITING = ("tierfs_fetches_waiting", _SAMPLED, "Fetches from the cold tier that wait for their turn.")
    STREAMS = ("tierfs_streams", _SAMPLED, "Parallel large fetches that fill the link to the cold tier, as measured.")
    READS_WAITING = ("tierfs_reads_waiting", _SAMPLED, "Reads blocked by a tier that does not respond.")
    OPEN_HANDLES = ("tierfs_open_handles", _SAMPLED, "Open handles of segments.")
    READ_SESSIONS = ("tierfs_read_sessions", _SAMPLED, "Readers with a read-ahead window.")
    DISK_CACHE_LIMIT = ("tierfs_disk_cache_limit_bytes", _SAMPLED, "Limit of disk space for the cache of cold bytes.")
    SEALED_BY_POLICY = ("tierfs_sealed_by_policy_total", _COUNTER, "Segments that the holder sealed by policy.")
    RETENTION_BYTES = ("tierfs_retention_bytes_total", _COUNTER, "Bytes of segments deleted by retention.")
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
        "Age of the oldest byte that is only on the local disk; reported by the holder.",
    )
    FOLLOW_GAPS = ("tierfs_follow_gaps", _SAMPLED, "Gaps in followed logs in the last week: lines that may be missing.")
    FOLLOW_LAG_BYTES = (
        "tierfs_follow_lag_bytes",
        _SAMPLED,
        "Bytes of followed logs that are not in their segments: of all logs of this host, and of the worst one.",
        ("logs",),
    )
    FOLLOW_LAG_SECONDS = (
        "tierfs_follow_lag_seconds",
        _SAMPLED,
        "Longest time for which a followed log of this host has had lines that are not in its segment.",
    )
    STANDBY_SILENT = (
        "tierfs_standby_silent_seconds",
        _SAMPLED,
        "On a standby: seconds without a sign of life, as it counts them. On its owner: age of the last one it showed.",
    )
    STANDBY_TAKEOVER = (
        "tierfs_standby_takeover_seconds",
        _SAMPLED,
        "Time without a sign of life after which the standby takes over.",
    )
    STANDBY_BLOCKED = (
        "tierfs_standby_blocked",
        _SAMPLED,
        "On a standby: 1 if it does not take over if the owner dies, else 0.",
    )
    HELD = ("tierfs_held", _SAMPLED, "1 while any process does the store's background work, else 0.")
    PROBLEMS = ("tierfs_problems", _SAMPLED, "Problems of the store, as tierfs status lists them, by kind.", ("kind",))
    STUCK = ("tierfs_stuck_tasks", _SAMPLED, "Background work that failed and is retried.")
    FENCED = ("tierfs_fenced", _SAMPLED, "1 if another store owns the bucket, else 0.")
    SEGMENTS = ("tierfs_segments", _SAMPLED, "Segments of the store.")
    TIER_BYTES = ("tierfs_tier_bytes", _SAMPLED, "Bytes of chunks in a tier; bytes in both count in both.", ("tier",))
    NOT_OFFLOADED = ("tierfs_not_offloaded_bytes", _SAMPLED, "Bytes that are only on the local disk.")
    TRASH_BYTES = ("tierfs_trash_bytes", _SAMPLED, "Bytes of removed segments that can be restored.")
    GARBAGE_BYTES = ("tierfs_garbage_bytes", _SAMPLED, "Bytes of files and objects that wait for their deletion.")
    DISK_FREE = ("tierfs_disk_free_bytes", _SAMPLED, "Free space on the disk of the store.")
    DISK_FLOOR = ("tierfs_disk_floor_bytes", _SAMPLED, "Free space below which appends fail.")
    UNPUBLISHED = ("tierfs_unpublished_changes", _SAMPLED, "Changes of the metadata that are not in the cold tier yet.")
    LAST_PUBLISH = (
        "tierfs_last_publish_timestamp_seconds",
        _SAMPLED,
        "Time at which the newest changes of the metadata were written to the cold tier.",
    )
    LOST_BYTES = ("tierfs_lost_bytes", _SAMPLED, "Bytes of the store without a valid copy.")
    SUSPECT_BYTES = ("tierfs_suspect_bytes", _SAMPLED, "Bytes in chunks with a missing or damaged copy.")
    COLD_OBJECT_BYTES = (
        "tierfs_cold_object_bytes",
        _SAMPLED,
        "Bytes of the store's own cold objects: plain, and as stored.",
        ("form",),
    )
    SAVED_BYTES = ("tierfs_compression_saved_bytes", _SAMPLED, "Bytes that compression saves in the cold tier.")
    COLD_USED_BYTES = ("tierfs_cold_used_bytes", _SAMPLED, "Billable bytes of the store in the cold tier.")
    COLD_QUOTA_BYTES = ("tierfs_cold_quota_bytes", _SAMPLED, "Limit of the billable bytes, if cold.quota_bytes is set.")


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


def _forget(amount: float) -> None:
    """Do nothing."""
