"""Replay of a test store's journal, and invariants of any store afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.doubles.manual_clock import ManualClock
from tests.stores import IN_MEMORY, LOCATION, TestStore
from tierfs.base.words.types import ROOT_DIRECTORY, EntryKind, Tier
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.engine.journal import replay
from tierfs.engine.journal.names import checkpoint_slot, entry_slot, slot_name
from tierfs.engine.journal.objects import read_small
from tierfs.engine.metadata import chains, directories, frames, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import CHECKSUMS, CHUNKS, DIRECTORIES, DIRENTS, LOCATIONS, OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments import trash


def entries_of(cold: ChunkStorage) -> list[pb.JournalEntry]:
    """Return the journal's entries, oldest first."""
    slots = [slot for found in cold.list("journal/") if (slot := entry_slot(found.name)) is not None]
    return [frames.parse_entry(read_small(cold, slot_name(slot)), slot_name(slot)) for slot in slots]


def checkpoints_of(cold: ChunkStorage) -> list[int]:
    """Return slots of the checkpoints, oldest first."""
    return [slot for found in cold.list("journal/") if (slot := checkpoint_slot(found.name)) is not None]


def forge(store: TestStore, *bodies: pb.Change) -> str:
    """Write the next slot of the store's journal as anybody with the bucket's key may; return its name."""
    with store.metadata.read() as txn:
        slot, first = txn.store.journal.next_slot, txn.store.journal.published_sequence + 1
    for sequence, change in enumerate(bodies, first):
        change.sequence = sequence
    entry = pb.JournalEntry(
        version=1, store_id=store.metadata.store_id, store_epoch=1, slot=slot, first_sequence=first, changes=bodies
    )
    store.cold.put(slot_name(slot), BufferSource(frames.frame(entry)))
    return slot_name(slot)


@contextmanager
def empty_copy(path: Path, store_id: str, *, replica: bool = False) -> Iterator[MetadataStore]:
    """Make an empty store that stands before the first slot of the journal."""
    with closing(MetadataStore.create(path, ManualClock(), store_id)) as metadata:
        with metadata.write() as txn:
            txn.put(LOCATIONS, tables.u32(LOCATION), IN_MEMORY.record)
            txn.update_store(cold_location_id=LOCATION, replica=replica)
        yield metadata


def check_store(txn: ReadTransaction) -> None:
    """Assert that records, references, chains and names agree with each other."""
    references: dict[int, int] = {}
    for _, chunk in txn.scan(CHUNKS):
        chunk.check()
        if chunk.object_id:
            references[chunk.object_id] = references.get(chunk.object_id, 0) + 1
    holders = {holder.id: holder for _, holder in txn.scan(OBJECTS)}
    assert all(holder.times.is_sound(holder.length) for holder in holders.values())
    assert {key: holder.references for key, holder in holders.items()} == references
    assert {int.from_bytes(key[:8], "big") for key, _ in txn.scan(CHECKSUMS)} <= set(holders)
    highest = 1
    for _, segment in txn.scan(SEGMENTS):
        segment.check()
        _check_chains(txn, segment)
        assert directories.lookup(txn, segment.parent_id, segment.name) == directories.Entry(
            segment.name, EntryKind.SEGMENT, segment.id
        )
        highest = max(highest, segment.id, segment.inode)
    for _, directory in txn.scan(DIRECTORIES):
        highest = max(highest, directory.id, directory.inode)
        if directory.id != ROOT_DIRECTORY:
            directories.path_of(txn, directory.parent_id, directory.name)
    assert txn.count(DIRENTS.name) == txn.count(SEGMENTS.name) + txn.count(DIRECTORIES.name) - 1
    assert txn.store.next_id > max([highest, *holders])


def _check_chains(txn: ReadTransaction, segment) -> None:
    for tier in Tier:
        found = list(chains.chunks(txn, segment.id, tier))
        state = segment.tier_state(tier)
        assert (state.count, state.bytes) == (len(found), sum(chunk.held_bytes for chunk in found))
        following = [*(chunk.start_offset for chunk in found[1:]), 0][: len(found)]
        assert [chunk.next for chunk in found] == following
        if found:
            assert (state.first_chunk, state.last_chunk) == (found[0].start_offset, found[-1].start_offset)


def view(txn: ReadTransaction) -> dict[str, object]:
    """Return the bucket's view of a store, to compare two."""
    found: dict[str, object] = {}
    for _, segment in txn.scan(SEGMENTS):
        path = directories.path_of(txn, segment.parent_id, segment.name)
        cold = [
            (one.start_offset, one.length, one.object_id, one.object_offset, one.state)
            for one in chains.chunks(txn, segment.id, Tier.COLD)
        ]
        found[path] = (segment.id, segment.inode, segment.status, segment.start_offset, segment.cold, cold)
    found["objects"] = {
        (one.id, one.name, one.references, one.etag, one.crc32c)
        for _, one in txn.scan(OBJECTS)
        if one.tier is Tier.COLD
    }
    runs = [(key, run.crcs) for key, run in txn.scan(CHECKSUMS)]
    cold_ids = {one.id for _, one in txn.scan(OBJECTS) if one.tier is Tier.COLD}
    found["checksums"] = {(key, crcs) for key, crcs in runs if int.from_bytes(key[:8], "big") in cold_ids}
    found["directories"] = {(one.id, one.parent_id, one.name, one.inode) for _, one in txn.scan(DIRECTORIES)}
    return found


def apply_all(metadata: MetadataStore, entries: list[pb.JournalEntry]) -> None:
    """Replay entries, each in its transaction."""
    for entry in entries:
        with metadata.write() as txn:
            replay.apply_entry(txn, entry)


def check_every_step(store: TestStore, directory: Path) -> None:
    """Replay the journal change by change: each gives a sound store, and the last one the store's own rows."""
    with empty_copy(directory, store.metadata.store_id) as copy:
        for entry in entries_of(store.cold):
            for change in entry.changes:
                with copy.write() as txn:
                    assert replay.apply(txn, change)
                    check_store(txn)
        with copy.read() as ours, store.metadata.read() as theirs:
            assert view(ours) == view(theirs)
            assert list(trash.removed(ours)) == list(trash.removed(theirs))
