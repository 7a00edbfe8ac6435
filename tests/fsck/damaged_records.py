"""Damages of records by name: what each does to a store, what fsck says of it, and whether --repair mends it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from tests.fsck.damage import Damages, chunk_of, holder_of, put_segment, segment_of
from tierfs.app.store import Store
from tierfs.chunkstore.local_files import file_name
from tierfs.fsck.findings import Kind
from tierfs.metadata import batches, chains, directories, tables
from tierfs.metadata.ledger_and_batch_records import BatchRecord
from tierfs.metadata.records import (
    ChecksumRun,
    DirectoryRecord,
    DirentRecord,
    GarbageRecord,
    IntentRecord,
    ObjectRecord,
    PolicyRecord,
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

DAMAGES = Damages()


@DAMAGES.add(Kind.COUNTER)
def next_id_too_low(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.update_store(next_id=3)


@DAMAGES.add(Kind.COUNTER)
def next_id_not_above_a_commit(store: Store) -> None:
    """Of two segments made at once, only the number of the second's commit is newer than the second."""
    with closing(store.engine.bulk_creator()) as bulk:
        bulk.create([WholeSegment(f"bulk/{number}", b"") for number in range(2)], seal=True)
    with store.metadata.write() as txn:
        newest = directories.segment_by_name(txn, "bulk/1").commit_id
        assert txn.store.next_id == newest + 1
        txn.update_store(next_id=newest)


@DAMAGES.add(Kind.COUNTER)
def next_garbage_too_low(store: Store) -> None:
    with store.metadata.write() as txn:
        garbage = GarbageRecord(due_ms=2**50, tier=Tier.LOCAL, name="00/1-0-ffffffffffffffff")
        chains.add_garbage(txn, garbage)
        txn.update_store(next_garbage=0)


@DAMAGES.add(Kind.SUMS)
def sums_wrong(store: Store) -> None:
    with store.metadata.write() as txn:
        txn._tally.values[5] += 1
        txn.touch()


@DAMAGES.add(Kind.DIRENT_MISSING)
def name_of_a_segment_gone(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.delete(DIRENTS.name, tables.dirent(ROOT_DIRECTORY, "s"))


@DAMAGES.add(Kind.DIRENT_MISSING)
def name_of_a_directory_gone(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.delete(DIRENTS.name, tables.dirent(ROOT_DIRECTORY, "d"))


@DAMAGES.add(Kind.DIRENT_DANGLING)
def name_of_nothing(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.put(DIRENTS, tables.dirent(ROOT_DIRECTORY, "x"), DirentRecord(kind=EntryKind.SEGMENT, id=NOBODY))


@DAMAGES.add(Kind.DIRENT_WRONG)
def second_name_of_a_segment(store: Store) -> None:
    with store.metadata.write() as txn:
        record = DirentRecord(kind=EntryKind.SEGMENT, id=segment_of(txn, "s").id)
        txn.put(DIRENTS, tables.dirent(ROOT_DIRECTORY, "x"), record)


@DAMAGES.add(Kind.DIRENT_DANGLING, mended=False)
def record_of_a_segment_gone(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.delete(SEGMENTS.name, tables.u64(segment_of(txn, "s").id))


@DAMAGES.add(Kind.RECORD, mended=False)
def record_of_a_segment_unreadable(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.put_raw(SEGMENTS.name, tables.u64(segment_of(txn, "s").id), b"\xff\xff\xff")


@DAMAGES.add(Kind.RECORD, mended=False)
def record_of_a_chunk_unreadable(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.put_raw(CHUNKS.name, chunk_of(txn, "s", Tier.LOCAL)[0], b"\xff\xff\xff")


@DAMAGES.add(Kind.DIRECTORY_CYCLE, mended=False)
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


@DAMAGES.add(Kind.INODE, mended=False)
def two_segments_with_one_inode(store: Store) -> None:
    with store.metadata.write() as txn:
        put_segment(txn, replace(segment_of(txn, "s"), inode=segment_of(txn, "t").inode))


@DAMAGES.add(Kind.CHAIN_STATE)
def sums_of_the_local_chain_wrong(store: Store) -> None:
    with store.metadata.write() as txn:
        segment = segment_of(txn, "s")
        put_segment(txn, replace(segment, local=replace(segment.local, bytes=7, count=1)))


@DAMAGES.add(Kind.CHAIN_STATE)
def head_of_the_cold_chain_wrong(store: Store) -> None:
    with store.metadata.write() as txn:
        put_segment(txn, replace(segment_of(txn, "c"), cold=TierState()))


@DAMAGES.add(Kind.CHAIN_LIST)
def pointer_of_a_chunk_wrong(store: Store) -> None:
    with store.metadata.write() as txn:
        key, chunk = chunk_of(txn, "s", Tier.LOCAL)
        txn.put(CHUNKS, key, replace(chunk, next=0))


@DAMAGES.add(Kind.CHAIN_LIST)
def last_chunk_points_on(store: Store) -> None:
    with store.metadata.write() as txn:
        key, chunk = chunk_of(txn, "c", Tier.COLD, -1)
        txn.put(CHUNKS, key, replace(chunk, next=1000))


@DAMAGES.add(Kind.ACTIVE)
def active_flag_without_its_end(store: Store) -> None:
    with store.metadata.write() as txn:
        put_segment(txn, replace(segment_of(txn, "s"), active=True))


@DAMAGES.add(Kind.REFERENCES)
def references_too_many(store: Store) -> None:
    with store.metadata.write() as txn:
        holder = holder_of(txn, "s", Tier.COLD)
        txn.put(OBJECTS, tables.u64(holder.id), replace(holder, references=7))


@DAMAGES.add(Kind.OBJECT_UNUSED)
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


@DAMAGES.add(Kind.HOLE, mended=False)
def chunk_row_gone_but_not_its_file(store: Store) -> None:
    with store.metadata.write() as txn:
        key, _ = chunk_of(txn, "t", Tier.LOCAL)
        txn.delete(CHUNKS.name, key)


@DAMAGES.add(Kind.CHUNK_OBJECT)
def object_row_of_a_local_chunk_gone(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.delete(OBJECTS.name, tables.u64(holder_of(txn, "s", Tier.LOCAL).id))


@DAMAGES.add(Kind.CHUNK_OBJECT, mended=False)
def object_row_of_the_only_copy_gone(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.delete(OBJECTS.name, tables.u64(holder_of(txn, "c", Tier.COLD).id))


@DAMAGES.add(Kind.CHUNK_RANGE)
def chunk_beyond_its_object(store: Store) -> None:
    with store.metadata.write() as txn:
        key, chunk = chunk_of(txn, "s", Tier.LOCAL)
        txn.put(CHUNKS, key, replace(chunk, object_offset=2))


@DAMAGES.add(Kind.CHUNK_ORPHAN, mended=False)
def chunks_of_a_segment_that_is_gone(store: Store) -> None:
    with store.metadata.write() as txn:
        segment = segment_of(txn, "s")
        txn.delete(SEGMENTS.name, tables.u64(segment.id))
        txn.delete(DIRENTS.name, tables.dirent(ROOT_DIRECTORY, "s"))


@DAMAGES.add(Kind.CHECKSUM_ORPHAN)
def checksums_of_no_object(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.put(CHECKSUMS, tables.pair(NOBODY, 0), ChecksumRun(start=0, crcs=b"\0\0\0\1"))


@DAMAGES.add(Kind.CHECKSUM_GAP)
def checksums_of_a_file_gone(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.delete(CHECKSUMS.name, tables.pair(holder_of(txn, "t", Tier.LOCAL).id, 0))


@DAMAGES.add(Kind.CHECKSUM_GAP)
def checksums_of_an_object_gone(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.delete(CHECKSUMS.name, tables.pair(holder_of(txn, "c", Tier.COLD).id, 0))


@DAMAGES.add(Kind.POLICY)
def policy_of_nothing(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.put(POLICIES, tables.u64(NOBODY), PolicyRecord(target_id=NOBODY, settings={"chunk_bytes": "4"}))


@DAMAGES.add(Kind.RECORD)
def batch_under_another_key_too(store: Store) -> None:
    with store.metadata.write() as txn:
        batches.commit(txn, BatchRecord(application="app", batch="1"))
        txn.put(BATCHES, batches.key("app", 2), BatchRecord(application="app", batch="1"))


@DAMAGES.add(Kind.RECORD, mended=False)
def batch_under_another_key(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.put(BATCHES, batches.key("app", 2), BatchRecord(application="app", batch="1"))


@DAMAGES.add(Kind.RECORD, mended=False)
def batch_that_is_no_record(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.put_raw(BATCHES.name, batches.key("app", 2), b"\xff")


@DAMAGES.add(Kind.INTENT)
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


@DAMAGES.add(Kind.GARBAGE)
def garbage_that_names_an_object_in_use(store: Store) -> None:
    with store.metadata.write() as txn:
        name = holder_of(txn, "c", Tier.COLD).name
        garbage = GarbageRecord(due_ms=1, tier=Tier.COLD, location_id=LocationId(1), name=name)
        chains.add_garbage(txn, garbage)


@DAMAGES.add(Kind.GARBAGE)
def garbage_that_leads_out_of_the_chunk_directory(store: Store) -> None:
    with store.metadata.write() as txn:
        chains.add_garbage(txn, GarbageRecord(due_ms=2**50, tier=Tier.LOCAL, name="../../precious"))


@DAMAGES.add(Kind.GARBAGE)
def garbage_that_is_no_object_of_tierfs(store: Store) -> None:
    with store.metadata.write() as txn:
        name = "journal/00000000000000000001"
        chains.add_garbage(txn, GarbageRecord(due_ms=2**50, tier=Tier.COLD, location_id=LocationId(1), name=name))


@DAMAGES.add(Kind.OUTBOX)
def change_missing_from_the_outbox(store: Store) -> None:
    with store.metadata.write() as txn:
        txn.delete(OUTBOX_NAME, tables.u64(txn.store.next_outbox - 1))


@DAMAGES.add(Kind.SUSPECT)
def suspect_mark_on_good_bytes(store: Store) -> None:
    with store.metadata.write() as txn:
        key, chunk = chunk_of(txn, "s", Tier.COLD)
        txn.put(CHUNKS, key, replace(chunk, state=ChunkState.SUSPECT))
