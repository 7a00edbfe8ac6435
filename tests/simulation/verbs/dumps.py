"""Dumps of single segments: made now, loaded later where the segment is gone, as far as the bucket has its bytes."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, replace
from unittest.mock import patch

from tests.simulation.model import Content
from tests.simulation.steps import Arguments, NothingToDo, verb
from tests.simulation.verbs.writing import content_of
from tests.simulation.world import World, pick
from tests.stores import quiet
from tierfs.base.words.errors import AlreadyExists, DataLoss, NotFound, Unavailable
from tierfs.base.words.types import ByteRange, SegmentId
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.tables import INTENTS, OBJECTS
from tierfs.tiering.backup import segment as dumps


@dataclass(frozen=True, slots=True)
class Dumped:
    """A segment at the time of its dump."""

    name: str
    segment_id: SegmentId
    content: Content
    held: tuple[tuple[ByteRange, str, int], ...]
    """Its cold ranges, and the name and size of the object that has each."""
    rows: tuple[str, ...]
    """Copies of the rows of its entries that nothing can replace: those of adopted objects."""


def _dump(world: World, chance: random.Random) -> Arguments:
    recent, names = world.recent, sorted(world.model.live)
    name = recent if recent in names and chance.random() < 0.4 else pick(chance, names)
    return {"name": name, "attempt": f"{chance.getrandbits(128):032x}"}


@verb(2, _dump, calls_storage=True)
def dump(world: World, arguments: Arguments) -> None:
    """Write the metadata of a segment's cold bytes to the bucket."""
    name, content = content_of(world, arguments)
    layout, attempt = world.store.layout(name), arguments["attempt"]
    cold = [placed for placed in layout.cold if not placed.chunk.lost]
    held = tuple((placed.range, placed.object.name, placed.object.stored_bytes) for placed in cold)
    rows = tuple(placed.object.entries_name for placed in cold if placed.object.foreign and placed.object.encoding)
    dumped = Dumped(name, layout.segment.id, content, held, rows)
    world.dumps[f"{dumps.DUMPS_PREFIX}{layout.segment.id}-{attempt}"] = dumped
    with patch.object(dumps, "new_id", lambda: attempt):
        dumps.dump_segment(world.store.metadata, world.store.cold, name)


def _load(world: World, chance: random.Random) -> Arguments:
    dump = pick(chance, [dump for dump, made in world.dumps.items() if made.name not in world.model.live])
    return {"dump": dump, "newest": chance.random() < 0.5, "accept_loss": chance.random() < 0.6}


def _came_back(world: World) -> None:
    dump = world.done[-1].arguments["dump"]
    if dump in world.dumps:
        world.came_back(world.dumps[dump].name)


@verb(4, _load, calls_storage=True, afterwards=_came_back)
def load(world: World, arguments: Arguments) -> None:
    """Link a dump's objects again under its name; refused where another segment has them, or its own is there."""
    wanted, made = _wanted(world, arguments)
    if not world.storage.inner.objects.keys() >= set(made.rows):
        raise NothingToDo  # it would be linked, and told to be unreadable until it is adopted again
    with world.store.metadata.read() as txn:
        rows = {record.name for _, record in txn.scan(OBJECTS)}
        begun = {intent.name for _, intent in txn.scan(INTENTS)}
    content, whole = _left(world, made, rows)
    accept_loss = arguments["accept_loss"] and content is not None and not _has_other_bytes(world, made)
    used = any(name in rows | begun for _, name, _ in made.held)
    world.loaded.add(made.segment_id)
    after = world.model if content is None else world.model.put(made.name, content)
    try:
        with world.change(after), world.store.holding() as work:
            with world.store.metadata.read() as txn:  # the holder has taken apart what was removed before a death
                known = directories.segment(txn, made.segment_id) is not None
            work.load_segment(wanted, accept_loss=accept_loss, report=quiet)
    except Unavailable:
        if world.maybe is not None and world.shown() == world.maybe.shown:
            world.model = world.maybe  # it is linked, and the journal does not tell it yet
        raise
    except AlreadyExists:
        world.maybe = None
        assert known, f"the segment of {made.name} is said to be there"
    except NotFound:  # as a listing without it says
        world.maybe = None
        assert arguments["newest"], f"{wanted} is said not to be there"
        assert world.faulty, f"a listing tells no dump of {wanted}"
    except DataLoss:
        world.maybe = None
        assert used or not whole or world.damages, f"{wanted} has lost nothing"
    else:
        assert not known, f"the segment of {made.name} is there twice"
        assert content is not None, f"{wanted} was loaded without {made.name}"
        world.promised[made.segment_id] = len(content.data)


def _wanted(world: World, arguments: Arguments) -> tuple[str, Dumped]:
    """Return the dump that a step loads, by its own name or by its segment's, which means the newest of that name."""
    there, dump = world.storage.inner.objects, arguments["dump"]
    if dump not in there or world.dumps[dump].name in world.model.live:
        raise NothingToDo
    made = world.dumps[dump]
    if not arguments["newest"]:
        return dump, made
    return made.name, [other for key, other in world.dumps.items() if other.name == made.name and key in there][-1]


def _has_other_bytes(world: World, made: Dumped) -> bool:
    """Return whether an object has its size and other bytes, for now: a loss of them that is accepted is final."""
    there = {name: len(held.data) for name, held in world.storage.inner.objects.items()}
    return any(name in world.damages.of and there.get(name) == size for _, name, size in made.held)


def _left(world: World, made: Dumped, packs: Collection[str]) -> tuple[Content | None, bool]:
    """Return what a load brings back, and whether that is all; None where bytes in the middle are gone.

    Of packs that other segments have too it goes by the records.
    """
    objects, content = world.storage.inner.objects, made.content
    there = {name: len(held.data) for name, held in objects.items()}
    held = [span for span, name, size in made.held if name in packs or there.get(name) == size]
    end = content.start
    for span in sorted(held):
        end = max(end, min(span.end, len(content.data))) if span.start <= end else end
    whole = end == len(content.data)
    if not whole and (content.is_ledger or any(span.end > end for span in held)):
        return None, False
    if content.is_ledger and not content.sealed:  # of no bytes, and its entries were told to nobody yet
        return replace(content, entries=()), not content.entries
    return content.until(end), whole
