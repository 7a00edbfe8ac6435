"""Verbs of writers: append, close, seal, unseal, roll; and the passing of time."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation import invariants
from tests.simulation.model import Content
from tests.simulation.steps import Arguments, NothingToDo, verb
from tests.simulation.world import NAMES, World
from tierfs.garbage import clocks
from tierfs.types import ByteRange

LINE_END = b"\n"
"""Of the lines that streams read."""

_MOST_CHUNKS = 8
"""Of one append of any size; more only make lives slow."""


def _size(world: World, chance: random.Random) -> int:
    """Return a size at a boundary, one beside it, or any."""
    if chance.random() < 0.4:
        return chance.randrange(_MOST_CHUNKS * world.knobs.chunk_bytes)
    return max(0, chance.choice(world.knobs.sizes()) + chance.choice([-1, 0, 1]))


def _append(world: World, chance: random.Random) -> Arguments:
    recent = world.recent
    name = recent if recent in world.model.of_bytes and chance.random() < 0.4 else chance.choice(NAMES)
    content = world.model.live.get(name, Content())
    if content.sealed:
        raise NothingToDo
    sizes = [_size(world, chance) for _ in range(chance.choice([1, 1, 1, 2, 5]))]
    if chance.random() < 0.3:  # so that the active chunk, or its last block, ends exactly here
        limit = chance.choice([world.knobs.chunk_bytes, world.knobs.constants["CRC_BLOCK_BYTES"]])
        sizes[0] = max(0, limit - len(content.data) % limit + chance.choice([-1, 0, 1]))
    arguments = {"name": name, "sizes": sizes, "salt": chance.randrange(1 << 30), "close": chance.random() < 0.5}
    return {**arguments, "room": chance.choice([-1, -1, 0, 1])} if chance.random() < 0.15 else arguments


@verb(8, _append)
def append(world: World, arguments: Arguments) -> None:
    """Each part is acknowledged on its own."""
    name, chance = arguments["name"], random.Random(arguments["salt"])
    content = world.model.live.get(name, Content())
    if content.sealed:
        raise NothingToDo
    with world.change(world.model.put(name, content)):
        writer = world.writer(name)
    for size in arguments["sizes"]:
        content = world.model.live[name]
        data, before = chance.randbytes(size), len(content.data)
        if size and arguments["salt"] % 2:
            data = data[:-1] + LINE_END
        room = arguments.get("room", 0)
        if "room" in arguments and size and invariants.disk_has_a_floor(world, writer, data, room):
            continue
        with world.change(world.model.put(name, content.appended(data, world.stamp(size)))):
            assert writer.append(data, expected_offset=before) == ByteRange(before, before + size)
    if arguments["close"]:
        world.without_writer(name)


def _any(world: World, chance: random.Random) -> Arguments:
    return {"name": world.any_name(chance)}


def content_of(world: World, arguments: Arguments) -> tuple[str, Content]:
    """Return the segment of a step."""
    name = arguments["name"]
    if name not in world.model.live:
        raise NothingToDo
    return name, world.model.live[name]


@verb(2, _any)
def seal(world: World, arguments: Arguments) -> None:
    """End a segment."""
    name, content = content_of(world, arguments)
    world.without_writer(name)
    with world.change(world.model.put(name, replace(content, sealed=True))):
        world.store.engine.seal(name)


@verb(2, _any)
def unseal(world: World, arguments: Arguments) -> None:
    """Open a segment again."""
    name, content = content_of(world, arguments)
    world.reopened.add(world.store.segment(name).id)
    with world.change(world.model.put(name, replace(content, sealed=False))):
        _, changed = world.store.engine.unseal(name)
    assert changed is content.sealed


@verb(1, _any)
def roll(world: World, arguments: Arguments) -> None:
    """End the active chunk under its writer."""
    name, _ = content_of(world, arguments)
    world.store.engine.roll(world.store.segment(name).id)


@verb(1, lambda world, chance: {"seconds": chance.choice([0, 1, 60, 4000, 20_000, 100_000])})
def wait(world: World, arguments: Arguments) -> None:
    """Let time pass."""
    world.clock.advance(arguments["seconds"])


@verb(1, lambda world, chance: {"seconds": chance.choice([1, 60, 200, 4000, 100_000])})
def set_clock_back(world: World, arguments: Arguments) -> None:
    """Set the wall clock alone; no time passes by any other."""
    world.clock.jump(-arguments["seconds"])


@verb(1, lambda world, chance: {})
def accept_clock(world: World, arguments: Arguments) -> None:
    """Take the time of a clock that was set back for right: deletions are due by it, none of them sooner."""
    if world.clock.now_ms() >= world.latest_ms:
        raise NothingToDo
    clocks.accept(world.store.metadata, grace_s=world.knobs.settings.grace_s)
    world.accept_clock()


@verb(1, lambda world, chance: {})
def leave(world: World, arguments: Arguments) -> None:
    """Close all writers."""
    for name in list(world.writers):
        world.without_writer(name)
