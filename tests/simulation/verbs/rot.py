"""Damage: one file or object has a flipped bit, ends too early or is gone."""

from __future__ import annotations

import random

from tests.simulation.compressed_harm import harmed
from tests.simulation.damages import Harm, harm_file, harm_object
from tests.simulation.steps import Arguments, NothingToDo, verb
from tests.simulation.verbs.writing import content_of
from tests.simulation.world import World, pick
from tierfs.base.words.object_names import PACK
from tierfs.base.words.types import PayloadEncoding, Tier


def _harm(world: World, chance: random.Random) -> Arguments:
    growing = [name for name in world.model.of_bytes if world.store.segment(name).active]
    if growing and chance.random() < 0.4:  # the last byte of a chunk to which a writer comes back
        name, harm = chance.choice(growing), chance.choice([Harm.SHORT, Harm.FLIP])
        return {"name": name, "tier": int(Tier.LOCAL), "at": len(world.model.live[name].data) - 1, "harm": str(harm)}
    name, tier = world.any_name(chance), chance.choice(list(Tier))
    placed = pick(chance, list(world.store.layout(name).chunks(tier)))
    held = placed.range.intersect(world.store.segment(name).range)
    if not held:
        raise NothingToDo
    is_compressed = placed.object.encoding is PayloadEncoding.ZSTD_FRAMES
    harm = chance.choice([*Harm] if is_compressed else [Harm.FLIP, Harm.FLIP, Harm.SHORT, Harm.VANISH])
    at = chance.choice([held.start, held.end - 1, chance.randrange(held.start, held.end)])
    return {"name": name, "tier": int(tier), "at": at, "harm": str(harm)}


@verb(6, _harm, damages=True)
def harm(world: World, arguments: Arguments) -> None:
    """A local file that was checked may rot unnoticed until its reader ends, so that a new reader begins."""
    name, _ = content_of(world, arguments)
    tier, kind = Tier(arguments["tier"]), Harm(arguments["harm"])
    layout = world.store.layout(name)
    held = [placed for placed in layout.chunks(tier) if placed.range.start <= arguments["at"] < placed.range.end]
    if not held or held[0].object.name in world.damages.of or held[0].object.foreign:
        raise NothingToDo
    placed = held[0]
    at = arguments["at"] - placed.chunk.start_offset + placed.chunk.object_offset
    if placed.object.encoding is PayloadEncoding.ZSTD_FRAMES and kind is not Harm.VANISH:
        _harm_compressed(world, placed.object.name, kind, at)
        return
    if kind in (Harm.TABLE, Harm.BOMB, Harm.OTHER_FORM):
        raise NothingToDo
    world.damages.note(placed.object.name, kind, at)
    if tier is Tier.COLD:
        world.damages.undo.append(harm_object(world.storage, placed.object.name, kind, at))
        return
    growing = world.store.segment(name).active and placed.chunk.next == 0
    if kind is not Harm.FLIP and growing:
        world.without_writer(name)  # one that is open knows its file by its descriptor
    block = world.knobs.constants["CRC_BLOCK_BYTES"]
    if not (growing and kind is Harm.FLIP and at >= placed.object.length - placed.object.length % block):
        world.new_process = True
    world.damages.undo.append(harm_file(world.store.files.root, placed.object.name, kind, at))
    world.disk.sync_file(world.store.files.root / placed.object.name)


def _harm_compressed(world: World, name: str, kind: Harm, at: int) -> None:
    if kind is Harm.OTHER_FORM and PACK.fullmatch(name) is not None:
        raise NothingToDo  # it has an index, too
    done = harmed(world.storage.inner.objects[name].data, kind, at)
    if done is None:
        raise NothingToDo
    world.damages.of.setdefault(name, []).extend([done.plain] if done.plain else [])
    world.damages.undo.append(harm_object(world.storage, name, kind, at, done.data))
