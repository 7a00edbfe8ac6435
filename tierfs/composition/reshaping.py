"""Verbs that take chunks away by command, with what follows them. Part of the composition root."""

from __future__ import annotations

from tierfs.app import Store
from tierfs.background.collect import Collector
from tierfs.segments import concat, truncate
from tierfs.segments.concat import Concatenation
from tierfs.segments.truncate import Truncation
from tierfs.types import Tier

_MS_PER_S = 1000


def plan_truncate(store: Store, name: str, before_offset: int) -> Truncation:
    """What `truncate_head` would take away; raises what it raises."""
    with store.metadata.read() as txn:
        return truncate.plan(txn, name, before_offset)


def truncate_head(store: Store, name: str, before_offset: int) -> Truncation:
    """Drop a segment's bytes below an offset, and at once the local files it leaves.

    Cold objects go after the grace period and not before the journal says that they are gone. Raises
    NotFound, IsDirectory, or InvalidRequest naming the length.
    """
    due_ms = store.clock.now_ms() + store.settings.offload.grace_s * _MS_PER_S
    done = store.engine.truncate(name, before_offset, cold_due_ms=due_ms)
    Collector(store.metadata, store.files, store.storage_of).collect(tiers=(Tier.LOCAL,))
    return done


def plan_concat(store: Store, target: str, source: str) -> Concatenation:
    """What concatenating would do; raises what Engine.concat raises, but for a live writer."""
    with store.metadata.read() as txn:
        return concat.plan(txn, target, source)
