"""Attempts at the offload of a ledger that did not complete: what they may have left in the cold tier."""

from __future__ import annotations

from tierfs.ledger import keys
from tierfs.metadata import chains
from tierfs.metadata.ledger_records import LedgerRecord
from tierfs.metadata.records import GarbageRecord
from tierfs.metadata.transaction import WriteTransaction
from tierfs.types import Tier


def discard(txn: WriteTransaction, known: LedgerRecord) -> None:
    """Delete the objects of an attempt that did not complete, whether they are there or not."""
    uuid, location_id = known.offload.uuid, txn.store.cold_location_id
    if uuid is None or known.offload.complete or not location_id:
        return
    for name in (keys.data_key(uuid, known.ledger_id), keys.index_key(uuid, known.ledger_id)):
        chains.add_garbage(txn, GarbageRecord(due_ms=txn.now_ms, tier=Tier.COLD, location_id=location_id, name=name))
