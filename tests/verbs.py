"""Verbs on a store that a test has open, as commands do them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from tierfs.app.store import Store
from tierfs.app.verbs import delete, settle, truncate_head
from tierfs.base.bytes.progress import OnProgress, unseen
from tierfs.base.words.types import MIB, ReadPriority
from tierfs.engine.metadata import directories
from tierfs.engine.segments.engine import Engine
from tierfs.reading.stream import Write, copy_segment
from tierfs.tiering.evict_command import EvictReport
from tierfs.tiering.garbage.collect import Collected
from tierfs.tiering.offload_command import OffloadReport
from tierfs.upkeep.holder.perform import perform
from tierfs.upkeep.holder.status import StoreStatus, store_status
from tierfs.upkeep.holder.verbs import COLLECT, DRY_RUN, EVICT, FORCE, GRACE_S, OFFLOAD, flags

__all__ = ["cat", "collect", "delete", "evict", "fill", "offload", "random_blocks", "settle", "status", "truncate_head"]

_APPEND_BYTES = 4 * MIB


def offload(store: Store, path: str = "", report: OnProgress = unseen) -> OffloadReport:
    """Make all below a path cold."""
    return perform(store, OFFLOAD, path, {}, report)


def evict(
    store: Store, path: str = "", *, force: bool = False, dry_run: bool = False, report: OnProgress = unseen
) -> EvictReport:
    """Drop the local bytes below a path that are cold."""
    return perform(store, EVICT, path, flags({FORCE: force, DRY_RUN: dry_run}), report)


def collect(store: Store, *, grace_s: int | None = None) -> Collected:
    """Delete garbage that is due, and orphans older than the grace period."""
    return perform(store, COLLECT, "", {GRACE_S: str(store.settings.offload.grace_s if grace_s is None else grace_s)})


def status(store: Store) -> StoreStatus:
    """Return the status that `tierfs status` shows."""
    return store_status(
        store.metadata, store.files, store.paths.holder, store.path, allowed=store.settings.cold.allowed_locations
    )


def cat(
    store: Store, name: str, start: int | None, end: int | None, priority: ReadPriority | None, write: Write
) -> int:
    """Pass bytes of a segment on."""
    with store.metadata.read() as txn:
        segment = directories.segment_by_name(txn, name)
    return copy_segment(store.reader(), segment, start, end, priority, write)


def random_blocks(size_bytes: int) -> Iterator[bytes]:
    """Random bytes in blocks of 4 MiB: nothing on the way can compress them."""
    for at in range(0, size_bytes, _APPEND_BYTES):
        yield os.urandom(min(_APPEND_BYTES, size_bytes - at))


def fill(engine: Engine, name: str, blocks: Iterable[bytes]) -> None:
    """Write a sealed segment, an append for each block."""
    writer = engine.open_writer(name)
    for block in blocks:
        writer.append(block)
    engine.close_writer(writer)
    engine.seal(name)
