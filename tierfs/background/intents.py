"""Intents that lead nowhere: their objects become garbage.

The intent of a job, as distributed writers have, names all objects below `uploads/<job>/`. Its driver is no process
that could hold a lock: Spark runs the beginning and the commit of a write in workers of their own. So a job lives as
long as anything comes of it, and outlives the holder; `gc` ends the dead ones (dead_uploads.py).
"""

from __future__ import annotations

from tierfs.metadata import chains
from tierfs.metadata.records import GarbageRecord, IntentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import INTENTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import Tier

JOBS_PREFIX = "uploads/"

JOB_REST_MS = 24 * 3600 * 1000
"""A job to which nothing was added for so long has no driver any more. A guess: tasks compute for less."""

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


def is_job(intent: IntentRecord) -> bool:
    """Whether an intent is that of a job."""
    return intent.name.startswith(JOBS_PREFIX) and intent.name.endswith("/")


def jobs(txn: ReadTransaction) -> dict[str, IntentRecord]:
    """Jobs that may still be committed, by where their objects lie."""
    return {intent.name: intent for _, intent in txn.scan(INTENTS) if is_job(intent)}


def abandon_all(metadata: MetadataStore) -> int:
    """Turn what a crashed holder was making into garbage; call it as the holder before any other work."""
    with metadata.read() as txn:
        left = [intent for _, intent in txn.scan(INTENTS) if not is_job(intent)]
    for intent in left:
        abandon(metadata, intent)
    return len(left)
