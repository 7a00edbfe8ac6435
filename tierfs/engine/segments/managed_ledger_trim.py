"""Trim a managed ledger: delete its oldest closed ledgers, in both tiers, each as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice

from tierfs.engine.metadata import directories
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.engine.segments import positions
from tierfs.engine.segments.delete import Deletion
from tierfs.engine.segments.positions import Position

# Ledgers deleted per commit: some 10 ms, so that appends hardly wait (a guess).
_TOGETHER = 20

# Deletes one segment inside a transaction.
Remove = Callable[[WriteTransaction, SegmentRecord], Deletion]


def plan(txn: ReadTransaction, path: str, before: Position) -> Deletion:
    """Return what `trim` would delete. Raises NotFound, InvalidRequest for a segment or a position outside of it."""
    deletion = Deletion()
    for segment in _closed_before(txn, path, before):
        deletion = deletion.plus(segment)
    return deletion


def trim(metadata: MetadataStore, path: str, before: Position, remove: Remove) -> Deletion:
    """Delete every closed ledger that lies wholly before a position, oldest first. Raises as `plan`."""
    with metadata.read() as view:
        segments = iter(_closed_before(view, path, before))
    deletion = Deletion()
    while batch := list(islice(segments, _TOGETHER)):
        with metadata.write() as txn:
            going = [segment for record in batch if (segment := directories.living_segment(txn, record.id)) is not None]
            removals = [remove(txn, segment) for segment in going]
        for segment, removal in zip(going, removals, strict=True):
            deletion = replace(deletion.plus(segment), trash_due_ms=removal.trash_due_ms)
    return deletion


def _closed_before(txn: ReadTransaction, path: str, before: Position) -> list[SegmentRecord]:
    members = positions.members(txn, positions.directory_of(txn, path))
    return [member.segment for member in positions.closed_before(members, before, path)]
