"""Verbs of writers: append, close, seal, unseal, roll; and the passing of time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tests.simulation import invariants
from tests.simulation.bodies import body
from tests.simulation.model import Content, Model
from tests.simulation.steps import Arguments, NothingToDo, verb
from tests.simulation.world import NAMES, World
from tierfs.base.words.errors import Unconfirmed
from tierfs.base.words.types import Ack, ByteRange
from tierfs.engine.segments.group_commit import AppendCall
from tierfs.engine.segments.writer import SegmentWriter
from tierfs.tiering.garbage import clock_acceptance
from tierfs.tiering.packs.pool_recipe import policy_of

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
    if chance.random() < 0.3:
        arguments["ack"] = Ack.COLD.value
    if chance.random() < 0.5:
        arguments["text"] = True
    return {**arguments, "room": chance.choice([-1, -1, 0, 1])} if chance.random() < 0.15 else arguments


@verb(8, _append, calls_storage=True)
def append(world: World, arguments: Arguments) -> None:
    """Each part is acknowledged on its own."""
    name, chance = arguments["name"], random.Random(arguments["salt"])
    content = world.model.live.get(name, Content())
    if content.sealed:
        raise NothingToDo
    if "ack" in arguments:
        world.without_writer(name)
    with world.change(world.model.put(name, content)):
        writer = world.writer(name, Ack(arguments.get("ack", Ack.LOCAL)))
    for size in arguments["sizes"]:
        content = world.model.live[name]
        data, before = body(chance, size, is_text=arguments.get("text", False)), len(content.data)
        if size and arguments["salt"] % 2:
            data = data[:-1] + LINE_END
        room = arguments.get("room", 0)
        if "room" in arguments and size and invariants.disk_has_a_floor(world, writer, data, room):
            continue
        after = world.model.put(name, content.appended(data, world.stamp(size)))
        with world.change(after), _there_if_unconfirmed(world, after):
            assert writer.append(data, expected_offset=before) == ByteRange(before, before + size)
        _acknowledged(world, name, writer, size)
    if arguments["close"]:
        world.without_writer(name)


@contextmanager
def _there_if_unconfirmed(world: World, after: Model) -> Iterator[None]:
    """An append that only the journal lacks is in its segment."""
    try:
        yield
    except Unconfirmed:
        world.model, world.maybe = after, None
        raise


def _acknowledged(world: World, name: str, writer: SegmentWriter, size: int) -> None:
    """Note what an append promised to be in the bucket."""
    if writer._commits is not world.store.engine.commits_of(Ack.LOCAL) and size:
        world.promised[writer.segment_id] = len(world.model.live[name].data)


def _pool(world: World, chance: random.Random) -> Arguments:
    names = [name for name in NAMES if name not in world.model.live or name in world.model.of_bytes]
    names = [name for name in names if not world.model.live.get(name, Content()).sealed]
    if not names:
        raise NothingToDo
    most = min(len(names), world.knobs.constants["MAX_PACK_ENTRIES"])  # more are several pools
    chosen = chance.sample(names, chance.randint(1, most))
    sizes = {name: _size(world, chance) for name in chosen}
    return {"sizes": sizes, "salt": chance.randrange(1 << 30), "text": chance.random() < 0.5}


@verb(3, _pool, calls_storage=True)
def append_pool(world: World, arguments: Arguments) -> None:
    """Appends to several segments are one object and one entry of the journal: all of them, or none."""
    chance, calls = random.Random(arguments["salt"]), list[tuple[str, AppendCall]]()
    if any(world.model.live.get(name, Content()).sealed for name in arguments["sizes"]):
        raise NothingToDo
    for name in arguments["sizes"]:
        world.without_writer(name)
        content = world.model.live.get(name, Content())
        with world.change(world.model.put(name, content)):
            world.writer(name, Ack.COLD)
    after = world.model
    for name, size in arguments["sizes"].items():
        content, data = after.live[name], body(chance, size, is_text=arguments.get("text", False))
        call = AppendCall(world.writers[name], memoryview(data), (), len(content.data))
        if calls and policy_of(call).compresses is not policy_of(calls[0][1]).compresses:
            continue  # it is in the next pool
        calls.append((name, call))
        after = after.put(name, content.appended(data, world.stamp(size)))
    pool = world.store.engine.commits_of(Ack.COLD)
    with world.change(after), _there_if_unconfirmed(world, after):
        pool._enqueue([call for _, call in calls])
        pool._lead()
        errors = [call.error for _, call in calls if call.error is not None]
        for error in errors:
            assert type(error) is type(errors[0]), errors
            raise error
    for name, call in calls:
        _acknowledged(world, name, world.writers[name], len(call.data))


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


@verb(1, lambda world, chance: {"seconds": chance.choice([20_000, 100_000, 864_000])})
def set_clock_ahead(world: World, arguments: Arguments) -> None:
    """Set the wall clock alone: by it everything is old."""
    world.clock.jump(arguments["seconds"])


@verb(1, lambda world, chance: {})
def set_clock_right(world: World, arguments: Arguments) -> None:
    """Set the wall clock to the right time, as a time server does."""
    if not world.clock.off_s:
        raise NothingToDo
    world.clock.jump(-world.clock.off_s)


@verb(
    2,
    lambda world, chance: {
        "rested": chance.choice([0, 30, 4000, 14_000, 100_000]),
        "ahead": chance.choice([0, 0, 20_000, 864_000, -100_000]),
    },
    ends=True,
)
def restart_machine(world: World, arguments: Arguments) -> None:
    """Start the machine again, with a wall clock that may be wrong."""
    world.end_process(None)
    world.new_machine = True
    world.clock.restart(arguments["rested"], ahead_s=arguments["ahead"])


@verb(1, lambda world, chance: {})
def accept_clock(world: World, arguments: Arguments) -> None:
    """Take the time of a clock that is right, or was set back, for right: deletions are due by it, none sooner."""
    if world.clock.off_s > 0:
        raise NothingToDo
    clock_acceptance.accept(world.store.metadata, grace_s=world.knobs.settings.grace_s)
    world.accept_clock()


@verb(1, lambda world, chance: {})
def leave(world: World, arguments: Arguments) -> None:
    """Close all writers."""
    for name in list(world.writers):
        world.without_writer(name)
