"""What must be true at the end of a life: of the store, of its bucket, and of every store made from that."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.copied import copy_tier
from tests.faults.two_owners import bucket
from tests.fsck.looking import cold_findings, deep_findings, findings
from tests.ledgers import reader
from tests.recovery.recovering import recovered
from tests.recovery.test_follow import cold_bytes, follower, following, shown
from tests.recovery.test_from_objects import rebuilt
from tests.simulation import invariants
from tests.simulation.verbs.ledgers import open_ledgers
from tests.simulation.world import World, Wrong, listed
from tests.stores import TestStore
from tierfs.backup import store as dump
from tierfs.backup.segment import DUMPS_PREFIX
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.validate import MARK_NAME
from tierfs.errors import DataLoss, Fenced, NotFound
from tierfs.fsck.findings import Severity
from tierfs.journal.batch_markers import parse_name
from tierfs.journal.epochs import EPOCHS_PREFIX
from tierfs.journal.names import JOURNAL_PREFIX
from tierfs.metadata import chains, entries
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import OBJECTS, SEGMENTS
from tierfs.reading.entries import EntrySplitter, placed_entries
from tierfs.reading.stream import copy_segment
from tierfs.tiering.batch_job import is_manifest
from tierfs.types import ByteRange, PayloadEncoding, Tier

_LATER_S = 25 * 3600.0
"""When all garbage is due: after any grace, the second deletion of an intent's object, and a job's day."""

_BEFORE_GC = 0.2
"""Share of the lives whose bucket is recovered from objects with its garbage and with jobs that did not commit."""

Ending = Callable[[World, Path], None]


def check(world: World, path: Path, chance: random.Random) -> None:
    """Check all that is cheap, and one of the dear things, in new directories below `path`. Raises Wrong."""
    world.storage.calm()
    world.storage.require_theirs()
    world.clock.jump(max(0, world.newest_ms - world.clock.now_ms()) / 1000)  # it is right again
    if world.damages:
        damaged(world)
        return
    lost_disk(world, path)
    if chance.random() < _BEFORE_GC:
        (path / "early").mkdir()
        from_objects(world, path / "early")
    for name in list(world.writers):
        world.without_writer(name)
    for name in open_ledgers(world):
        world.store.engine.seal(name)
        world.model = world.model.put(name, replace(world.model.live[name], sealed=True))
    world.store.offload()
    world.store.settle()
    sound(world)
    invariants.journal_entries_are_bounded(world)
    bucket_holds_the_named_objects(world)
    chance.choice(DEAR)(world, path)


def damaged(world: World) -> None:
    """Damage of one chunk keeps no other from being offloaded, and a check of every byte names what is harmed."""
    for _ in range(3):
        with suppress(DataLoss, NotFound):
            world.store.offload()
    block = world.knobs.constants["CRC_BLOCK_BYTES"]
    said = " ".join(map(str, deep_findings(world.store)))
    left_open = open_ledgers(world)
    for name in world.model.live:
        layout = world.store.layout(name)
        for local in layout.local:
            live = local.range.intersect(layout.segment.range)
            cold = sum(placed.range.intersect(live).length_bytes for placed in layout.cold)
            # An open ledger becomes cold when it is closed.
            if cold < live.length_bytes and not layout.segment.active and name not in left_open:
                needs = world.damages.hurts(local, local.range, block)
                _require(needs, f"{name}: {live} is not cold, though nothing harmed it")
        for placed in (*layout.local, *layout.cold):
            shift = placed.chunk.object_offset - placed.chunk.start_offset
            live = placed.range.intersect(layout.segment.range)
            inside = ByteRange(live.start + shift, live.end + shift)
            if any(harmed.intersect(inside) for harmed in world.damages.of.get(placed.object.name, [])):
                _require(placed.object.name in said, f"no check names {placed.object.name}")


def lost_disk(world: World, path: Path) -> None:
    """The disk is lost now: what was promised to be in the bucket is, and nothing else is shown."""
    left = _copied(world)
    if not any(left.list(JOURNAL_PREFIX)):
        _require(not world.promised, "the bucket has no journal")
        return
    with recovered(path / "lost", left) as found:
        held_as_written(world, found.store.metadata, left)
        ids = {segment.id: segment for segment in listed(found.store.metadata).values()}
        for name, content in world.model.live.items():
            segment_id = world.store.segment(name).id
            end = world.promised.get(segment_id, 0)
            if end > content.start:
                _require(segment_id in ids, f"{name} is not in the bucket")
                _require(ids[segment_id].length >= end, f"{name} ends at {ids[segment_id].length}, not {end}")
                _require(ids[segment_id].start_offset <= content.start, f"{name} begins too late")


def sound(world: World) -> None:
    """The checks of fsck have nothing to say."""
    for look in (findings, cold_findings, deep_findings):
        wrong = [one for one in look(world.store) if one.severity is not Severity.NOTE]
        _require(not wrong, f"{look.__name__}: {wrong}")


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
        beside = {record.entries_name for _, record in txn.scan(OBJECTS) if record.foreign}
    world.storage.require_theirs()
    there = {found.name for found in world.storage.inner.list("")} - world.storage.theirs.keys() - beside
    _equal("objects", {name for name in there if not _accompanies(name, named[Tier.COLD])}, named[Tier.COLD])
    root = world.store.files.root
    _equal("chunk files", {f"{path.parent.name}/{path.name}" for path in root.glob("??/*")}, named[Tier.LOCAL])


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


def from_the_bucket(world: World, path: Path) -> None:
    """A recovery has everything."""
    with recovered(path / "recovered", _copied(world)) as found:
        shows_all(world, found.store)


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
    if not any(left.list("segments/")) and not any(left.list("packs/")):
        return
    with rebuilt(path / "rebuilt", left) as found:
        held = held_as_written(world, found.store.metadata, left)
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
        _require(named <= held | set(found.left), f"neither linked nor listed: {named - held - found.left.keys()}")


def from_a_dump(world: World, path: Path) -> None:
    """The metadata come back from a dump, beside the chunk files."""
    with _dumped(world, path) as store:
        shows_all(world, store)


def by_a_wrong_count(world: World, path: Path) -> None:
    """Invariant 13: a chunk that goes takes no object along of which others may need bytes, whatever its count says."""
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
            _require(txn.get(OBJECTS, key) is not None, f"{held.name} was given up by a count that is too small")


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
    with following(world.store, path / "replica") as replica:
        _equal("the replica", shown(replica), cold_bytes(world.store))
        world.store.append("late", b"more")
        world.store.offload("late")
        follower(replica).refresh()
        _equal("the replica, later", shown(replica), cold_bytes(world.store))
    world.store.engine.delete("late", recursive=False, cold_due_ms=world.clock.now_ms())


def on_another_host(world: World, path: Path) -> None:
    """Another host takes the bucket over: the old one is fenced, changes nothing there and reads what it has."""
    old, kept = world.store, {name: read(world.store, name) for name in world.model.live}
    with recovered(path / "second", world.storage.inner) as found:
        before = bucket(world.storage.inner)
        old_verbs: tuple[Callable[[], object], ...] = (old.offload, old.evict, old.collect)
        for work in old_verbs:
            is_fenced(work)
        _require(bucket(world.storage.inner) == before, "a fenced store changed the bucket")
        is_fenced(partial(old.append, "late", b"more"))
        for name, data in kept.items():
            _same(f"{name}, fenced", read(old, name), data)
        shows_all(world, found.store)
        found.store.append("late", b"more")
        found.store.offload("late")
    with recovered(path / "third", _copied(world)) as found:
        _same("late", read(found.store, "late"), b"more")


DEAR: tuple[Ending, ...] = (
    from_the_bucket,
    from_a_copy,
    from_objects,
    from_a_dump,
    by_a_wrong_count,
    by_a_replica,
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
    segments = listed(store.metadata)
    _equal("segments", set(segments), set(world.model.live))
    for name, content in world.model.live.items():
        segment = segments[name]
        _equal(name, (segment.start_offset, segment.length, segment.sealed), content.shown)
        _same(name, read(store, name), content.data[content.start :])
        if content.is_ledger:
            _require(ledger_entries(store, name) == list(content.entries), f"{name} has other entries")


def held_as_written(world: World, metadata: MetadataStore, storage: MemoryStorage) -> set[str]:
    """Compare every cold chunk with what was written there; return the objects of all."""
    held: set[str] = set()
    with metadata.read() as txn:
        for _, segment in txn.scan(SEGMENTS):
            for chunk in chains.chunks(txn, segment.id, Tier.COLD):
                if chunk.lost:
                    continue
                record = chains.object_of(txn, chunk)
                held.add(record.name)
                known = segment.id in world.ever
                _require(known or not record.name.startswith("uploads/"), f"{segment.name} was never committed")
                if record.encoding is not PayloadEncoding.RAW or not known:
                    continue
                data = bytearray(chunk.length)
                storage.read_into(record.name, chunk.object_offset, memoryview(data))
                written = [life[chunk.start_offset : chunk.end_offset] for life in world.ever[segment.id]]
                _require(bytes(data) in written, f"segment {segment.id}: {chunk.range} is not as it was written")
    return held


def read(store: TestStore, name: str) -> bytes:
    """Return a segment's bytes by the product's reader."""
    out = bytearray()
    copy_segment(reader(store), store.segment(name), None, None, None, out.extend)
    return bytes(out)


def ledger_entries(store: TestStore, name: str) -> list[bytes]:
    """Return the entries of a ledger."""
    segment, found = store.segment(name), []
    with store.metadata.read() as txn:
        count = entries.count(txn, segment.id)
    splitter = EntrySplitter(placed_entries(store.metadata, segment.id, 0, count), lambda _, part: found.append(part))
    splitter.write(read(store, name))
    return found


def _copied(world: World) -> MemoryStorage:
    copy = MemoryStorage(world.clock)
    copy._objects = dict(world.storage.inner._objects)
    return copy


def is_fenced(work: Callable[[], object]) -> None:
    """Invariant 7: a stale owner gets Fenced."""
    try:
        work()
    except Fenced:
        return
    raise Wrong("a stale owner was not fenced")


def _same(what: str, data: bytes, expected: bytes) -> None:
    _require(data == expected, f"{what} has {len(data)} bytes, not the {len(expected)} that were written")


def _equal(what: str, found: object, expected: object) -> None:
    if found != expected:
        detail = f"{found}, not {expected}"
        if isinstance(found, set) and isinstance(expected, set):
            detail = f"{found - expected} too many, {expected - found} missing"
        raise Wrong(f"{what}: {detail}")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise Wrong(message)
