"""The outbox: changes of this owner that the bucket's journal does not name yet. journal.py reads it."""

from __future__ import annotations

from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.records import GarbageRecord
from tierfs.metadata.tables import GARBAGE
from tierfs.metadata.transaction import WriteTransaction


def add(txn: WriteTransaction, change: pb.Change) -> int:
    """Queue a change for the journal; returns its sequence."""
    return txn.add_to_outbox(change.SerializeToString(deterministic=True))


def garbage_queued(txn: WriteTransaction, record: GarbageRecord) -> int:
    """A cold object is to be deleted later, by whoever owns the bucket then."""
    return add(txn, pb.Change(garbage=GARBAGE.codec.to_message(record)))  # type: ignore[arg-type]
