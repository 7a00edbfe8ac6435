"""Appends that the cold tier acknowledges: pooled, named by the journal, and read and moved like all others."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.app.recovery.recovering import recovered
from tests.doubles.scripted_storage import ScriptedStorage, When
from tests.engine.journal.replaying import check_store
from tests.mount.waiting import eventually
from tests.stores import AT_ONCE, TestStore, create_ledger, quiet
from tests.tiering.test_packing import packs
from tierfs.base.words.errors import InvalidRequest, NoColdTier, Unavailable
from tierfs.base.words.types import Ack, ByteRange, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.journal.names import JOURNAL_PREFIX
from tierfs.engine.metadata import changes, directories, policies, tables
from tierfs.engine.metadata.tables import LOCATIONS
from tierfs.engine.segments import group_commit
from tierfs.engine.segments.group_commit import AppendCall
from tierfs.engine.segments.writer import SegmentWriter
from tierfs.tiering.packs import append_pool
from tierfs.tiering.packs.append_pool import AppendPool
from tierfs.upkeep.holder.why import reasons

AWAY = Unavailable("the server is away")

POLICY = {"chunk_bytes": "100", "object_bytes": "1000", "ack": "cold"}


def entries(store: TestStore) -> list[str]:
    return [item.name for item in store.cold.list(JOURNAL_PREFIX)]


def is_published(store: TestStore) -> bool:
    with store.metadata.read() as txn:
        return txn.store.journal.published_sequence == txn.store.next_outbox - 1


@contextmanager
def on_another_host(store: TestStore, path: Path) -> Iterator[TestStore]:
    """The store as `recover` makes it from the bucket alone."""
    bucket = MemoryStorage(store.clock)
    assert isinstance(store.cold, ScriptedStorage)
    assert isinstance(store.cold.inner, MemoryStorage)
    bucket.objects = dict(store.cold.inner.objects)  # a recovery takes the bucket over
    with recovered(path, bucket) as other:
        yield other.store


def recovered_bytes(store: TestStore, path: Path, name: str) -> bytes:
    with on_another_host(store, path) as other:
        return other.read(name)


def pool_of(store: TestStore) -> AppendPool:
    pool = store.engine.commits_of(Ack.COLD)
    assert isinstance(pool, AppendPool)
    return pool


def append_together(store: TestStore, writers: Sequence[SegmentWriter], data: Sequence[bytes]) -> list[object]:
    """Append with one thread for each writer, all in one pool; return the ranges, or the errors."""
    results: list[object] = [None] * len(writers)
    pool = pool_of(store)
    pool.settings = replace(AT_ONCE, pool_bytes=sum(map(len, data)), delay_s=60)
    pool._sent_s = time.monotonic()

    def append(number: int) -> None:
        try:
            results[number] = writers[number].append(data[number])
        except Exception as exc:
            results[number] = exc

    threads = [threading.Thread(target=append, args=(number,)) for number in range(len(writers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    pool.settings = AT_ONCE
    return results


@pytest.mark.parametrize("length", [1, 99, 100, 101, 200, 1001, 5000])
def test_an_acknowledged_append_is_in_the_bucket_and_named_by_its_journal(
    store: TestStore, tmp_path: Path, length: int
) -> None:
    first, second = os.urandom(length), os.urandom(length)
    writer = store.engine.open_writer("d/s")
    for number, data in enumerate((first, second), 1):
        assert writer.append(data) == ByteRange((number - 1) * length, number * length)
        assert (len(packs(store)), is_published(store)) == (number, True)
        assert store.read("d/s", Tier.COLD) == (first + second)[: number * length]
        assert recovered_bytes(store, tmp_path / f"other{number}", "d/s") == (first + second)[: number * length]


def test_the_local_copy_serves_reads_and_is_evicted(store: TestStore) -> None:
    store.append("d/s", b"a" * 150, b"b" * 150)
    assert store.read("d/s", Tier.LOCAL) == b"a" * 150 + b"b" * 150
    report = store.evict()
    assert (report.bytes, report.kept_bytes) == (300, 0)
    assert store.read("d/s", Tier.COLD) == b"a" * 150 + b"b" * 150
    assert store.offload().objects == 0


@pytest.mark.parametrize("others", ["", "l"])
def test_bytes_that_are_cold_are_not_said_to_wait(store: TestStore, others: str) -> None:
    """Their chunk is still appended to; only what was acknowledged locally is on this disk alone."""
    store.append("d/s", b"a" * 30)
    if others:
        store.append("d/s", b"b" * 7, ack=Ack.LOCAL)
    store.metadata.count_sums()
    with store.metadata.read() as txn:
        told = reasons(txn, store.segment("d/s"), now_ms=store.clock.now_ms(), held=True)
        totals = txn.sums
    assert [(reason.range, reason.cold) for reason in told] == [(ByteRange(0, 30), True), (ByteRange(30, 37), False)][
        : 1 + len(others)
    ]
    assert totals is not None
    assert (totals.growing_bytes, totals.pending_bytes) == (7 * len(others), 0)
    dry = store.cold_work().evict("", force=False, dry_run=True, report=quiet)
    assert dry.bytes == (0 if others else 30)
    assert store.evict().bytes == dry.bytes
    assert store.read("d/s") == b"a" * 30 + b"b" * 7 * len(others)


def test_evict_ends_a_cold_chunk_under_its_writer(store: TestStore) -> None:
    writer = store.engine.open_writer("d/s")
    writer.append(b"a" * 30)
    assert store.evict().bytes == 30
    assert writer.append(b"b" * 30) == ByteRange(30, 60)
    assert store.read("d/s") == b"a" * 30 + b"b" * 30


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_pool_is_one_pack_and_one_entry(
    store: TestStore, tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More segments than one change of the journal names are linked by several, in one commit."""
    monkeypatch.setattr(changes, "PACKED_PER_CHANGE", 3)
    writers = [store.engine.open_writer(f"d/s{number}") for number in range(count)]
    store.settle()
    before = len(entries(store))
    data = [os.urandom(50 + number) for number in range(count)]
    assert append_together(store, writers, data) == [ByteRange(0, len(each)) for each in data]
    assert (len(packs(store)), len(entries(store)) - before) == (1, 1)
    with on_another_host(store, tmp_path / "other") as other:
        assert [other.read(f"d/s{number}") for number in range(count)] == data
    with store.metadata.read() as txn:
        check_store(txn)


@pytest.mark.parametrize(
    ("sizes", "taken"),
    [
        ([10], 1),
        ([0], 1),
        ([0, 0, 10], 3),
        ([4, 5, 1], 3),
        ([4, 6, 1], 2),
        ([5, 4, 6, 1], 3),
        ([11, 1], 1),
        ([10, 0], 1),
        ([3, -3, 3], [0, 2]),
        ([-3, 3, -3, 3, -6, -1], [0, 2, 4]),
    ],
)
def test_a_pool_takes_calls_until_it_is_full(store: TestStore, sizes: list[int], taken: int | list[int]) -> None:
    """A size below 0 is that of an append to a segment that is to be compressed: in a pool of those."""
    with store.metadata.write() as txn:
        policies.put(txn, directories.make_directories(txn, ("zstd",)), {"compression": "zstd"})
    pool = AppendPool(store.metadata, store.engine._tools.descriptors, replace(AT_ONCE, pool_bytes=10), store.cold_tier)
    names = [f"zstd/s{number}" if size < 0 else f"s{number}" for number, size in enumerate(sizes)]
    writers = [store.engine.open_writer(name) for name in names]
    calls = [AppendCall(writer, memoryview(bytes(abs(size)))) for writer, size in zip(writers, sizes, strict=True)]
    pool._enqueue(calls)
    chosen = taken if isinstance(taken, list) else [*range(taken)]
    left = [number for number in range(len(sizes)) if number not in chosen]
    assert pool._take() == [calls[number] for number in chosen]
    assert pool._queue == [calls[number] for number in left]
    assert pool._queued_bytes == sum(abs(sizes[number]) for number in left)


def test_a_pool_names_no_more_than_a_reader_of_packs_accepts(
    store: TestStore, storage: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_pool, "MAX_PACK_ENTRIES", 2)
    writers = [store.engine.open_writer(f"s{number}") for number in range(5)]
    first = storage.hold("put", of="packs/")
    threads = [threading.Thread(target=writer.append, args=(b"abc",)) for writer in writers]
    threads[0].start()
    first.wait_begun()
    for number, thread in enumerate(threads[1:], 1):
        thread.start()
        assert eventually(lambda: len(pool_of(store)._queue) == number)  # noqa: B023
    first.go_on()
    for thread in threads:
        thread.join(60)
    assert len(packs(store)) == 3
    assert [store.read(f"s{number}") for number in range(5)] == [b"abc"] * 5


def test_an_append_follows_the_cold_tier_to_another_place(store: TestStore, storage: ScriptedStorage) -> None:
    """The pack that was written to the place before is made again in the new one."""
    writer = store.engine.open_writer("d/s")
    writer.append(b"before")
    seen: list[str] = []
    connect = pool_of(store)._connect

    def move() -> None:
        with store.metadata.write() as txn:
            place = txn.must_get(LOCATIONS, tables.u32(1), "the place")
            txn.put(LOCATIONS, tables.u32(1), replace(place, url="memory:elsewhere"))

    def connected() -> object:
        seen.append("again")
        publisher, cold = connect()
        return publisher, cold

    pool_of(store)._connect = connected  # type: ignore[assignment]
    storage.do("put", move, of="packs/")
    assert writer.append(b"after") == ByteRange(6, 11)
    assert seen == ["again"]
    assert len(packs(store)) == 3


def test_nothing_is_created_where_the_cold_tier_cannot_acknowledge(store: TestStore) -> None:
    store.engine.make_directory("l")
    with store.metadata.write() as txn:
        txn.update_store(cold_location_id=0)
    with pytest.raises(NoColdTier, match="ack=cold"):
        store.engine.open_writer("l/s")
    with store.metadata.read() as txn:
        assert not directories.exists(txn, "l/s")
    store.engine.open_writer("l/s", ack=Ack.LOCAL).append(b"abc")


def test_a_ledger_is_refused_with_what_to_do(store: TestStore) -> None:
    create_ledger(store.metadata, "l/1")
    with pytest.raises(InvalidRequest, match="is a ledger") as caught:
        store.engine.open_ledger("l/1")
    assert caught.value.remedy == "tierfs config l/1 ack=local"


def test_an_override_is_stronger_than_the_policy(store: TestStore) -> None:
    store.append("d/local", b"abc", ack=Ack.LOCAL)
    assert packs(store) == []
    with store.metadata.write() as txn:
        policies.put(txn, directories.segment_by_name(txn, "d/local").id, {"ack": "local"})
    store.append("d/local", b"def")
    assert packs(store) == []
    store.append("d/local", b"ghi", ack=Ack.COLD)
    assert len(packs(store)) == 1
    assert store.layout("d/local").cold[0].chunk.range == ByteRange(6, 9)


@pytest.mark.parametrize("data", [b"abc", b""])
def test_a_seal_is_acknowledged_once_the_journal_names_it(store: TestStore, tmp_path: Path, data: bytes) -> None:
    writer = store.engine.open_writer("d/s")
    writer.append(b"before")
    writer.append(data, seal=True)
    assert is_published(store)
    with on_another_host(store, tmp_path / "other") as other:
        assert other.segment("d/s").sealed


def test_a_close_waits_for_no_server(store: TestStore, storage: ScriptedStorage) -> None:
    writer = store.engine.open_writer("d/s")
    writer.append(b"abc")
    storage.fail("put", AWAY, on=range(1, 100))
    storage.fail("list", AWAY, on=range(1, 100))
    store.engine.close_writer(writer)
    assert store.segment("d/s").resumable


def test_a_stream_goes_on_in_its_successor(store: TestStore, tmp_path: Path) -> None:
    with store.metadata.write() as txn:
        policies.put(txn, 1, {**POLICY, "seal_bytes": "10"})
    writer = store.engine.open_writer("d/s")
    ranges = [writer.append(bytes([number]) * 6) for number in range(5)]
    assert ranges == [ByteRange(6 * number, 6 * number + 6) for number in range(5)]
    assert is_published(store)


STEPS: list[tuple[str, str, When]] = [
    ("put", "packs/", When.BEFORE),
    ("put", "packs/", When.AFTER),
    ("put", "journal/", When.BEFORE),
    ("put", "journal/", When.AFTER),
    ("list", "journal/", When.BEFORE),
]


def test_a_pool_fills_while_the_one_before_is_published(store: TestStore, storage: ScriptedStorage) -> None:
    """The next pack is on its way before the journal has the entry of the first."""
    writers = [store.engine.open_writer(name) for name in ("d/a", "d/b")]
    writers[0].append(b"x")
    entry = storage.hold("put", of="journal/")
    first = threading.Thread(target=writers[0].append, args=(b"first",))
    first.start()
    entry.wait_begun()
    pack = storage.hold("put", of="packs/")
    second = threading.Thread(target=writers[1].append, args=(b"second",))
    second.start()
    pack.wait_begun()
    pack.go_on()
    entry.go_on()
    first.join(60)
    second.join(60)
    assert is_published(store)
    assert (store.read("d/a"), store.read("d/b")) == (b"xfirst", b"second")


def test_a_pool_waits_for_the_callers_of_the_one_before(
    store: TestStore, storage: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come back as soon as the journal names their appends; until `ack.delay_s` is over the next pool waits."""
    monkeypatch.setattr(group_commit, "_RETURN_S", 60)
    returning, other = (store.engine.open_writer(name) for name in ("d/a", "d/b"))
    returning.append(b"x")
    entry = storage.hold("put", of="journal/")

    def append_twice() -> None:
        returning.append(b"first")
        returning.append(b"second")

    pool, before = pool_of(store), len(packs(store))
    threads = [threading.Thread(target=append_twice), threading.Thread(target=other.append, args=(b"other",))]
    threads[0].start()
    entry.wait_begun()
    pool.settings = replace(AT_ONCE, delay_s=60)
    pool._sent_s = -math.inf
    threads[1].start()
    assert eventually(lambda: pool._waits_for is not None)
    pool.settings = AT_ONCE
    entry.go_on()
    for thread in threads:
        thread.join(60)
    assert len(packs(store)) == before + 2
    assert (store.read("d/a"), store.read("d/b")) == (b"xfirstsecond", b"other")


@pytest.mark.parametrize("acks", ["lc", "cl", "lcl", "clc", "lclcl", "cllc"])
def test_appends_of_both_kinds_lie_in_one_chunk(store: TestStore, tmp_path: Path, acks: str) -> None:
    """What the cold tier did not acknowledge is offloaded later, without the bytes that are cold already."""
    whole = b""
    for number, ack in enumerate(acks):
        data = bytes([65 + number]) * 15
        store.append("d/s", data, ack=Ack.COLD if ack == "c" else Ack.LOCAL)
        whole += data
    report = store.offload()
    assert report.bytes == 15 * acks.count("l")
    assert store.read("d/s", Tier.COLD) == whole
    assert store.evict().bytes == len(whole)
    with store.metadata.read() as txn:
        check_store(txn)
    assert recovered_bytes(store, tmp_path / "other", "d/s") == whole


def test_bytes_that_only_the_disk_has_are_due_once_later_ones_are_in_the_bucket(store: TestStore) -> None:
    """Replicas show bytes up to the first missing one: no acknowledged append waits for the age of a chunk."""
    store.append("d/s", b"a" * 30, ack=Ack.LOCAL)
    for letter in (b"b", b"c"):
        store.append("d/s", letter * 7, ack=Ack.COLD)
    with store.metadata.read() as txn:
        check_store(txn)
    assert [chunk.chunk.range for chunk in store.layout("d/s").local] == [ByteRange(0, 30), ByteRange(30, 44)]


def test_small_objects_of_a_pool_are_consolidated(store: TestStore) -> None:
    data = [os.urandom(20) for _ in range(30)]
    store.append("d/s", *data, seal=True)
    assert len(store.layout("d/s").cold) == 30
    store.consolidate()
    assert len(store.layout("d/s").cold) == 1
    assert store.read("d/s", Tier.COLD) == b"".join(data)
