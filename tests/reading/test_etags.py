"""Objects that were copied or restored have other etags: their bytes are read, and the etag is adopted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from tests.app.recovery.recovering import recovered
from tests.copied import all_adopted, copy_tier, recorded_etags
from tests.doubles.scripted_storage import ScriptedStorage, When
from tests.reading.cache.cache_blocks import Open
from tests.reading.readers import DATA, check, make_cold, reached, read_all, reader_of, reading
from tests.stores import TestStore
from tests.upkeep.check.looking import flip_cold, holder_at
from tierfs.base.bytes.progress import Meter
from tierfs.base.system.prometheus import Metrics
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import CRC_BLOCK_BYTES as BLOCK
from tierfs.base.words.types import ByteRange, Payer, Tier
from tierfs.engine.chunkstore.protocol import EtagDiffers
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.reading.cache.fill import Warmer
from tierfs.reading.cache.fill_plan import WantedBytes
from tierfs.reading.etags import Etags
from tierfs.reading.fetch.checked_blocks import BlockDiffers
from tierfs.reading.fetch.hedge import HedgePolicy
from tierfs.reading.fetch.span import Span
from tierfs.reading.handle import ReadHandle

STEP = 16384


@pytest.fixture
def store(store: TestStore, storage: ScriptedStorage) -> TestStore:
    make_cold(store)
    storage.reads.clear()
    return store


def put_other(storage: ScriptedStorage, name: str, data: Callable[[bytes], bytes], etag: str = "other") -> None:
    """Replace an object by other bytes under another etag."""
    objects = storage.inner.objects  # type: ignore[attr-defined]
    held = objects[name]
    changed = data(held.data)
    objects[name] = replace(held, data=changed, stored=replace(held.stored, etag=etag, length_bytes=len(changed)))


async def read_whole(store: TestStore) -> None:
    async with reading(store) as (_, handle):
        assert await read_all(handle, len(DATA)) == DATA


async def lost_steps(handle: ReadHandle) -> list[int]:
    """Read the whole segment in steps; return where there was an error and no right bytes."""
    lost = []
    for at in range(0, len(DATA), STEP):
        try:
            await check(handle, at, STEP)
        except DataLoss:
            lost.append(at)
    return lost


async def test_the_bytes_of_a_copied_object_are_read_and_its_etag_is_adopted(
    store: TestStore, storage: ScriptedStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HedgePolicy, "allowed", False)  # a busy machine sends second requests
    before = store.metadata.last_transaction_id()
    await read_whole(store)
    assert store.metadata.last_transaction_id() == before, "nothing is written about an unchanged tier"
    usual = len(storage.reads)
    copy_tier(storage)
    storage.reads.clear()
    await read_whole(store)
    assert all_adopted(store)
    objects = len({read.name for read in storage.reads})
    assert usual < len(storage.reads) <= usual + 2 * objects, "known etags are met again and again"
    storage.reads.clear()
    await read_whole(store)
    assert len(storage.reads) == usual
    store.settle()
    with recovered(tmp_path / "recovered", storage) as other:
        assert recorded_etags(other.store) == recorded_etags(store), "the journal does not tell"


@pytest.mark.parametrize("copied", [False, True])
async def test_a_bad_bit_costs_its_block_and_no_other(store: TestStore, storage: ScriptedStorage, copied: bool) -> None:
    flip_cold(store, "s", 5 * BLOCK + 17)
    if copied:
        copy_tier(storage)
    async with reading(store) as (_, handle):
        lost = await lost_steps(handle)
    assert 0 < len(lost) <= BLOCK // STEP + 1  # blocks of objects are not those of the segment
    assert 5 * BLOCK + 17 in range(lost[0], lost[-1] + STEP)


async def test_a_good_block_behind_a_bad_one_is_served_to_whom_one_fetch_of_both_was_begun(store: TestStore) -> None:
    flip_cold(store, "s", 2 * BLOCK + 17)
    async with reading(store) as (_, handle), trio.open_nursery() as nursery:
        for block in (0, 1, 3, 4):  # the first read of a file asks for its first MiB
            nursery.start_soon(check, handle, block * BLOCK, BLOCK)


@pytest.mark.parametrize("failures", [2, 100])
async def test_a_good_block_is_served_though_spans_fail_again_for_another_one_but_not_for_ever(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    async with reading(store) as (reader, handle):
        monkeypatch.setattr(reader._verified, "whole_chunk", lambda _: None)
        original, left = reader.fetcher.wait_for, [BlockDiffers("bad", ByteRange(3 * BLOCK, 4 * BLOCK))] * failures

        async def wait_for(span: Span, wanted: ByteRange, payer: Payer) -> None:
            if left:
                raise left.pop()
            await original(span, wanted, payer)

        monkeypatch.setattr(reader.fetcher, "wait_for", wait_for)
        if failures == 2:
            await check(handle, BLOCK, 100)
        else:
            with pytest.raises(DataLoss):
                await handle.read(BLOCK, 100)


@pytest.mark.parametrize("length", [-1, 1, 2 * BLOCK + 5], ids=["a byte short", "a byte long", "cut"])
async def test_an_object_of_another_length_is_served_as_far_as_it_proves_right_and_not_adopted(
    store: TestStore, storage: ScriptedStorage, length: int
) -> None:
    """Blocks before the end are served, also to those whose read-ahead reaches beyond it."""
    holder, _ = holder_at(store, "s", Tier.COLD, 700_000)
    put_other(storage, holder.name, lambda data: (data + b"x")[: len(data) + length if abs(length) == 1 else length])
    kept = holder.length if length == 1 else (holder.length - 1 if length == -1 else length) // BLOCK * BLOCK
    (start,) = (one.chunk.start_offset for one in store.layout("s").cold if one.object.id == holder.id)
    async with reading(store) as (_, handle):
        lost = await lost_steps(handle)
    gone = range(start + kept, start + holder.length)
    assert lost == [at for at in range(0, len(DATA), STEP) if gone and gone.start < at + STEP and at < gone.stop]
    assert "other" not in recorded_etags(store)


def test_warming_up_reads_copied_objects_and_adopts_their_etags(
    store: TestStore, storage: ScriptedStorage, open_cache: Open, metrics: Metrics
) -> None:
    copy_tier(storage)
    with store.metadata.read() as txn:
        holders = [holder for _, holder in txn.scan(OBJECTS) if holder.tier is Tier.COLD]
    segment_id = store.segment("s").id
    wanted = [WantedBytes("s", segment_id, 0, holder, ByteRange(0, holder.length)) for holder in holders]
    cache = open_cache()
    Warmer(cache, store.metadata, lambda _: storage, metrics, Meter(), 2, store.files).run(wanted)
    assert all(cache.holds(holder.id, 0) for holder in holders)
    assert all_adopted(store)


async def test_a_store_that_may_change_nothing_writes_no_etag(
    store: TestStore, storage: ScriptedStorage, caplog: pytest.LogCaptureFixture
) -> None:
    copy_tier(storage)
    before = recorded_etags(store)
    with store.metadata.write() as txn:
        txn.update_store(journal=replace(txn.store.journal, fenced_by_epoch=7))
    with caplog.at_level(logging.INFO, "tierfs.reading.etags"):
        await read_whole(store)
    assert recorded_etags(store) == before
    assert sum("not written" in line for line in caplog.messages) == 1


@pytest.mark.parametrize(
    ("versions", "asked"), [([], ["e"]), (["f"], ["e", "f"]), (["f", "g", "h"], ["e", "f", "g", None])]
)
def test_the_etag_that_is_there_is_asked_for_next_and_in_the_end_any(
    store: TestStore, versions: list[str], asked: list[str | None]
) -> None:
    holder = replace(holder_at(store, "s", Tier.COLD, 0)[0], etag="e")
    found = []
    for attempt in Etags(store.metadata).attempts(holder):
        found.append(attempt.etag)
        with attempt:
            if versions:
                raise EtagDiffers(holder.name, etag=versions.pop(0), length_bytes=holder.length)
            break
    assert found == asked


async def test_bytes_of_one_etag_prove_no_other_that_was_met_before_they_ended(
    store: TestStore, storage: ScriptedStorage
) -> None:
    holder, _ = holder_at(store, "s", Tier.COLD, 0)
    async with reader_of(store) as reader, trio.open_nursery() as nursery:
        handle = reader.open(store.segment("s").id)
        held = storage.hold("read", when=When.AFTER)
        nursery.start_soon(handle.read, BLOCK + 5, 100)
        await held.has_begun()
        put_other(storage, holder.name, lambda data: bytes(len(data)))
        with pytest.raises(DataLoss):
            await handle.read(3 * BLOCK + 5, 100)
        held.go_on()
        await reached(lambda: not reader.fetcher.busy)
    known = Etags(store.metadata)
    known.meet(holder, "other", holder.length)
    assert not known.proved(holder, None), "they were asked for without an etag"
    assert known.adopt() == 0
    assert "other" not in recorded_etags(store)
    for _ in range(2):  # reads that are under way together meet it one after another; what one proved stays proved
        known.meet(holder, "other", holder.length)
        known.proved(holder, "other")
    known.meet(holder, "other", holder.length)
    assert known.adopt() == 1
