"""Entries that were published since the newest checkpoint, kept here so that the next checkpoint need not fetch them.

The bucket has all of them: a row that is missing, as after a recovery, costs a request.
"""

from __future__ import annotations

from tierfs.engine.metadata import tables
from tierfs.engine.metadata.tables import PUBLISHED_NAME
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction

# Larger entries are not kept: they are few, and 1,000 of this size are 64 MiB. A guess.
KEPT_BYTES = 64 * 1024


def keep(txn: WriteTransaction, slot: int, framed: bytes) -> None:
    """Keep the framed entry of a slot that was confirmed, unless it is large."""
    if 0 < len(framed) <= KEPT_BYTES:
        txn.put_raw(PUBLISHED_NAME, tables.u64(slot), framed)


def kept(txn: ReadTransaction, slot: int) -> bytes | None:
    """Return the framed entry of a slot, or None."""
    return txn.get_raw(PUBLISHED_NAME, tables.u64(slot))


def forget(txn: WriteTransaction, last_slot: int) -> None:
    """Drop the entries up to a slot: a checkpoint has them."""
    for key in [key for key, _ in txn.scan_raw(PUBLISHED_NAME) if tables.read_u64(key) <= last_slot]:
        txn.delete(PUBLISHED_NAME, key)
