"""The job `rebuild`: executors recompute the rows of entries that a store lacks from the ledgers' objects.

A repeated run does the rest: a ledger that has its rows is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from pyspark.sql import SparkSession

from tierfs.app.store import Store
from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import OnProgress, unseen
from tierfs.base.words.errors import Conflict, DataLoss, NotFound
from tierfs.engine.metadata import directories, entries
from tierfs.engine.metadata.ledger_records import EntryRun
from tierfs.pipeline.reader.extents import ScannedStore
from tierfs.pipeline.reader.selection import place_of
from tierfs.pipeline.spark.jobs.result import Result
from tierfs.pipeline.spark.jobs.tasks import Counter, Tasks
from tierfs.pipeline.spark.partitions import connections
from tierfs.tiering.adoption.ledger_read import told
from tierfs.tiering.adoption.lost_rows import LostRows, lost_rows, rescan

COLUMNS = {
    "ledger": "string",
    "entries": "long",
    "bytes": "long",
    "objects": "long",
    "rebuilt": "boolean",
    "why": "string",
}

# Entries of the ledgers whose rows are returned together: some 200 MB of lengths (a guess).
_WAVE_ENTRIES = 20_000_000

_WAVE_LEDGERS = 1000
# Rows that one commit writes: some 10 ms.
_RUNS_TOGETHER = 64


@dataclass(frozen=True, slots=True)
class Rescanned:
    """A task's result for one ledger."""

    runs: tuple[EntryRun, ...]
    why_not: str = ""


def rebuild(spark: SparkSession, store: Store, *, show: OnProgress = unseen) -> Result:
    """Recompute and write the rows of every ledger that lacks them; return a row for each of those ledgers.

    A ledger that cannot be rebuilt does not stop the others. Raises Unavailable when a tier does not answer.
    """
    lost = list(lost_rows(store.metadata))
    with store.metadata.read() as txn:
        place = place_of(txn, str(store.path), store.settings.cold)
    tasks = Tasks(spark, show, sum(ledger.object_bytes for ledger in lost))
    rows = []
    for wave in _waves(lost):
        for ledger, rescanned in zip(wave, tasks.run(partial(rescan_ledger, place), wave), strict=True):
            rebuilt = not rescanned.why_not and _put(store, ledger, rescanned.runs)
            why = rescanned.why_not or ("" if rebuilt else "the ledger was deleted meanwhile")
            rows.append((ledger.name, ledger.entries, ledger.length_bytes, len(ledger.records), rebuilt, why))
    failed = sum(not row[4] for row in rows)
    return Result(COLUMNS, sorted(rows), {"rebuilt": len(rows) - failed, "failed": failed})


def rescan_ledger(place: ScannedStore, lost: LostRows, done: Counter) -> Rescanned:
    """Rescan the ledger of one task, on an executor."""
    try:
        runs = rescan(lost, partial(connections().storage, place), lambda size_bytes, _: done.add(size_bytes))
    except (Conflict, DataLoss, NotFound) as exc:
        return Rescanned((), told(exc))
    return Rescanned(runs)


def _put(store: Store, lost: LostRows, runs: Sequence[EntryRun]) -> bool:
    """Write rows, the last ones last: a ledger lacks rows until all are written. Return False if it is gone."""
    write = store.metadata.write_replayed if store.is_replica else store.metadata.write
    for first in range(0, len(runs), _RUNS_TOGETHER):
        with write() as txn:
            if directories.segment(txn, lost.segment_id) is None:
                return False
            if not first:
                entries.remove(txn, lost.segment_id)
            for run in runs[first : first + _RUNS_TOGETHER]:
                entries.put(txn, lost.segment_id, run)
    return True


def _waves(lost: Sequence[LostRows]) -> Iterator[list[LostRows]]:
    """Return ledgers whose rows fit into the driver's memory together."""
    return ranges.groups(lost, lambda ledger: ledger.entries or 0, _WAVE_ENTRIES, _WAVE_LEDGERS)
