"""Rows of frames: what is written for any frames, and what is refused of rows that somebody else wrote."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from tests.stores import TestStore, open_test_store
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ByteRange, LocationId, ObjectId, PayloadEncoding, Tier
from tierfs.engine.frames.frame_map import MAX_FRAME_BYTES, MAX_GAP_BYTES, MAX_STORED_FRAME_BYTES, FrameMap
from tierfs.engine.metadata import checksums
from tierfs.engine.metadata.checksums import RUN_BYTES
from tierfs.engine.metadata.frame_rows import MAX_RUN_FRAMES, all_frames, frames_of, put_compressed
from tierfs.engine.metadata.records import ChecksumRun, ObjectRecord
from tierfs.engine.metadata.untrusted import check_run

BLOCKS = 4
STORED = 1000
SOUND = ChecksumRun(
    start=RUN_BYTES,
    crcs=bytes(4 * BLOCKS),
    frame_start=RUN_BYTES,
    stored_start=5000,
    frame_lengths=(CRC_BLOCK_BYTES,),
    stored_lengths=(STORED,) * BLOCKS,
)
RECORD = ObjectRecord(
    id=ObjectId(7),
    name="o",
    location_id=LocationId(1),
    tier=Tier.COLD,
    length=RUN_BYTES + BLOCKS * CRC_BLOCK_BYTES,
    encoding=PayloadEncoding.ZSTD_FRAMES,
    stored_length=5000 + BLOCKS * STORED,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


def test_a_sound_row_is_accepted() -> None:
    check_run(SOUND, RECORD)


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "in the middle of a row": {"start": RUN_BYTES + CRC_BLOCK_BYTES, "crcs": bytes(4)},
    "too many": {
        "frame_lengths": (CRC_BLOCK_BYTES,) * BLOCKS + (0,) * MAX_RUN_FRAMES,
        "stored_lengths": (STORED,) * BLOCKS + (0,) * MAX_RUN_FRAMES,
    },
    "a length too few": {
        "frame_lengths": (CRC_BLOCK_BYTES * 2, CRC_BLOCK_BYTES, CRC_BLOCK_BYTES),
        "stored_lengths": (STORED,) * BLOCKS,
    },
    "stored too far": {"stored_start": 2**63},
    "stored beyond any number": {"stored_start": 2**64 - 1},
    "plain beyond any number": {"frame_start": 2**64 - 1},
    "a frame too large": {
        "frame_start": RUN_BYTES + BLOCKS * CRC_BLOCK_BYTES - MAX_FRAME_BYTES - 1,
        "frame_lengths": (MAX_FRAME_BYTES + 1,),
        "stored_lengths": (STORED,),
    },
    "a frame stored too large": {
        "frame_lengths": (BLOCKS * CRC_BLOCK_BYTES,),
        "stored_lengths": (MAX_STORED_FRAME_BYTES + 1,),
    },
    "a gap too large": {
        "frame_lengths": (0, BLOCKS * CRC_BLOCK_BYTES),
        "stored_lengths": (MAX_GAP_BYTES + 1, STORED),
    },
    "a block later": {"frame_start": RUN_BYTES + CRC_BLOCK_BYTES, "stored_lengths": (STORED,) * (BLOCKS - 1)},
    "a block too short": {"stored_lengths": (STORED,) * (BLOCKS - 1)},
    "a byte behind the object": {"frame_lengths": (CRC_BLOCK_BYTES,) * (BLOCKS - 1) + (CRC_BLOCK_BYTES + 1,)},
    "stored behind the object": {"stored_start": 5001},
    "none": {"frame_lengths": (), "stored_lengths": ()},
}


@pytest.mark.parametrize("fields", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_rows_are_refused(fields: dict[str, Any]) -> None:
    record = RECORD
    if max(fields.get("stored_lengths", ()), default=0) > STORED:  # so that its size alone is wrong
        record = replace(record, stored_length=100 * MIB)
    with pytest.raises(DataLoss, match="impossible frames"):
        check_run(replace(SOUND, **fields), record)


@pytest.mark.parametrize("fields", [{"frame_lengths": ()}, {"stored_lengths": ()}], ids=["stored", "plain"])
def test_frames_of_a_plain_object_are_refused(fields: dict[str, Any]) -> None:
    plain = replace(RECORD, encoding=PayloadEncoding.RAW, stored_length=0)
    check_run(replace(SOUND, frame_lengths=(), stored_lengths=(), frame_start=0, stored_start=0), plain)
    with pytest.raises(DataLoss, match="frames of a plain object"):
        check_run(replace(SOUND, **fields), plain)


LENGTHS: dict[str, list[int]] = {
    "alike": [CRC_BLOCK_BYTES] * 600,
    "the last one shorter": [CRC_BLOCK_BYTES] * 299 + [5],
    "one in the middle shorter": [CRC_BLOCK_BYTES] * 255 + [5] + [CRC_BLOCK_BYTES] * 100,
    "joined": ([CRC_BLOCK_BYTES] * 100 + [77, 0]) * 6 + [1],
    "the last one of a row shorter": ([3 * CRC_BLOCK_BYTES] * 85 + [CRC_BLOCK_BYTES]) * 2 + [3 * CRC_BLOCK_BYTES],
    "large": [MAX_FRAME_BYTES] * 20,
}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_rows_have_the_places_of_all_frames(store: TestStore, lengths: list[int]) -> None:
    whole = FrameMap(
        array("Q", accumulate(lengths, initial=0)), array("Q", (number * STORED for number in range(len(lengths) + 1)))
    )
    record = replace(RECORD, length=whole.plain.end, stored_length=whole.stored[-1])
    put(store, record, whole)
    with store.metadata.read() as txn:
        found = list(checksums.runs(txn, record.id))
        assert all_frames(txn, record) == whole
    for run in found:
        check_run(run, record)
        wanted = ByteRange(run.start, min(run.start + RUN_BYTES, record.length))
        assert frames_of(run, record.length) == whole.cut(wanted)


def put(store: TestStore, record: ObjectRecord, frames: FrameMap) -> None:
    with store.metadata.write() as txn:
        crcs = [0] * -(-record.length // CRC_BLOCK_BYTES)
        put_compressed(txn, record.id, crcs, frames, record.length)


def test_frames_that_rows_lack_are_data_loss(store: TestStore) -> None:
    frames = FrameMap.of(0, 0, (CRC_BLOCK_BYTES,), [STORED] * 600, 600 * CRC_BLOCK_BYTES)
    record = replace(RECORD, length=frames.plain.end, stored_length=frames.stored[-1])
    put(store, record, frames)
    with store.metadata.write() as txn:
        checksums.put_run(txn, record.id, replace(SOUND, frame_start=0, stored_start=0))
    with store.metadata.read() as txn, pytest.raises(DataLoss, match="has no frame for its byte"):
        all_frames(txn, record)
    with store.metadata.read() as txn, pytest.raises(DataLoss, match="has no frame for its byte"):
        all_frames(txn, replace(record, length=record.length + 1))
