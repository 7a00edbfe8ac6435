"""Verbs of the holder: offload, consolidate, evict, publish, checkpoint, collect."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from tests.simulation import invariants
from tests.simulation.checks.damage import what_is_cold_outlives_the_disk
from tests.simulation.invariants import needed_beside_suspects
from tests.simulation.steps import Arguments, verb
from tests.simulation.world import NAMES, World
from tierfs.base.words.errors import DataLoss

_PATHS = ("", "", "", "d", *NAMES)


def drawn_path(world: World, chance: random.Random) -> Arguments:
    """Draw a path of which something is there."""
    path = chance.choice(_PATHS)
    return {"path": path_there(world, path)}


def path_there(world: World, path: str) -> str:
    """Return a path, or that of the root where nothing is at it or below any more."""
    return path if any(f"{name}/".startswith(f"{path}/") for name in world.model.live) else ""


@contextmanager
def all_else_named(world: World) -> Iterator[None]:
    """Look whether work that failed for one damaged chunk has given all that is cold to the bucket."""
    try:
        yield
    except DataLoss:
        if not world.faulty:
            what_is_cold_outlives_the_disk(world)
        raise


@verb(6, drawn_path, calls_storage=True)
def offload(world: World, arguments: Arguments) -> None:
    """Make bytes cold."""
    path = path_there(world, arguments["path"])
    with all_else_named(world):
        world.store.offload(path)
    world.promise(path)


@verb(3, drawn_path, calls_storage=True)
def evict(world: World, arguments: Arguments) -> None:
    """Drop local bytes, but none whose cold copy is suspect."""
    needed = needed_beside_suspects(world)
    world.store.evict(path_there(world, arguments["path"]))
    invariants.a_suspect_copy_takes_no_other(world, needed)


@verb(2, drawn_path, calls_storage=True)
def consolidate(world: World, arguments: Arguments) -> None:
    """Join and repack."""
    with all_else_named(world):
        world.store.consolidate(path_there(world, arguments["path"]))


@verb(1, lambda world, chance: {"grace_s": chance.choice([0, 3600])}, calls_storage=True)
def collect(world: World, arguments: Arguments) -> None:
    """Delete garbage and orphans."""
    world.store.collect(grace_s=arguments["grace_s"])


@verb(2, lambda world, chance: {}, calls_storage=True)
def settle(world: World, arguments: Arguments) -> None:
    """Publish what is queued and delete what is due."""
    world.store.settle()


@verb(1, lambda world, chance: {}, calls_storage=True)
def checkpoint(world: World, arguments: Arguments) -> None:
    """Write the whole state into the bucket."""
    with world.store.holding() as work:
        work.publish()
        work.checkpointer.checkpoint()


@verb(1, lambda world, chance: {}, calls_storage=True, damages=True)
def look_at_suspects(world: World, arguments: Arguments) -> None:
    """Read suspect chunks again."""
    with world.store.holding() as work:
        work.suspects.look()
