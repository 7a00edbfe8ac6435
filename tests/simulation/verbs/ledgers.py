"""Ledgers: numbered entries, of which each ledger becomes cold as a whole once it is closed."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.model import Content
from tests.simulation.steps import Arguments, NothingToDo, verb
from tests.simulation.world import LEDGERS, World, pick
from tierfs.engine.segments import ledgers


def _entries(world: World, chance: random.Random) -> Arguments:
    sizes = [chance.choice([0, 1, 7, chance.randrange(80)]) for _ in range(chance.choice([1, 2, 5]))]
    return {"new": chance.random() < 0.3, "sizes": sizes, "salt": chance.randrange(1 << 30)}


@verb(2, _entries)
def add_entries(world: World, arguments: Arguments) -> None:
    """All entries of a call or none; the writer is closed each time."""
    names = world.model.open_ledgers
    if arguments["new"] or not names:
        name = f"{LEDGERS}/{len(world.done):020}"
        with world.change(world.model.put(name, Content(is_ledger=True))), world.store.metadata.write() as txn:
            assert ledgers.make(txn, LEDGERS, len(world.done)) == name
    else:
        name = names[0]
    chance, content = random.Random(arguments["salt"]), world.model.live[name]
    payloads = tuple(chance.randbytes(size) for size in arguments["sizes"])
    data = b"".join(payloads)
    after = replace(content.appended(data, world.stamp(len(data))), entries=(*content.entries, *payloads))
    writer = world.store.engine.open_ledger(name)
    try:
        with world.change(world.model.put(name, after)):
            ids = writer.append_entries(payloads)
        assert ids == range(len(content.entries), len(after.entries))
    finally:
        if not world.points.dead:
            world.store.engine.close_writer(writer)


@verb(1, lambda world, chance: {"name": pick(chance, world.model.open_ledgers)})
def close_ledger(world: World, arguments: Arguments) -> None:
    """Close it for good."""
    name = arguments["name"]
    if name not in world.model.open_ledgers:
        raise NothingToDo
    with world.change(world.model.put(name, replace(world.model.live[name], sealed=True))):
        world.store.engine.seal(name)
