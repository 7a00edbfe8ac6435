"""Why bytes of a segment are not cold, or have a local copy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stores import TestStore, open_test_store
from tierfs import policy
from tierfs.metadata import policies
from tierfs.metadata.records import FailureRecord
from tierfs.metadata.tables import FAILURES
from tierfs.tiering.why import Reason, reasons
from tierfs.types import ByteRange

CHUNK = 1000
DAY_MS = 86_400_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy={"chunk_bytes": str(CHUNK), "object_bytes": str(CHUNK)}) as opened:
        yield opened


def told(store: TestStore, name: str = "d/s", *, later_ms: int = 0, held: bool = True) -> list[Reason]:
    with store.metadata.read() as txn:
        now_ms = store.clock.now_ms() + later_ms
        return list(reasons(txn, store.segment(name), name, now_ms=now_ms, held=held))


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
    assert [reason.why for reason in told(store)] == ["it is due: the holder does it next"] * 2
    assert "nobody does it: tierfs mount" in told(store, held=False)[0].why
    put(store, offload_after="1d")
    first, second = told(store)
    assert first.why == "offload_after = 1d (directory d)"
    assert first.until_ms - store.clock.now_ms() in range(DAY_MS - 60_000, DAY_MS + 1)
    assert second.range == ByteRange(CHUNK, 2 * CHUNK)
    assert told(store, later_ms=DAY_MS)[0].why == "it is due: the holder does it next"
    put(store, offload_after="off", offload_above_bytes="1GiB")
    (first, _) = told(store)
    assert "offload_after = off (directory d): until the disk needs room, offload_above_bytes = 1GiB" in first.why
    assert first.until_ms == 0


def test_a_failure_is_told_with_its_next_try(store: TestStore) -> None:
    store.append("d/s", b"x" * CHUNK, seal=True)
    row = FailureRecord(what="offload 7", name="d/s", attempts=3, next_try_ms=77, error="no answer")
    with store.metadata.write() as txn:
        txn.put(FAILURES, b"offload 7", row)
        txn.put(FAILURES, b"offload 8", replace(row, name="d/t", error="another"))
    (reason,) = told(store)
    assert (reason.why, reason.until_ms) == ("offload 7 failed 3 times: no answer", 77)


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
