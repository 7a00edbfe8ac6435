"""Contents and costs of a store, by tier, age, policy and directory: one pass over its metadata.

Part of the composition root. Nothing is asked of the cold tier, so that a report costs no request.
"""

from __future__ import annotations

from collections import defaultdict

from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.options.policy import Policy, value_of
from tierfs.base.options.policy import format as format_value
from tierfs.base.words.types import MIB, Compression, PayloadEncoding, Tier
from tierfs.engine.metadata import policies
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.stored_shares import StoredShares, sizes_of
from tierfs.engine.metadata.tables import GARBAGE, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.pipeline.reader.selection import Selection, select

GIB = 1024 * MIB
_MS_PER_S = 1000
_DAY_S = 86_400
_MONTH_MS = 30 * _DAY_S * _MS_PER_S

AGES = (
    ("below an hour", 3600),
    ("below a day", _DAY_S),
    ("below a week", 7 * _DAY_S),
    ("below 30 days", 30 * _DAY_S),
    ("below 90 days", 90 * _DAY_S),
    ("below a year", 365 * _DAY_S),
)
OLDEST = "a year or more"

# Those that are told also where they are off.
_ALWAYS = ("offload_after", "deletion_lag", "read_priority")
_SETTINGS = (*_ALWAYS, "retention_age", "retention_bytes", "compression")

# Size of the requests of scans and scrubs.
GET_BYTES = 8 * MIB

# Of an upload that has several parts: a request for each, and two to begin and end it.
PART_BYTES = 8 * MIB


@dataclass(frozen=True, slots=True)
class Prices:
    """In dollars. The defaults: S3 Standard, us-east-1, the first 50 TB, as AWS listed them in January 2025."""

    gib_month: float = 0.023
    thousand_gets: float = 0.0004
    thousand_puts: float = 0.005


@dataclass(slots=True)
class ReportSums:
    """Number of segments, and their bytes."""

    segments: int = 0
    bytes: int = 0
    """Readable bytes, however many tiers hold them."""
    local_bytes: int = 0
    cold_bytes: int = 0
    cold_stored_bytes: int = 0
    """Stored for the cold ones."""

    def add(self, segment: SegmentRecord, stored_bytes: int) -> None:
        """Count one segment, and its share of the stored bytes."""
        self.cold_stored_bytes += stored_bytes
        self.segments += 1
        self.bytes += segment.range.length_bytes
        self.local_bytes += segment.readable_bytes(Tier.LOCAL)
        self.cold_bytes += segment.readable_bytes(Tier.COLD)


@dataclass(slots=True)
class Objects:
    """Objects of the cold tier that are this store's, and requests about them."""

    count: int = 0
    bytes: int = 0
    compressed: int = 0
    saved_bytes: int = 0
    """By the compressed ones."""
    gets_to_read: int = 0
    """To read all of them once, 8 MiB at a time."""
    puts_last_month: int = 0
    """That made the objects of the last 30 days."""
    garbage: int = 0
    garbage_bytes: int = 0
    local_garbage_bytes: int = 0


@dataclass(slots=True)
class Report:
    """The contents of a store."""

    store: str
    at_ms: int
    prices: Prices
    total: ReportSums = field(default_factory=ReportSums)
    ages: dict[str, ReportSums] = field(default_factory=dict)
    """By the time since the last append."""
    policies: dict[str, ReportSums] = field(default_factory=dict)
    directories: dict[str, ReportSums] = field(default_factory=dict)
    objects: Objects = field(default_factory=Objects)

    @property
    def storage_month(self) -> float:
        """Dollars a month for objects and for garbage that is not deleted yet."""
        return (self.objects.bytes + self.objects.garbage_bytes) / GIB * self.prices.gib_month

    @property
    def garbage_month(self) -> float:
        """The part of it that is garbage."""
        return self.objects.garbage_bytes / GIB * self.prices.gib_month

    @property
    def saved_month(self) -> float:
        """Dollars a month that compression saves, on storage alone."""
        return self.objects.saved_bytes / GIB * self.prices.gib_month

    @property
    def puts_month(self) -> float:
        """Dollars for the uploads of the last 30 days."""
        return self.objects.puts_last_month / 1000 * self.prices.thousand_puts

    @property
    def read_once(self) -> float:
        """Dollars for the requests that read everything once; transfer out of the region is not in it."""
        return self.objects.gets_to_read / 1000 * self.prices.thousand_gets


def make_report(
    store: Store, path: str = "", *, depth: int = 1, prices: Prices | None = None, show: OnProgress = unseen
) -> Report:
    """Report the segments below `path`, by directories so many levels down. Objects and garbage are the whole store's.

    Raises NotFound.
    """
    report = Report(str(store.path), store.clock.now_ms(), prices or Prices())
    ages: dict[str, ReportSums] = {name: ReportSums() for name in (*(name for name, _ in AGES), OLDEST)}
    by_policy: defaultdict[str, ReportSums] = defaultdict(ReportSums)
    by_directory: defaultdict[str, ReportSums] = defaultdict(ReportSums)
    policy_cache = policies.PolicyCache()
    above = len([part for part in path.split("/") if part])
    with store.metadata.read() as txn:
        shares = StoredShares(txn)
        for name, segment in Meter(show).each(select(txn, Selection((path,), recursive=True)), lambda pair: pair[0]):
            stored_bytes = shares.of(segment).stored_bytes
            for sums in (
                report.total,
                ages[age_of(report.at_ms - (segment.modified_ms or segment.created_ms))],
                by_policy[policy_text(policy_cache.of(txn, segment).values)],
                by_directory[directory_of(name, above + depth)],
            ):
                sums.add(segment, stored_bytes)
        report.objects = _objects(txn, report.at_ms, Meter(show, noun="object"))
    report.ages = {name: sums for name, sums in ages.items() if sums.segments}
    report.policies = _by_size(by_policy)
    report.directories = _by_size(by_directory)
    return report


def age_of(age_ms: int) -> str:
    """Return the bucket of an age."""
    return next((name for name, limit_s in AGES if age_ms < limit_s * _MS_PER_S), OLDEST)


def directory_of(name: str, depth: int) -> str:
    """Return the directory of a segment, at most so many levels down."""
    return "/".join(name.split("/")[:-1][:depth]) or "/"


def policy_text(policy: Policy) -> str:
    """Format the settings that decide where bytes are, and how long."""
    values = {key: value_of(policy, key) for key in _SETTINGS}
    kept = {key: value for key, value in values.items() if value not in (None, Compression.OFF) or key in _ALWAYS}
    return ", ".join(f"{key} {format_value(key, value)}" for key, value in kept.items())


def _objects(txn: ReadTransaction, at_ms: int, meter: Meter) -> Objects:
    objects = Objects()
    for _, record in meter.each(txn.scan(OBJECTS), "summing up objects"):
        if record.tier is not Tier.COLD or record.foreign:
            continue
        objects.count += 1
        objects.bytes += record.stored_bytes
        if record.encoding is PayloadEncoding.ZSTD_FRAMES:
            objects.compressed += 1
            objects.saved_bytes += sizes_of(record).saved_bytes
        objects.gets_to_read += -(-record.stored_bytes // GET_BYTES)
        if at_ms - record.created_ms < _MONTH_MS:
            parts = -(-record.stored_bytes // PART_BYTES)
            objects.puts_last_month += 1 if parts <= 1 else parts + 2
    for _, row in txn.scan(GARBAGE):
        if row.tier is Tier.LOCAL:
            objects.local_garbage_bytes += row.length
        else:
            objects.garbage += 1
            objects.garbage_bytes += row.length
    return objects


def _by_size(sums: dict[str, ReportSums]) -> dict[str, ReportSums]:
    return dict(sorted(sums.items(), key=lambda item: (-item[1].bytes, item[0])))
