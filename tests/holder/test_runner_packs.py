"""The background writer over hours of fake time: small chunks that go together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.holder.holding import HOUR_S, MINUTE_S, SETTLED_S, FlakyStorage, TrioClock, failures, working
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


async def test_packs_that_fail_are_one_trouble_and_go_on_when_it_is_over(
    tmp_path: Path, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings += ["pack failed", "publish failed", "owner failed"]
    cold = FlakyStorage()
    with open_test_store(tmp_path / "packs", policy=PACKING, clock=TrioClock(), cold=cold) as store:
        for number in range(30):
            store.append(f"s{number}", bytes([number]) * 100, seal=True)
        cold.down = True
        async with working(store):
            await trio.sleep(MINUTE_S)
            (row,) = [row for row in failures(store) if row.what == "pack"]
            assert row.attempts < 10
            cold.down = False
            await trio.sleep(HOUR_S)
        assert failures(store) == []
        assert len(list(store.cold.list("packs/"))) == 1


async def test_a_damaged_chunk_of_a_pack_is_listed_and_the_others_are_cold(
    tmp_path: Path, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("offload .* failed")
    with open_test_store(tmp_path / "packs", policy=PACKING, clock=TrioClock()) as store:
        for number in range(5):
            store.append(f"s{number}", bytes([number]) * 100, seal=True)
        path = store.files.root / store.layout("s3").local[0].object.name
        path.chmod(0o600)
        path.write_bytes(b"x" * 100)
        async with working(store):
            await trio.sleep(HOUR_S)
        (row,) = failures(store)
        assert (row.name, row.error_kind) == ("s3", "DataLoss")
        for name in ("s0", "s1", "s2", "s4"):
            assert_layout(store, name, local=[100], cold=[100])
