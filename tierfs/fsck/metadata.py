"""Every check of the metadata, over one snapshot."""

from __future__ import annotations

from collections.abc import Iterator

from tierfs.errors import DataLoss
from tierfs.fsck import chains, checksums, entries, objects, rows, tree
from tierfs.fsck.chains import Totals
from tierfs.fsck.findings import RECOVER, Finding, Kind, Severity
from tierfs.fsck.objects import ObjectTable
from tierfs.fsck.rows import Counted
from tierfs.metadata import keys
from tierfs.metadata.tables import DIRECTORIES
from tierfs.metadata.transaction import ReadTransaction


def check_metadata(txn: ReadTransaction, table: ObjectTable, totals: Totals) -> Iterator[Finding]:
    """Everything that is wrong with the records. Fills the table and the totals for the checks of bytes."""
    try:
        _ = txn.store
    except DataLoss as exc:
        yield Finding(Kind.RECORD, Severity.DAMAGE, "superblock", str(exc), remedy=RECOVER)
        return
    locations = rows.load_locations(txn)
    yield from objects.load_objects(txn, locations, table)
    yield from checksums.check_checksums(txn, table)
    yield from chains.check_segments(txn, table, totals)
    yield from objects.unused_and_miscounted(table)
    yield from tree.check_dirents(txn)
    yield from tree.check_directories(txn, totals.inodes)
    yield from tree.twice(totals.inodes)
    yield from _check_rows(txn, table, locations, _highest_id(txn, table, totals))


def _check_rows(txn: ReadTransaction, table: ObjectTable, locations: set[int], highest_id: int) -> Iterator[Finding]:
    counted = Counted(next_id=highest_id + 1)
    yield from rows.check_locations(txn, locations)
    yield from rows.check_policies(txn)
    yield from entries.check_entries(txn)
    yield from rows.check_intents(txn, table, locations)
    yield from rows.check_garbage(txn, table, counted)
    yield from rows.check_batches(txn)
    yield from rows.check_outbox(txn, counted)
    yield from rows.check_counters(txn, counted)
    yield from rows.check_sums(txn)


def _highest_id(txn: ReadTransaction, table: ObjectTable, totals: Totals) -> int:
    """The highest number given out to anything that is still there."""
    directory = txn.last_key(DIRECTORIES.name)
    last_directory = keys.read_u64(directory) if directory is not None else 0
    last_object = table.ids[-1] if table.ids else 0
    return max(last_object, last_directory, totals.highest_id, max(totals.inodes, default=0))
