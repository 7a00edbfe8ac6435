"""The outbox: changes of this owner that the bucket's journal does not name yet. journal.py reads it."""

from __future__ import annotations

from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.records import GarbageRecord
from tierfs.metadata.tables import GARBAGE
from tierfs.metadata.transaction import WriteTransaction


def add(txn: WriteTransaction, change: pb.Change) -> int:
    """Queue a change for the journal; returns its sequence."""
    return txn.add_to_outbox(change.SerializeToString(deterministic=True))


def add_garbage(txn: WriteTransaction, record: GarbageRecord) -> None:
    """A cold object is to be deleted later, by whoever owns the bucket then.

    It comes behind what else the transaction changes: a journal that ends in between must not call garbage
    what it still links.
    """
    change = pb.Change(garbage=GARBAGE.codec.to_message(record))  # type: ignore[arg-type]
    txn.add_to_outbox_last(change.SerializeToString(deterministic=True))
