"""The amounts of a month of a store: its bytes now, and its requests of the last 30 days. Part of the composition root.

Costs no request, unless the objects are listed to see their storage classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from tierfs.app import costs
from tierfs.app.costs import LOCAL, MonthlyAmounts
from tierfs.app.request_log import Calls, DailyCalls, read_days
from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import Meter, OnProgress
from tierfs.base.words.errors import no_cold_tier
from tierfs.base.words.stored_size import StoredSize
from tierfs.base.words.types import IN_PLACE
from tierfs.engine.metadata.message_rows import messages
from tierfs.engine.metadata.sums import recount
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering import quota

DEFAULT_CLASS = "STANDARD"
"""The class of objects for which a server names none, as S3 has it."""

_MS_PER_S = 1000
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class CostFacts:
    """Amounts of a month, and where they are from."""

    amounts: MonthlyAmounts
    measured_days: float
    """Days of which the requests are known; they are projected to a month."""
    listed_objects: int | None
    """Objects that were listed for their classes; None when the setting was believed."""
    garbage_bytes: int
    """Part of the stored bytes that waits for its deletion."""

    @property
    def origin(self) -> str:
        """Where the requests are from, as a sentence."""
        if not self.measured_days:
            return "requests: none are recorded yet"
        days = f"{self.measured_days:.1f} days"
        return f"requests and bytes read: of the last {days} on this host, projected to 30 days"


def facts_of(store: Store, *, replicas: int, lists: bool, report: OnProgress) -> CostFacts:
    """Return what a month of a store uses. `lists`: list the objects, which costs a request for 1000 of them.

    Raises NoColdTier for a listing without one, and what listing raises.
    """
    with store.metadata.read() as txn:
        totals = txn.sums or recount(txn.scan_raw)
        use = quota.use_of(txn, totals)
    with store.metadata.read() as txn:
        archived = _archived(txn) if totals.archived_objects else {}
    classes, listed = _classes(store, use.bytes, archived, lists=lists, report=report)
    days = read_days(store.paths.requests)
    calls, measured_days = _month(days, store.clock.now_ms())
    requests = costs.requests_of({verb: (row.number, row.bytes) for verb, row in calls.items()})
    factor = costs.DAYS / measured_days if measured_days else 0.0
    read = calls.get("read", Calls())
    amounts = MonthlyAmounts(
        storage_bytes={LOCAL: totals.local_bytes, **classes},
        requests={kind: number * factor for kind, number in requests.items()},
        read_bytes=read.bytes * factor,
        saved_bytes=StoredSize(totals.compressed_bytes, totals.compressed_stored_bytes).saved_bytes,
        replicas=replicas,
        replica_requests=costs.of_replicas(replicas, store.settings.background.replica_refresh_s),
    )
    return CostFacts(amounts, measured_days, listed, use.garbage_bytes)


def _archived(txn: ReadTransaction) -> dict[str, int]:
    """Return the stored bytes of archived objects by storage class; one pass over all objects."""
    classes = Counter[str]()
    for _, row in messages(txn, OBJECTS):
        if row is not None and row.archive_class:
            classes[row.archive_class] += row.stored_length or row.length
    return dict(classes)


def _classes(
    store: Store, cold_bytes: int, archived: Mapping[str, int], *, lists: bool, report: OnProgress
) -> tuple[dict[str, int], int | None]:
    """Return the bytes in the cold tier by storage class, and the number of objects that were listed."""
    location = store.cold_location
    if not lists:
        configured = store.settings.cold.storage_class or DEFAULT_CLASS
        if location is None:
            return {}, None
        classes = Counter(archived)
        classes[configured] += max(0, cold_bytes - sum(archived.values()))
        return dict(classes), None
    if location is None:
        raise no_cold_tier("a list of objects")
    seen, listed, meter = Counter[str](), 0, Meter(report, noun="object")
    for stored in store.storage_of(location.id).list(""):
        seen[stored.storage_class or DEFAULT_CLASS] += stored.length_bytes
        listed += 1
        meter(stored.length_bytes, stored.name, 1)
    seen[IN_PLACE] += archived.get(IN_PLACE, 0)  # in another place, of one class as far as prices go
    return dict(+seen), listed


def _month(days: DailyCalls, now_ms: int) -> tuple[dict[str, Calls], float]:
    """Return the calls of the last 30 days by verb, and how many days they are of, today in part."""
    now = datetime.fromtimestamp(now_ms / _MS_PER_S, UTC)
    first = now.date() - timedelta(days=costs.DAYS)
    recent = {day: verbs for day, verbs in days.items() if first < day <= now.date()}
    if not recent:
        return {}, 0.0
    calls: dict[str, Calls] = {}
    for verbs in recent.values():
        for verb, row in verbs.items():
            calls[verb] = calls.get(verb, Calls()).plus(row)
    begin = datetime.combine(min(recent), datetime.min.time(), UTC)
    # A store of today has not existed for a whole day: an hour at least, so that one command is no million of them.
    return calls, max(1 / 24, (now - begin).total_seconds() / _DAY_S)
