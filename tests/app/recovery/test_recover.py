"""After total loss of the local disk: what was cold comes back, and what was not is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.app.recovery.recovering import recovered
from tests.stores import TestStore, assert_layout
from tierfs.app.recovery import loss
from tierfs.base.words.errors import DataLoss, Fenced, OffsetMismatch
from tierfs.base.words.types import ByteRange, ChunkState, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.engine.journal.names import checkpoint_name, part_of, slot_name
from tierfs.engine.journal.objects import read_small
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata import chains, changes, directories, frames, tables
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.tables import CHUNKS, GARBAGE, SEGMENTS


def checkpoint(store: TestStore) -> int:
    return store.cold_work().checkpointer.checkpoint()


def damage(cold: ChunkStorage, name: str, at: int = -1) -> None:
    """Change one byte of an object."""
    data = bytearray(read_small(cold, name))
    data[at] ^= 1
    cold.delete(name)
    cold.put(name, BufferSource(bytes(data)))


def copy_of(cold: ChunkStorage, *, without: str = "") -> MemoryStorage:
    """The bucket as it is now."""
    copy = MemoryStorage()
    for found in list(cold.list("")):
        if found.name != without:
            metadata = dict(cold.stat(found.name).metadata)
            copy.put(found.name, BufferSource(read_small(cold, found.name)), metadata=metadata)
    return copy


def test_cold_bytes_come_back_and_the_rest_is_told(store: TestStore, tmp_path: Path) -> None:
    """A recovered segment is another file, and goes on at its end; the owner before is fenced."""
    store.append("a/sealed", b"abcdefgh" * 3, seal=True)
    store.append("a/open", b"0123456789")
    store.append("a/cut", b"abcd")
    store.offload()
    before, sealed = store.segment("a/open"), store.segment("a/sealed")
    store.append("a/open", b"never cold")
    store.append("a/cut", b"never cold", seal=True)
    store.append("local", b"never cold either")
    store.settle()
    with recovered(tmp_path / "new", store.cold) as found:
        assert found.store.read("a/sealed") == b"abcdefgh" * 3
        assert found.store.read("a/open") == b"0123456789"
        assert found.store.segment("local").length == 0
        assert found.store.segment("a/sealed").inode == sealed.inode, "nothing of it is missing, and nothing can follow"
        assert found.store.segment("a/sealed").writer_epoch == sealed.writer_epoch
        assert set(found.losses) == {"a/open", "a/cut", "local"}
        assert (found.losses["a/cut"].cut_bytes, found.store.read("a/cut")) == (10, b"abcd")
        after = found.store.segment("a/open")
        assert after.inode != before.inode
        assert after.writer_epoch > before.writer_epoch
        assert after.recovered_ms == found.store.clock.now_ms()
        writer = found.store.engine.open_writer("a/open")
        with pytest.raises(OffsetMismatch):
            writer.append(b"x", expected_offset=20)
        assert writer.append(b"ijkl", expected_offset=10) == ByteRange(10, 14)
        found.store.engine.close_writer(writer)
        found.store.offload()
        assert found.store.read("a/open", Tier.COLD) == b"0123456789ijkl"
        store.append("s", b"late")
        with pytest.raises(Fenced):
            store.offload()


def test_a_segment_of_one_chunk_that_is_whole_is_not_decoded(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of a store of a million are so. One that lost a byte, or may, is settled."""
    for name in ("whole", "lost", "cut"):
        store.append(name, b"abcd", seal=True)
    store.append("open", b"abcd")
    store.append("two", b"abcdefghij", seal=True)
    store.offload()
    with store.metadata.write() as txn:
        txn.put(SEGMENTS, tables.u64(store.segment("cut").id), replace(store.segment("cut"), length=5))
        (chunk,) = chains.chunks(txn, store.segment("lost").id, Tier.COLD)
        lost = replace(chunk, state=ChunkState.LOST)
        txn.put(CHUNKS, tables.chunk(store.segment("lost").id, Tier.COLD, 0), lost)
    decoded, decode = list[str](), SEGMENTS.codec.decode

    def counted(data: bytes) -> SegmentRecord:
        record = decode(data)
        decoded.append(record.name)
        return record

    monkeypatch.setattr(SEGMENTS.codec, "decode", counted)
    settled = {each.segment: each for each in loss.settle(store.metadata, grace_ms=0)}
    assert sorted(decoded) == ["cut", "lost", "open", "two"]
    assert [name for name, each in sorted(settled.items()) if each.is_whole] == ["two", "whole"]
    assert (settled["cut"].cut_bytes, settled["lost"].lost) == (1, (ByteRange(0, 4),))
    assert settled["whole"] == loss.SegmentLoss("whole", 0, 4, sealed=True, cut_bytes=0, lost=())


def test_a_gap_becomes_a_lost_extent_and_the_next_recovery_keeps_it(store: TestStore, tmp_path: Path) -> None:
    store.append("s", b"abcdefgh", b"ijklmnop", b"qrstuvwx", seal=True)
    store.offload()
    with store.metadata.write() as txn:
        segment = directories.segment_by_name(txn, "s")
        middle = chains.chunk_at(txn, segment.id, Tier.COLD, 8)
        assert middle is not None
        after = changes.cold_unlinked(txn, segment.id, [middle.start_offset])
        due_ms = txn.now_ms + 1000
        changed = Editor(txn, segment).remove(Tier.COLD, [middle], due_ms=due_ms, after_sequence=after).segment
        txn.put(SEGMENTS, tables.u64(segment.id), changed)
    store.settle()
    with recovered(tmp_path / "new", store.cold) as found:
        assert found.losses["s"].lost == (ByteRange(8, 16),)
        assert found.losses["s"].length == 24
        assert found.store.read("s") == b"abcdefgh" + bytes(8) + b"qrstuvwx"
    with recovered(tmp_path / "again", store.cold) as again:
        assert again.losses["s"].lost == (ByteRange(8, 16),)
        assert again.store.segment("s").cold.count == 3


def test_a_concat_that_ended_in_a_merged_chunk_is_cut_back(store: TestStore, tmp_path: Path) -> None:
    store.append("target", b"abcdefgh")
    store.offload()
    segment = store.segment("target")
    with store.metadata.write() as txn:
        chunk = chains.chunk_at(txn, segment.id, Tier.COLD, 0)
        assert chunk is not None
        changes.segment_changed(txn, chains.replace(segment, length=5))
    Publisher(store.metadata, store.cold).publish()
    with recovered(tmp_path / "new", store.cold) as found:
        assert_layout(found.store, "target", local=[], cold=[5])
        assert found.store.read("target") == b"abcde"
    with recovered(tmp_path / "again", store.cold) as again:
        assert_layout(again.store, "target", local=[], cold=[5])


def test_a_segment_that_ends_earlier_has_no_joins_behind_its_end(store: TestStore, tmp_path: Path) -> None:
    store.append("t", b"abcd")
    store.append("s", b"efgh", seal=True)
    store.append("lost", b"ij", seal=True)
    store.offload("t")
    store.offload("s")
    for source in ("s", "lost"):
        store.engine.concat("t", source)
    Publisher(store.metadata, store.cold).publish()
    with recovered(tmp_path / "new", store.cold) as found:
        assert (found.store.segment("t").length, [*found.store.segment("t").joins.names]) == (8, ["s"])


def test_queued_garbage_is_deleted_by_the_next_owner(store: TestStore, tmp_path: Path) -> None:
    store.append("s", b"abcdefgh", seal=True)
    store.append("kept", b"abcdefgh", seal=True)
    store.offload()
    store.engine.delete("s", recursive=False, cold_due_ms=store.clock.now_ms() + 3_600_000)
    store.settle()
    for name in ("from entries", "from a checkpoint"):
        with recovered(tmp_path / name, store.cold) as found, found.store.metadata.read() as txn:
            queued = [row for _, row in txn.scan(GARBAGE)]
            assert [row.name.split("/")[1] for row in queued] == ["s"]
            checkpoint(found.store)
    found.store.clock.advance(7200)
    with recovered(tmp_path / "last", store.cold) as found:
        found.store.clock.advance(7200)
        found.store.settle()
        assert [item.name.split("/")[1] for item in store.cold.list("segments/")] == ["kept"]


@pytest.mark.parametrize("harm", ["manifest", "part", "missing part"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(store: TestStore, tmp_path: Path, harm: str) -> None:
    store.append("s", b"abcdefgh", seal=True)
    store.offload()
    first = checkpoint(store)
    store.append("t", b"ijkl", seal=True)
    store.offload()
    second = checkpoint(store)
    part = next(
        item.name for item in store.cold.list("journal/") if part_of(item.name or "") and f"{second}." in item.name
    )
    if harm == "missing part":
        store.cold.delete(part)
    else:
        damage(store.cold, part if harm == "part" else checkpoint_name(second))
    with recovered(tmp_path / "new", store.cold) as found:
        assert found.checkpoint_slot == first
        assert len(found.warnings) == 1
        assert f"checkpoint {second}" in found.warnings[0]
        assert found.store.read("t") == b"ijkl"


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_a_missing_or_damaged_slot_is_refused_naming_the_way_out(store: TestStore, tmp_path: Path, harm: str) -> None:
    for name in ("s", "t", "u"):
        store.append(name, b"abcdefgh", seal=True)
        store.offload()
    cold = copy_of(store.cold, without=slot_name(2) if harm == "missing" else "")
    if harm == "damaged":
        damage(cold, slot_name(2))
    with pytest.raises(DataLoss, match=r"slot 2|0002") as refused, recovered(tmp_path / harm, cold):
        pass
    assert "--from-objects" in (refused.value.remedy or "")


def test_a_journal_of_a_newer_tierfs_is_not_taken_for_damage(store: TestStore, tmp_path: Path) -> None:
    """Its checkpoints are refused by their format, and the entries before them are gone, as they are due to be."""
    store.append("s", b"abcdefgh", seal=True)
    store.offload()
    cold = copy_of(store.cold, without=slot_name(1))
    newest = checkpoint_name(checkpoint(store))
    data = bytearray(read_small(store.cold, newest))
    data[len(frames.MAGIC) + 3] = 9
    cold.put(newest, BufferSource(bytes(data)))
    text = f"^{newest} has format version 9; .* is missing"
    with pytest.raises(DataLoss, match=text) as refused, recovered(tmp_path / "new", cold):
        pass
    assert refused.value.remedy == frames.UPGRADE
