"""Checks of the promises that a life makes after its steps; endings.py has those of its end.

`invariant` names the promise that a check proves; docs/reliability.md has the table of all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from unittest.mock import patch

from fsspec.spec import AbstractFileSystem

from tests.engine.journal.replaying import entries_of
from tests.simulation.bodies import unpacked
from tests.simulation.world import FOREIGN, World, Wrong, listed
from tierfs.base.bytes import ranges
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.words.errors import StorageFull
from tierfs.base.words.types import ByteRange, ChunkState, PayloadEncoding, Tier
from tierfs.engine.chunkstore.local_files import ChunkFiles, DiskBytes
from tierfs.engine.metadata import chains, tables
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.tables import CHUNKS
from tierfs.engine.segments.stat import stat
from tierfs.engine.segments.writer import SegmentWriter
from tierfs.pipeline.reader.selection import Pinner, Tail
from tierfs.reading.view import in_object
from tierfs.tiering.packs import format as packs

CHECKED: dict[int, list[str]] = {}
"""The checks by the number of their promise."""

_Check = TypeVar("_Check", bound=Callable[..., object])


def invariant(*numbers: int) -> Callable[[_Check], _Check]:
    """Enter a check under the promises that it proves."""

    def enter(check: _Check) -> _Check:
        for number in numbers:
            CHECKED.setdefault(number, []).append(check.__name__)
        return check

    return enter


@invariant(1)
def acknowledged_is_durable(world: World) -> None:
    """Bytes and names that a step acknowledged are on the disk, so that a loss of power now would leave them."""
    for name in world.changed:
        if name not in world.model.live or world.damages:
            continue
        for placed in world.store.layout(name).local[-2:]:  # those before were durable once they ended
            held, path = in_object(placed.range, placed), world.store.files.root / placed.object.name
            if held and not world.disk.keeps(path, held.end):
                raise Wrong(f"{name} is acknowledged up to {placed.range.end}, and a loss of power would take of it")


@invariant(2, 3)
def every_byte_is_covered_and_unchanged(world: World) -> None:
    """Each live byte lies in a copy, and each copy that nothing harmed holds what was once written there."""
    for name, segment in listed(world.store.metadata).items():
        with world.store.metadata.read() as txn:
            chunks = [(chunk, tier) for tier in Tier for chunk in chains.chunks(txn, segment.id, tier)]
            placed = [PlacedChunk(chunk, chains.object_of(txn, chunk)) for chunk, _ in chunks if not chunk.lost]
        held = sorted((copy.range for copy in placed), key=lambda span: span.start)
        if not ranges.covers(held, segment.range) and not world.damages:
            raise Wrong(f"{name} {segment.range} is not covered by {held}")
        for copy in placed:
            written = world.ever.get(segment.id)
            is_known = not copy.object.encoding.is_ledger and not copy.object.foreign
            if written is None or not is_known or copy.object.name in world.damages.of:
                continue
            live = copy.range.intersect(segment.range)
            if _stored(world, copy, live) != written[-1][live.start : live.end]:
                raise Wrong(f"{name} {live}: {copy.object.name} does not hold what was written")


def _stored(world: World, copy: PlacedChunk, live: ByteRange) -> bytes | None:
    held = in_object(live, copy)
    if copy.object.tier is Tier.LOCAL:
        path = world.store.files.root / copy.object.name
        return path.read_bytes()[held.start : held.end] if path.exists() else None
    there = world.storage.inner.objects.get(copy.object.name)
    return None if there is None else plain_of(copy.object, there.data)[held.start : held.end]


def plain_of(record: ObjectRecord, stored: bytes) -> bytes:
    """Return the bytes of segments in an object, which is not a ledger's."""
    return unpacked(stored) if record.encoding is PayloadEncoding.ZSTD_FRAMES else stored


@invariant(5)
def only_ours_is_deleted(world: World) -> None:
    """Objects that are not ours are as they were."""
    there = world.storage.inner.objects
    for name, data in FOREIGN.items():
        if name not in there or bytes(there[name].data) != data:
            raise Wrong(f"{name} is not ours, and was deleted or overwritten")


@invariant(6)
def no_name_is_used_twice(world: World) -> None:
    """No object has other bytes than one of its name had before."""
    if world.storage.used_twice:
        raise Wrong(f"written with other bytes than before: {sorted(world.storage.used_twice)}")


Needed = dict[int, list[ByteRange]]
"""Local ranges by segment id."""


def needed_beside_suspects(world: World) -> Needed:
    """Return the local bytes whose cold copy is suspect."""
    needed: Needed = {}
    for segment in listed(world.store.metadata).values():
        with world.store.metadata.read() as txn:
            cold = [*chains.chunks(txn, segment.id, Tier.COLD)]
            local = [*chains.chunks(txn, segment.id, Tier.LOCAL)]
        for chunk in cold:
            if chunk.state is ChunkState.SUSPECT:
                common = [chunk.range.intersect(other.range) for other in local]
                needed.setdefault(segment.id, []).extend(span for span in common if span)
    return needed


@invariant(8)
def a_suspect_copy_takes_no_other(world: World, needed: Needed) -> None:
    """While a copy is suspect, the other copies of its bytes are not removed."""
    after = needed_beside_suspects(world)
    for segment in listed(world.store.metadata).values():
        with world.store.metadata.read() as txn:
            cold = [chunk for chunk in chains.chunks(txn, segment.id, Tier.COLD) if chunk.state is ChunkState.SUSPECT]
        still = [span for span in needed.get(segment.id, []) if any(chunk.range.intersect(span) for chunk in cold)]
        for span in still:
            kept = sum(other.intersect(span).length_bytes for other in after.get(segment.id, []))
            if kept < span.length_bytes:
                raise Wrong(f"segment {segment.name}: {span} was evicted, and its cold copy is suspect")


@invariant(16)
def an_accusation_needs_proof(world: World) -> None:
    """A copy is called suspect only if it was harmed."""
    block = world.knobs.constants["CRC_BLOCK_BYTES"]
    with world.store.metadata.read() as txn:
        for key, chunk in txn.scan(CHUNKS):
            if chunk.state is ChunkState.GOOD or not chunk.object_id:
                continue
            placed = PlacedChunk(chunk, chains.object_of(txn, chunk))
            # What a concatenation or a clone kept of a suspect chunk stays suspect, also when the harmed bytes were cut
            # off. What lies beside it in a pack may be another segment's.
            is_cloned = tables.read_u64(key) in world.cloned
            is_alone = is_cloned or packs.parse_name(placed.object.name) is None
            if not world.damages.hurts(placed, chunk.range, max(block, placed.object.length) if is_alone else block):
                raise Wrong(f"{placed.object.name} is called {chunk.state.name} at {chunk.start_offset}: it is whole")


@invariant(9, 11)
def journal_entries_are_bounded(world: World) -> None:
    """No entry is larger than its limit, beyond which readers would refuse it."""
    limit = world.knobs.constants["ENTRY_BYTES"]
    for entry in entries_of(world.storage.inner):
        for change in entry.changes:
            change.ClearField("sequence")  # as in the queue, whose rows are measured
        size_bytes = sum(change.ByteSize() for change in entry.changes)
        if len(entry.changes) > 1 and size_bytes > limit:
            raise Wrong(f"journal slot {entry.slot} has {size_bytes} bytes, more than {limit}")


@invariant(16)
def nothing_failed_of_its_own(world: World) -> None:
    """No failure of our own, which is logged as an error with its traceback."""
    if world.errors.records:
        raise Wrong(world.errors.format(world.errors.records[0]))


@invariant(9)
def disk_has_a_floor(world: World, writer: SegmentWriter, data: bytes, room: int) -> bool:
    """Bytes for which the disk has no room above its floor are refused. Return whether they had to be."""
    free = world.store.engine.free_space_floor_bytes + len(data) + room
    if room >= 0:
        return False
    disk = DiskBytes(size=4 * free, used=0, free=free)
    with patch.object(ChunkFiles, "disk_bytes", lambda _: disk):
        try:
            writer.append(data)
        except StorageFull:
            return True
    raise Wrong(f"{len(data)} bytes were taken with room for {len(data) + room}")


@invariant(18)
def faces_give_one_answer(world: World, files: AbstractFileSystem, name: str) -> None:
    """Commands, scans and fsspec say the same of a segment, and its sum is that of its bytes."""
    content = world.model.live[name]
    with world.store.metadata.read() as txn:
        told = stat(txn, name)
        pinned = None if world.damages else Pinner(txn, None, Tail.LOCAL).pin(name, told.record)
    by_files, (listed_one,) = files.info(name), files.ls(name)
    priority = told.read_priority
    say = {
        "info": (told.record.id, told.record.range.length_bytes, priority.value.value, str(priority.origin)),
        "fsspec": tuple(by_files[key] for key in ("segment_id", "size", "read_priority", "read_priority_origin")),
    }
    if pinned is not None:
        say["scan"] = (
            pinned.segment.id,
            pinned.range.length_bytes,
            pinned.priority.value.value,
            str(pinned.priority.origin),
        )
    if len(set(say.values())) > 1 or listed_one != by_files:
        raise Wrong(f"{name}: {say}, listed as {listed_one}")
    if told.crc32c is not None and told.crc32c != crc32c(content.data[content.start :]):
        raise Wrong(f"{name} has a sum that is not that of its bytes")
