"""Objects that were copied or restored have other etags: their bytes are read, and the etag is adopted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from tests.copied import all_adopted, copy_tier, recorded_etags
from tests.doubles.scripted_storage import ScriptedStorage, When
from tests.fsck.looking import flip_cold, holder_at
from tests.reading.cache.cache_blocks import Open
from tests.reading.readers import DATA, make_cold, reached, read_all, reader_of
from tests.recovery.recovering import recovered
from tests.stores import TestStore
from tierfs.errors import DataLoss
from tierfs.metadata.tables import OBJECTS
from tierfs.metrics import Metrics
from tierfs.parallel import Meter
from tierfs.reading.cache.fill import Warmer
from tierfs.reading.cache.fill_plan import WantedBytes
from tierfs.reading.etags import Etags
from tierfs.reading.fetch.fetcher import HedgePolicy
from tierfs.reading.fetch.grid import BlockDiffers
from tierfs.reading.fetch.span import Span
from tierfs.reading.prover import Prover
from tierfs.types import CRC_BLOCK_BYTES as BLOCK
from tierfs.types import ByteRange, Tier

STEP = 16384


@pytest.fixture
def store(store: TestStore, storage: ScriptedStorage) -> TestStore:
    make_cold(store)
    storage.reads.clear()
    return store


def put_other(storage: ScriptedStorage, name: str, data: Callable[[bytes], bytes], etag: str = "other") -> None:
    """Replace an object by other bytes under another etag."""
    objects = storage.inner._objects  # type: ignore[attr-defined]
    held = objects[name]
    changed = data(held.data)
    objects[name] = replace(held, data=changed, found=replace(held.found, etag=etag, length_bytes=len(changed)))


async def read_whole(store: TestStore) -> None:
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("s").id)
        assert await read_all(handle, len(DATA)) == DATA
        handle.close()


async def test_the_bytes_of_a_copied_object_are_read_and_its_etag_is_adopted(
    store: TestStore, storage: ScriptedStorage, tmp_path: Path
) -> None:
    copy_tier(storage)
    await read_whole(store)
    assert all_adopted(store)
    store.settle()
    with recovered(tmp_path / "recovered", storage) as found:
        assert recorded_etags(found.store) == recorded_etags(store), "the journal does not tell"


async def test_an_etag_that_was_adopted_costs_no_further_request(
    store: TestStore, storage: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HedgePolicy, "allowed", False)  # a busy machine sends second requests
    await read_whole(store)
    usual = len(storage.reads)
    copy_tier(storage)
    storage.reads.clear()
    await read_whole(store)
    objects = len({read.name for read in storage.reads})
    assert usual < len(storage.reads) <= usual + 2 * objects, "known etags are met again and again"
    storage.reads.clear()
    await read_whole(store)
    assert len(storage.reads) == usual


async def test_reads_of_an_unchanged_tier_write_nothing(store: TestStore) -> None:
    before = store.metadata.last_transaction_id()
    await read_whole(store)
    assert store.metadata.last_transaction_id() == before


@pytest.mark.parametrize("copied", [False, True])
async def test_one_bad_bit_costs_its_block_and_no_other(
    store: TestStore, storage: ScriptedStorage, copied: bool
) -> None:
    flip_cold(store, "s", 5 * BLOCK + 17)
    if copied:
        copy_tier(storage)
    bad = range(4 * BLOCK, 7 * BLOCK)  # blocks of objects are not those of the segment
    lost: list[int] = []
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("s").id)
        for at in range(0, len(DATA), STEP):
            try:
                assert bytes(await handle.read(at, STEP)) == DATA[at : at + STEP]
            except DataLoss:
                assert at in bad
                lost.append(at)
        handle.close()
    assert 0 < len(lost) <= BLOCK // STEP + 1
    assert 5 * BLOCK + 17 in range(lost[0], lost[-1] + STEP)


async def test_a_good_block_behind_a_bad_one_is_served_to_whom_one_fetch_of_both_was_begun(store: TestStore) -> None:
    flip_cold(store, "s", 2 * BLOCK + 17)
    served: dict[int, bytes] = {}
    async with reader_of(store) as reader, trio.open_nursery() as nursery:
        handle = reader.open(store.segment("s").id)

        async def read(at: int) -> None:
            served[at] = bytes(await handle.read(at, BLOCK))

        for block in (0, 1, 3, 4):  # the first read of a file asks for its first MiB
            nursery.start_soon(read, block * BLOCK)
    assert served == {at: DATA[at : at + BLOCK] for at in (0, BLOCK, 3 * BLOCK, 4 * BLOCK)}


@pytest.mark.parametrize("failures", [2, 100])
async def test_a_good_block_is_served_though_spans_fail_again_for_another_one_but_not_for_ever(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    async with reader_of(store) as reader:
        monkeypatch.setattr(reader._prover, "whole_chunk", lambda _: None)
        original, left = reader.fetcher.wait_for, [BlockDiffers("bad", ByteRange(3 * BLOCK, 4 * BLOCK))] * failures

        async def wait_for(span: Span, wanted: ByteRange) -> None:
            if left:
                raise left.pop()
            await original(span, wanted)

        monkeypatch.setattr(reader.fetcher, "wait_for", wait_for)
        handle = reader.open(store.segment("s").id)
        if failures == 2:
            assert bytes(await handle.read(BLOCK, 100)) == DATA[BLOCK : BLOCK + 100]
        else:
            with pytest.raises(DataLoss):
                await handle.read(BLOCK, 100)
        handle.close()


@pytest.mark.parametrize("length", [-1, 1, 2 * BLOCK + 5], ids=["a byte short", "a byte long", "cut"])
async def test_an_object_of_another_length_is_served_as_far_as_it_proves_right_and_not_adopted(
    store: TestStore, storage: ScriptedStorage, length: int
) -> None:
    """Blocks before the end are served, also to those whose read-ahead reaches beyond it."""
    holder, _ = holder_at(store, "s", Tier.COLD, 700_000)
    put_other(storage, holder.name, lambda data: (data + b"x")[: len(data) + length if abs(length) == 1 else length])
    kept = holder.length if length == 1 else (holder.length - 1 if length == -1 else length) // BLOCK * BLOCK
    (start,) = (one.chunk.start_offset for one in store.layout("s").cold if one.object.id == holder.id)
    lost: list[int] = []
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("s").id)
        for at in range(0, len(DATA), STEP):
            try:
                assert bytes(await handle.read(at, STEP)) == DATA[at : at + STEP]
            except DataLoss:
                lost.append(at)
        handle.close()
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
    prover = Prover(store.metadata, store.files, lambda _: storage, Etags(store.metadata))
    Warmer(cache, store.metadata, lambda _: storage, metrics, Meter(), 2, prover).run(wanted)
    assert all(cache.holds(holder.id, 0) for holder in holders)
    assert all_adopted(store)


async def test_a_store_that_may_change_nothing_keeps_them_to_itself(
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


def test_an_object_whose_etag_never_stays_fills_no_journal(store: TestStore, storage: ScriptedStorage) -> None:
    holder, _ = holder_at(store, "s", Tier.COLD, 0)
    known = Etags(store.metadata)
    view = memoryview(bytearray(holder.length))
    adopted = 0
    for number in range(10):
        copy_tier(storage, f"-{number}")
        known.proved(holder, known.read_into(storage, holder, 0, view))
        adopted += known.adopt()
    assert adopted == 3


def test_an_etag_that_several_reads_meet_is_proved_once_and_for_all(store: TestStore, storage: ScriptedStorage) -> None:
    """Each of them asked for the recorded etag before the first one met the other."""
    holder, _ = holder_at(store, "s", Tier.COLD, 0)
    known = Etags(store.metadata)
    for _ in range(5):
        known.meet(holder, "other", holder.length)
        known.proved(holder, "other")
    known.meet(holder, "other", holder.length)  # of a second request, that another one overtook
    assert known.adopt() == 1
    assert "other" in recorded_etags(store)


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
    assert "other" not in recorded_etags(store)


def test_bytes_that_were_asked_for_without_an_etag_prove_none(store: TestStore, storage: ScriptedStorage) -> None:
    holder, _ = holder_at(store, "s", Tier.COLD, 0)
    known = Etags(store.metadata)
    known.meet(holder, "other", holder.length)
    assert not known.proved(holder, None)
    assert known.adopt() == 0
    assert known.proved(holder, "other")
    assert known.adopt() == 1
