"""What readers and listings say of a store, against the model: after every step, and of everything after a life."""

from __future__ import annotations

import random
import threading
from functools import partial
from itertools import pairwise

import trio
import trio.testing

from tests.engine.journal.replaying import check_store
from tests.simulation import invariants
from tests.simulation.checks.classes import classes_are_known
from tests.simulation.faces.files import Files
from tests.simulation.faces.long_lived import LongLived
from tests.simulation.faces.scan import scanned
from tests.simulation.model import Content, Model
from tests.simulation.places import reader_of
from tests.simulation.steps import VERBS, Step
from tests.simulation.world import World, Wrong, listed
from tierfs.base.words.errors import Archived, Fenced, TierfsError
from tierfs.base.words.types import ByteRange, ReadPriority, Tier
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.reading.handle import ReadHandle
from tierfs.reading.reader import StoreReader

_PRIORITIES = tuple(ReadPriority)

_BOTH = (ReadPriority.LOCAL_FIRST, ReadPriority.OFFLOADED_FIRST)

_BESIDE = 0.15
"""Share of the steps that happen while a read waits for the bucket."""

_MOVES = ("truncate", "evict", "consolidate", "compress", "concat", "remove")

_BESIDE_MOVES = 0.5
"""The same, of those that take away what a read has looked up."""

_READS_OF_DAMAGE = 3
"""After each step, where files rot: what is checked must not count for what is not."""

_SCANNED = 0.2
"""Share of the looks in which a range is scanned too: each scan starts threads."""

_BY_FILES = 0.1
"""The same of fsspec's file system, whose reader is in another thread."""

_RECORDS_CHECKED = 0.1
"""Share of the looks at every record of the metadata, each of which is as long as a step."""

_MOST_CHUNKS = 10
"""Of one read after a step; all are read after the life."""


def new_reader(world: World) -> StoreReader:
    """The product's reader of a process that has just begun."""
    store = world.store
    return reader_of(world.places, store.metadata, store.files, store.path)


class Oracle:
    """Reads a drawn part of the store after each step, by a reader that lives as long as its process."""

    def __init__(self, world: World, reader: StoreReader, readers: LongLived) -> None:
        """`readers` live longer than the process of `reader`."""
        self._world = world
        self._reader = reader
        self._readers = readers
        self._files = Files(world.store.metadata, partial(new_reader, world))
        self._transaction_id = 0
        self._model: Model | None = None

    def close(self) -> None:
        """End what lives as long as the process."""
        self._files.close()

    async def watch(self, step: Step) -> int:
        """Do a step, perhaps beside a read that waits for the bucket, and look; return the points it passed."""
        world, chance = self._world, random.Random(step.look)
        rots = bool(world.damages) or VERBS[step.verb].damages
        often = _BESIDE_MOVES if step.verb in _MOVES else _BESIDE
        beside = chance.random() < often and step.end is None and not rots and not VERBS[step.verb].ends
        passed = await self._beside_a_read(step, chance) if beside else world.step(step)
        if not world.new_process:
            await self._look(chance)
        if not world.new_machine:
            await self._readers.look(chance)
        return passed

    async def _beside_a_read(self, step: Step, chance: random.Random) -> int:
        """Cut off, moved, evicted or deleted meanwhile: a read is right or says so, and its handle stays of use."""
        world = self._world
        if not world.model.live:
            return world.step(step)
        name = step.arguments.get("name")
        if name not in world.model.live or chance.random() < 0.3:
            name = chance.choice(sorted(world.model.live))
        content, segment_id = world.model.live[name], listed(world.store.metadata)[name].id
        wanted = self._range(content, chance)
        if chance.random() < 0.5:  # from the begin on, and over several chunks: it is cut off between two of them
            wanted = ByteRange(content.start, max(wanted.end, min(content.start + 200, len(content.data))))
        handle = self._reader.open(segment_id, priority=chance.choice(_BOTH))
        async with trio.open_nursery() as nursery:
            gate = world.places.gate = threading.Event()
            nursery.start_soon(self._read_beside, handle, name, content, wanted)
            await trio.testing.wait_all_tasks_blocked()
            passed = world.step(step)
            world.places.gate = None
            gate.set()
        after = {segment.id: content for content, segment in self._by_record()}.get(segment_id)
        if after is not None:
            if content.start < after.start:
                await self._read_gone(handle, name, content, chance.randrange(content.start, after.start))
            await self._read_on(handle, name, after, ByteRange(after.start, min(len(after.data), after.start + 200)))
        handle.close()
        return passed

    async def _read_beside(self, handle: ReadHandle, name: str, content: Content, wanted: ByteRange) -> None:
        try:
            data = bytes(await handle.read(wanted.start, wanted.length_bytes))
        except TierfsError as exc:
            if self._may_be_archived(exc):
                return
            after = self._world.model.live.get(name)
            if after is not None and after.start <= wanted.start and after.data[: len(content.data)] == content.data:
                raise Wrong(f"{name} {wanted.start} to {wanted.end} read beside a verb: {exc!r}") from exc
            if not isinstance(exc, Fenced):
                raise Wrong(f"{name} was cut off or removed beside a read, which says: {exc!r}") from exc
            return
        if data != content.data[wanted.start : wanted.start + len(data)]:
            raise Wrong(f"{name} has wrong bytes between {wanted.start} and {wanted.end}, read beside a verb")

    async def _read_gone(self, handle: ReadHandle, name: str, content: Content, at: int) -> None:
        """A byte that was cut off is stale, however often it is asked for, or still there; never lost."""
        for _ in range(2):
            try:
                data = bytes(await handle.read(at, 1))
            except Fenced:
                continue
            except TierfsError as exc:
                if self._may_be_archived(exc):
                    return
                raise Wrong(f"{name} was cut off behind {at}, which the handle of before says is {exc!r}") from exc
            if data != content.data[at : at + 1]:
                raise Wrong(f"{name} has a wrong byte at {at}, read on by the handle of before the cut")

    async def _read_on(self, handle: ReadHandle, name: str, content: Content, wanted: ByteRange) -> None:
        try:
            data = bytes(await handle.read(wanted.start, wanted.length_bytes))
        except TierfsError as exc:
            if self._may_be_archived(exc):
                return
            raise Wrong(f"{name} {wanted.start} to {wanted.end} read on by the handle of before: {exc!r}") from exc
        if data != content.data[wanted.start : wanted.start + len(data)]:
            raise Wrong(f"{name} has wrong bytes from {wanted.start} on, read on by the handle of before")

    def _may_be_archived(self, exc: TierfsError) -> bool:
        return isinstance(exc, Archived) and self._world.has_archived

    def _by_record(self) -> list[tuple[Content, SegmentRecord]]:
        segments = listed(self._world.store.metadata)
        return [(content, segments[name]) for name, content in self._world.model.live.items() if name in segments]

    async def _look(self, chance: random.Random) -> None:
        """Check what is cheap, and one range of one segment by a drawn priority. Raises Wrong."""
        world = self._world
        self._names()
        invariants.nothing_failed_of_its_own(world)
        invariants.acknowledged_is_durable(world)
        invariants.no_name_is_used_twice(world)
        if chance.random() < _RECORDS_CHECKED:
            self._records()
        if world.model.live:
            recent = world.recent
            name = recent if recent and chance.random() < 0.5 else chance.choice(sorted(world.model.live))
            content = world.model.live[name]
            for _ in range(_READS_OF_DAMAGE if world.damages else 1):
                wanted = self._range(content, chance)
                await self.read(name, content, wanted, chance.choice(_PRIORITIES))
            if chance.random() < _SCANNED:
                self._scan(name, content, wanted)
            if chance.random() < _BY_FILES:
                self._by_files(name, content, wanted, chance)
        if world.damages:
            await self._reader.settle()  # what failed is proved and marked now, not in a second

    async def look_at_all(self) -> None:
        """Check every byte of every segment."""
        self._names()
        self._records()
        for name, content in sorted(self._world.model.live.items()):
            whole = ByteRange(content.start, len(content.data))
            for priority in ReadPriority:
                await self.read(name, content, whole, priority)
            self._read_files(name, content, [whole])
            invariants.faces_give_one_answer(self._world, self._files, name)
        if self._world.damages:
            await self._reader.settle()

    async def read(self, name: str, content: Content, wanted: ByteRange, priority: ReadPriority) -> None:
        """Read a range; it may fail only where the priority allows one tier that lacks some of it."""
        handle = self._reader.open(listed(self._world.store.metadata)[name].id, priority=priority)
        data, at = bytearray(), wanted.start
        try:
            while at < wanted.end:
                part = await handle.read(at, wanted.end - at)
                if not part:
                    raise Wrong(f"{name} ends at {at}, not at {wanted.end}, read {priority}")
                data += part
                at += len(part)
        except TierfsError as exc:
            of_both = len(priority.tiers) == len(Tier) and not self._world.damages
            if self._must_answer(name, wanted, priority) or (of_both and not isinstance(exc, Archived)):
                raise Wrong(f"{name} {wanted.start} to {wanted.end} read {priority}: {exc!r}") from exc
        finally:
            handle.close()
        if data != content.data[wanted.start : wanted.start + len(data)]:
            raise Wrong(f"{name} has wrong bytes between {wanted.start} and {wanted.end}, read {priority}")

    def _scan(self, name: str, content: Content, wanted: ByteRange) -> None:
        try:
            data = scanned(self._world, name, wanted)
        except TierfsError as exc:
            if self._must_answer(name, wanted, ReadPriority.LOCAL_FIRST):
                raise Wrong(f"{name} {wanted.start} to {wanted.end} scanned: {exc!r}") from exc
            return
        if data != content.data[wanted.start : wanted.end]:
            raise Wrong(f"{name} has wrong bytes between {wanted.start} and {wanted.end}, scanned")

    def _by_files(self, name: str, content: Content, wanted: ByteRange, chance: random.Random) -> None:
        """Read by the file system: whole or in several slices, which it joins, and what it says of the file."""
        at = chance.randint(wanted.start, wanted.end)
        slices = [wanted] if chance.random() < 0.5 else [ByteRange(at, wanted.end), ByteRange(wanted.start, at)]
        self._read_files(name, content, slices, max_gap=chance.choice([0, 5, 1000]))
        invariants.faces_give_one_answer(self._world, self._files, name)
        if self._world.damages:
            self._files.settle()

    def _read_files(self, name: str, content: Content, slices: list[ByteRange], max_gap: int = 0) -> None:
        starts = [wanted.start - content.start for wanted in slices]
        ends = [wanted.end - content.start for wanted in slices]
        try:
            found = self._files.cat_ranges([name] * len(slices), starts, ends, max_gap, on_error="raise")
        except OSError as exc:
            if all(self._must_answer(name, wanted, ReadPriority.LOCAL_FIRST) for wanted in slices):
                raise Wrong(f"{name} {slices} read by fsspec: {exc!r}") from exc
            return
        for wanted, data in zip(slices, found, strict=True):
            if data != content.data[wanted.start : wanted.end]:
                raise Wrong(f"{name} has wrong bytes between {wanted.start} and {wanted.end}, read by fsspec")

    def _must_answer(self, name: str, wanted: ByteRange, priority: ReadPriority) -> bool:
        """Return whether each piece of a range has a copy, in a tier that the priority allows, that was not harmed."""
        layout, block = self._world.store.layout(name), self._world.knobs.constants["CRC_BLOCK_BYTES"]
        placed = [one for tier in priority.tiers for one in layout.chunks(tier)]
        cuts = {wanted.start, wanted.end}
        for one in placed:
            cuts |= {at for at in (one.range.start, one.range.end) if wanted.start < at < wanted.end}
        for start, end in pairwise(sorted(cuts)):
            piece = ByteRange(start, end)
            copies = [one for one in placed if one.range.contains(piece)]
            if all(self._world.damages.hurts(one, piece, block) or self._is_frozen(one) for one in copies):
                return False
        return True

    def _is_frozen(self, placed: PlacedChunk) -> bool:
        return placed.object.tier is Tier.COLD and self._world.storage.inner.is_frozen(placed.object.name)

    def _range(self, content: Content, chance: random.Random) -> ByteRange:
        block = self._world.knobs.constants["CRC_BLOCK_BYTES"]
        first = chance.randint(content.start, len(content.data))
        if chance.random() < 0.3:
            first = max(content.start, first - first % block)
        length = chance.randint(0, max(3 * block, _MOST_CHUNKS * self._world.knobs.chunk_bytes))
        return ByteRange(first, min(first + length, len(content.data)))

    def _names(self) -> None:
        """Compare the names, unless neither the store nor the model has changed since the last time."""
        transaction_id, model = self._world.store.metadata.last_transaction_id(), self._world.model
        if transaction_id == self._transaction_id and model is self._model:
            return
        self._transaction_id, self._model = transaction_id, model
        shown, expected = self._world.shown(), self._world.model.shown
        if shown != expected:
            wrong = {name for name in shown.keys() | expected.keys() if shown.get(name) != expected.get(name)}
            raise Wrong("; ".join(f"{name} is {shown.get(name)}, not {expected.get(name)}" for name in sorted(wrong)))

    def _records(self) -> None:
        with self._world.store.metadata.read() as txn:
            check_store(txn)
        invariants.an_accusation_needs_proof(self._world)
        invariants.every_byte_is_covered_and_unchanged(self._world)
        invariants.only_ours_is_deleted(self._world)
        if self._world.has_archived:
            classes_are_known(self._world)
