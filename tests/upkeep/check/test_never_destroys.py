"""Invariant 13: repair never destroys. Missing bytes keep their name, and are taken back once they prove right."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests import verbs
from tests.commands import tierfs
from tests.upkeep.check import checked
from tests.upkeep.check.checked import append, read
from tests.upkeep.check.damage import chunk_of, cold_path, flip, local_path
from tierfs.app.adopt import OBJECTS, Adopted, Adopter
from tierfs.app.check import verify
from tierfs.app.setup.create import init_store
from tierfs.app.store import Store, open_store
from tierfs.base.bytes.progress import Meter, unseen
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ROOT_DIRECTORY, ByteRange, ChunkState, Tier
from tierfs.engine.metadata import chains, directories, policies
from tierfs.engine.metadata.tables import CHUNKS
from tierfs.upkeep.check.findings import Kind, Severity

CONTENT = {name: random.Random(name).randbytes(3 * CRC_BLOCK_BYTES) for name in ("a", "b", "c")}
BLOCK = CRC_BLOCK_BYTES


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An empty store with its cold tier in a directory."""
    where = tmp_path / "store"
    init_store(where)
    return where


def filled(path: Path, tier: Tier | None) -> Path:
    """Three segments of one chunk each, in one tier alone, or in both; return the place of `a`'s copy, the cold one."""
    with open_store(path) as store:
        with store.metadata.write() as txn:
            policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": str(MIB), "object_bytes": str(MIB)})
        for name, data in CONTENT.items():
            append(store, name, data, seal=True)
        if tier is Tier.LOCAL:
            return local_path(store, "a")
        verbs.offload(store)
        if tier is Tier.COLD:
            verbs.evict(store, force=True)
        return cold_path(store, "a")


run_check = partial(checked.run_check, repair=True)


def everything(path: Path) -> dict[str, bytes | None]:
    with open_store(path) as store:
        return {name: read(store, name) for name in CONTENT}


def extents(store: Store, name: str, tier: Tier) -> list[tuple[int, ChunkState]]:
    with store.metadata.read() as txn:
        segment = directories.segment_by_name(txn, name)
        return [(chunk.length, chunk.state) for chunk in chains.chunks(txn, segment.id, tier)]


def lose_one_object(path: Path) -> Callable[[], object]:
    """Take `a`'s object away, have its bytes recorded as lost and all garbage deleted; returns what puts it back."""
    where = filled(path, Tier.COLD)
    away = path.parent / "away"
    where.rename(away)
    _, summary = run_check(path)
    assert (summary.lost, summary.damaged) == (1, 0)
    with open_store(path) as store:
        assert extents(store, "a", Tier.COLD) == [(3 * BLOCK, ChunkState.LOST)]
        assert read(store, "a") is None
        assert verbs.collect(store, grace_s=0).deleted == 0
    return lambda: away.rename(where)


def by_check(path: Path) -> None:
    assert run_check(path)[1].lost == 0, "recorded once"


def taken_back_by_check(path: Path) -> None:
    said, summary = run_check(path)
    assert [(one.finding.kind, one.mended) for one in said] == [(Kind.LOST, True)]
    assert (summary.mended, summary.damaged) == (1, 0)


def by_verify(path: Path) -> None:
    with open_store(path) as store:
        (found,) = verify(store, "a", unseen)
    assert (found.lost, found.bad, found.marked) == ([ByteRange(0, 3 * BLOCK)], [], 0)


def taken_back_by_verify(path: Path) -> None:
    with open_store(path) as store:
        (found,) = verify(store, "a", unseen)
    assert (found.ok, found.marked) == (True, 1)


def taken_back_by_a_read(path: Path) -> None:
    assert everything(path) == CONTENT


@pytest.mark.parametrize(
    ("look", "take_back"),
    [(by_check, taken_back_by_check), (by_verify, taken_back_by_verify), (by_check, taken_back_by_a_read)],
    ids=["check", "verify", "a read"],
)
def test_an_object_that_comes_back_is_taken_back(
    path: Path, look: Callable[[Path], None], take_back: Callable[[Path], None]
) -> None:
    put_back = lose_one_object(path)
    look(path)
    put_back()
    take_back(path)
    with open_store(path) as store:
        assert extents(store, "a", Tier.COLD) == [(3 * BLOCK, ChunkState.GOOD)]
        assert verbs.collect(store, grace_s=0).deleted == 0
    assert run_check(path, deep=True)[0] == []
    assert everything(path) == CONTENT


def test_a_read_takes_nothing_back_of_a_chunk_that_is_not_all_right(path: Path) -> None:
    put_back = lose_one_object(path)
    put_back()
    with open_store(path) as store:
        where = cold_path(store, "a")
        flip(where, 2 * BLOCK + 1)
        assert read(store, "a", 0, 10) == CONTENT["a"][:10]
        assert extents(store, "a", Tier.COLD) == [(3 * BLOCK, ChunkState.LOST)]


def test_what_was_lost_is_taken_back_after_a_recovery_from_the_journal(path: Path, tmp_path: Path) -> None:
    put_back = lose_one_object(path)
    with open_store(path) as store:
        assert verbs.settle(store) is None
    other = tmp_path / "other"
    assert tierfs("recover", "--cold-dir", path / "cold", store=other, check=False).code == 0
    with open_store(other) as store:
        assert extents(store, "a", Tier.COLD) == [(3 * BLOCK, ChunkState.LOST)]
    put_back()
    run_check(other)
    assert everything(other) == CONTENT
    assert run_check(other, deep=True)[0] == []


@pytest.mark.parametrize(
    ("away", "tier", "empty"),
    [
        ("cold/segments", Tier.COLD, False),
        ("cold", Tier.COLD, False),
        ("cold", Tier.COLD, True),
        ("chunks", Tier.LOCAL, True),
    ],
    ids=["own objects all away", "a cold directory is missing", "is not mounted", "a chunk directory is not mounted"],
)
def test_what_is_not_reachable_is_one_finding_and_nothing_is_lost(
    path: Path, away: str, tier: Tier, empty: bool
) -> None:
    filled(path, tier)
    (path / away).rename(path / "away")
    if empty:
        (path / away).mkdir(mode=0o700)
    said, summary = run_check(path, deep=True)
    assert [one.finding.kind for one in said] == [Kind.UNREACHABLE]
    assert (summary.lost, summary.mended, summary.damaged) == (0, 0, 1)
    if empty:
        (path / away).rmdir()
    (path / "away").rename(path / away)
    assert run_check(path, deep=True)[0] == []
    assert everything(path) == CONTENT


# Adopted places


def adopt(path: Path, theirs: Path) -> list[str]:
    """Adopt the files of a directory; what became of each."""
    with open_store(path) as store:
        adopter = Adopter(store, OBJECTS, "")
        planned: Adopted = adopter.plan(adopter.find(str(theirs)))
        adopter.adopt(planned, 2, Meter())
        adopter.settle()
        return [outcome.state.value if outcome.error is None else str(outcome.error) for outcome in planned.outcomes]


@pytest.fixture
def theirs(path: Path, tmp_path: Path) -> Path:
    """A place of others, all of which is adopted."""
    where = tmp_path / "theirs"
    where.mkdir()
    for name, data in CONTENT.items():
        (where / name).write_bytes(data)
    assert adopt(path, where) == ["adopted"] * 3
    return where


def test_an_adopted_place_that_is_not_mounted_is_one_finding_and_nothing_is_lost(path: Path, theirs: Path) -> None:
    away = theirs.with_name("away")
    theirs.rename(away)
    theirs.mkdir()
    said, summary = run_check(path, deep=True)
    assert [one.finding.kind for one in said] == [Kind.UNREACHABLE]
    assert "not accessible" in said[0].finding.message
    assert (summary.lost, summary.mended) == (0, 0)
    with open_store(path) as store:
        assert [found.marked for found in verify(store, "", unseen)] == [0, 0, 0]
    theirs.rmdir()
    away.rename(theirs)
    assert run_check(path, deep=True)[0] == []
    assert everything(path) == CONTENT


def test_an_adopted_object_that_comes_back_is_taken_back_by_adopting_again(path: Path, theirs: Path) -> None:
    kept = theirs / "b"
    kept.rename(theirs.with_name("away"))
    assert run_check(path)[1].lost == 1
    theirs.with_name("away").rename(kept)
    assert sorted(adopt(path, theirs)) == ["already adopted", "already adopted", "taken back"]
    with open_store(path) as store:
        assert extents(store, "b", Tier.COLD) == [(3 * BLOCK, ChunkState.GOOD)]
    assert run_check(path, deep=True)[0] == []
    assert everything(path) == CONTENT


def test_an_adopted_object_of_other_bytes_is_not_taken_back(path: Path, theirs: Path) -> None:
    kept = theirs / "b"
    flip(kept, BLOCK + 1)
    assert run_check(path, deep=True)[1].lost == 1
    (said,) = [text for text in adopt(path, theirs) if text != "already adopted"]
    assert "differs from the" in said
    flip(kept, BLOCK + 1)
    assert "taken back" in adopt(path, theirs)
    assert everything(path) == CONTENT


def test_adopting_a_copy_of_the_place_again_takes_its_etags_for_those_to_come(path: Path, theirs: Path) -> None:
    for file in theirs.iterdir():
        os.utime(file, (1, 1))
    assert adopt(path, theirs) == ["taken back"] * 3
    assert adopt(path, theirs) == ["already adopted"] * 3
    assert everything(path) == CONTENT


# One block


def become_cold(path: Path) -> None:
    with open_store(path) as store:
        verbs.offload(store)
        verbs.evict(store, force=True)
        verbs.collect(store, grace_s=0)


def test_a_flipped_bit_of_a_local_chunk_costs_its_block_and_the_file_is_kept(path: Path) -> None:
    file = filled(path, Tier.LOCAL)
    flip(file, BLOCK + 7)
    _, summary = run_check(path, deep=True)
    assert (summary.lost_bytes, summary.damaged) == (BLOCK, 0)
    assert file.is_file(), "it is kept, whatever is left of it"
    good, lost = ChunkState.GOOD, ChunkState.LOST
    with open_store(path) as store:
        assert extents(store, "a", Tier.LOCAL) == [(BLOCK, good), (BLOCK, lost), (BLOCK, good)]
        assert read(store, "a", 0, BLOCK) == CONTENT["a"][:BLOCK]
        assert read(store, "a", 2 * BLOCK, None) == CONTENT["a"][2 * BLOCK :]
        assert read(store, "a", BLOCK, BLOCK + 1) is None
    become_cold(path)
    with open_store(path) as store:
        assert extents(store, "a", Tier.COLD) == [(BLOCK, good), (BLOCK, lost), (BLOCK, good)]
        assert extents(store, "a", Tier.LOCAL) == [(BLOCK, lost)]
    assert file.is_file()
    said, _ = run_check(path, deep=True)
    assert {one.finding.severity for one in said} == {Severity.NOTE}
    flip(file, BLOCK + 7)
    run_check(path)
    assert everything(path) == CONTENT
    become_cold(path)
    assert everything(path) == CONTENT
    assert not file.exists()
    assert run_check(path, deep=True)[0] == []


def test_a_file_cut_short_costs_its_tail_and_is_no_finding_ever_after(path: Path) -> None:
    file = filled(path, Tier.LOCAL)
    file.chmod(0o640)
    whole = file.read_bytes()
    file.write_bytes(whole[: BLOCK + 5])
    assert run_check(path)[1].lost_bytes == 2 * BLOCK
    assert run_check(path, deep=True, repair=False)[1].damaged == 0
    file.write_bytes(whole)
    run_check(path)
    assert everything(path) == CONTENT


def test_a_good_cold_copy_stays_when_a_part_of_a_lost_local_chunk_comes_back(
    path: Path, expected_warnings: list[str]
) -> None:
    expected_warnings.append("is read from the cold tier instead")
    cold = filled(path, None)
    with open_store(path) as store:
        copies = [cold, local_path(store, "a")]
    away = [path.parent / "away-cold", path.parent / "away-local"]
    for copy, place in zip(copies, away, strict=True):
        copy.rename(place)
    assert run_check(path)[1].lost_bytes == 3 * BLOCK
    away[0].rename(copies[0])
    with open_store(path) as store:
        assert read(store, "a") == CONTENT["a"]
        assert extents(store, "a", Tier.COLD) == [(3 * BLOCK, ChunkState.GOOD)]
        assert extents(store, "a", Tier.LOCAL) == [(3 * BLOCK, ChunkState.LOST)]
    flip(away[1], BLOCK + 7)
    away[1].rename(copies[1])
    run_check(path, deep=True)
    with open_store(path) as store:
        assert extents(store, "a", Tier.COLD) == [(3 * BLOCK, ChunkState.GOOD)]


def test_an_object_without_chunks_is_kept_until_another_copy_proves_right(path: Path) -> None:
    where = filled(path, None)
    with open_store(path) as store:
        file = local_path(store, "a")
        with store.metadata.write() as txn:
            key, _ = chunk_of(txn, "a", Tier.COLD)
            txn.delete(CHUNKS.name, key)
    flip(file, BLOCK + 7)
    said, _ = run_check(path)
    (unused,) = [one for one in said if one.finding.kind is Kind.OBJECT_UNUSED]
    assert "only copy" in (unused.left or "")
    with open_store(path) as store:
        verbs.collect(store, grace_s=0)
    assert where.is_file()
    flip(file, BLOCK + 7)
    said, _ = run_check(path)
    assert Kind.OBJECT_UNUSED in {one.finding.kind for one in said if one.mended}
    assert everything(path) == CONTENT


# The question and the exit code


def test_nothing_is_recorded_as_lost_without_a_yes(path: Path) -> None:
    filled(path, Tier.COLD).unlink()
    asked: list[tuple[str, int]] = []

    def decline(segment: str, lost_bytes: int) -> bool:
        asked.append((segment, lost_bytes))
        return False

    said, summary = run_check(path, may_lose=decline)
    assert asked == [("a", 3 * BLOCK)]
    assert (summary.lost_bytes, summary.mended) == (0, 0)
    assert "--yes" in (said[0].left or "")
    with open_store(path) as store:
        assert extents(store, "a", Tier.COLD) == [(3 * BLOCK, ChunkState.GOOD)]


def test_a_loss_is_told_by_the_exit_code_even_after_verify_marked_it(path: Path) -> None:
    where = filled(path, Tier.COLD)
    where.rename(path / "away")
    assert tierfs("check", "a", store=path, check=False).code == 74
    done = tierfs("check", "--repair", store=path, check=False)
    assert (done.code, "--yes" in done.out) == (74, True)
    done = tierfs("check", "--repair", "--yes", store=path, check=False)
    assert done.code == 74, "bytes are lost now"
    assert "recorded as lost: 384 KiB" in done.out
    assert tierfs("check", store=path, check=False).code == 0
    (path / "away").rename(where)
    assert tierfs("check", "--repair", store=path, check=False).code == 1, "mended, and nothing is lost"
    assert tierfs("check", "--read", store=path).out.splitlines()[-1] == "clean"


def test_a_loss_of_the_local_tier_counts_once_and_not_as_waiting_to_be_offloaded(path: Path) -> None:
    file = filled(path, Tier.LOCAL)
    flip(file, BLOCK + 7)
    run_check(path, deep=True)
    with open_store(path) as store:
        status = verbs.status(store)
        assert (status.endangered.lost_bytes, status.not_offloaded_bytes) == (BLOCK, 8 * BLOCK)
        verbs.offload(store)
        status = verbs.status(store)
        assert (status.endangered.lost_bytes, status.not_offloaded_bytes) == (BLOCK, 0)
    assert run_check(path, deep=True)[1].damaged == 0
