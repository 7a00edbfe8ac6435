"""Chunk files that killed writers left: the next holder removes them, and no other file, a little at a time."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.stores import TestStore, open_test_store
from tests.tiering.garbage.test_orphans import between_write_and_commit
from tierfs.base.words.types import AttemptId, ByteRange, ChunkState, SegmentId, Tier
from tierfs.engine.chunkstore.local_files import file_name
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.tables import CHUNKS, OBJECTS, SEGMENTS
from tierfs.tiering.garbage import orphans
from tierfs.tiering.garbage.strays import GRACE_MS, MetadataMark
from tierfs.upkeep.holder.work import ColdWork

POLICY = {"chunk_bytes": "8"}

_KILLED = """
import os, sys
from pathlib import Path
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tests.doubles.manual_clock import ManualClock
from tierfs.base.options.config import WriteSettings
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.segments.engine import Engine
path, clock = Path(sys.argv[1]), ManualClock()
metadata, files = MetadataStore(path / "metadata", clock), ChunkFiles(path / "chunks")
engine = Engine(metadata, files, path / "writers", clock, WriteSettings())
writer = engine.open_writer("killed")
writer.append(b"kept")
os.fdatasync = lambda _: os._exit(9)
writer.append(b"never acknowledged")
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy=POLICY) as opened:
        opened.append("s", b"abcdefghij")
        walk(opened)  # without a stray: the mark is set
        yield opened


def walk(store: TestStore, work: ColdWork | None = None) -> int:
    """A walk of a new holder; return its steps."""
    work = work or store.cold_work()
    steps = 0
    while work.collect_strays():
        steps += 1
    return steps


def stray(store: TestStore, start: int = 10, segment_id: SegmentId | None = None, data: bytes = b"abc") -> str:
    """A file that no record names, which an append of `data` at `start` left an hour ago."""
    segment_id = store.segment("s").id if segment_id is None else segment_id
    name = file_name(segment_id, start, AttemptId(os.urandom(16).hex()))
    with open(store.files.create_file(name), "wb") as file:
        file.write(data)
    age(store, name)
    return name


def age(store: TestStore, name: str, by_ms: int = GRACE_MS) -> None:
    then_s = (store.clock.now_ms() - by_ms) / 1000
    os.utime(store.files.root / name, (then_s, then_s))


def files(store: TestStore) -> set[str]:
    return set(store.files.names())


def named(store: TestStore) -> set[str]:
    with store.metadata.read() as txn:
        return {row.name for _, row in txn.scan(OBJECTS) if row.tier is Tier.LOCAL}


def test_what_a_killed_append_left_is_removed_by_the_next_holder(store: TestStore) -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", _KILLED, str(store.path)], cwd=root, check=False)
    assert done.returncode == 9
    left = files(store) - named(store)
    assert left
    walk(store)
    assert left <= files(store), "younger than the grace period"
    for name in left:
        age(store, name)
    walk(store)
    assert files(store) == named(store)
    assert store.read("killed") == b"kept"


@pytest.mark.parametrize("age_ms", [GRACE_MS - 1000, GRACE_MS])
def test_only_old_files_are_removed(store: TestStore, age_ms: int) -> None:
    name = stray(store)
    age(store, name, age_ms)
    walk(store)
    assert (name in files(store)) == (age_ms < GRACE_MS)


def test_files_that_moved_with_their_chunks_stay_and_hide_no_stray(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans, "_MOST_UNNAMED", 2)
    monkeypatch.setattr(orphans, "_LOOKED_AT_TOGETHER", 2)
    for number in range(6):
        store.append(f"source{number}", b"0123456789", seal=True)
        store.engine.concat("s", f"source{number}")
    for name in files(store):
        age(store, name)
    kept = files(store)
    left = {stray(store, 70 + number) for number in range(5)}
    steps = walk(store)
    assert left.isdisjoint(files(store))
    assert files(store) == kept
    assert steps > 6 * 2, "in small steps"
    assert len(store.read("s")) == 70


def test_a_stray_of_offsets_that_were_written_again_is_removed(store: TestStore) -> None:
    name = stray(store, 0, data=b"abcdefgh")
    walk(store)
    assert name not in files(store)
    assert store.read("s") == b"abcdefghij"


@pytest.mark.parametrize("how", ["lost", "no chunk", "no object", "no segment"])
def test_a_file_that_may_hold_what_no_chunk_holds_stays(store: TestStore, how: str) -> None:
    """The rows of some bytes are gone, or say that they are lost: the file may be all that is left."""
    segment = store.segment("s")
    (first, second) = store.layout("s").local
    with store.metadata.write() as txn:
        if how == "lost":
            txn.delete(CHUNKS.name, tables.chunk(segment.id, Tier.LOCAL, 0))
            txn.put(
                CHUNKS,
                tables.chunk(segment.id, Tier.LOCAL, 0),
                replace(first.chunk, object_id=second.object.id, state=ChunkState.SUSPECT),
            )
            txn.delete(OBJECTS.name, tables.u64(first.object.id))
        elif how == "no chunk":
            txn.delete(CHUNKS.name, tables.chunk(segment.id, Tier.LOCAL, 0))
            txn.delete(OBJECTS.name, tables.u64(first.object.id))
        elif how == "no object":
            txn.delete(OBJECTS.name, tables.u64(first.object.id))
        else:
            txn.delete(SEGMENTS.name, tables.u64(segment.id))
            txn.delete(OBJECTS.name, tables.u64(first.object.id))
    age(store, first.object.name)
    walk(store)
    assert first.object.name in files(store)


def test_where_the_metadata_went_back_every_file_stays(store: TestStore) -> None:
    """A copy of them was put back in place: what came after it may be acknowledged bytes."""
    MetadataMark(store.metadata.path).set(store.metadata.last_transaction_id() + 1)
    name = stray(store)
    for _ in range(2):
        walk(store)
        assert name in files(store)
    store.cold_work().collect_all(grace_s=0)  # a person looked
    assert name not in files(store)
    walk(store)
    again = stray(store)
    walk(store)
    assert again not in files(store)


def test_metadata_that_go_back_in_the_middle_of_a_walk_keep_young_files_too(store: TestStore) -> None:
    young = stray(store)
    age(store, young, 0)
    work = store.cold_work()
    assert work.collect_strays()
    MetadataMark(store.metadata.path).set(store.metadata.last_transaction_id() + 1)
    walk(store, work)
    assert not MetadataMark(store.metadata.path).holds(store.metadata.last_transaction_id())
    age(store, young)
    walk(store)
    assert young in files(store)


@pytest.mark.parametrize("text", [None, "", "{}", '{"inode": 1', '{"inode": 1, "transaction": 1}'])
def test_without_a_mark_of_these_metadata_every_file_stays(store: TestStore, text: str | None) -> None:
    mark = store.metadata.path.with_name("walked")
    mark.unlink()
    if text is not None:
        mark.write_text(text)
    name = stray(store)
    young = stray(store, 20)
    age(store, young, 0)
    walk(store)
    assert {name, young} <= files(store)
    store.files.delete(name)
    walk(store)
    assert young in files(store), "also a young one keeps the mark from being set"


def test_strays_are_removed_from_a_full_disk(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    name = stray(store)
    monkeypatch.setattr(Path, "write_text", full)
    walk(store)
    assert name not in files(store)


@pytest.mark.parametrize("before_sync", [True, False])
def test_an_append_in_the_middle_of_a_walk_is_acknowledged_with_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before_sync: bool
) -> None:
    """By a clock so far ahead that each file looks old."""
    with open_test_store(tmp_path / "ahead", clock=ManualClock(10**14)) as store:
        walk(store)
        writer = store.engine.open_writer("s")
        between_write_and_commit(monkeypatch, lambda: walk(store), before_sync=before_sync)
        assert writer.append(b"abc") == ByteRange(0, 3)
        assert writer.append(b"de") == ByteRange(3, 5)
        assert store.read("s") == b"abcde"
        assert files(store) == named(store)


def test_a_walk_is_made_once_an_hour(store: TestStore) -> None:
    work = store.cold_work()
    assert walk(store, work) > 0
    name = stray(store)
    assert walk(store, work) == 0
    store.clock.advance(3600)  # type: ignore[attr-defined]
    age(store, name)
    assert walk(store, work) > 0
    assert name not in files(store)
