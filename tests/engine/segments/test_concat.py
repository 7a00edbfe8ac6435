"""Concat: layouts of both tiers, and readers, writers and offloads that are not disturbed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.scripted_storage import ScriptedStorage
from tests.stores import TestStore, assert_layout, open_test_store
from tierfs.base.words.errors import Conflict, OffsetMismatch
from tierfs.base.words.types import ByteRange, Tier
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.tables import CHUNKS, OBJECTS, SEGMENTS
from tierfs.engine.segments.concat import concat
from tierfs.engine.segments.writer_locks import WriterLocks


def chunked(store: TestStore, name: str, lengths: list[int], letter: bytes) -> bytes:
    """A segment whose local chunks have these lengths."""
    store.append(name, b"")
    for length in lengths:
        store.append(name, letter * length)
        store.engine.roll(store.segment(name).id)
    return letter * sum(lengths)


LAYOUTS = [
    ([10], [1, 2, 3, 4, 5]),
    ([1, 2, 3, 4, 5], [10]),
    ([1, 2], [3, 4, 5, 6, 7]),
    ([10], [15]),
    ([1], [21, 21, 21]),
    ([30], [29, 2]),
    ([10], []),
    ([], [10]),
    ([], []),
]


@pytest.mark.parametrize(("target", "source"), LAYOUTS)
@pytest.mark.parametrize("state", ["local", "cold", "both"])
def test_chunks_of_both_come_one_behind_the_other(
    tmp_path: Path, target: list[int], source: list[int], state: str
) -> None:
    sizes = {"chunk_bytes": "1024", "object_bytes": "1"}
    with open_test_store(tmp_path / "store", policy=sizes) as store:
        data = chunked(store, "t", target, b"t")
        data += chunked(store, "s", source, b"s")
        chunked(store, "behind", [1], b"u")  # nothing can be appended to the tables
        store.engine.seal("s")
        if state != "local":
            store.offload()
        if state == "cold":
            store.evict()
        before = store.segment("t")
        store.clock.advance(1)
        done = store.engine.concat("t", "s")
        joined = [*target, *source]
        assert done.range == ByteRange(sum(target), sum(joined))
        assert_layout(store, "t", local=joined if state != "cold" else [], cold=joined if state != "local" else [])
        assert store.read("t") == data
        assert (store.segment("t").modified_ms == before.modified_ms) is (not source)
        with store.metadata.read() as txn:
            assert directories.find(txn, "s") is None
            assert txn.count(SEGMENTS.name) == 2
            assert txn.count(CHUNKS.name) == (len(joined) + 1) * (2 if state == "both" else 1)
        store.append("t", b"y")
        assert store.read("t") == data + b"y"


@pytest.mark.parametrize("start", [0, 1, 2, 4, 5, 7, 8, 9, 11, 12])
@pytest.mark.parametrize("state", ["local", "cold", "both"])
@pytest.mark.parametrize("target_start", [0, 5])
def test_a_truncated_source_is_cut_to_its_range_in_each_tier(
    store: TestStore, start: int, state: str, target_start: int
) -> None:
    store.append("t", b"01234")
    store.append("s", b"abcdefghijkl", seal=True)
    if state != "local":
        store.offload("s")
    if state == "cold":
        store.evict("s")
    store.engine.truncate("s", start, cold_due_ms=0)
    store.engine.truncate("t", target_start, cold_due_ms=0)
    done = store.engine.concat("t", "s")
    data = (b"01234" + b"abcdefghijkl"[start:])[target_start:]
    assert done.range == ByteRange(5, 17 - start)
    assert (store.segment("t").start_offset, store.segment("t").length) == (target_start, 17 - start)
    assert store.read("t")[target_start:] == data
    for tier in Tier:
        placed = [chunk for chunk in store.layout("t").chunks(tier) if chunk.range.start >= 5]
        assert not placed or placed[0].range.start == 5
    store.offload()
    store.evict()
    assert store.segment("t").local.count == 0
    assert store.read("t")[target_start:] == data


def test_a_live_writer_of_the_target_elsewhere_is_a_conflict(store: TestStore) -> None:
    store.append("s", b"abc", seal=True)
    writer = store.engine.open_writer("t")
    writer.append(b"xyz")
    other = WriterLocks(store.path / "writers")
    try:
        with pytest.raises(Conflict, match="is being written by process"):
            concat(store.metadata, other, "t", "s")
    finally:
        other.close()
    assert store.segment("s").sealed


def test_the_writer_of_this_process_goes_on_at_the_new_end(store: TestStore) -> None:
    store.append("s", b"abc", seal=True)
    writer = store.engine.open_writer("t")
    writer.append(b"xy")
    ended = store.files.root / store.layout("t").local[0].object.name
    store.engine.concat("t", "s")
    assert ended.stat().st_mode & 0o777 == 0o440
    assert not store.segment("t").active
    with pytest.raises(OffsetMismatch, match="its length is 5"):
        writer.append(b"z", expected_offset=2)
    assert writer.append(b"z") == ByteRange(5, 6)
    assert_layout(store, "t", local=[2, 3, 1], cold=[])
    assert store.read("t") == b"xyabcz"


@pytest.mark.parametrize("path", ["a", "a/t"], ids=["of the source", "of the target"])
def test_an_offload_command_follows_its_bytes_to_the_target(
    store: TestStore, storage: ScriptedStorage, path: str
) -> None:
    store.append("a/s", b"abcdefgh", seal=True)
    store.append("a/t", b"01")
    storage.do("put", lambda: store.engine.concat("a/t", "a/s"), of="segments/")
    store.offload(path)
    store.offload(path)
    assert store.read("a/t", Tier.COLD) == b"01abcdefgh"


@pytest.mark.parametrize("before", [0, 1, 2, 4, 6, 8, 12])
def test_an_offload_of_a_head_that_is_cut_meanwhile(store: TestStore, storage: ScriptedStorage, before: int) -> None:
    store.append("s", b"abcdefghijkl", seal=True)
    storage.do("put", lambda: store.engine.truncate("s", before, cold_due_ms=0), of="segments/")
    store.offload()
    assert store.read("s", Tier.COLD)[before:] == b"abcdefghijkl"[before:]
    store.clock.advance(7200)
    store.settle()
    with store.metadata.read() as txn:
        named = {row.name for _, row in txn.scan(OBJECTS) if row.tier is Tier.COLD}
    assert {stored.name for stored in storage.list("segments/")} == named
