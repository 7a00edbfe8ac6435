"""The command that compresses what is plain, and joins the rest."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.stores import TestStore, assert_layout, quiet
from tests.tiering.cold_pieces import cut_head, objects, rows
from tests.tiering.test_compressed_consolidation import (
    POLICY,
    add,
    assert_sound,
    flip,
    placed,
    rewrite,
    set_compression,
    text,
)
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import MIB, ByteRange, ChunkState, Tier
from tierfs.reading.verified import VerifiedReader
from tierfs.tiering import compressed_source
from tierfs.tiering.checked_pieces import CheckedPiece
from tierfs.tiering.consolidate import Consolidated
from tierfs.tiering.consolidate_command import CompressReport
from tierfs.tiering.consolidate_plan import ConsolidateAction
from tierfs.tiering.objects import ChunksMoved

__all__ = ["POLICY"]


def compress_all(store: TestStore) -> CompressReport:
    """Do what `consolidate --compress` does."""
    with store.holding() as work:
        return work.compress("", dry_run=False, report=quiet)


def compress(store: TestStore) -> Consolidated:
    """Compress the first chunk alone, as the command asks for it."""
    first, segment = store.layout("s").cold[0], store.segment("s")
    action = ConsolidateAction(segment.id, (first.chunk,), first.range.intersect(segment.range), compresses=True)
    done: list[int] = []
    result = store.cold_work().consolidator.run(action, done.append)
    assert sum(done) == action.range.length_bytes
    return result


def test_a_command_compresses_what_is_plain_and_joins_the_rest(store: TestStore) -> None:
    """With `auto`, what does not shrink is found once, noted, and joined by the server as before."""
    set_compression(store, "off", object_bytes="600000")
    data = add(store, text(500_000), text(599_999), os.urandom(200_000), os.urandom(100_001))
    set_compression(store, "auto", object_bytes="600000")
    report = compress_all(store)
    assert (report.compressed_objects, report.plain_bytes, report.kept_plain_bytes) == (2, 1_099_999, 300_001)
    assert (report.objects_before, report.objects_after) == (4, 3)
    assert report.client_bytes == report.stored_bytes < 0.6 * report.plain_bytes
    assert report.bytes == report.stored_bytes + 300_001
    assert_layout(store, "s", local=[], cold=[500_000, 599_999, 300_001])
    assert [record.kept_plain for record in placed(store)] == [False, False, True]
    assert store.read("s", Tier.COLD) == data
    before = placed(store)
    assert compress_all(store).objects_after == 0
    assert placed(store) == before


@pytest.mark.parametrize("start", [0, 1, 200_000])
def test_a_single_plain_chunk_is_compressed(store: TestStore, start: int) -> None:
    data = add(store, text(300_000), compression="off")
    cut_head(store, "s", start)
    set_compression(store, "auto")
    done = compress(store)
    assert done.bytes == done.client_bytes < (len(data) - start) * 0.6
    assert not done.kept_plain_bytes
    assert_sound(store, data, start)


def test_a_chunk_that_saves_too_little_stays_plain(store: TestStore) -> None:
    data = add(store, os.urandom(300_000), compression="off")
    (before,) = placed(store)
    set_compression(store, "auto")
    assert compress(store) == Consolidated(kept_plain_bytes=300_000)
    assert placed(store) == [replace(before, kept_plain=True)]
    assert compress_all(store).objects_after == 0
    assert objects(store) == [before.name]
    assert rows(store)[0] == 0
    set_compression(store, "zstd")
    assert compress(store).bytes > 300_000
    assert_sound(store, data)


def test_nothing_is_compressed_under_a_policy_that_changed_meanwhile(store: TestStore) -> None:
    add(store, text(300_000), compression="off")
    with pytest.raises(ChunksMoved, match="no longer requires compression"):
        compress(store)


def test_a_damaged_plain_chunk_is_suspect_and_not_compressed(store: TestStore) -> None:
    add(store, text(300_000), compression="off")
    set_compression(store, "zstd")
    rewrite(store, placed(store)[0].name, flip(200_000))
    with pytest.raises(DataLoss, match="does not match its checksum"):
        compress(store)
    assert [each.chunk.state for each in store.layout("s").cold] == [ChunkState.SUSPECT]
    assert rows(store)[0] == 0


def test_bytes_are_compressed_in_bounded_memory(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames for which there is no room are read and compressed again; no read is longer than one step."""
    monkeypatch.setattr(compressed_source, "ROOM", compressed_source.FrameRoom(300_000))
    asked: list[int] = []
    original = CheckedPiece.read

    def read(self: CheckedPiece, reader: VerifiedReader, wanted: ByteRange) -> memoryview:
        asked.append(wanted.length_bytes)
        return original(self, reader, wanted)

    monkeypatch.setattr(CheckedPiece, "read", read)
    data = add(store, *map(text, (3_000_000, 777_777, 1_500_000)), compression="off")
    set_compression(store, "zstd")
    store.consolidate()
    assert_sound(store, data)
    assert max(asked) <= MIB
    assert compressed_source.ROOM.left_bytes == 300_000
