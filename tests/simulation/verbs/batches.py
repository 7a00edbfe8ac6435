"""Batches: segments that many tasks upload and one driver commits, all of them or none, and each version once."""

from __future__ import annotations

import random

from tests.simulation.model import Content
from tests.simulation.steps import Arguments, verb
from tests.simulation.world import World
from tests.tiering.batch_writes import Driver


def _batch(world: World, chance: random.Random) -> Arguments:
    sizes = [chance.randrange(1, 4 * world.knobs.chunk_bytes) for _ in range(chance.choice([1, 2, 4]))]
    return {"sizes": sizes, "salt": chance.randrange(1 << 30), "again": chance.random() < 0.3}


@verb(2, _batch, calls_storage=True)
def batch(world: World, arguments: Arguments) -> None:
    """Write one; perhaps a driver that did not hear of its success writes it again."""
    chance, version = random.Random(arguments["salt"]), len(world.done)
    segments = {f"out/{version}-{k}": chance.randbytes(size) for k, size in enumerate(arguments["sizes"])}
    after = world.model
    for name, data in segments.items():
        after = after.put(name, Content(data, sealed=True))
    driver = Driver(world.store)
    with world.change(after):
        assert not driver.write(segments, version).repeated
    if arguments["again"]:
        assert driver.write(segments, version).repeated
