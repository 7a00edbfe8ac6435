"""Sums over all rows are kept by every change, and counted where an older tierfs kept none."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.app.recovery.verbs import VERBS, Life
from tests.stores import TestStore
from tierfs.base.words.types import ByteRange, ChunkState, PayloadEncoding, Tier
from tierfs.engine.metadata import chains, directories, policies, tables
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.environment import open_environment
from tierfs.engine.metadata.records import GarbageRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.sums import SUMS_KEY, Sums, recount
from tierfs.engine.metadata.tables import CHUNKS, OBJECTS, SEGMENTS, STORE, TOUCHES
from tierfs.upkeep.check.findings import Kind
from tierfs.upkeep.check.metadata import check_metadata
from tierfs.upkeep.check.object_table import ObjectTable
from tierfs.upkeep.check.segments import Totals
from tierfs.upkeep.holder.status import StoreStatus, store_status


def kept(store: TestStore) -> Sums | None:
    with store.metadata.read() as txn:
        return txn.sums


def counted(metadata: MetadataStore) -> Sums:
    with metadata.read() as txn:
        return recount(txn.scan_raw)


def status(store: TestStore) -> StoreStatus:
    return store_status(store.metadata, store.files, store.paths.holder, store.path, allowed="")


def write_as_older_tierfs(store: TestStore, *, forget: bool = False) -> None:
    """Make a commit that keeps no sums; `forget`: as if there had never been any."""
    environment = open_environment(store.metadata.path)
    with environment.lmdb.begin(write=True) as txn:
        txn.put(b"x", b"y", db=environment.databases[b"batches"])
        if forget:
            txn.delete(SUMS_KEY, db=environment.databases[STORE.name])


@pytest.mark.parametrize("compression", ["off", "zstd"])
def test_sums_are_those_of_the_rows_whatever_is_done(store: TestStore, compression: str) -> None:
    with store.metadata.write() as txn:
        policies.change(txn, "", put_settings={"compression": compression})
    life = Life(store, random.Random(5))
    for _ in range(120):
        life.run(1, VERBS)
        assert kept(store) == counted(store.metadata)
    with store.metadata.read() as txn:
        made = [record for _, record in txn.scan(OBJECTS) if record.encoding is PayloadEncoding.ZSTD_FRAMES]
    assert bool(made) == (compression == "zstd")
    assert counted(store.metadata).compressed_bytes == sum(record.length for record in made)


def test_suspect_lost_and_failed_rows_are_counted(store: TestStore) -> None:
    store.append("s", b"abcdefgh", seal=True)
    store.offload("s")
    store.evict("s")
    with store.metadata.write() as txn:
        segment = directories.segment_by_name(txn, "s")
        segment = Editor(txn, segment).lose(ByteRange(2, 5)).segment
        txn.put(SEGMENTS, tables.u64(segment.id), segment)
        last = chains.chunk_at(txn, segment.id, Tier.COLD, 7)
        assert last is not None
        key = tables.chunk(segment.id, Tier.COLD, last.start_offset)
        txn.put(CHUNKS, key, replace(last, state=ChunkState.SUSPECT))
        chains.add_garbage(txn, GarbageRecord(due_ms=1, tier=Tier.LOCAL, name="x", length=7, last_error="no"))
    sums = kept(store)
    assert sums is not None
    assert (sums.lost_bytes, sums.suspect_cold_bytes, sums.garbage_failed) == (3, 3, 1)
    assert sums.not_offloaded_bytes == 0
    assert sums == counted(store.metadata)
    assert status(store).garbage_errors == ("no",)


def test_a_store_of_an_older_tierfs_is_counted_while_it_is_written(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tierfs.engine.metadata.transaction._COUNTED_PER_COMMIT", 2)
    life = Life(store, random.Random(6))
    life.run(40, VERBS)
    write_as_older_tierfs(store, forget=True)
    assert kept(store) is None
    before = status(store)
    rows = counted(store.metadata)
    assert (before.bytes + before.trash.bytes, before.local.bytes) == (rows.bytes, rows.local_bytes)
    commits = 0
    while kept(store) is None:
        life.run(1, VERBS)
        commits += 1
    assert commits > 1
    assert kept(store) == counted(store.metadata)


def test_a_chunk_that_an_append_fills_is_reported(store: TestStore) -> None:
    """The holder has to plan it, and an append that fills a chunk does not report it."""
    writer = store.engine.open_writer("s")
    writer.append(b"ab")
    with store.metadata.read() as txn:
        before = txn.store.next_change
    writer.append(b"cd")
    with store.metadata.read() as txn:
        reported = [touch.segment_id for _, touch in txn.scan(TOUCHES, tables.u64(before))]
    assert store.segment("s").id in reported


def test_check_finds_wrong_sums(store: TestStore) -> None:
    store.append("s", b"abc", seal=True)
    with store.metadata.write() as txn:
        txn._tally.values[2] += 7
        txn.touch(segment_id=1)
    with store.metadata.read() as txn:
        findings = list(check_metadata(txn, ObjectTable(), Totals()))
    assert [(finding.kind, finding.message) for finding in findings] == [
        (Kind.SUMS, "local_bytes is 10, but the rows add up to 3")
    ]
    store.metadata.count_sums(anew=True)
    assert kept(store) == counted(store.metadata)


def test_since_when_bytes_are_here_alone(store: TestStore) -> None:
    began_ms = store.clock.now_ms()
    store.append("s", b"abcd", seal=True)
    store.clock.advance(60)  # type: ignore[attr-defined]
    store.append("t", b"abcd", seal=True)
    assert status(store).backlog.oldest_ms == began_ms
    assert status(store).backlog.pending_bytes == 8
    with store.metadata.write_notes() as txn:
        txn.note_oldest(began_ms + 60_000)
    assert status(store).backlog.oldest_ms == began_ms + 60_000
    store.offload()
    assert status(store).backlog.oldest_ms == 0
