"""Why bytes of a segment are not cold, or have a local copy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.doubles.manual_clock import ManualClock
from tests.ledgers import new_ledger
from tests.stores import LOCATION, TestStore, open_test_store
from tierfs.base.options import policy
from tierfs.base.words.types import AttemptId, ByteRange, ChunkState, Tier
from tierfs.engine.metadata import chains, directories, policies, tables
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.holder_records import FailureRecord
from tierfs.engine.metadata.records import IntentRecord
from tierfs.engine.metadata.tables import CHUNKS, FAILURES, INTENTS
from tierfs.upkeep.holder import waits
from tierfs.upkeep.holder.failures import CLOCKS, EVICT, OWNER, PACK, PUBLISH
from tierfs.upkeep.holder.status import BacklogStatus, backlog_of, totals_of
from tierfs.upkeep.holder.waits import Causes, Wait
from tierfs.upkeep.holder.why import Reason, reasons

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


def put(store: TestStore, path: str = "d", **settings: str) -> None:
    with store.metadata.write() as txn:
        policies.change(txn, path, put_settings={key: policy.parse(key, text) for key, text in settings.items()})


def uploading(store: TestStore) -> None:
    segment_id = store.segment("d/s").id
    intent = IntentRecord(
        attempt=AttemptId("a"), location_id=LOCATION, name="n", segment_id=segment_id, start_offset=0, end_offset=CHUNK
    )
    with store.metadata.write() as txn:
        txn.put(INTENTS, b"a", intent)


def unpublished(store: TestStore) -> None:
    store.offload("d/s")
    with store.metadata.write() as txn:
        txn.update_store(journal=replace(txn.store.journal, published_sequence=0))


def without_cold_tier(store: TestStore) -> None:
    with store.metadata.write() as txn:
        txn.update_store(cold_location_id=0)


STATES: dict[str, Callable[[TestStore], object]] = {
    "complete": lambda store: None,
    "uploading": uploading,
    "copied": lambda store: store.offload("d/s"),
    "unpublished": unpublished,
    "alone": without_cold_tier,
}
DUE = "it is due, and runs next"
FAILED = "it failed, 3 so far: no answer"
OF_D = r"\(directory d\)"
ROOM = "until the disk needs room"
SIZE = "offload_after=off offload_above_bytes=1GiB"
UNPUBLISHED = "the cold copy is not in the bucket's journal yet"
NOBODY = "it is due, but no holder is running: tierfs mount, or tierfs daemon"
REASONS = [
    # state, policies and failures; time that has passed; the kind, the words, and until when
    ("complete", "", 0, Wait.DUE, DUE, 0),
    ("complete", "nobody", 0, Wait.NOBODY, NOBODY, 0),
    ("complete", "offload_after=1d", 0, Wait.LATER, f"offload_after = 1d {OF_D}", DAY_MS),
    ("complete", "offload_after=1d", DAY_MS, Wait.DUE, DUE, 0),
    ("complete", "offload_after=off", DAY_MS, Wait.OFF, f"offload_after = off {OF_D}: {ROOM}, or tierfs offload", 0),
    (
        "complete",
        SIZE,
        DAY_MS,
        Wait.SIZE,
        f"offload_after = off {OF_D}: {ROOM}, offload_above_bytes = 1GiB {OF_D}, or tierfs offload",
        0,
    ),
    ("complete", f"!{PACK}", 0, Wait.FAILED, f"small objects wait after a failure{FAILED[9:]}", 77),
    ("complete", "!offload {id} 0", 0, Wait.FAILED, FAILED, 77),
    ("complete", "!offload {id} 1000", 0, Wait.DUE, DUE, 0),
    ("complete", "!consolidate {id}", 0, Wait.DUE, DUE, 0),
    ("complete", f"!{OWNER}", 0, Wait.AWAY, "it is due, but the cold tier cannot be used: no answer", 77),
    ("uploading", "", 0, Wait.UPLOADING, "it is being uploaded", 0),
    ("alone", "", 0, Wait.NO_COLD_TIER, "the store has no cold tier", 0),
    ("copied", "", 0, Wait.LATER, r"deletion_lag = 4h \(.*\)", 4 * 3_600_000),
    ("copied", "", DAY_MS, Wait.DUE, DUE, 0),
    ("copied", "nobody", DAY_MS, Wait.NOBODY, NOBODY, 0),
    ("copied", "deletion_lag=off", DAY_MS, Wait.OFF, f"deletion_lag = off {OF_D}: {ROOM}, or tierfs evict", 0),
    ("copied", "read_priority=local-only", DAY_MS, Wait.PINNED, f"read_priority = local-only {OF_D}", 0),
    ("copied", f"!{EVICT}", DAY_MS, Wait.FAILED, FAILED, 77),
    ("copied", f"!{CLOCKS}", DAY_MS, Wait.FAILED, FAILED, 77),
    ("copied", "!evict {id}", DAY_MS, Wait.FAILED, FAILED, 77),
    ("unpublished", "", 0, Wait.UNPUBLISHED, UNPUBLISHED, 0),
    ("unpublished", f"!{PUBLISH}", 0, Wait.UNPUBLISHED, f"{UNPUBLISHED}: no answer", 77),
]


@pytest.mark.parametrize(
    ("state", "given", "later_ms", "kind", "words", "until_ms"),
    REASONS,
    ids=[f"{row[0]} {row[1]} {row[3]}" for row in REASONS],
)
def test_each_reason_is_told_with_its_end(
    store: TestStore, state: str, given: str, later_ms: int, kind: Wait, words: str, until_ms: int
) -> None:
    store.append("d/s", b"x" * CHUNK, seal=True)
    STATES[state](store)
    if given.startswith("!"):
        fail(store, given[1:].format(id=store.segment("d/s").id))
    elif "=" in given:
        put(store, **dict(setting.split("=") for setting in given.split()))
    (reason,) = told(store, later_ms=later_ms, held=given != "nobody")
    assert (reason.kind, reason.range) == (kind, ByteRange(0, CHUNK))
    assert re.fullmatch(words, reason.why), reason.why
    assert reason.cold is (state in ("copied", "unpublished"))
    if until_ms > DAY_MS // 24:
        assert 0 <= store.clock.now_ms() + until_ms - reason.until_ms <= 60_000
    else:
        assert reason.until_ms == until_ms


def test_a_chunk_that_is_appended_to_ends_by_size_or_age(store: TestStore) -> None:
    store.append("d/s", b"x" * 300)
    (reason,) = told(store)
    assert (reason.range, reason.cold) == (ByteRange(0, 300), False)
    assert "chunk_bytes = 1000" in reason.why
    assert "chunk_age = 10min" in reason.why
    assert reason.until_ms == store.clock.now_ms() + 600_000


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


def fail(store: TestStore, what: str, error: str = "no answer") -> None:
    with store.metadata.write() as txn:
        txn.put(FAILURES, what.encode(), FailureRecord(what=what, attempts=3, next_try_ms=77, error=error))


def test_a_writer_that_lives_is_named_and_an_old_chunk_waits_for_nobody(store: TestStore) -> None:
    store.append("d/s", b"x" * 300)
    with store.metadata.read() as txn:
        (reason,) = reasons(txn, store.segment("d/s"), now_ms=store.clock.now_ms(), held=True, writer="app[7] on h")
    assert reason.why.startswith("app[7] on h appends to its chunk: until chunk_bytes = 1000 (")
    assert told(store)[0].why.startswith("its chunk is not full yet: until chunk_bytes")
    assert told(store, later_ms=600_001, held=False)[0].kind is Wait.NOBODY
    put(store, offload_after="off")
    assert told(store)[0].kind is Wait.OFF


def summed(store: TestStore, *, later_ms: int = 0, held: bool = True) -> BacklogStatus:
    with store.metadata.read() as txn:
        return backlog_of(txn, totals_of(txn), store.clock.now_ms() + later_ms, held=held)


def by_kind(backlog: BacklogStatus) -> dict[Wait, int]:
    return {row.kind: row.bytes for row in backlog.reasons}


def filled(store: TestStore) -> None:
    """Four directories: 2,300, 1,300, 300 and 1,000 bytes; the first two have chunks that grow."""
    for number, name in enumerate(("a/s", "b/s", "c/s", "d/s")):
        store.append(name, b"x" * (0, 1, 0, 1)[number] * CHUNK + b"x" * (2300, 300, 300, 0)[number], seal=number > 1)


def test_bytes_that_no_policy_moves_wait_for_nothing_and_all_others_for_their_reason(store: TestStore) -> None:
    filled(store)
    alike = summed(store)
    assert by_kind(alike) == {Wait.DUE: 4300, Wait.GROWING: 600}
    assert (alike.pending_bytes, alike.active_bytes, alike.kept_bytes) == (4300, 600, 0)
    with store.metadata.write() as txn:
        policies.change(txn, "a", put_settings={"offload_after": "off"})
        policies.change(txn, "b", put_settings={"offload_after": "60"})
        policies.change(txn, "c/s", put_settings={"offload_after": "off", "offload_above_bytes": "1000"})
    now = summed(store)
    assert by_kind(now) == {Wait.OFF: 2300, Wait.LATER: 1000, Wait.DUE: 1000, Wait.GROWING: 300, Wait.SIZE: 300}
    assert [row.bytes for row in now.reasons] == sorted((row.bytes for row in now.reasons), reverse=True)
    assert (now.pending_bytes, now.active_bytes, now.kept_bytes) == (2300, 300, 2300)
    assert "offload_after = off (directory a)" in next(row.why for row in now.reasons if row.kind is Wait.OFF)
    assert "(segment c/s)" in next(row.why for row in now.reasons if row.kind is Wait.SIZE)
    assert by_kind(summed(store, later_ms=DAY_MS))[Wait.DUE] == 2000
    assert by_kind(summed(store, held=False))[Wait.NOBODY] == 1000


def test_a_store_that_moves_nothing_has_no_backlog(store: TestStore) -> None:
    filled(store)
    with store.metadata.write() as txn:
        policies.change(txn, "", put_settings={"offload_after": "off"})
    kept = summed(store)
    assert (by_kind(kept), kept.pending_bytes, kept.active_bytes, kept.oldest_ms) == ({Wait.OFF: 4900}, 0, 0, 0)
    with store.metadata.write() as txn:
        txn.update_store(journal=replace(txn.store.journal, fenced_by_epoch=9))
    assert by_kind(summed(store)) == {Wait.NOT_OWNER: 4900}
    with store.metadata.write_notes() as txn:
        txn.update_store(cold_location_id=0)
    assert by_kind(summed(store)) == {Wait.NO_COLD_TIER: 4900}


def test_what_is_in_the_trash_or_lost_waits_for_nothing(store: TestStore) -> None:
    filled(store)
    put(store, offload_after="1d")
    store.offload("b")
    with store.metadata.write() as txn:
        Editor(txn, directories.segment_by_name(txn, "b/s")).lose(ByteRange(0, CHUNK)).put(journaled=True)
    for name in ("a", "d/s"):
        store.engine.delete(name, recursive=True, cold_due_ms=0, to_trash=True)
    assert by_kind(summed(store)) == {Wait.DUE: 300}


def test_bytes_whose_upload_failed_are_counted_apart(store: TestStore) -> None:
    filled(store)
    with store.metadata.write() as txn:
        what = f"offload {store.segment('d/s').id} 0"
        txn.put(FAILURES, what.encode(), FailureRecord(what=what, bytes=1000, error="gone"))
    assert by_kind(summed(store)) == {Wait.DUE: 3300, Wait.FAILED: 1000, Wait.GROWING: 600}
    fail(store, OWNER)
    assert by_kind(summed(store)) == {Wait.AWAY: 4300, Wait.GROWING: 600}


def test_an_open_ledger_grows_as_a_whole_and_its_wait_begins_as_it_is_closed(store: TestStore) -> None:
    name = new_ledger(store, [b"e" * 400] * 10, close=False)
    assert store.segment(name).local.count > 2
    assert by_kind(summed(store)) == {Wait.GROWING: 4000}
    assert [reason.kind for reason in told(store, name)] == [Wait.GROWING]
    put(store, "topic", offload_after="1h")
    assert isinstance(store.clock, ManualClock)
    store.clock.advance(7200)
    store.engine.seal(name)
    assert by_kind(summed(store)) == {Wait.LATER: 4000}
    assert [reason.kind for reason in told(store, name)] == [Wait.LATER]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3500), st.booleans()), max_size=5),
    st.sampled_from(["0", "60", "86400", "off"]),
    st.integers(0, 100_000),
)
@settings(max_examples=30, deadline=None)
def test_the_sums_say_what_the_segments_say(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[str, int, bool]], after: str, later_ms: int
) -> None:
    policy_of_root = {"chunk_bytes": str(CHUNK), "object_bytes": str(CHUNK), "offload_after": after}
    with open_test_store(tmp_path_factory.mktemp("s") / "store", policy=policy_of_root) as store:
        for number, (directory, size, seal) in enumerate(parts):
            store.append(f"{directory}/{number}", b"x" * size, seal=seal)
        with store.metadata.read() as txn:
            causes, totals = Causes(txn, store.clock.now_ms() + later_ms, held=True), totals_of(txn)
            alike, segments = causes._alike(totals), causes._by_segment(totals)
            assert {cause: size for cause, size in alike.items() if size} in (
                {cause: size for cause, size in segments.items() if size},
                {},  # some are due, others not
            )
            rows = causes.backlog(totals)
        assert sum(row.bytes for row in rows) == totals.pending_bytes + totals.growing_bytes


def test_a_summary_opens_no_chain_and_with_one_rule_no_segment(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store)
    monkeypatch.setattr(chains, "chunks", None)
    monkeypatch.setattr(chains, "chunk_at", None)
    put(store, offload_after="off")
    assert by_kind(summed(store)) == {Wait.DUE: 3300, Wait.GROWING: 600, Wait.OFF: 1000}
    monkeypatch.setattr(Causes, "_by_segment", None)
    with store.metadata.write() as txn:
        policies.change(txn, "d", put_settings={}, unset=["offload_after"])
    assert by_kind(summed(store)) == {Wait.DUE: 4300, Wait.GROWING: 600}


def test_what_lies_beyond_the_segments_looked_at_is_told_as_unknown(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store)
    put(store, offload_after="off")
    monkeypatch.setattr(waits, "_MOST_SEGMENTS", 3)
    assert by_kind(summed(store)) == {Wait.DUE: 3300, Wait.GROWING: 600, Wait.UNKNOWN: 1000}
