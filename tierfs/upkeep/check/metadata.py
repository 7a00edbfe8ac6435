"""Checks all metadata over one snapshot: the checks of records in their order."""

from __future__ import annotations

from collections.abc import Iterator

from tierfs.base.bytes.progress import OnProgress, doing, unseen
from tierfs.base.words.errors import DataLoss
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.tables import DIRECTORIES
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.upkeep.check import checksum_runs, entry_runs, objects, rows, tree
from tierfs.upkeep.check.findings import RECOVER, Finding, Kind, Severity
from tierfs.upkeep.check.object_table import ObjectTable
from tierfs.upkeep.check.rows import Counted
from tierfs.upkeep.check.segments import Totals, check_segments


def check_metadata(
    txn: ReadTransaction, table: ObjectTable, totals: Totals, report: OnProgress = unseen
) -> Iterator[Finding]:
    """Yield everything that is wrong with the records. Fills the table and the totals for the checks of bytes."""
    try:
        _ = txn.store
    except DataLoss as exc:
        yield Finding(Kind.RECORD, Severity.DAMAGE, "superblock", str(exc), remedy=RECOVER)
        return
    locations = rows.load_locations(txn)
    report(doing("checking records of objects"))
    yield from objects.load_objects(txn, locations, table)
    yield from checksum_runs.check_checksums(txn, table)
    yield from check_segments(txn, table, totals, report)
    report(doing("checking the other records"))
    yield from objects.unused_and_miscounted(table)
    yield from tree.check_dirents(txn)
    yield from tree.check_directories(txn, totals.inodes)
    yield from tree.twice(totals.inodes)
    yield from _check_rows(txn, table, locations, _highest_id(txn, table, totals))


def _check_rows(txn: ReadTransaction, table: ObjectTable, locations: set[int], highest_id: int) -> Iterator[Finding]:
    counted = Counted(next_id=highest_id + 1)
    yield from rows.check_locations(txn, locations)
    yield from rows.check_policies(txn)
    yield from entry_runs.check_entries(txn)
    yield from rows.check_intents(txn, table, locations)
    yield from rows.check_garbage(txn, table, counted)
    yield from rows.check_batches(txn)
    yield from rows.check_outbox(txn, counted)
    yield from rows.check_counters(txn, counted)
    yield from rows.check_sums(txn)


def _highest_id(txn: ReadTransaction, table: ObjectTable, totals: Totals) -> int:
    """Return the highest number given to anything that still exists."""
    directory = txn.last_key(DIRECTORIES.name)
    last_directory = tables.read_u64(directory) if directory is not None else 0
    last_object = table.ids[-1] if table.ids else 0
    return max(last_object, last_directory, totals.highest_id, max(totals.inodes, default=0))
