"""Verbs of managed ledgers: append with what offloads, offload up to a position, trim. Part of the composition root."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from tierfs.app import Store
from tierfs.segments import trim
from tierfs.segments.delete import Deletion
from tierfs.segments.managed_ledger import ManagedLedger
from tierfs.segments.positions import Position
from tierfs.types import Tier

if TYPE_CHECKING:
    from tierfs.background.managed_offload import PrefixOffloaded
    from tierfs.background.upload import Report

_MS_PER_S = 1000


def open_managed_ledger(store: Store, path: str, *, take_over: bool = False) -> ManagedLedger:
    """Become the writer of a managed ledger; see ManagedLedger. It offloads where the store has a cold tier."""
    if store.cold_location_id is None:
        return ManagedLedger(store.engine, path, take_over=take_over)

    def offload(managed_ledger: str, before: Position) -> Position:
        return Position.parse(offload_prefix(store, managed_ledger, before, lambda _: None).first_unoffloaded)

    return ManagedLedger(store.engine, path, take_over=take_over, offloader=offload)


def offload_prefix(store: Store, path: str, before: Position | None, report: Report) -> PrefixOffloaded:
    """Make the ledgers of a managed ledger before a position cold, here or by the holder.

    See ManagedOffload.offload_prefix. Raises Unavailable without a cold tier.
    """
    from tierfs.background import serve
    from tierfs.background.ask import Question, ask
    from tierfs.background.inline import InlineWork
    from tierfs.background.managed_offload import PrefixOffloaded

    work = InlineWork(store.cold_work(serve.OFFLOAD), store.paths.holder, store.clock)
    options = {} if before is None else {serve.BEFORE: str(before)}

    def inline() -> dict[str, object]:
        return asdict(work.offload_prefix(path, before, report))

    return PrefixOffloaded(**ask(store.metadata, Question(serve.OFFLOAD_PREFIX, path, options, inline), report))


def trim_ledgers(store: Store, path: str, before_ledger: int) -> Deletion:
    """Delete the closed ledgers of a managed ledger below an id, and at once the local files they leave.

    Cold objects go after the grace period and not before the journal says that they are gone. Raises NotFound, or
    InvalidRequest for a segment.
    """
    from tierfs.background.collect import Collector

    due_ms = store.clock.now_ms() + store.settings.offload.grace_s * _MS_PER_S
    done = trim.trim(store.metadata, path, before_ledger, partial(store.engine.remove, cold_due_ms=due_ms))
    Collector(store.metadata, store.files, store.storage_of).collect(tiers=(Tier.LOCAL,))
    return done
