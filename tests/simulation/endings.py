"""What must be true at the end of a life: of the store, of its bucket, and of every store made from that."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.app.recovery.recovering import recovered
from tests.app.recovery.test_follow import cold_bytes, follower, following, shown
from tests.app.recovery.test_from_objects import rebuilt
from tests.copied import copy_tier
from tests.faults.two_owners import bucket
from tests.simulation import invariants
from tests.simulation.checks.classes import all_readable
from tests.simulation.checks.comparing import equal, read, require, same
from tests.simulation.checks.damage import damaged, what_is_back_is_good_again
from tests.simulation.checks.second_store import a_second_store_at_its_path
from tests.simulation.invariants import invariant
from tests.simulation.world import FOREIGN, World, Wrong, listed
from tests.simulation.world import shown as listing
from tests.stores import TestStore, open_test_store
from tests.upkeep.check.looking import cold_findings, deep_findings, findings
from tierfs.base.bytes import ranges
from tierfs.base.words.errors import DataLoss, Fenced, WrongColdTier
from tierfs.base.words.object_names import is_manifest
from tierfs.base.words.types import ByteRange, SegmentId, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.validate import MARK_NAME
from tierfs.engine.journal.batch_markers import parse_name
from tierfs.engine.journal.epochs import EPOCHS_PREFIX
from tierfs.engine.journal.names import JOURNAL_PREFIX
from tierfs.engine.metadata import chains, empty_ledgers, entries
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import CHUNKS, LEDGERS, OBJECTS, SEGMENTS
from tierfs.reading.entries import EntrySplitter, placed_entries
from tierfs.tiering.backup import store as dump
from tierfs.tiering.backup.segment import DUMPS_PREFIX
from tierfs.tiering.garbage import clock_acceptance
from tierfs.upkeep.check.findings import Severity

_LATER_S = 25 * 3600.0
"""When all garbage is due: after any grace, the second deletion of an intent's object, and a job's day."""

_BEFORE_GC = 0.2
"""Share of the lives whose bucket is recovered from objects with its garbage and with jobs that did not commit."""

_SECOND = 0.2
"""Share of the lives at whose end another store is made at the path of theirs."""

Ending = Callable[[World, Path], None]


@all_readable()
def check(world: World, path: Path, chance: random.Random) -> None:
    """Check all that is cheap, and one of the dear things, in new directories below `path`. Raises Wrong."""
    world.storage.calm()
    world.storage.require_theirs()
    # It is right again, and later than all that a wrong one wrote.
    world.clock.jump(max(0, world.newest_ms - world.clock.now_ms()) / 1000)
    clock_acceptance.accept(world.store.metadata, grace_s=world.knobs.settings.grace_s)
    world.accept_clock()
    if world.damages:
        damaged(world)
        what_is_back_is_good_again(world, repairs=chance.random() < 0.5)
        return
    the_bucket_is_enough(world, path)
    if chance.random() < _BEFORE_GC:
        (path / "early").mkdir()
        from_objects(world, path / "early")
    for name in list(world.writers):
        world.without_writer(name)
    for name in world.model.open_ledgers:
        world.store.engine.seal(name)
        world.model = world.model.put(name, replace(world.model.live[name], sealed=True))
    world.store.offload()
    world.store.settle()
    sound(world)
    invariants.journal_entries_are_bounded(world)
    bucket_holds_the_named_objects(world)
    if chance.random() < _SECOND:
        a_second_store_at_its_path(world, chance)
    else:
        chance.choice(DEAR)(world, path)


@invariant(4, 11, 17)
def the_bucket_is_enough(world: World, path: Path) -> None:
    """The disk is lost now: what was promised to be in the bucket is, what has left the disk is, and nothing else."""
    left = _copied(world)
    if not any(left.list(JOURNAL_PREFIX)):
        require(not world.promised, "the bucket has no journal")
        return
    with recovered(path / "lost", left) as found:
        held_as_written(world, found.store.metadata, left)
        ids = {segment.id: segment for segment in listed(found.store.metadata).values()}
        for name, content in world.model.live.items():
            segment = world.store.segment(name)
            segment_id, end = segment.id, world.promised.get(segment.id, 0)
            if end > content.start:
                require(segment_id in ids, f"{name} is not in the bucket")
                require(ids[segment_id].length >= end, f"{name} ends at {ids[segment_id].length}, not {end}")
                require(ids[segment_id].start_offset <= content.start, f"{name} begins too late")
            for gap in _not_local(world, name):
                for piece, places in _places(segment, gap):
                    require(any(_holds(found.store, *place) for place in places), f"{name} {piece}: gone")


def _places(segment: SegmentRecord, gap: ByteRange) -> Iterator[tuple[ByteRange, list[tuple[SegmentId, ByteRange]]]]:
    """Yield the pieces of a range, and where each may be: of a concat that is not published the source has the bytes.

    Of several sources that became one nothing is known.
    """
    joins = list(segment.joins)
    edges = {gap.start, gap.end, *(edge for join in joins for edge in (join.start, join.end))}
    for start, end in pairwise(sorted(edge for edge in edges if gap.start <= edge <= gap.end)):
        piece = ByteRange(start, end)
        around = [join for join in joins if join.range.contains(piece)]
        if not any(join.is_of_several for join in around):
            sources = [(join.source_id, _shifted(piece, join.source_start - join.start)) for join in around]
            yield piece, [(segment.id, piece), *sources]


def _shifted(span: ByteRange, by: int) -> ByteRange:
    return ByteRange(span.start + by, span.end + by)


def _not_local(world: World, name: str) -> Iterator[ByteRange]:
    """Yield what has left the disk; that of a batch, of others, of an unpublished load or clone never was there."""
    layout = world.store.layout(name)
    if layout.segment.id in (world.loaded | world.cloned) - world.promised.keys():
        return
    for gap in ranges.gaps(layout.segment.range, [placed.range for placed in layout.local]):
        for placed in layout.cold:
            span = placed.range.intersect(gap)
            if span and not placed.object.foreign and not placed.object.name.startswith("uploads/"):
                yield span


def _holds(store: TestStore, segment_id: SegmentId, span: ByteRange) -> bool:
    with store.metadata.read() as txn:
        held = [chunk.range for chunk in chains.chunks(txn, segment_id, Tier.COLD) if not chunk.lost]
    return ranges.covers(held, span)


def sound(world: World) -> None:
    """The checks of a store have nothing to say."""
    for look in (findings, cold_findings, deep_findings):
        wrong = [one for one in look(world.store) if one.severity is not Severity.NOTE]
        require(not wrong, f"{look.__name__}: {wrong}")


@invariant(4)
def bucket_holds_the_named_objects(world: World) -> None:
    """Once all is due, the collector leaves the objects and files that records name, and no others."""
    world.clock.advance(_LATER_S)
    for _ in range(2):
        world.store.collect()
        world.clock.advance(_LATER_S)
    world.store.collect()
    with world.store.metadata.read() as txn:
        ours = [record for _, record in txn.scan(OBJECTS) if not record.foreign]
        named = {tier: {record.name for record in ours if record.tier is tier} for tier in Tier}
        ledgers = [ledger for _, ledger in txn.scan(LEDGERS)]
        named[Tier.COLD].update(name for ledger in ledgers for name in empty_ledgers.own_names(ledger)[:1])
        beside = {record.entries_name for _, record in txn.scan(OBJECTS) if record.foreign}
    there = {found.name for found in world.storage.inner.list("")} - world.storage.theirs.keys() - beside
    there = {name for name in there - FOREIGN.keys() if not _accompanies(name, named[Tier.COLD])}
    equal("objects", there, named[Tier.COLD])
    invariants.only_ours_is_deleted(world)
    root = world.store.files.root
    equal("chunk files", {f"{path.parent.name}/{path.name}" for path in root.glob("??/*")}, named[Tier.LOCAL])


def _accompanies(name: str, named: set[str]) -> bool:
    """Return whether an object stays without a record: the journal, or what describes one with a record."""
    if name.startswith(JOURNAL_PREFIX) or name == MARK_NAME or parse_name(name) is not None:
        return True
    if name.startswith((DUMPS_PREFIX, EPOCHS_PREFIX)):
        return True
    if is_manifest(name):
        return any(other.startswith(name[: name.rindex("/") + 1]) for other in named)
    if name.startswith("ledgers/entries-"):
        return any(other.replace("-", "").startswith(name.rpartition("-")[2]) for other in named)
    return name.endswith("-index") and name.removesuffix("-index") in named


@invariant(11)
def from_the_bucket(world: World, path: Path) -> None:
    """A recovery has everything."""
    with recovered(path / "recovered", _copied(world)) as found:
        shows_all(world, found.store)


@invariant(11)
def from_a_copy(world: World, path: Path) -> None:
    """So has one from a bucket that other tools copied."""
    copy = _copied(world)
    copy_tier(copy)
    with recovered(path / "copied", copy) as found:
        shows_all(world, found.store)


def from_objects(world: World, path: Path) -> None:
    """Without a journal, every object that is named comes back with its bytes, or is listed."""
    left = _copied(world)
    for item in list(left.list(JOURNAL_PREFIX)):
        left.delete(item.name)
    for name in FOREIGN:
        left.delete(name)
    if not any(left.list("segments/")) and not any(left.list("packs/")):
        return
    with rebuilt(path / "rebuilt", left) as found:
        held = held_as_written(world, found.store.metadata, left, attempted=True)
        for item in list(left.list(JOURNAL_PREFIX)):
            left.delete(item.name)  # lost once more, with no new object: the first one's epoch is taken all the same
        with rebuilt(path / "again", left) as second:
            found.store.append("early", b"more")
            is_fenced(partial(found.store.offload, "early"))
            second.store.append("late", b"more")
            second.store.offload("late")
        with world.store.metadata.read() as txn:
            ours = [record for _, record in txn.scan(OBJECTS) if record.tier is Tier.COLD and not record.foreign]
            named = {record.name for record in ours}
        left = {label.partition(",")[0] for label in found.left}  # of a pack each segment's bytes
        require(named <= held | left, f"neither linked nor listed: {named - held - left}")


def from_a_dump(world: World, path: Path) -> None:
    """The metadata come back from a dump, beside the chunk files."""
    with _dumped(world, path) as store:
        shows_all(world, store)


@invariant(13)
def by_a_wrong_count(world: World, path: Path) -> None:
    """A chunk that goes takes no object along of which others may need bytes, whatever its count says."""
    with _dumped(world, path) as store:
        with store.metadata.write() as txn:
            shared = [(key, held) for key, held in txn.scan(OBJECTS) if held.tier is Tier.COLD and held.references > 1]
            if not shared:
                return
            key, held = shared[-1]
            txn.put(OBJECTS, key, replace(held, references=0))
        for name, content in world.model.live.items():
            if any(placed.object.id == held.id for placed in store.layout(name).cold):
                with suppress(DataLoss):
                    store.engine.truncate(name, len(content.data), cold_due_ms=world.clock.now_ms())
        with store.metadata.read() as txn:
            require(txn.get(OBJECTS, key) is not None, f"{held.name} was given up by a count that is too small")


@invariant(13)
def a_replica_with_a_wrong_count(world: World, path: Path) -> None:
    """A replica that follows the end of a chunk forgets no object that others need, whatever its count says."""
    with following(world.store, path / "miscounted") as replica:
        with replica.metadata.write_replayed() as txn:
            shared = [(key, held) for key, held in txn.scan(OBJECTS) if held.references > 1]
            if not shared:
                return
            key, held = shared[-1]
            txn.put(OBJECTS, key, replace(held, references=0))
        for name, content in list(world.model.live.items()):
            if any(placed.object.name == held.name for placed in world.store.layout(name).cold):
                world.store.engine.truncate(name, len(content.data), cold_due_ms=world.clock.now_ms())
                world.store.settle()
                with suppress(DataLoss):
                    follower(replica).refresh()
                with replica.metadata.read() as txn:
                    needed = any(chunk.object_id == held.id for _, chunk in txn.scan(CHUNKS))
                    require(not needed or txn.get(OBJECTS, key) is not None, f"{held.name} was forgotten by a replica")


@contextmanager
def _dumped(world: World, path: Path) -> Iterator[TestStore]:
    place = path / "dumped"
    place.mkdir()
    with (path / "dump").open("w+b") as file:
        with world.store.metadata.read() as txn:
            dump.write(txn, file, world.clock.now_ms())
        file.seek(0)
        summary = dump.verify(file, "dump")
        file.seek(0)
        dump.load(place / "metadata", world.clock, (part for part, _ in dump.read(file, "dump")), summary.rows)
    shutil.copytree(world.store.path / "chunks", place / "chunks", copy_function=shutil.copy)
    with _opened(world, place) as store:
        yield store


def by_a_replica(world: World, path: Path) -> None:
    """A replica shows what the bucket holds, and follows what happens then."""
    with following(world.store, path / "late-replica") as replica:
        equal("the replica", shown(replica), cold_bytes(world.store))
        world.store.append("late", b"more")
        world.store.offload("late")
        follower(replica).refresh()
        equal("the replica, later", shown(replica), cold_bytes(world.store))
    world.store.engine.delete("late", recursive=False, cold_due_ms=world.clock.now_ms())


@invariant(7)
def on_another_host(world: World, path: Path) -> None:
    """Another host takes the bucket over: the old one is fenced, changes nothing there and reads what it has."""
    old, kept = world.store, {name: read(world.store, name) for name in world.model.live}
    with recovered(path / "second", world.storage.inner) as found:
        before = bucket(world.storage.inner)
        old_verbs: tuple[Callable[[], object], ...] = (old.offload, old.evict, old.collect)
        for work in old_verbs:
            is_fenced(work)
        require(bucket(world.storage.inner) == before, "a fenced store changed the bucket")
        is_fenced(partial(old.append, "late", b"more"))
        for name, data in kept.items():
            same(f"{name}, fenced", read(old, name), data)
        shows_all(world, found.store)
        found.store.append("late", b"more")
        found.store.offload("late")
    with recovered(path / "third", _copied(world)) as found:
        same("late", read(found.store, "late"), b"more")


@invariant(12)
def in_a_place_that_is_not_ours(world: World, path: Path) -> None:
    """Nothing is uploaded, published, deleted or evicted where the bucket was emptied, rolled back or exchanged."""
    store, objects = world.store, world.storage.inner.objects
    store.append("late", b"more")
    kept = dict(objects)
    places: list[dict[str, Any]] = [{}, _of_another(world, path)]
    if world.earlier and max(world.earlier) < max(kept):  # an owner's later slot or checkpoint is not there
        places.append(world.earlier)
    for place in places:
        objects.clear()
        objects.update(place)
        before, local = dict(objects), _local_files(store)
        refused = 0
        for verb in (store.offload, store.evict, store.consolidate, store.collect, store.settle):
            try:
                verb()
            except (WrongColdTier, Fenced):
                refused += 1
        require(refused > 0, "nothing was refused in a place that is not ours")
        require(objects == before, "a place that is not ours was changed")
        require(_local_files(store) == local, "bytes were evicted beside a place that is not ours")
    objects.clear()
    objects.update(kept)
    store.offload()
    with recovered(path / "ours", _copied(world)) as found:
        same("late", read(found.store, "late"), b"more")


def _of_another(world: World, path: Path) -> dict[str, Any]:
    storage = MemoryStorage(world.clock)
    with open_test_store(path / "other", cold=storage, clock=world.clock) as other:
        other.append("s", b"abcd")
        other.offload()
    return dict(storage.objects)


def _local_files(store: TestStore) -> set[str]:
    return {f"{file.parent.name}/{file.name}" for file in store.files.root.glob("??/*")}


DEAR: tuple[Ending, ...] = (
    from_the_bucket,
    from_a_copy,
    from_objects,
    from_a_dump,
    by_a_wrong_count,
    by_a_replica,
    a_replica_with_a_wrong_count,
    in_a_place_that_is_not_ours,
    on_another_host,
)


@contextmanager
def _opened(world: World, path: Path) -> Iterator[TestStore]:
    with closing(MetadataStore(path / "metadata", world.clock)) as metadata:
        dump.end_active_chunks(metadata)
    store = TestStore.opened(path, world.store.cold, world.clock, world.knobs.settings)
    try:
        yield store
    finally:
        store.close()


def shows_all(world: World, store: TestStore) -> None:
    equal("segments", listing(store.metadata), world.model.shown)
    for name, content in world.model.live.items():
        same(name, read(store, name), content.data[content.start :])
        if content.is_ledger:
            require(ledger_entries(store, name) == list(content.entries), f"{name} has other entries")


def held_as_written(
    world: World, metadata: MetadataStore, storage: MemoryStorage, *, attempted: bool = False
) -> set[str]:
    """Compare every cold chunk with what was written there; return the objects of all.

    `attempted`: it may be what an append wrote that failed, as no journal says so, and nothing was written after it.
    """
    held: set[str] = set()
    with metadata.read() as txn:
        for _, segment in txn.scan(SEGMENTS):
            for chunk in chains.chunks(txn, segment.id, Tier.COLD):
                if chunk.lost:
                    continue
                record = chains.object_of(txn, chunk)
                held.add(record.name)
                known = segment.id in world.ever
                require(known or not record.name.startswith("uploads/"), f"{segment.name} was never committed")
                if record.encoding.is_ledger or not known:
                    continue
                whole = invariants.plain_of(record, storage.objects[record.name].data)
                data = whole[chunk.object_offset : chunk.object_offset + chunk.length]
                lives = [*world.ever[segment.id], *(world.attempts.get(segment.id, ()) if attempted else ())]
                written = [life[chunk.start_offset : chunk.end_offset] for life in lives]
                require(data in written, f"segment {segment.id}: {chunk.range} is not as it was written")
    return held


def ledger_entries(store: TestStore, name: str) -> list[bytes]:
    """Return the entries of a ledger."""
    segment, found = store.segment(name), []
    with store.metadata.read() as txn:
        count = entries.count(txn, segment.id)
    splitter = EntrySplitter(placed_entries(store.metadata, segment.id, 0, count), lambda _, part: found.append(part))
    splitter.write(read(store, name))
    return found


def _copied(world: World) -> MemoryStorage:
    return MemoryStorage(world.clock, world.storage.inner.objects)


def is_fenced(work: Callable[[], object]) -> None:
    """Invariant 7: a stale owner gets Fenced."""
    try:
        work()
    except Fenced:
        return
    raise Wrong("a stale owner was not fenced")
