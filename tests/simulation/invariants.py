"""Checks of promises 8, 9, 11 and 16, in their words; endings.py and oracle.py have others."""

from __future__ import annotations

from unittest.mock import patch

from fsspec.spec import AbstractFileSystem

from tests.journal.replaying import entries_of
from tests.simulation.world import World, Wrong, listed
from tierfs.checksum import crc32c
from tierfs.chunkstore.local_files import ChunkFiles, DiskBytes
from tierfs.errors import StorageFull
from tierfs.metadata import chains
from tierfs.metadata.layout import PlacedChunk
from tierfs.metadata.tables import CHUNKS
from tierfs.scan.selection import Pinner, Tail
from tierfs.segments.stat import stat
from tierfs.segments.writer import SegmentWriter
from tierfs.tiering import packs
from tierfs.types import ByteRange, ChunkState, Tier

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


def a_suspect_copy_takes_no_other(world: World, needed: Needed) -> None:
    """Invariant 8: while a copy is suspect, the other copies of its bytes are not removed."""
    after = needed_beside_suspects(world)
    for segment in listed(world.store.metadata).values():
        with world.store.metadata.read() as txn:
            cold = [chunk for chunk in chains.chunks(txn, segment.id, Tier.COLD) if chunk.state is ChunkState.SUSPECT]
        still = [span for span in needed.get(segment.id, []) if any(chunk.range.intersect(span) for chunk in cold)]
        for span in still:
            kept = sum(other.intersect(span).length_bytes for other in after.get(segment.id, []))
            if kept < span.length_bytes:
                raise Wrong(f"segment {segment.name}: {span} was evicted, and its cold copy is suspect")


def an_accusation_needs_proof(world: World) -> None:
    """Invariant 16: a copy is called suspect only if it was harmed."""
    block = world.knobs.constants["CRC_BLOCK_BYTES"]
    with world.store.metadata.read() as txn:
        for _, chunk in txn.scan(CHUNKS):
            if chunk.state is ChunkState.GOOD or not chunk.object_id:
                continue
            placed = PlacedChunk(chunk, chains.object_of(txn, chunk))
            # What a concatenation kept of a suspect chunk stays suspect, also when the harmed bytes were cut off. What
            # lies beside it in a pack may be another segment's.
            is_pack = packs.parse_name(placed.object.name) is not None
            if not world.damages.hurts(placed, chunk.range, block if is_pack else max(block, placed.object.length)):
                raise Wrong(f"{placed.object.name} is called {chunk.state.name} at {chunk.start_offset}: it is whole")


def journal_entries_are_bounded(world: World) -> None:
    """Invariants 9 and 11: no entry is larger than its limit, beyond which readers would refuse it."""
    limit = world.knobs.constants["_ENTRY_BYTES"]
    for entry in entries_of(world.storage.inner):
        for change in entry.changes:
            change.ClearField("sequence")  # as in the queue, whose rows are measured
        size_bytes = sum(change.ByteSize() for change in entry.changes)
        if len(entry.changes) > 1 and size_bytes > limit:
            raise Wrong(f"journal slot {entry.slot} has {size_bytes} bytes, more than {limit}")


def nothing_failed_of_its_own(world: World) -> None:
    """Invariant 16: no failure of our own, which is logged as an error with its traceback."""
    if world.errors.records:
        raise Wrong(world.errors.format(world.errors.records[0]))


def disk_has_a_floor(world: World, writer: SegmentWriter, data: bytes, room: int) -> bool:
    """Invariant 9: bytes for which the disk has no room above its floor are refused. Return whether they had to be."""
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


def faces_give_one_answer(world: World, files: AbstractFileSystem, name: str) -> None:
    """Invariant 18: commands, scans and fsspec say the same of a segment, and its sum is that of its bytes."""
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
