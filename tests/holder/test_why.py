"""Why bytes of a segment are not cold, or have a local copy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stores import TestStore, open_test_store
from tierfs import policy
from tierfs.holder.why import Reason, reasons
from tierfs.metadata import chains, policies, tables
from tierfs.metadata.records import FailureRecord
from tierfs.metadata.tables import CHUNKS, FAILURES
from tierfs.types import ByteRange, ChunkState, Tier

CHUNK = 1000
DAY_MS = 86_400_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy={"chunk_bytes": str(CHUNK), "object_bytes": str(CHUNK)}) as opened:
        yield opened


def told(store: TestStore, name: str = "d/s", *, later_ms: int = 0, held: bool = True) -> list[Reason]:
    with store.metadata.read() as txn:
        now_ms = store.clock.now_ms() + later_ms
        return reasons(txn, store.segment(name), now_ms=now_ms, held=held)


def put(store: TestStore, **settings: str) -> None:
    with store.metadata.write() as txn:
        policies.change(txn, "d", put_settings={key: policy.parse(key, text) for key, text in settings.items()})


def test_a_chunk_that_is_appended_to_ends_by_size_or_age(store: TestStore) -> None:
    store.append("d/s", b"x" * 300)
    (reason,) = told(store)
    assert (reason.range, reason.cold) == (ByteRange(0, 300), False)
    assert "chunk_bytes = 1000" in reason.why
    assert "chunk_age = 10min" in reason.why
    assert reason.until_ms == store.clock.now_ms() + 600_000


def test_what_is_complete_names_the_policy_its_origin_and_its_time(store: TestStore) -> None:
    store.append("d/s", b"x" * 2 * CHUNK, seal=True)
    (reason,) = told(store)
    assert (reason.range, reason.why) == (ByteRange(0, 2 * CHUNK), "it is due: the holder does it next")
    assert "nobody does it: tierfs mount" in told(store, held=False)[0].why
    put(store, offload_after="1d")
    (reason,) = told(store)
    assert (reason.range, reason.why) == (ByteRange(0, 2 * CHUNK), "offload_after = 1d (directory d)")
    assert reason.until_ms - store.clock.now_ms() in range(DAY_MS - 60_000, DAY_MS + 1)
    assert told(store, later_ms=DAY_MS)[0].why == "it is due: the holder does it next"
    put(store, offload_after="off", offload_above_bytes="1GiB")
    (reason,) = told(store)
    assert "offload_after = off (directory d): until the disk needs room, offload_above_bytes = 1GiB" in reason.why
    assert reason.until_ms == 0


@pytest.mark.parametrize(
    ("what", "told_of"), [("offload {id} 1000", 1), ("offload {id} 0", 0), ("consolidate {id}", None)]
)
def test_a_failure_is_told_of_its_own_bytes(store: TestStore, what: str, told_of: int | None) -> None:
    store.append("d/s", b"x" * 2 * CHUNK, seal=True)
    named = what.format(id=store.segment("d/s").id)
    row = FailureRecord(what=named, name="d/s", attempts=3, next_try_ms=77, error="no answer")
    with store.metadata.write() as txn:
        txn.put(FAILURES, named.encode(), row)
    failed = [reason for reason in told(store) if "no answer" in reason.why]
    expected = [] if told_of is None else [ByteRange(told_of * CHUNK, (told_of + 1) * CHUNK)]
    assert [reason.range for reason in failed] == expected
    assert {(reason.why, reason.until_ms) for reason in failed} <= {("it failed, 3 so far: no answer", 77)}


def test_each_part_has_its_own_reason_in_order(store: TestStore) -> None:
    """A copy behind bytes that are not cold, and a chunk that grows."""
    store.append("d/s", b"x" * 3 * CHUNK)
    store.offload("d/s")
    with store.metadata.write() as txn:
        segment_id = store.segment("d/s").id
        first = chains.chunk_at(txn, segment_id, Tier.COLD, 0)
        assert first is not None
        txn.put(CHUNKS, tables.chunk(segment_id, Tier.COLD, 0), replace(first, state=ChunkState.SUSPECT))
    store.append("d/s", b"y" * 10)
    parts = [(reason.range, reason.cold) for reason in told(store)]
    assert parts == [(ByteRange(CHUNK, 3 * CHUNK), True), (ByteRange(3 * CHUNK, 3 * CHUNK + 10), False)]


def test_a_million_chunks_are_not_read(store: TestStore) -> None:
    store.append("d/s", b"x" * 300 * CHUNK, seal=True)
    (reason,) = told(store)
    assert reason.range.start == 0
    assert reason.range.end < 300 * CHUNK
    store.offload("d/s")
    (reason,) = told(store)
    assert (reason.cold, reason.range) == (True, ByteRange(0, 64 * CHUNK))


def test_a_local_copy_stays_for_its_lag_or_by_its_priority(store: TestStore) -> None:
    store.append("d/s", b"x" * 2 * CHUNK, seal=True)
    store.offload("d/s")
    (reason,) = told(store)
    assert (reason.range, reason.cold) == (ByteRange(0, 2 * CHUNK), True)
    assert reason.why.startswith("deletion_lag = 4h (")
    assert reason.until_ms == pytest.approx(store.clock.now_ms() + 4 * 3_600_000, abs=60_000)
    assert told(store, later_ms=DAY_MS)[0].why == "it is due: the holder does it next"
    put(store, deletion_lag="off")
    assert "until the disk needs room, or tierfs evict" in told(store)[0].why
    put(store, read_priority="local-only")
    assert told(store)[0].why == "read_priority = local-only (directory d)"


def test_nothing_is_told_of_what_is_cold_only_or_empty(store: TestStore) -> None:
    store.append("d/s", b"x" * CHUNK, seal=True)
    store.offload("d/s")
    store.evict("d/s")
    assert told(store) == []
    store.append("d/empty", b"")
    assert told(store, "d/empty") == []
