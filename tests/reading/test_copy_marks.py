"""A copy that fails a reader leaves a trace: its chunk is suspect, once, whatever else the reader is served from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.doubles.scripted_storage import ScriptedStorage
from tests.reading.readers import reader_of, states
from tests.stores import TestStore, open_test_store
from tests.upkeep.check.looking import flip_cold, holder_at
from tierfs.base.options.config import ReadSettings
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.errors import DataLoss, NotFound, StorageFull
from tierfs.base.words.types import MIB, ByteRange, ChunkState, ReadPriority, SegmentId, Tier
from tierfs.engine.metadata import chain_edits, chains, directories
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.records import ChunkRecord
from tierfs.reading.copies import CopyMarks
from tierfs.reading.reader import StoreReader
from tierfs.reading.verified import VerifiedReader

GOOD, SUSPECT = ChunkState.GOOD, ChunkState.SUSPECT
LATE_S = 20.0
DATA = random.Random(3).randbytes(3 * MIB)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy={"chunk_bytes": str(MIB), "object_bytes": str(MIB)}) as opened:
        opened.append("s", DATA, seal=True)
        opened.offload()
        yield opened


async def test_a_missing_object_is_marked_once(store: TestStore) -> None:
    name = missing(store, MIB)[1].object.name
    store.cold.delete(name)
    for commits in (True, False):
        before = store.metadata.last_transaction_id()
        async with reader_of(store) as reader:  # of a process that ends then
            handle = reader.open(store.segment("s").id, priority=ReadPriority.OFFLOADED_ONLY)
            with pytest.raises(DataLoss):
                await handle.read(MIB + 5, 100)
            handle.close()
        assert states(store, Tier.COLD) == [GOOD, SUSPECT, GOOD]
        assert (store.metadata.last_transaction_id() != before) is commits, "it is suspect already"


def lost(store: TestStore, offset: int) -> tuple[SegmentId, PlacedChunk]:
    """The cold chunk at an offset, recorded as lost with its object."""
    with store.metadata.write() as txn:
        segment = directories.segment_by_name(txn, "s")
        chunk = chains.chunk_at(txn, segment.id, Tier.COLD, offset)
        assert chunk is not None
        parts = [(chunk.range, ChunkState.LOST)]
        Editor(txn, segment).cut(Tier.COLD, chunk, parts).put(journaled=True)
    return missing(store, offset)


def missing(store: TestStore, offset: int) -> tuple[SegmentId, PlacedChunk]:
    """The cold chunk at an offset, good as it was when a reader came to it."""
    holder, _ = holder_at(store, "s", Tier.COLD, offset)
    (placed,) = (one for one in store.layout("s").cold if one.object.id == holder.id)
    return store.segment("s").id, placed


def failing(store: TestStore, offset: int) -> tuple[SegmentId, PlacedChunk]:
    """The cold chunk at an offset, good in its record, with a wrong byte in its object."""
    flip_cold(store, "s", offset)
    return missing(store, offset)


def marks_of(store: TestStore, storage: Any = None) -> CopyMarks:
    cold = storage or store.cold
    return CopyMarks(store.metadata, VerifiedReader(store.metadata, lambda _: cold, lambda: store.files))


@pytest.mark.parametrize("error", [StorageFull("the disk is full"), RuntimeError("a bug")])
async def test_a_mark_that_fails_keeps_no_other_from_being_written_and_is_tried_again(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, expected_warnings: list[str], error: Exception
) -> None:
    expected_warnings += ["could not be marked", "marking .* failed"]
    original, errors = chain_edits.set_state, [error]

    def mark(*some: Any) -> bool:
        if errors:
            raise errors.pop()
        return original(*some)

    monkeypatch.setattr(chain_edits, "set_state", mark)
    marks = marks_of(store)
    for offset in (0, MIB):
        marks.failed(*failing(store, offset), NotFound("gone"))
    await marks.settle()
    assert states(store, Tier.COLD) == [GOOD, SUSPECT, GOOD]
    marks.failed(*missing(store, 0), NotFound("gone"))
    await marks.settle()
    assert states(store, Tier.COLD) == [SUSPECT, SUSPECT, GOOD]


async def test_the_end_of_a_reader_proves_what_failed_and_nothing_else(store: TestStore) -> None:
    storage = ScriptedStorage(store.cold)
    marks = marks_of(store, storage)
    marks.served(*lost(store, 0))
    marks.failed(*failing(store, MIB), DataLoss("differs"))
    marks.finish()
    assert len(storage.reads) == 1
    assert states(store, Tier.COLD) == [ChunkState.LOST, SUSPECT, GOOD]


async def test_a_reader_ends_while_a_chunk_is_proved(store: TestStore) -> None:
    storage = ScriptedStorage(store.cold)
    held = storage.hold("read")
    with trio.fail_after(LATE_S):
        async with StoreReader(store.metadata, store.files, lambda _: storage, ReadSettings(), NullMetrics()) as reader:
            reader._marks.served(*lost(store, 0))
            await held.has_begun()
    held.go_on()
    assert states(store, Tier.COLD) == [ChunkState.LOST, GOOD, GOOD]


def test_proof_of_a_part_does_not_answer_for_what_was_joined_to_it(tmp_path: Path) -> None:
    policy = {"chunk_bytes": "8", "object_bytes": "8"}
    with open_test_store(tmp_path / "small", policy=policy) as store:
        store.append("s", b"abcdefgh", seal=True)

        def local() -> list[ChunkRecord]:
            with store.metadata.read() as txn:
                return list(chains.chunks(txn, store.segment("s").id, Tier.LOCAL))

        def lose(chunk: ChunkRecord, lost: ByteRange) -> None:
            pieces = [(lost, ChunkState.LOST), (ByteRange(lost.end, chunk.range.end), GOOD)]
            with store.metadata.write() as txn:
                Editor(txn, store.segment("s")).cut(Tier.LOCAL, chunk, pieces).lose(lost).put(journaled=True)

        lose(local()[0], ByteRange(0, 2))
        proved, rest = local()
        lose(rest, ByteRange(2, 5))
        assert not chain_edits.set_state(store.metadata, store.segment("s").id, Tier.LOCAL, proved, GOOD)
        assert [(chunk.length, chunk.state) for chunk in local()] == [(5, ChunkState.LOST), (3, GOOD)]
