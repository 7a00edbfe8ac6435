"""The background writer over hours of fake time: small chunks that go together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.holder.holding import MINUTE_S, SETTLED_S, TrioClock, working
from tests.stores import assert_layout, open_test_store
from tierfs.holder import writer
from tierfs.tiering.packing import PackOffload
from tierfs.tiering.packs import read_index
from tierfs.tiering.snapshot import Snapshots

PACKING = {"chunk_bytes": "4096", "object_bytes": "65536"}
"""Objects below 4096 bytes are packed."""


async def test_small_objects_go_together(tmp_path: Path, autojump_clock: MockClock) -> None:
    with open_test_store(tmp_path / "packs", policy=PACKING, clock=TrioClock()) as store:
        for number in range(50):
            store.append(f"s{number}", bytes([number]) * 3000, seal=True)
        store.append("large", bytes(4096), seal=True)
        async with working(store):
            await trio.sleep(SETTLED_S)
        found = [item for item in store.cold.list("packs/")]
        assert len(found) <= 4
        for item in found:
            paths = [entry.path for entry in read_index(store.cold, item.name, item.length_bytes).entries]
            assert paths == sorted(paths)
        assert len(list(store.cold.list("segments/"))) == 1
        for number in range(50):
            assert_layout(store, f"s{number}", local=[3000], cold=[3000])


async def test_small_objects_wait_until_all_were_looked_at(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SLICE_S", 0.0)  # a look is one step of some segments
    with open_test_store(tmp_path / "packs", policy=PACKING, clock=TrioClock()) as store:
        for number in range(100):
            store.append(f"s{number}", bytes([number]) * 400, seal=True)
        async with working(store):
            await trio.sleep(SETTLED_S)
        assert len(list(store.cold.list("packs/"))) == 1
        assert all(store.segment(f"s{number}").cold.count for number in range(100))


async def test_what_went_into_packs_goes_once_and_is_looked_at_in_slices(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tierfs.holder.writer.SLICE_S", 0.0)
    looked = counted(monkeypatch, Snapshots, "_look_at")
    packed = counted(monkeypatch, PackOffload, "run")
    policy = {**PACKING, "offload_after": "30"}  # all are known when the first is due
    with open_test_store(tmp_path / "packs", policy=policy, clock=TrioClock()) as store:
        for number in range(50):
            store.append(f"s{number}", bytes([number]) * 100, seal=True)
        async with working(store):
            await trio.sleep(MINUTE_S)
        assert max(len(segment_ids) for (_, segment_ids) in looked) == 20
        assert [len(action.actions) for (_, action) in packed] == [50]
        assert all(store.segment(f"s{number}").cold.bytes == 100 for number in range(50))


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[tuple[Any, ...]]:
    """Record the arguments of each call of a method, in order."""
    found: list[tuple[Any, ...]] = []
    method = getattr(owner, name)

    def call(*arguments: Any) -> Any:
        found.append(arguments)
        return method(*arguments)

    monkeypatch.setattr(owner, name, call)
    return found
