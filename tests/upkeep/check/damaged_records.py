"""Damages of records by name: what each does to a store, what the check says of it, and whether --repair mends it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

from tests.upkeep.check.damage import Damages, chunk_of, holder_of, put_segment, segment_of
from tierfs.app.store import Store
from tierfs.base.words.types import (
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
from tierfs.engine.chunkstore.local_files import file_name
from tierfs.engine.metadata import batches, chains, directories, tables
from tierfs.engine.metadata.batch_records import BatchRecord
from tierfs.engine.metadata.records import (
    ChecksumRun,
    DirectoryRecord,
    DirentRecord,
    GarbageRecord,
    IntentRecord,
    ObjectRecord,
    PolicyRecord,
    TierState,
)
from tierfs.engine.metadata.tables import (
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
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.segments.bulk_create import WholeSegment
from tierfs.upkeep.check.findings import Kind

NOBODY = 999
RUN = ChecksumRun(start=0, crcs=b"\0\0\0\1")
APP, APP_KEY = BatchRecord(application="app", batch="1"), batches.key("app", 2)

DAMAGES = Damages()


def damage(name: str, kind: Kind, change: Callable[[WriteTransaction], object], **marks: bool) -> None:
    """Enter a damage that is done in one transaction."""

    def do(store: Store) -> None:
        with store.metadata.write() as txn:
            change(txn)

    do.__name__ = name
    DAMAGES.add(kind, **marks)(do)


def changed(name: str, tier: Tier, number: int = 0, **fields: Any) -> Callable[[WriteTransaction], None]:
    """Change a chunk's row."""

    def change(txn: WriteTransaction) -> None:
        key, chunk = chunk_of(txn, name, tier, number)
        txn.put(CHUNKS, key, replace(chunk, **fields))

    return change


def without(name: str, tier: Tier, table: str) -> Callable[[WriteTransaction], None]:
    """Take the row of a segment's first chunk away, that of its object or its checksums."""

    def change(txn: WriteTransaction) -> None:
        if table == "chunk":
            txn.delete(CHUNKS.name, chunk_of(txn, name, tier)[0])
        elif table == "object":
            txn.delete(OBJECTS.name, tables.u64(holder_of(txn, name, tier).id))
        else:
            txn.delete(CHECKSUMS.name, tables.pair(holder_of(txn, name, tier).id, 0))

    return change


def segment(name: str, **fields: Any) -> Callable[[WriteTransaction], None]:
    """Change a segment's record."""
    return lambda txn: put_segment(txn, replace(segment_of(txn, name), **fields))


def garbage(**fields: Any) -> Callable[[WriteTransaction], None]:
    """Queue garbage that is not due."""
    return lambda txn: chains.add_garbage(txn, GarbageRecord(**{"due_ms": 2**50, "tier": Tier.LOCAL, **fields}))


def dirent(name: str, number: Callable[[WriteTransaction], int]) -> Callable[[WriteTransaction], None]:
    """Give a segment a name in the root."""
    return lambda txn: txn.put(
        DIRENTS, tables.dirent(ROOT_DIRECTORY, name), DirentRecord(kind=EntryKind.SEGMENT, id=number(txn))
    )


def nameless(name: str) -> Callable[[WriteTransaction], object]:
    return lambda txn: txn.delete(DIRENTS.name, tables.dirent(ROOT_DIRECTORY, name))


def recordless(txn: WriteTransaction) -> None:
    txn.delete(SEGMENTS.name, tables.u64(segment_of(txn, "s").id))


def in_a_circle(txn: WriteTransaction) -> None:
    for one, other in ((901, 902), (902, 901)):
        parent, name = DirectoryId(other), f"c{one}"
        record = DirectoryRecord(id=DirectoryId(one), parent_id=parent, name=name, inode=Inode(one))
        txn.put(DIRECTORIES, tables.u64(one), record)
        txn.put(DIRENTS, tables.dirent(parent, name), DirentRecord(kind=EntryKind.DIRECTORY, id=one))
    txn.update_store(next_id=2000)


def sums_wrong(txn: WriteTransaction) -> None:
    txn._tally.values[5] += 1
    txn.touch()


def intent_in_use(txn: WriteTransaction) -> None:
    intent = IntentRecord(
        attempt=AttemptId("a" * 32),
        location_id=LocationId(1),
        name=holder_of(txn, "c", Tier.COLD).name,
        segment_id=SegmentId(1),
        start_offset=0,
        end_offset=4,
    )
    txn.put(INTENTS, intent.attempt.encode(), intent)


def orphaned(txn: WriteTransaction) -> None:
    recordless(txn)
    nameless("s")(txn)


def references_too_many(txn: WriteTransaction) -> None:
    holder = holder_of(txn, "s", Tier.COLD)
    txn.put(OBJECTS, tables.u64(holder.id), replace(holder, references=7))


def committed_twice(txn: WriteTransaction) -> None:
    batches.commit(txn, APP)
    txn.put(BATCHES, APP_KEY, APP)


def low_garbage(txn: WriteTransaction) -> None:
    garbage(name="00/1-0-ffffffffffffffff")(txn)
    txn.update_store(next_garbage=0)


UNREADABLE = b"\xff\xff\xff"
COLD = {"tier": Tier.COLD, "location_id": LocationId(1)}

# Counters, names and records
damage("next_id_too_low", Kind.COUNTER, lambda txn: txn.update_store(next_id=3))
damage("next_garbage_too_low", Kind.COUNTER, low_garbage)
damage("sums_wrong", Kind.SUMS, sums_wrong)
damage("name_of_a_segment_gone", Kind.DIRENT_MISSING, nameless("s"))
damage("name_of_a_directory_gone", Kind.DIRENT_MISSING, nameless("d"))
damage("name_of_nothing", Kind.DIRENT_DANGLING, dirent("x", lambda _: NOBODY))
damage("second_name_of_a_segment", Kind.DIRENT_WRONG, dirent("x", lambda txn: segment_of(txn, "s").id))
damage("record_of_a_segment_gone", Kind.DIRENT_DANGLING, recordless, mended=False)
damage(
    "record_of_a_segment_unreadable",
    Kind.RECORD,
    lambda txn: txn.put_raw(SEGMENTS.name, tables.u64(segment_of(txn, "s").id), UNREADABLE),
    mended=False,
)
damage(
    "record_of_a_chunk_unreadable",
    Kind.RECORD,
    lambda txn: txn.put_raw(CHUNKS.name, chunk_of(txn, "s", Tier.LOCAL)[0], UNREADABLE),
    mended=False,
)
damage("directories_in_a_circle", Kind.DIRECTORY_CYCLE, in_a_circle, mended=False)
damage(
    "two_segments_with_one_inode",
    Kind.INODE,
    lambda txn: put_segment(txn, replace(segment_of(txn, "s"), inode=segment_of(txn, "t").inode)),
    mended=False,
)
damage("batch_under_another_key_too", Kind.RECORD, committed_twice)
damage("batch_under_another_key", Kind.RECORD, lambda txn: txn.put(BATCHES, APP_KEY, APP), mended=False)
damage("batch_that_is_no_record", Kind.RECORD, lambda txn: txn.put_raw(BATCHES.name, APP_KEY, b"\xff"), mended=False)

# Chains and objects
damage(
    "sums_of_the_local_chain_wrong",
    Kind.CHAIN_STATE,
    lambda txn: segment("s", local=replace(segment_of(txn, "s").local, bytes=7, count=1))(txn),
)
damage("head_of_the_cold_chain_wrong", Kind.CHAIN_STATE, segment("c", cold=TierState()))
damage("pointer_of_a_chunk_wrong", Kind.CHAIN_LIST, changed("s", Tier.LOCAL, next=0))
damage("last_chunk_points_on", Kind.CHAIN_LIST, changed("c", Tier.COLD, -1, next=1000))
damage("active_flag_without_its_end", Kind.ACTIVE, segment("s", active=True))
damage("references_too_many", Kind.REFERENCES, references_too_many)
damage("chunk_row_gone_but_not_its_file", Kind.HOLE, without("t", Tier.LOCAL, "chunk"), mended=False)
damage("object_row_of_a_local_chunk_gone", Kind.CHUNK_OBJECT, without("s", Tier.LOCAL, "object"))
damage("object_row_of_the_only_copy_gone", Kind.CHUNK_OBJECT, without("c", Tier.COLD, "object"), mended=False)
damage("chunk_beyond_its_object", Kind.CHUNK_RANGE, changed("s", Tier.LOCAL, object_offset=2))
damage("chunks_of_a_segment_that_is_gone", Kind.CHUNK_ORPHAN, orphaned, mended=False)
damage("checksums_of_no_object", Kind.CHECKSUM_ORPHAN, lambda txn: txn.put(CHECKSUMS, tables.pair(NOBODY, 0), RUN))
damage("checksums_of_a_file_gone", Kind.CHECKSUM_GAP, without("t", Tier.LOCAL, "checksums"))
damage("checksums_of_an_object_gone", Kind.CHECKSUM_GAP, without("c", Tier.COLD, "checksums"))
damage("suspect_mark_on_good_bytes", Kind.SUSPECT, changed("s", Tier.COLD, state=ChunkState.SUSPECT))

# Policies and queues
damage(
    "policy_of_nothing",
    Kind.POLICY,
    lambda txn: txn.put(POLICIES, tables.u64(NOBODY), PolicyRecord(target_id=NOBODY, settings={"chunk_bytes": "4"})),
)
damage("intent_that_names_an_object_in_use", Kind.INTENT, intent_in_use)
damage(
    "garbage_that_names_an_object_in_use",
    Kind.GARBAGE,
    lambda txn: garbage(**COLD, due_ms=1, name=holder_of(txn, "c", Tier.COLD).name)(txn),
)
damage("garbage_that_leads_out_of_the_chunk_directory", Kind.GARBAGE, garbage(name="../../precious"))
damage("garbage_that_is_no_object_of_tierfs", Kind.GARBAGE, garbage(**COLD, name="journal/00000000000000000001"))
damage(
    "change_missing_from_the_outbox",
    Kind.OUTBOX,
    lambda txn: txn.delete(OUTBOX_NAME, tables.u64(txn.store.next_outbox - 1)),
)


@DAMAGES.add(Kind.COUNTER)
def next_id_not_above_a_commit(store: Store) -> None:
    """Of two segments made at once, only the number of the second's commit is newer than the second."""
    with closing(store.engine.bulk_creator()) as bulk:
        bulk.create([WholeSegment(f"bulk/{number}", b"") for number in range(2)], seal=True)
    with store.metadata.write() as txn:
        newest = directories.segment_by_name(txn, "bulk/1").commit_id
        assert txn.store.next_id == newest + 1
        txn.update_store(next_id=newest)


@DAMAGES.add(Kind.OBJECT_UNUSED)
def object_that_no_chunk_needs(store: Store) -> None:
    with store.metadata.write() as txn:
        name = file_name(segment_of(txn, "s").id, 0, AttemptId("e" * 32))
        holder = ObjectRecord(id=ObjectId(900), tier=Tier.LOCAL, name=name, length=4, references=1, crc32c=1)
        txn.put(OBJECTS, tables.u64(900), holder)
        txn.put(CHECKSUMS, tables.pair(900, 0), RUN)
        txn.update_store(next_id=2000)
    path = store.files.root / name
    path.write_bytes(b"late")
    path.chmod(0o440)
