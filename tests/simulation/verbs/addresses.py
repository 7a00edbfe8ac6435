"""Other addresses of the cold tier: a copy that was made by other means becomes the store's place."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.places import COLD, Fate
from tests.simulation.steps import Arguments, NothingToDo, verb
from tests.simulation.verbs.moves import leave_place, require_all_there, settle_place, target_of
from tests.simulation.world import World
from tierfs.app.setup import place_change
from tierfs.engine.chunkstore.memory import MemoryStorage


def _readdress(world: World, chance: random.Random) -> Arguments:
    if world.damages:
        raise NothingToDo  # as for a move
    return {"retagged": chance.random() < 0.5, "fate": str(chance.choice(list(Fate)))}


@verb(2, _readdress, afterwards=leave_place)
def readdress(world: World, arguments: Arguments) -> None:
    """`config cold.url=` proves that all is there, and the store goes on there."""
    if world.damages or not world.storage.inner.objects:
        raise NothingToDo
    store, target, url = world.store, target_of(world, back=False), f"memory://{len(world.done)}"
    target.inner.objects = dict(world.storage.inner.objects)
    if arguments["retagged"]:
        _retag(target.inner, f"-{len(world.done)}")
    world.moving = url, target
    world.places.add(url, target.inner)
    place_change.change(store.metadata, store.paths, COLD, {"url": url})
    settle_place(world)
    require_all_there(world)


def _retag(copied: MemoryStorage, suffix: str) -> None:
    """Give objects other etags. Their metadata stay: without these `gc` cannot prove that a stray object is ours."""
    for name, held in copied.objects.items():
        copied.objects[name] = replace(held, stored=replace(held.stored, etag=held.stored.etag + suffix))
