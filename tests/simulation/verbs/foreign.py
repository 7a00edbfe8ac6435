"""Adoption: objects of others become segments where they are, and are never deleted, overwritten or tagged."""

from __future__ import annotations

import random
from dataclasses import replace
from uuid import UUID

from tests.simulation.model import Content, Part
from tests.simulation.steps import Arguments, NothingToDo, verb
from tests.simulation.storage import Toxic
from tests.simulation.world import World
from tests.stores import LOCATION
from tests.tiering.adoption.pulsar import offloaded
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.types import LocationId
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.chunkstore.read_only import ReadOnlyStorage
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata.records import LocationRecord
from tierfs.tiering.adoption.adopt import Adoption, LedgerAdoption, State
from tierfs.tiering.adoption.plan import AdoptionPlan, LedgerPlan, SegmentPlan, plan_objects
from tierfs.tiering.adoption.pulsar import Reading, plan_pulsar
from tierfs.tiering.adoption.rocketmq import plan_rocketmq
from tierfs.tiering.objects import ColdTier

_ENTRY_BYTES = 150
"""Longest entry of a ledger, which has small blocks."""

_PLACE = LocationRecord(id=LocationId(0), url="memory:theirs", writable=False)


def _adopt(world: World, chance: random.Random) -> Arguments:
    sizes = [chance.randint(1, 4 * world.knobs.chunk_bytes) for _ in range(chance.choice([1, 2, 3]))]
    kind = chance.choice(["objects", "rocketmq", "pulsar"])
    return {"kind": kind, "sizes": sizes, "base": chance.choice([0, 0, 100]), "salt": chance.randrange(1 << 30)}


@verb(1, _adopt, calls_storage=True)
def adopt(world: World, arguments: Arguments) -> None:
    """Make one segment of new objects; all of it or nothing, whatever fails."""
    fault = world.storage.fault
    if fault is not None and fault.toxic is Toxic.FLIP:
        raise NothingToDo  # there is no checksum yet that could tell
    content, plan = _planned(world, arguments)
    store, theirs = world.store, ReadOnlyStorage(world.store.cold)
    (planned,) = plan.segments
    with world.change(world.model.put(planned.name, content)):
        if isinstance(planned, LedgerPlan):
            publisher = Publisher(store.metadata, store.cold)
            tier = ColdTier(LOCATION, store.cold, publisher.require_recent_ownership, publisher.require_place)
            (outcome,) = LedgerAdoption(store.metadata, theirs, _PLACE, 2, Meter(), cold=tier).run([planned])
        else:
            assert isinstance(planned, SegmentPlan)
            (outcome,) = Adoption(store.metadata, theirs, _PLACE, 2, Meter()).run([planned])
        if outcome.error is not None:
            raise outcome.error
        assert outcome.state is State.ADOPTED


def _planned(world: World, arguments: Arguments) -> tuple[Content, AdoptionPlan]:
    """Put the objects there, as others do, and plan the segment."""
    chance, number, plan = random.Random(arguments["salt"]), len(world.done), AdoptionPlan()
    most = _ENTRY_BYTES if arguments["kind"] == "pulsar" else max(arguments["sizes"])
    parts = [chance.randbytes(min(size, most)) for size in arguments["sizes"]]
    if arguments["kind"] == "pulsar":
        ledger = offloaded(parts, number, uuid=UUID(int=chance.getrandbits(128)))
        _put(world, ledger.objects, ledger.said)
        listed = [world.storage.inner.stat(name) for name in ledger.objects]
        plan_pulsar(plan, world.storage.inner, listed, "in", Reading(in_files=False, magic=None))
        content = replace(Content(is_ledger=True).appended(b"".join(parts), world.stamp(sum(map(len, parts)))))
        return replace(content, sealed=True, entries=tuple(parts)), plan
    if arguments["kind"] == "objects":
        base, objects = 0, {f"theirs/{number}": b"".join(parts)}
    else:
        base, objects, at = arguments["base"], {}, 0
        for part in parts:
            objects[f"theirs/{number}/COMMIT_LOG/seg-{base}/chunk/chunk-{at}"] = part
            at += len(part)
    _put(world, objects, {})
    listed = [world.storage.inner.stat(name) for name in objects]
    (plan_objects if arguments["kind"] == "objects" else plan_rocketmq)(plan, listed, "in")
    content = Content(bytes(base)).appended(data := b"".join(parts), world.stamp(len(data)))
    return replace(content, start=base, sealed=True, written=(Part(base, 0, 0), *content.written)), plan


def _put(world: World, objects: dict[str, bytes], metadata: object) -> None:
    for name, data in objects.items():
        world.storage.inner.put(name, BufferSource(data), metadata=dict(metadata))  # type: ignore[call-overload]
        held = world.storage.inner.objects[name]
        # The time of a server, which is right.
        held = replace(held, stored=replace(held.stored, modified_ms=world.clock.right_ms))
        world.storage.inner.objects[name] = world.storage.theirs[name] = held
