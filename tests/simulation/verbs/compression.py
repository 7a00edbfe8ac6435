"""Compression: policies of directories and segments that change in the middle, and plain objects that follow them."""

from __future__ import annotations

import random

from tests.simulation.steps import Arguments, NothingToDo, verb
from tests.simulation.verbs.tiering import all_else_named, drawn_path, path_there
from tests.simulation.world import World
from tests.stores import quiet
from tierfs.base.words.types import Compression
from tierfs.engine.metadata import policies

_LEVELS = ("1", "3", "12")


def _compression(world: World, chance: random.Random) -> Arguments:
    arguments = drawn_path(world, chance)
    if chance.random() < 0.5 and world.model.of_bytes:
        arguments = {"path": world.any_name(chance)}
    wish = chance.choice([*Compression, Compression.ZSTD])
    return {**arguments, "compression": wish.value, "level": chance.choice(_LEVELS)}


@verb(3, _compression)
def compression(world: World, arguments: Arguments) -> None:
    """Change what becomes of new cold objects below a path."""
    path = path_there(world, arguments["path"])
    settings = {"compression": arguments["compression"], "compression_level": arguments["level"]}
    with world.store.metadata.write() as txn:
        policies.change(txn, path, put_settings=settings)


@verb(2, drawn_path, calls_storage=True)
def compress(world: World, arguments: Arguments) -> None:
    """Join and repack, and compress what is plain although its policy asks for it."""
    if not world.model.live:
        raise NothingToDo
    with all_else_named(world), world.store.holding() as work:
        work.compress(path_there(world, arguments["path"]), dry_run=False, report=quiet)
