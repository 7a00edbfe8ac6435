"""Verbs of people: truncate, concat, clone, rm, restore, policy."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.steps import Arguments, NothingToDo, verb
from tests.simulation.verbs.writing import content_of
from tests.simulation.world import NAMES, World, listed, pick
from tierfs.engine.metadata import policies
from tierfs.engine.segments import clone as cloning
from tierfs.engine.segments import trash


def _due_ms(world: World) -> int:
    return world.clock.now_ms() + 1000 * world.knobs.settings.grace_s


def _truncate(world: World, chance: random.Random) -> Arguments:
    name = world.any_name(chance)
    content = world.model.live[name]
    at = chance.randint(content.start, len(content.data))
    if chance.random() < 0.4:
        at -= at % world.knobs.chunk_bytes
    return {"name": name, "before": at}


@verb(2, _truncate)
def truncate(world: World, arguments: Arguments) -> None:
    """Cut off a head."""
    name, content = content_of(world, arguments)
    start = max(content.start, arguments["before"])
    if start > len(content.data):
        raise NothingToDo
    with world.change(world.model.put(name, replace(content, start=start))):
        world.store.engine.truncate(name, arguments["before"], cold_due_ms=_due_ms(world))


def _concat(world: World, chance: random.Random) -> Arguments:
    if chance.random() < 0.5 and (pairs := _of_one_object(world)):
        name, source = chance.choice(pairs)
        return {"name": name, "source": source}
    source = world.any_name(chance)
    return {"name": pick(chance, [name for name in world.model.of_bytes if name != source]), "source": source}


def _of_one_object(world: World) -> list[tuple[str, str]]:
    """Return pairs of which the first ends in the object in which the second begins, as two files of a pack do."""
    cold = {name: world.store.layout(name).cold for name in world.model.of_bytes}
    return [
        (name, source)
        for name in cold
        for source in cold
        if name != source and cold[name] and cold[source] and not world.model.live[name].sealed
        if cold[name][-1].object.id == cold[source][0].object.id
    ]


@verb(3, _concat)
def concat(world: World, arguments: Arguments) -> None:
    """Join two segments, sealed and opened for it."""
    name, content = content_of(world, arguments)
    source = arguments["source"]
    if source not in world.model.live or content.sealed:
        raise NothingToDo
    world.without_writer(name)
    world.without_writer(source)
    other = replace(world.model.live[source], sealed=True)
    with world.change(world.model.put(source, other)):
        world.store.engine.seal(source)
    source_id = world.store.segment(source).id
    for reading in world.readings.values():
        if source_id in reading.passed_by:
            reading.gaps |= other.numbers(0, len(other.data)) - reading.read
    with world.change(world.model.gone(source).put(name, content.joined(other))):
        world.store.engine.concat(name, source)


def _clone(world: World, chance: random.Random) -> Arguments:
    source = world.any_name(chance)
    content = world.model.live[source]
    end = chance.randint(content.start, len(content.data))
    if chance.random() < 0.5:
        chunk_bytes = world.knobs.chunk_bytes
        end = chance.choice([len(content.data), max(content.start, end - end % chunk_bytes)])
    return {
        "name": pick(chance, [name for name in NAMES if name not in world.model.live]),
        "source": source,
        "until": end,
    }


def _note_clone(world: World) -> None:
    segment = listed(world.store.metadata).get(world.done[-1].arguments["name"])
    if segment is not None and segment.id not in world.ever:
        world.cloned.add(segment.id)


@verb(3, _clone, afterwards=_note_clone)
def clone(world: World, arguments: Arguments) -> None:
    """Make a segment of the first bytes of another one; its writer goes on."""
    name, source, end = arguments["name"], arguments["source"], arguments["until"]
    content = world.model.live.get(source)
    if content is None or name in world.model.live or not content.start <= end <= len(content.data):
        raise NothingToDo
    with world.change(world.model.put(name, content.cloned(end, world.stamp(end)))):
        _, ended = cloning.clone(world.store.metadata, source, name, end=end)
        if ended is not None:
            world.store.files.protect(ended)


def _remove(world: World, chance: random.Random) -> Arguments:
    dumped = [made.name for made in world.dumps.values() if made.name in world.model.of_bytes]
    name = chance.choice(dumped) if dumped and chance.random() < 0.5 else world.any_name(chance)
    return {"name": name, "now": chance.random() < 0.5}


@verb(1, _remove)
def remove(world: World, arguments: Arguments) -> None:
    """Take away a segment, for good or not."""
    name, _ = content_of(world, arguments)
    world.without_writer(name)
    now, due_ms = arguments["now"], world.dated_ms() + 1000 * int(world.knobs.policy["trash_age"])
    with world.change(world.model.gone(name) if now else world.model.removed(name, due_ms)):
        world.store.engine.delete(name, recursive=False, cold_due_ms=_due_ms(world), to_trash=not now)


@verb(1, lambda world, chance: {"path": chance.choice(["d", "d", "d/f", "out"])})
def remove_directory(world: World, arguments: Arguments) -> None:
    """Take away a directory with all that is below it; its rows go in commits of bounded size."""
    path = arguments["path"]
    below = [name for name in world.model.live if name.startswith(f"{path}/")]
    after = world.model
    for name in below:
        world.without_writer(name)
        after = after.gone(name)
    if not below:
        raise NothingToDo
    with world.change(after):
        world.store.engine.delete(path, recursive=True, cold_due_ms=_due_ms(world))


@verb(
    1,
    lambda world, chance: {"name": pick(chance, sorted(world.model.trash))},
    afterwards=lambda world: world.came_back(world.done[-1].arguments["name"]),
)
def restore(world: World, arguments: Arguments) -> None:
    """Take the newest removal of a name back out of the trash, if its time is not over."""
    name = arguments["name"]
    if name not in world.model.trash or name in world.model.live:
        raise NothingToDo
    if len({removal.due_ms for removal in world.model.trash[name]}) < len(world.model.trash[name]):
        raise NothingToDo  # a clock that was accepted made them due at once: nothing tells which are gone
    with world.store.metadata.read() as txn:
        left = sum(each.removal.path == name for each in trash.removed(txn))
    before, after = world.model.trash[name], world.model.ended(name, left)
    gone = set(before) - set(after.trash.get(name, ()))
    assert all(removal.due_ms <= world.latest_ms for removal in gone), f"{name} is no longer in the trash"
    world.model = after
    if not left:
        raise NothingToDo
    with world.change(world.model.restored(name)):
        trash.restore(world.store.metadata, name)


def _policy(world: World, chance: random.Random) -> Arguments:
    before = world.knobs.chunk_bytes  # by which appends are as long as they are
    chunk_bytes = chance.choice([before, chance.randint(max(4, before // 3), 200)])
    sizes = {"chunk_bytes": str(chunk_bytes), "object_bytes": str(chunk_bytes * chance.choice([1, 3, 16, 40]))}
    times = {"offload_after": chance.choice(["0", "30", "off"]), "deletion_lag": chance.choice(["0", "50", "off"])}
    kept = {"retention_bytes": "off", "retention_age": "off"}
    if chance.random() < 0.5:
        kept["retention_bytes"] = chance.choice(["off", "1", str(chance.randrange(1, 12 * chunk_bytes))])
        kept["retention_age"] = chance.choice(["off", "60", "3000", "50000"])
        kept["retention_needs_offload"] = chance.choice(["yes", "no"]) if times["offload_after"] != "off" else "no"
    return {"settings": {**sizes, **times, **kept, "chunk_age": chance.choice(["1", "600"])}}


@verb(1, _policy)
def policy(world: World, arguments: Arguments) -> None:
    """Change what the holder does by itself."""
    with world.store.metadata.write() as txn:
        policies.change(txn, "", put_settings=arguments["settings"])
