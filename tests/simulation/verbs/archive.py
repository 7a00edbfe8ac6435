"""The archive: other storage classes of the bucket, by commands, by policy and by a rule of the bucket; thaw; back."""

from __future__ import annotations

import random
from functools import partial

from tests.doubles.classed_storage import InClass
from tests.simulation.opening import connected
from tests.simulation.steps import Arguments, NothingToDo, verb
from tests.simulation.verbs.tiering import drawn_path, path_there
from tests.simulation.world import World
from tests.stores import LOCATION, quiet
from tierfs.app.unrestored import state_of
from tierfs.base.words.types import Tier
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata import chains, directories, policies
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.tiering.archive import classes as archive_classes

AT_ONCE, FROZEN = "GLACIER_IR", "GLACIER"
"""A class whose objects are read at once, and one whose objects are restored first."""


def in_class(world: World, storage_class: str) -> ChunkStorage:
    """Connect to the store's place, for new objects of a class."""
    bucket = world.storage.inner
    return connected(InClass(world.storage, bucket, storage_class), world.knobs, world.clock)


def allow(world: World, *, proves: bool) -> None:
    """Let the store's work use the classes of its bucket."""
    world.storage.inner.proves = proves
    world.store.in_class = partial(in_class, world)


def _archive(world: World, chance: random.Random) -> Arguments:
    kept_as = chance.choice([AT_ONCE, FROZEN, FROZEN])
    return {**drawn_path(world, chance), "class": kept_as, "proves": chance.random() < 0.6}


@verb(5, _archive, calls_storage=True, archives=True)
def archive(world: World, arguments: Arguments) -> None:
    """Move the cold objects below a path to a class."""
    if not world.model.live:
        raise NothingToDo
    allow(world, proves=arguments["proves"])
    world.has_archived = True
    with world.store.holding() as work:
        work.archive(path_there(world, arguments["path"]), arguments["class"], dry_run=False, report=quiet)


@verb(3, drawn_path, calls_storage=True, archives=True)
def archive_back(world: World, arguments: Arguments) -> None:
    """Move them to the class of new objects; refused where policy would move them again, or before a thaw."""
    path = path_there(world, arguments["path"])
    with world.store.metadata.read() as txn:
        values = policies.at(txn, path).values
        if values.archive_after_s is not None and values.archive_class is not None:
            raise NothingToDo
        wanted = archive_classes.chosen(txn, path, None, back=True)
    allow(world, proves=True)
    with world.store.holding() as work:
        work.archive(path, wanted, dry_run=False, report=quiet)


@verb(
    4,
    lambda world, chance: {**drawn_path(world, chance), "days": chance.choice([1, 3])},
    calls_storage=True,
    archives=True,
)
def thaw(world: World, arguments: Arguments) -> None:
    """Request back what is below a path."""
    for record in _cold_below(world, path_there(world, arguments["path"])):
        state_of(world.store.cold, record.name, arguments["days"])


@verb(3, lambda world, chance: {"seconds": chance.choice([5, 30, 120])}, archives=True)
def wait(world: World, arguments: Arguments) -> None:
    """Let time pass: objects come back, and are forgotten."""
    world.clock.advance(arguments["seconds"])


@verb(1, lambda world, chance: {"salt": chance.randrange(1 << 30)}, archives=True)
def rule(world: World, arguments: Arguments) -> None:
    """A rule of the bucket moves some objects with bytes of segments, of which the store knows nothing."""
    chance, records = random.Random(arguments["salt"]), _cold_below(world, "")
    names = [record.name for record in records if chance.random() < 0.2]
    if not names:
        raise NothingToDo
    bucket = world.storage.inner
    bucket.apply_rule([name for name in names if name in bucket.objects], FROZEN)
    world.ruled.update(names)
    world.has_archived = True


def _archive_policy(world: World, chance: random.Random) -> Arguments:
    after = chance.choice(["0", "60", "off", "off"])
    return {**drawn_path(world, chance), "after": after, "class": chance.choice([AT_ONCE, FROZEN])}


@verb(2, _archive_policy, archives=True)
def archive_policy(world: World, arguments: Arguments) -> None:
    """Let the holder move what was cold for a time."""
    allow(world, proves=True)
    world.has_archived = True
    settings = {"archive_after": arguments["after"], "archive_class": arguments["class"]}
    with world.store.metadata.write() as txn:
        policies.change(txn, path_there(world, arguments["path"]), put_settings=settings)


def _cold_below(world: World, path: str) -> list[ObjectRecord]:
    """Return the store's own objects of bytes below a path."""
    found: dict[str, ObjectRecord] = {}
    with world.store.metadata.read() as txn:
        for _, segment_id in (named for page in directories.pages(world.store.metadata.read, path) for named in page):
            for chunk in chains.chunks(txn, segment_id, Tier.COLD):
                if not chunk.lost:
                    record = chains.object_of(txn, chunk)
                    if not record.foreign and not record.encoding.is_ledger and record.location_id == LOCATION:
                        found[record.name] = record
    return [found[name] for name in sorted(found)]
