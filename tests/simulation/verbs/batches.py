"""Batches: segments that many tasks upload and one driver commits, all of them or none, and each version once."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from unittest.mock import patch

from tests.app.batches.batch_writes import Driver
from tests.simulation.model import Content
from tests.simulation.steps import Arguments, verb
from tests.simulation.world import World
from tierfs.app.batches import commit as batch_commit
from tierfs.base.words.errors import Unavailable


def _batch(world: World, chance: random.Random) -> Arguments:
    sizes = [chance.randrange(1, 4 * world.knobs.chunk_bytes) for _ in range(chance.choice([1, 2, 4]))]
    salt, again = chance.randrange(1 << 30), chance.random() < 0.3
    return {"sizes": sizes, "salt": salt, "again": again, "left": chance.random() < 0.25}


@verb(2, _batch, calls_storage=True)
def batch(world: World, arguments: Arguments) -> None:
    """Write one, perhaps after a job that got as far as its manifest; a driver that heard nothing writes it again."""
    chance, version = random.Random(arguments["salt"]), len(world.done)
    segments = {f"out/{version}-{k}": chance.randbytes(size) for k, size in enumerate(arguments["sizes"])}
    after = world.model
    for name, data in segments.items():
        after = after.put(name, replace(Content().appended(data, world.stamp(len(data))), sealed=True))
    driver = Driver(world.store)
    if arguments.get("left"):
        others = {name: bytes(len(data)) for name, data in segments.items()}
        refused = patch.object(batch_commit, "commit", side_effect=Unavailable("it dies before it commits"))
        with refused, suppress(Unavailable):
            driver.write(others, version)
    with world.change(after):
        assert not driver.write(segments, version).repeated
    if arguments["again"]:
        assert driver.write(segments, version).repeated
