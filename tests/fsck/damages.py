"""Damages by name: what each does to a store, what fsck says of it, and whether --repair mends it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from tierfs.app.store import Store
from tierfs.chunkstore.local_files import file_name
from tierfs.fsck.findings import Kind
from tierfs.journal.names import checkpoint_name, slot_name
from tierfs.metadata import batches, chains, directories, tables
from tierfs.metadata.ledger_and_batch_records import BatchRecord
from tierfs.metadata.records import (
    ChecksumRun,
    ChunkRecord,
    DirectoryRecord,
    DirentRecord,
    GarbageRecord,
    IntentRecord,
    ObjectRecord,
    PolicyRecord,
    SegmentRecord,
    TierState,
)
from tierfs.metadata.tables import (
    BATCHES,
    CHECKSUMS,
    CHUNKS,
    DIRECTORIES,
    DIRENTS,
    INTENTS,
    OBJECTS,
    OUTBOX_NAME,
    POLICIES,
    SEGMENTS,
)
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.segments.create import WholeSegment
from tierfs.types import (
    ROOT_DIRECTORY,
    AttemptId,
    ChunkState,
    DirectoryId,
    EntryKind,
    Inode,
    LocationId,
    ObjectId,
    SegmentId,
    Tier,
)

NOBODY = 999


@dataclass(frozen=True, slots=True)
class Damage:
    """One way a store can be wrong."""

    do: Callable[[Store], None]
    kind: Kind
    """The finding it must give."""
    mended: bool = True
    lost: bool = False
    """Whether bytes are lost by it."""
    cold: bool = False
    """Whether only a check of the bucket sees it."""
    deep: bool = False
    """Whether only --deep sees it."""


DAMAGES: dict[str, Damage] = {}


def damage(kind: Kind, *, mended: bool = True, lost: bool = False, cold: bool = False, deep: bool = False):
    """Put a function into the table, under its name."""

    def register(function):
        DAMAGES[function.__name__] = Damage(function, kind, mended, lost, cold, deep)
        return function

    return register


def segment_of(txn: ReadTransaction, name: str) -> SegmentRecord:
    return directories.segment_by_name(txn, name)


def put_segment(txn: WriteTransaction, segment: SegmentRecord) -> None:
    """Without check(), which would refuse what is wrong."""
    txn.put_raw(SEGMENTS.name, tables.u64(segment.id), SEGMENTS.codec.to_message(segment).SerializeToString())


def chunk_of(txn: ReadTransaction, name: str, tier: Tier, number: int = 0) -> tuple[bytes, ChunkRecord]:
    segment = segment_of(txn, name)
    chunk = list(chains.chunks(txn, segment.id, tier))[number]
    return tables.chunk(segment.id, tier, chunk.start_offset), chunk


def holder_of(txn: ReadTransaction, name: str, tier: Tier, number: int = 0) -> ObjectRecord:
    return chains.object_of(txn, chunk_of(txn, name, tier, number)[1])


def local_path(store: Store, name: str, number: int = 0) -> Path:
    with store.metadata.read() as txn:
        return store.files.root / holder_of(txn, name, Tier.LOCAL, number).name


def cold_path(store: Store, name: str, number: int = 0) -> Path:
    with store.metadata.read() as txn:
        return store.paths.cold / holder_of(txn, name, Tier.COLD, number).name


def flip(path: Path, at: int) -> None:
    """Flip one bit and nothing else, as a rotting disk does."""
    status = path.stat()
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    data[at] ^= 0x04
    path.write_bytes(data)
    path.chmod(status.st_mode)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


# Metadata


@damage(Kind.COUNTER)
def next_id_too_low(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.update_store(next_id=3)


@damage(Kind.COUNTER)
def next_id_not_above_a_commit(store: Store) -> None:
    """Of two segments made at once, only the number of the second's commit is newer than the second."""
    with closing(store.engine.bulk_creator()) as bulk:
        bulk.create([WholeSegment(f"bulk/{number}", b"") for number in range(2)], seal=True)
    with store.metadata.write() as txn:
        newest = directories.segment_by_name(txn, "bulk/1").commit_id
        assert txn.store.next_id == newest + 1
        txn.update_store(next_id=newest)


@damage(Kind.COUNTER)
def next_garbage_too_low(store: Store) -> None:
    with store.metadata.write() as txn:
        garbage = GarbageRecord(due_ms=2**50, tier=Tier.LOCAL, name="00/1-0-0")
        chains.add_garbage(txn, garbage)
        txn.update_store(next_garbage=0)


@damage(Kind.SUMS)
def sums_wrong(store: Store) -> None:
    with store.metadata.write() as txn:
        txn._tally.values[5] += 1
        txn.touch()


@damage(Kind.DIRENT_MISSING)
def name_of_a_segment_gone(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.delete(DIRENTS.name, tables.dirent(ROOT_DIRECTORY, "s"))


@damage(Kind.DIRENT_MISSING)
def name_of_a_directory_gone(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.delete(DIRENTS.name, tables.dirent(ROOT_DIRECTORY, "d"))


@damage(Kind.DIRENT_DANGLING)
def name_of_nothing(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.put(DIRENTS, tables.dirent(ROOT_DIRECTORY, "x"), DirentRecord(kind=EntryKind.SEGMENT, id=NOBODY))


@damage(Kind.DIRENT_WRONG)
def second_name_of_a_segment(store: Store) -> None:
    with store.metadata.write() as txn:
        record = DirentRecord(kind=EntryKind.SEGMENT, id=segment_of(txn, "s").id)
        txn.put(DIRENTS, tables.dirent(ROOT_DIRECTORY, "x"), record)


@damage(Kind.DIRENT_DANGLING, mended=False)
def record_of_a_segment_gone(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.delete(SEGMENTS.name, tables.u64(segment_of(txn, "s").id))


@damage(Kind.RECORD, mended=False)
def record_of_a_segment_unreadable(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.put_raw(SEGMENTS.name, tables.u64(segment_of(txn, "s").id), b"\xff\xff\xff")


@damage(Kind.RECORD, mended=False)
def record_of_a_chunk_unreadable(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.put_raw(CHUNKS.name, chunk_of(txn, "s", Tier.LOCAL)[0], b"\xff\xff\xff")


@damage(Kind.DIRECTORY_CYCLE, mended=False)
def directories_in_a_circle(store: Store) -> None:
    with store.metadata.write() as txn:
        for one, other in ((901, 902), (902, 901)):
            record = DirectoryRecord(
                id=DirectoryId(one), parent_id=DirectoryId(other), name=f"c{one}", inode=Inode(one)
            )
            txn.put(DIRECTORIES, tables.u64(one), record)
            dirent = DirentRecord(kind=EntryKind.DIRECTORY, id=one)
            txn.put(DIRENTS, tables.dirent(DirectoryId(other), f"c{one}"), dirent)
        txn.update_store(next_id=2000)


@damage(Kind.INODE, mended=False)
def two_segments_with_one_inode(store: Store) -> None:
    with store.metadata.write() as txn:
        put_segment(txn, replace(segment_of(txn, "s"), inode=segment_of(txn, "t").inode))


@damage(Kind.CHAIN_STATE)
def sums_of_the_local_chain_wrong(store: Store) -> None:
    with store.metadata.write() as txn:
        segment = segment_of(txn, "s")
        put_segment(txn, replace(segment, local=replace(segment.local, bytes=7, count=1)))


@damage(Kind.CHAIN_STATE)
def head_of_the_cold_chain_wrong(store: Store) -> None:
    with store.metadata.write() as txn:
        put_segment(txn, replace(segment_of(txn, "c"), cold=TierState()))


@damage(Kind.CHAIN_LIST)
def pointer_of_a_chunk_wrong(store: Store) -> None:
    with store.metadata.write() as txn:
        key, chunk = chunk_of(txn, "s", Tier.LOCAL)
        txn.put(CHUNKS, key, replace(chunk, next=0))


@damage(Kind.CHAIN_LIST)
def last_chunk_points_on(store: Store) -> None:
    with store.metadata.write() as txn:
        key, chunk = chunk_of(txn, "c", Tier.COLD, -1)
        txn.put(CHUNKS, key, replace(chunk, next=1000))


@damage(Kind.ACTIVE)
def active_flag_without_its_end(store: Store) -> None:
    with store.metadata.write() as txn:
        put_segment(txn, replace(segment_of(txn, "s"), active=True))


@damage(Kind.REFERENCES)
def references_too_many(store: Store) -> None:
    with store.metadata.write() as txn:
        holder = holder_of(txn, "s", Tier.COLD)
        txn.put(OBJECTS, tables.u64(holder.id), replace(holder, references=7))


@damage(Kind.OBJECT_UNUSED)
def object_that_no_chunk_needs(store: Store) -> None:
    with store.metadata.write() as txn:
        name = file_name(segment_of(txn, "s").id, 0, AttemptId("e" * 32))
        holder = ObjectRecord(id=ObjectId(900), tier=Tier.LOCAL, name=name, length=4, references=1, crc32c=1)
        txn.put(OBJECTS, tables.u64(900), holder)
        txn.put(CHECKSUMS, tables.pair(900, 0), ChecksumRun(start=0, crcs=b"\0\0\0\1"))
        txn.update_store(next_id=2000)
    path = store.files.root / name
    path.write_bytes(b"late")
    path.chmod(0o440)


@damage(Kind.HOLE, mended=False)
def chunk_row_gone_but_not_its_file(store: Store) -> None:
    with store.metadata.write() as txn:
        key, _ = chunk_of(txn, "t", Tier.LOCAL)
        txn.delete(CHUNKS.name, key)


@damage(Kind.CHUNK_OBJECT)
def object_row_of_a_local_chunk_gone(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.delete(OBJECTS.name, tables.u64(holder_of(txn, "s", Tier.LOCAL).id))


@damage(Kind.CHUNK_OBJECT, mended=False)
def object_row_of_the_only_copy_gone(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.delete(OBJECTS.name, tables.u64(holder_of(txn, "c", Tier.COLD).id))


@damage(Kind.CHUNK_RANGE)
def chunk_beyond_its_object(store: Store) -> None:
    with store.metadata.write() as txn:
        key, chunk = chunk_of(txn, "s", Tier.LOCAL)
        txn.put(CHUNKS, key, replace(chunk, object_offset=2))


@damage(Kind.CHUNK_ORPHAN, mended=False)
def chunks_of_a_segment_that_is_gone(store: Store) -> None:
    with store.metadata.write() as txn:
        segment = segment_of(txn, "s")
        txn.delete(SEGMENTS.name, tables.u64(segment.id))
        txn.delete(DIRENTS.name, tables.dirent(ROOT_DIRECTORY, "s"))


@damage(Kind.CHECKSUM_ORPHAN)
def checksums_of_no_object(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.put(CHECKSUMS, tables.pair(NOBODY, 0), ChecksumRun(start=0, crcs=b"\0\0\0\1"))


@damage(Kind.CHECKSUM_GAP)
def checksums_of_a_file_gone(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.delete(CHECKSUMS.name, tables.pair(holder_of(txn, "t", Tier.LOCAL).id, 0))


@damage(Kind.CHECKSUM_GAP)
def checksums_of_an_object_gone(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.delete(CHECKSUMS.name, tables.pair(holder_of(txn, "c", Tier.COLD).id, 0))


@damage(Kind.POLICY)
def policy_of_nothing(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.put(POLICIES, tables.u64(NOBODY), PolicyRecord(target_id=NOBODY, settings={"chunk_bytes": "4"}))


@damage(Kind.RECORD)
def batch_under_another_key_too(store: Store) -> None:
    with store.metadata.write() as txn:
        batches.commit(txn, BatchRecord(application="app", batch="1"))
        txn.put(BATCHES, batches.key("app", 2), BatchRecord(application="app", batch="1"))


@damage(Kind.RECORD, mended=False)
def batch_under_another_key(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.put(BATCHES, batches.key("app", 2), BatchRecord(application="app", batch="1"))


@damage(Kind.RECORD, mended=False)
def batch_that_is_no_record(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.put_raw(BATCHES.name, batches.key("app", 2), b"\xff")


@damage(Kind.INTENT)
def intent_that_names_an_object_in_use(store: Store) -> None:
    attempt = AttemptId("a" * 32)
    with store.metadata.write() as txn:
        intent = IntentRecord(
            attempt=attempt,
            location_id=LocationId(1),
            name=holder_of(txn, "c", Tier.COLD).name,
            segment_id=SegmentId(1),
            start_offset=0,
            end_offset=4,
        )
        txn.put(INTENTS, attempt.encode(), intent)


@damage(Kind.GARBAGE)
def garbage_that_names_an_object_in_use(store: Store) -> None:
    with store.metadata.write() as txn:
        name = holder_of(txn, "c", Tier.COLD).name
        garbage = GarbageRecord(due_ms=1, tier=Tier.COLD, location_id=LocationId(1), name=name)
        chains.add_garbage(txn, garbage)


@damage(Kind.OUTBOX)
def change_missing_from_the_outbox(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.delete(OUTBOX_NAME, tables.u64(txn.store.next_outbox - 1))


@damage(Kind.SUSPECT)
def suspect_mark_on_good_bytes(store: Store) -> None:
    with store.metadata.write() as txn:
        key, chunk = chunk_of(txn, "s", Tier.COLD)
        txn.put(CHUNKS, key, replace(chunk, state=ChunkState.SUSPECT))


# Local files


@damage(Kind.FILE_MISSING)
def file_gone_that_is_cold_too(store: Store) -> None:
    local_path(store, "s").unlink()


@damage(Kind.FILE_MISSING, lost=True)
def file_gone_that_was_the_only_copy(store: Store) -> None:
    local_path(store, "t").unlink()


@damage(Kind.FILE_SHORT)
def file_cut_that_is_cold_too(store: Store) -> None:
    path = local_path(store, "s")
    path.chmod(0o600)
    os.truncate(path, 2)
    path.chmod(0o440)


# The bucket


@damage(Kind.OBJECT_MISSING, cold=True)
def object_gone_that_is_local_too(store: Store) -> None:
    cold_path(store, "s").unlink()


@damage(Kind.OBJECT_MISSING, cold=True, lost=True)
def object_gone_that_was_the_only_copy(store: Store) -> None:
    cold_path(store, "c").unlink()


@damage(Kind.OBJECT_DIFFERS, cold=True)
def object_of_another_length(store: Store) -> None:
    path = cold_path(store, "s")
    path.chmod(0o600)
    path.write_bytes(b"x")


@damage(Kind.JOURNAL, cold=True)
def slot_gone(store: Store) -> None:
    with store.metadata.read() as txn:
        (store.paths.cold / slot_name(txn.store.journal.next_slot - 2)).unlink()


@damage(Kind.JOURNAL, cold=True, mended=False)
def newest_slot_gone(store: Store) -> None:
    """So does a cold tier look that was put back to an earlier copy: nothing is written there."""
    with store.metadata.read() as txn:
        (store.paths.cold / slot_name(txn.store.journal.next_slot - 1)).unlink()


@damage(Kind.JOURNAL, cold=True)
def slot_damaged(store: Store) -> None:
    with store.metadata.read() as txn:
        flip(store.paths.cold / slot_name(txn.store.journal.next_slot - 2), -1)


@damage(Kind.JOURNAL, cold=True)
def checkpoint_gone(store: Store) -> None:
    store.cold_work().tools.checkpointer.checkpoint()
    with store.metadata.read() as txn:
        (store.paths.cold / checkpoint_name(txn.store.journal.checkpoint_slot)).unlink()


@damage(Kind.JOURNAL, cold=True)
def part_of_a_checkpoint_damaged(store: Store) -> None:
    store.cold_work().tools.checkpointer.checkpoint()
    (part,) = (store.paths.cold / "journal").glob("checkpoint-*.part-*")
    flip(part, -1)


# Bytes


@damage(Kind.BYTES, deep=True)
def bit_of_a_file_that_is_cold_too(store: Store) -> None:
    flip(local_path(store, "s"), 1)


@damage(Kind.BYTES, deep=True)
def bit_of_an_object_that_is_local_too(store: Store) -> None:
    flip(cold_path(store, "s"), 1)


@damage(Kind.BYTES, deep=True, lost=True)
def bit_of_the_only_copy_in_a_file(store: Store) -> None:
    flip(local_path(store, "t"), 1)


@damage(Kind.BYTES, deep=True, lost=True)
def bit_of_the_only_copy_in_an_object(store: Store) -> None:
    flip(cold_path(store, "c"), 1)
