"""The end of a life whose files and objects rot: what is harmed is named, and good again once its bytes are back."""

from __future__ import annotations

from contextlib import suppress

from tests.app.recovery.recovering import recovered
from tests.simulation.checks.comparing import read, require, same
from tests.simulation.invariants import invariant
from tests.simulation.world import World, listed
from tests.upkeep.check.looking import cold_findings, deep_findings, findings
from tests.upkeep.check.test_mender import mended
from tierfs.base.bytes import ranges
from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.base.words.types import ByteRange
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.journal.names import JOURNAL_PREFIX


@invariant(13)
def what_is_back_is_good_again(world: World, *, repairs: bool) -> None:
    """What was harmed, marked and perhaps repaired was never thrown away: it is good again once its bytes are back."""
    store = world.store
    if repairs:
        mended(store, [*findings(store), *cold_findings(store), *deep_findings(store)])
        store.collect()
    for undo in reversed(world.damages.undo):
        undo()
    mended(store, [*findings(store), *cold_findings(store), *deep_findings(store)])
    for name, content in world.model.live.items():
        same(name, read(store, name), content.data[content.start :])


@invariant(4, 11)
def what_is_cold_outlives_the_disk(world: World) -> None:
    """The disk is lost now: all that is cold is in the bucket, and its journal names it."""
    world.points.disarm()  # what recovers it is another host, and does not die
    path = world.path.parent / f"lost-{len(world.done)}"
    left = MemoryStorage(world.clock, world.storage.inner.objects)
    if not any(left.list(JOURNAL_PREFIX)):
        require(not any(world.store.layout(name).cold for name in world.model.live), "the bucket has no journal")
        return
    with recovered(path, left) as found:
        there = {segment.id: name for name, segment in listed(found.store.metadata).items()}
        for name in world.model.live:
            layout = world.store.layout(name)
            if not layout.cold:
                continue
            require(layout.segment.id in there, f"{name} is cold, and not in the bucket")
            held = [placed.range for placed in found.store.layout(there[layout.segment.id]).cold]
            for placed in layout.cold:
                live = placed.range.intersect(layout.segment.range)
                require(ranges.covers(held, live), f"{name}: {live} is cold, and the bucket does not name it")


def damaged(world: World) -> None:
    """Damage of one chunk keeps no other from being offloaded, and a check of every byte names what is harmed."""
    with world.store.holding() as work:  # a cut may have dropped the bytes for which a chunk is suspect
        work.suspects.look()
    for _ in range(3):
        with suppress(DataLoss, NotFound):
            world.store.offload()
    block = world.knobs.constants["CRC_BLOCK_BYTES"]
    said = " ".join(map(str, deep_findings(world.store)))
    left_open = world.model.open_ledgers
    for name in world.model.live:
        layout = world.store.layout(name)
        for local in layout.local:
            live = local.range.intersect(layout.segment.range)
            cold = sum(placed.range.intersect(live).length_bytes for placed in layout.cold)
            # An open ledger becomes cold when it is closed.
            if cold < live.length_bytes and not layout.segment.active and name not in left_open:
                needs = world.damages.hurts(local, local.range, block)
                require(needs, f"{name}: {live} is not cold, though nothing harmed it")
        for placed in (*layout.local, *layout.cold):
            shift = placed.chunk.object_offset - placed.chunk.start_offset
            live = placed.range.intersect(layout.segment.range)
            inside = ByteRange(live.start + shift, live.end + shift)
            if any(harmed.intersect(inside) for harmed in world.damages.of.get(placed.object.name, [])):
                require(placed.object.name in said, f"no check names {placed.object.name}")
