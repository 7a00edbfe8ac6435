"""The background writer over hours of fake time: what becomes cold, goes, waits and is asked for."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.holder.holding import (
    HOUR_S,
    MINUTE_S,
    SETTLED_S,
    SLOWLY,
    FlakyStorage,
    failures,
    nothing_left,
    set_policy,
    working,
)
from tests.stores import TestStore, assert_layout
from tierfs.config import BackgroundSettings
from tierfs.holder import requests
from tierfs.journal.publish import PROOF_S, Publisher
from tierfs.metadata import directories
from tierfs.metadata.environment import open_environment
from tierfs.metadata.store import MetadataStore
from tierfs.segments import streams
from tierfs.tiering.planner import Planner
from tierfs.tiering.snapshot import Snapshots
from tierfs.types import ROOT_DIRECTORY


async def test_the_slot_of_a_killed_reader_is_freed(store: TestStore, autojump_clock: MockClock) -> None:
    async with working(store):
        await trio.sleep(SETTLED_S)
        pid = read_and_die(store.metadata.path)
        environment = open_environment(store.metadata.path)
        assert str(pid) in environment.lmdb.readers()
        await trio.sleep(MINUTE_S)
        assert str(pid) not in environment.lmdb.readers()


def read_and_die(metadata: Path) -> int:
    """A process that is killed in the middle of a read; returns its pid."""
    code = f"""
import os, signal
from pathlib import Path
from tierfs.clock import SystemClock
from tierfs.metadata.records import RequestRecord
from tierfs.metadata.store import MetadataStore
with MetadataStore(Path({str(metadata)!r}), SystemClock()).read() as txn:
    txn.store
    os.kill(os.getpid(), signal.SIGKILL)
"""
    reader = subprocess.Popen([sys.executable, "-c", code])
    assert reader.wait(30) == -signal.SIGKILL
    return reader.pid


async def test_pauses_outlive_the_holder(
    store: TestStore, storage: FlakyStorage, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("does not answer")
    storage.down = True
    store.append("s", b"abcd")
    async with working(store, SLOWLY):
        await trio.sleep(HOUR_S)
    attempts = max(row.attempts for row in failures(store))
    async with working(store, SLOWLY):
        await trio.sleep(SETTLED_S)
    assert max(row.attempts for row in failures(store)) <= attempts + 1


async def test_the_owner_is_asked_for_at_each_check_however_recent_the_last_proof_is(
    store: TestStore, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    look = Publisher._judge

    def counted(self: Publisher, *arguments: Any, **named: Any) -> None:
        looks.append(trio.current_time())
        look(self, *arguments, **named)

    monkeypatch.setattr(Publisher, "_judge", counted)
    async with working(store, BackgroundSettings(owner_check_s=PROOF_S / 2)):
        await trio.sleep(2.2 * PROOF_S)
    # Half of the time would be left out: a superseded store acknowledges appends for `owner_check_s` only.
    assert len(looks) >= 4


async def test_the_high_watermark_holds_whatever_the_lag(store: TestStore, autojump_clock: MockClock) -> None:
    settings = BackgroundSettings(high_watermark_bytes=12)
    async with working(store, settings):
        writer = store.engine.open_writer("s")
        for _ in range(20):
            writer.append(b"abcd")
            await trio.sleep(SETTLED_S)
            assert store.segment("s").local.bytes <= 12
    assert store.segment("s").cold.bytes == 80


async def test_status_tells_since_when_the_oldest_byte_is_here_alone(
    store: TestStore, autojump_clock: MockClock
) -> None:
    set_policy(store, offload_after=str(HOUR_S))
    async with working(store):
        store.append("old", b"abcd", seal=True)
        await trio.sleep(HOUR_S / 2)
        store.append("new", b"abcd", seal=True)
        began_ms = store.segment("new").modified_ms
        await trio.sleep(HOUR_S / 2 + SETTLED_S)
        assert_layout(store, "old", local=[4], cold=[4])
        with store.metadata.read() as txn:
            assert txn.oldest_local_only_ms == began_ms


def test_snapshots_by_changes_equal_a_look_at_everything(store: TestStore) -> None:
    chosen = random.Random(3)
    kept = Planner()
    snapshots = Snapshots(store.metadata, kept)
    writers = {name: store.engine.open_writer(name) for name in "abc"}
    for _ in range(150):
        name = chosen.choice("abc")
        step = chosen.randrange(6)
        if step < 3:
            writers[name].append(bytes(chosen.randrange(1, 7)))
        elif step == 3:
            store.engine.roll(store.segment(name).id)
        elif step == 4:
            store.offload(name)
        else:
            store.evict(name)
        fresh = Planner()
        Snapshots(store.metadata, fresh).refresh()
        snapshots.refresh()
        snapshots.refresh_active()
        assert sorted(kept.views, key=lambda view: view.id) == sorted(fresh.views, key=lambda view: view.id)


async def test_streams_are_sealed_offloaded_and_forgotten_by_themselves(
    store: TestStore, autojump_clock: MockClock
) -> None:
    set_policy(store, seal_age=str(HOUR_S), retention_age=str(6 * HOUR_S))
    slow = BackgroundSettings(tick_s=MINUTE_S, request_poll_s=MINUTE_S)
    async with working(store, slow):
        writer = store.engine.open_writer("s")
        for number in range(24):
            writer.append(b"%04d" % number)
            await trio.sleep(HOUR_S / 2)
        segment = store.segment(f"s.{segment_start(store)}")
        assert 80 <= segment.length <= 96
        with store.metadata.read() as txn:
            names = [entry.name for entry in directories.entries(txn, ROOT_DIRECTORY)]
        assert "s" in names
        assert 6 <= len(names) <= 9
        assert store.segment("s").range.length_bytes == 0
        await trio.sleep(10 * HOUR_S)
        assert writer.append(b"x").start == 96  # an idle writer finds its way
        store.engine.close_writer(writer)
        await trio.sleep(10 * HOUR_S)
        assert nothing_left(store)
        assert list(store.cold.list("segments/")) == []


def segment_start(store: TestStore) -> int:
    """Return the first offset of the newest member of the stream `s`."""
    with store.metadata.read() as txn:
        return streams.newest(txn, directories.segment_by_name(txn, "s")).first_offset


async def test_commits_of_others_do_not_make_the_holder_look_for_requests_without_a_pause(
    store: TestStore, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def none(metadata: MetadataStore, _: object) -> None:
        nonlocal looks
        looks += 1
        with metadata.write() as txn:  # as an append does that comes in between
            txn.touch()

    monkeypatch.setattr(requests, "take_next", none)
    async with working(store):
        await trio.sleep(10)
    assert 10 < looks <= 10 / BackgroundSettings().request_poll_s + 1
