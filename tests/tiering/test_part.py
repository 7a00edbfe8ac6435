"""Offload and evict of a part: what lies before an offset, or all but the newest bytes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.ledgers import new_ledger
from tests.mount.waiting import eventually
from tests.stores import TestStore, assert_layout, quiet
from tests.upkeep.holder.test_perform import Command, served
from tierfs.base.words.errors import InvalidRequest, IsDirectory
from tierfs.base.words.types import ROOT_DIRECTORY
from tierfs.engine.metadata import policies
from tierfs.tiering.part import MovedPart
from tierfs.upkeep.holder.verbs import BEFORE_OFFSET, DRY_RUN, EVICT_PART, KEEP, OFFLOAD_PART

# Chunks of 4 bytes, objects of 8, as tests have them: complete at 4, 8, 12, and a last one of 2 that is appended to.
DATA = b"abcdefghijklmn"


@pytest.fixture
def grown(store: TestStore) -> TestStore:
    store.append("d/s", DATA)
    assert_layout(store, "d/s", local=[4, 4, 4, 2], cold=[])
    return store


def offload(store: TestStore, path: str, part: MovedPart) -> int:
    with store.holding() as work:
        return work.offload(path, quiet, part).bytes


def evict(store: TestStore, path: str, keep_bytes: int, *, dry_run: bool = False) -> int:
    with store.holding() as work:
        return work.evict(path, force=False, dry_run=dry_run, report=quiet, part=MovedPart(keep_bytes=keep_bytes)).bytes


@pytest.mark.parametrize(
    ("before", "cold", "active"),
    [
        (0, 0, True),
        (1, 4, True),
        (4, 4, True),
        (5, 8, True),
        (8, 8, True),
        (12, 12, True),
        (13, 14, False),  # it lies in the chunk that is appended to, which ends
        (14, 14, False),
    ],
)
def test_every_byte_before_an_offset_is_cold_with_the_rest_of_its_chunk(
    grown: TestStore, before: int, cold: int, active: bool
) -> None:
    offload(grown, "d/s", MovedPart(before))
    record = grown.segment("d/s")
    assert (record.cold.bytes, record.active) == (cold, active)
    assert grown.read("d/s") == DATA
    assert offload(grown, "d/s", MovedPart(before)) == 0, "repeating it does nothing"


def test_an_offset_within_what_is_cold_or_evicted_already(grown: TestStore) -> None:
    offload(grown, "d/s", MovedPart(8))
    grown.evict("d/s")
    assert offload(grown, "d/s", MovedPart(6)) == 0
    assert offload(grown, "d/s", MovedPart(12)) == 4
    assert_layout(grown, "d/s", local=[4, 2], cold=[8, 4])


def test_an_offset_is_of_one_segment_and_within_it(grown: TestStore) -> None:
    ledger = new_ledger(grown, [b"entry"])
    for path, part, error, told in (
        ("d/s", MovedPart(15), InvalidRequest, "d/s ends at 14: there is no offset 15"),
        ("d", MovedPart(1), IsDirectory, "an offset needs a segment"),
        ("", MovedPart(1), IsDirectory, "/ is a directory"),
        (ledger, MovedPart(1), InvalidRequest, "which moves as a whole"),
    ):
        with pytest.raises(error, match=told):
            offload(grown, path, part)
    assert_layout(grown, "d/s", local=[4, 4, 4, 2], cold=[])


@pytest.mark.parametrize(
    ("keep", "cold"), [(0, 14), (1, 12), (2, 12), (3, 8), (6, 8), (7, 4), (10, 4), (11, 0), (99, 0)]
)
def test_at_least_the_newest_bytes_stay_here_alone(grown: TestStore, keep: int, cold: int) -> None:
    grown.append("other", b"12345678", seal=True)
    offload(grown, "d", MovedPart(keep_bytes=keep))
    record = grown.segment("d/s")
    assert (record.cold.bytes, record.active) == (cold, keep > 0), "what is appended to is the newest"
    assert grown.segment("other").cold.bytes == 0


@pytest.mark.parametrize(
    ("keep", "local"), [(0, [2]), (2, [2]), (3, [4, 2]), (6, [4, 2]), (7, [4, 4, 2]), (99, [4, 4, 4, 2])]
)
def test_eviction_leaves_at_least_the_newest_bytes_here(grown: TestStore, keep: int, local: list[int]) -> None:
    offload(grown, "d/s", MovedPart(12))
    would = evict(grown, "d/s", keep, dry_run=True)
    assert_layout(grown, "d/s", local=[4, 4, 4, 2], cold=[8, 4])
    assert evict(grown, "d/s", keep) == would
    assert_layout(grown, "d/s", local=local, cold=[8, 4])
    assert grown.read("d/s") == DATA


def test_the_newest_are_counted_through_a_stream(store: TestStore) -> None:
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": "4", "object_bytes": "8", "seal_bytes": "8"})
    writer = store.engine.open_writer("s")
    for _ in range(5):
        writer.append(b"1234")
    writer.close()
    names = ["s", "s.8", "s.16"]
    offload(store, "", MovedPart(keep_bytes=9))
    assert [store.segment(name).cold.bytes for name in names] == [8, 0, 0], "4 of the last, 5 of the one before"
    offload(store, "", MovedPart(keep_bytes=8))
    assert [store.segment(name).cold.bytes for name in names] == [8, 4, 0]
    offload(store, "", MovedPart())
    assert [store.segment(name).cold.bytes for name in names] == [8, 8, 4]


@pytest.mark.parametrize(("keep", "cold"), [(0, 3), (1, 2), (2, 2), (3, 1), (4, 1), (5, 0)])
def test_ledgers_of_a_managed_ledger_move_as_a_whole(store: TestStore, keep: int, cold: int) -> None:
    names = [new_ledger(store, [b"12"], "t") for _ in range(3)]
    offload(store, "t", MovedPart(keep_bytes=keep))
    found = [store.segment(name).whole_in_cold for name in names]
    assert found == [True] * cold + [False] * (3 - cold)


def test_a_holder_moves_a_part_when_it_is_asked(grown: TestStore) -> None:
    command = Command(grown, "d/s", OFFLOAD_PART, {BEFORE_OFFSET: "5"})
    served(grown, command)
    assert command.error is None
    assert (command.result.bytes, grown.segment("d/s").cold.bytes) == (8, 8)
    for options, left in (({KEEP: "4", DRY_RUN: "1"}, 4), ({KEEP: "99"}, 4), ({KEEP: "9"}, 3)):
        command = Command(grown, "d/s", EVICT_PART, options)
        if DRY_RUN in options:
            command.run()
        else:
            served(grown, command)
        assert command.error is None
        assert grown.segment("d/s").local.count == left


def test_a_command_moves_a_part_through_a_daemon(tmp_path: Path) -> None:
    store, cold = tmp_path / "store", tmp_path / "cold"
    cold.mkdir()
    tierfs("-q", "init", "--cold-dir", cold, store=store)
    tierfs("-q", "config", "/", "chunk_bytes=1MiB", "offload_after=off", store=store)
    tierfs("-q", "append", "logs/a", store=store, stdin=bytes(3_500_000))
    tierfs("-q", "daemon", store=store)
    try:
        done = tierfs("offload", "logs/a", "--before", "1.5MiB", "--json", store=store).json
        assert done["bytes"] == 2 << 20
        done = tierfs("offload", "--keep", "500000", "--json", store=store).json
        assert (done["bytes"], done["already_cold_bytes"]) == (0, 2 << 20)
        assert tierfs("evict", "--keep", "2MiB", store=store).out.startswith("evicted 1 MiB in 1 chunk")
    finally:
        pid = tierfs("status", "--json", store=store).json["holder"]["pid"]
        os.kill(pid, signal.SIGTERM)
        assert eventually(lambda: tierfs("status", "--json", store=store).json["holder"] is None)
    assert tierfs("info", "logs/a", "--json", store=store).json["tiers"]["local"]["bytes"] == 3_500_000 - (1 << 20)
