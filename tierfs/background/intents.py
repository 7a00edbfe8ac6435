"""Intents that lead nowhere: their objects become garbage."""

from __future__ import annotations

from tierfs.metadata import chains
from tierfs.metadata.records import GarbageRecord, IntentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import INTENTS
from tierfs.types import Tier

_SECOND_DELETE_MS = 3600 * 1000
"""A PUT that was cut off may still be carried out by the server: its object is deleted once more later."""


def abandon(metadata: MetadataStore, intent: IntentRecord) -> None:
    """Give up the object of an intent; one that is gone already was given up, or became a chunk."""
    with metadata.write() as txn:
        if not txn.delete(INTENTS.name, intent.attempt.encode()):
            return
        for due_ms in (txn.now_ms, txn.now_ms + _SECOND_DELETE_MS):
            length = intent.end_offset - intent.start_offset
            garbage = GarbageRecord(
                due_ms=due_ms, tier=Tier.COLD, location_id=intent.location_id, name=intent.name, length=length
            )
            chains.add_garbage(txn, garbage)


def abandon_all(metadata: MetadataStore) -> int:
    """Turn what a crashed holder was making into garbage; call it as the holder before any other work."""
    with metadata.read() as txn:
        left = [intent for _, intent in txn.scan(INTENTS)]
    for intent in left:
        abandon(metadata, intent)
    return len(left)
