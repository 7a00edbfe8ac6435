"""Other hosts: a replica that follows the bucket, and an owner that takes it over, so that the one before is fenced."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.app.recovery.test_follow import cold_bytes, shown
from tests.engine.journal.replaying import check_store
from tests.faults.two_owners import bucket
from tests.simulation import endings
from tests.simulation.checks.classes import all_readable, same_classes
from tests.simulation.steps import Arguments, NothingToDo, verb
from tests.simulation.world import World, Wrong, listed
from tests.stores import IN_MEMORY, LOCATION, TestStore, quiet
from tierfs.app.recovery import recover, replica_rows
from tierfs.app.recovery.from_journal import Rebuilder
from tierfs.app.recovery.promote import promote_with
from tierfs.app.recovery.replica import Follower
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.types import Tier
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.journal import reader
from tierfs.engine.journal.names import JOURNAL_PREFIX
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata import policies
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.tiering.ledgers.entry_rows import EntryRows

_FIRST_STEP = 10
"""Before it there is hardly something to take over."""

_SPARED = 0.6
"""Share of the takeovers that are not done: each is as long as ten other steps."""


@verb(1, lambda world, chance: {})
@all_readable()
def look_at_replica(world: World, arguments: Arguments) -> None:
    """It holds nothing that was not written, all that is published, and changes nothing in the bucket."""
    storage = world.storage.inner
    if world.damages or not any(storage.list(JOURNAL_PREFIX)):
        raise NothingToDo
    world.points.disarm()  # its host is another, and does not die
    before = dict(storage.objects)
    if world.replica is None:
        world.replica = _replica(world, world.path.parent / "follower")
    else:
        Follower(world.replica.metadata, storage, IN_MEMORY).refresh()
    if storage.objects != before:
        raise Wrong("a replica changed the bucket")
    endings.held_as_written(world, world.replica.metadata, storage)
    with world.replica.metadata.read() as txn:
        check_store(txn)
    with world.store.metadata.read() as txn:
        is_published = txn.store.journal.published_sequence == txn.store.next_outbox - 1
    if is_published and shown(world.replica) != cold_bytes(world.store):
        raise Wrong("a replica differs from what its owner published")
    if is_published:
        same_classes(world, world.replica.metadata)
    owned = listed(world.store.metadata)
    for name, segment in listed(world.replica.metadata).items():
        if segment.range.length_bytes < world.replicated.get(segment.inode, 0):
            raise Wrong(f"{name} became shorter in a replica, as the same file")
        world.replicated[segment.inode] = segment.range.length_bytes
        if is_published:
            of_owner = owned[name]
            is_whole = segment.length == of_owner.length
            assert (segment.id, segment.inode) == (of_owner.id, of_owner.inode), name
            assert segment.sealed == (of_owner.sealed and is_whole), f"{name} is sealed in one of two places"


def _replica(world: World, path: Path) -> TestStore:
    path.mkdir()
    rebuilder = Rebuilder(path / "metadata", world.storage.inner, IN_MEMORY, world.clock, Meter())
    metadata = rebuilder.rebuild(reader.list_journal(world.storage.inner)).metadata
    replica_rows.become_replica(metadata)
    EntryRows(metadata, world.storage.inner, metadata.write_replayed).restore_all(quiet)
    return _opened(world, path, metadata)


def _take_over(world: World, chance: random.Random) -> Arguments:
    if world.damages or chance.random() < _SPARED:
        raise NothingToDo
    return {}


@verb(1, _take_over, calls_storage=True)
@all_readable()
def take_over(world: World, arguments: Arguments) -> None:
    """Another host goes on with what is published, which is all; whatever the first one does then is refused."""
    if world.damages or len(world.done) < _FIRST_STEP:
        raise NothingToDo
    for name in list(world.writers):
        world.without_writer(name)
    for name in world.model.open_ledgers:
        with world.change(world.model.put(name, replace(world.model.live[name], sealed=True))):
            world.store.engine.seal(name)
    world.store.offload()
    world.store.settle()
    world.promise("")
    world.points.disarm()
    old, path = world.store, world.path / f"host-{len(world.done)}"
    path.mkdir()
    with old.metadata.read() as txn:
        place = Place(LocationRecord(id=LOCATION, url=policies.location(txn, LOCATION).url))
    stands_by = len(world.done) % 2 == 0
    new = _promoted(world, path, place) if stands_by else _recovered(world, path, place)
    new.places |= old.places
    new.in_class = old.in_class
    same_classes(world, new.metadata)
    before = bucket(world.storage.inner)
    works: tuple[Callable[[], object], ...] = (
        old.offload,
        old.evict,
        old.collect,
        partial(old.append, "late", b"more"),
    )
    for work in works:
        endings.is_fenced(work)
    if bucket(world.storage.inner) != before:
        raise Wrong("a fenced store changed the bucket")
    old.kill()
    world.disk.settle(world.path)
    world.store, world.new_process, world.new_machine = new, True, True
    world.model = replace(world.model, trash={})  # of what is there, only the cold bytes would come back
    for name, content in world.model.live.items():
        is_held = content.is_ledger or new.read(name, Tier.COLD)[content.start :] == content.data[content.start :]
        if not is_held or world.shown()[name] != content.shown:
            raise Wrong(f"{name} is not on the second host as it was on the first")


def _recovered(world: World, path: Path, place: Place) -> TestStore:
    rebuilt = recover.owned(path / "metadata", world.storage.inner, place, world.clock, quiet)
    recover.settle(rebuilt.metadata, Publisher(rebuilt.metadata, world.storage.inner))
    EntryRows(rebuilt.metadata, world.storage.inner, rebuilt.metadata.write).restore_all()
    return _opened(world, path, rebuilt.metadata)


def _promoted(world: World, path: Path, place: Place) -> TestStore:
    """A standby, whose readers keep their files."""
    rebuilder = Rebuilder(path / "metadata", world.storage.inner, place, world.clock, Meter())
    metadata = rebuilder.rebuild(reader.list_journal(world.storage.inner)).metadata
    replica_rows.become_replica(metadata)
    before = listed(metadata)
    promote_with(metadata, place, world.storage.inner, "an attempt")
    with metadata.read() as txn:
        check_store(txn)
    after = listed(metadata)
    if {name: each.inode for name, each in before.items()} != {name: each.inode for name, each in after.items()}:
        raise Wrong("a takeover by a standby gave a file another inode")
    if any(after[name].length < each.length for name, each in before.items()):
        raise Wrong("a takeover by a standby made a file shorter")
    return _opened(world, path, metadata)


def _opened(world: World, path: Path, metadata: MetadataStore) -> TestStore:
    return TestStore.around(path, metadata, world.store.cold, world.store.settings)
