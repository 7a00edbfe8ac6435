"""Lifetimes: the holder takes away what policy no longer keeps; the model forgets the same bytes and nothing more."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.steps import Arguments, verb
from tests.simulation.world import World, Wrong, listed
from tierfs.base.options.policy import Policy
from tierfs.base.words.types import ROOT_DIRECTORY, SegmentKind
from tierfs.engine.metadata import policies


def follow(world: World) -> None:
    """Let the model forget what the store has forgotten. Raises Wrong where policy keeps it."""
    segments, after = listed(world.store.metadata), world.model
    for name, content in world.model.live.items():
        segment = segments.get(name)
        start = len(content.data) if segment is None else segment.start_offset
        if segment is not None and start <= content.start:
            continue
        _require_surplus_or_old(world, name, start)
        after = after.gone(name) if segment is None else after.put(name, replace(content, start=start))
    world.model = after


def _require_surplus_or_old(world: World, name: str, start: int) -> None:
    content, policy, now_s = world.model.live[name], _policy(world), world.clock.true_s
    behind = len(content.data) - start
    if content.is_ledger:  # whole ledgers go, so that those behind them are left
        behind = sum(
            len(other.data)
            for key, other in world.model.live.items()
            if other.is_ledger and key > name and _above(key) == _above(name)
        )
    age_s, kept_bytes = policy.retention_age_s, policy.retention_bytes
    first = content.start
    for end, _, at_s in content.written:
        if first < end and first < start:
            is_old = age_s is not None and now_s - at_s >= age_s
            is_surplus = kept_bytes is not None and behind + start - min(end, start) >= kept_bytes
            if not (is_old or is_surplus):
                raise Wrong(f"{name} lost its bytes from {first} to {min(end, start)}, which policy keeps: {policy}")
            first = end
    if start == len(content.data) and not content.sealed and name not in listed(world.store.metadata):
        raise Wrong(f"{name} is gone, and was not sealed")


def _above(name: str) -> str:
    return name.rpartition("/")[0]


def _policy(world: World) -> Policy:
    with world.store.metadata.read() as txn:
        return policies.of_directory(txn, ROOT_DIRECTORY).values


@verb(2, lambda world, chance: {}, calls_storage=True, afterwards=follow)
def end_lifetimes(world: World, arguments: Arguments) -> None:
    """Take away all that is due; what was old, sealed and in the bucket is gone then."""
    with world.store.holding() as work:
        work.publish()
        work.end_lifetimes()
        trusted = work.clocks.reason() is None
    policy, now_ms = _policy(world), world.clock.now_ms()
    if not trusted or policy.retention_age_s is None:
        return
    for name, segment in listed(world.store.metadata).items():
        is_old = now_ms - segment.modified_ms >= 1000 * policy.retention_age_s
        # A ledger is kept by a younger one before it.
        if is_old and segment.sealed and segment.range and segment.whole_in_cold and segment.kind is SegmentKind.BYTES:
            raise Wrong(f"{name} is there, and older than {policy.retention_age_s} s")
