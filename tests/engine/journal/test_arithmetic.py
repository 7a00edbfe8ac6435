"""The sizes with which the table of docs/limits.md is computed are those of the real code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.journal_day import put_pack
from tests.benchmarks.many_recovery import state_of
from tests.engine.journal import arithmetic
from tests.stores import open_test_store
from tests.structure.repository import ROOT
from tierfs.base.bytes.progress import Meter
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.journal import levels
from tierfs.engine.journal.levels import PartWriter
from tierfs.engine.journal.names import checkpoint_name
from tierfs.engine.journal.objects import read_small
from tierfs.engine.metadata import frames
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.journal_state import CheckpointIntent

SEGMENTS = 10_000
EXACT = 0.1
"""Names, numbers and random bytes differ by so much."""


def test_the_state_of_10_000_segments_has_the_bytes_of_the_arithmetic() -> None:
    storage, manifest = MemoryStorage(), pb.CheckpointManifest()
    state = list(state_of(SEGMENTS, storage))
    assert PartWriter(storage, CheckpointIntent(attempt="a" * 32, slot=1), Meter()).write_state(manifest, iter(state))
    plain = sum(change.ByteSize() for change in state) / SEGMENTS
    assert plain == pytest.approx(arithmetic.PLAIN_BYTES, rel=EXACT)
    stored = sum(item.length_bytes for item in storage.list("journal/")) / SEGMENTS
    assert stored == pytest.approx(2 * arithmetic.STATE_BYTES, rel=EXACT)


def test_a_slot_and_its_part_of_a_level_have_the_bytes_of_the_arithmetic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "SMALL_BYTES", 0)
    monkeypatch.setattr(levels, "MOST_WRITTEN", 0)
    slots = 200
    with open_test_store(tmp_path / "store") as store:
        work = store.cold_work()
        put = [f"new/d{number // 1000:05d}/s{number:08d}" for number in range(3 * slots + 3)]
        with store.metadata.write() as txn:
            put_pack(txn, put[:3])
        work.checkpointer.checkpoint()
        for first in range(3, len(put), arithmetic.ENTRY_S):
            with store.metadata.write() as txn:
                for name in put[first : first + arithmetic.ENTRY_S]:
                    put_pack(txn, [name])
            work.publisher.publish()
        slot = work.checkpointer.checkpoint()
        level = frames.parse_manifest(read_small(store.cold, checkpoint_name(slot)), "").levels[-1]
    assert level.entry_bytes / slots == pytest.approx(arithmetic.ENTRY_BYTES, rel=EXACT)
    assert 2 * sum(level.part_bytes) / slots == pytest.approx(arithmetic.LEVEL_BYTES, rel=EXACT)


def test_the_page_has_the_rows() -> None:
    page = (ROOT / "docs/limits.md").read_text().splitlines()
    assert [row for row in arithmetic.rows() if row not in page] == []
