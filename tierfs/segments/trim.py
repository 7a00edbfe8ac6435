"""Trimming a managed ledger: its oldest closed ledgers go, in both tiers. No ledger loses a part."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from tierfs.metadata import directories
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.segments import positions
from tierfs.segments.delete import Deletion

_TOGETHER = 20
"""Ledgers of one commit: some 10 ms, so that appends hardly wait (guess)."""

Remove = Callable[[WriteTransaction, SegmentRecord], None]
"""Deletes one segment inside a transaction."""


def plan(txn: ReadTransaction, path: str, before_ledger: int) -> Deletion:
    """What would go. Raises NotFound, InvalidRequest for a segment."""
    found = Deletion()
    for segment in _closed_before(txn, path, before_ledger):
        found = found.plus(segment)
    return found


def trim(metadata: MetadataStore, path: str, before_ledger: int, remove: Remove) -> Deletion:
    """Delete every closed ledger with a smaller id, oldest first; open ones stay. Raises what `plan` raises."""
    with metadata.read() as view:
        found = iter(_closed_before(view, path, before_ledger))
    done = Deletion()
    while batch := list(islice(found, _TOGETHER)):
        with metadata.write() as txn:
            going = [segment for one in batch if (segment := directories.segment(txn, one.id)) is not None]
            for segment in going:
                remove(txn, segment)
        for segment in going:
            done = done.plus(segment)
    return done


def _closed_before(txn: ReadTransaction, path: str, before_ledger: int) -> list[SegmentRecord]:
    found = positions.members(txn, positions.directory_of(txn, path))
    return [one.segment for one in found if one.segment.sealed and one.ledger_id < before_ledger]
