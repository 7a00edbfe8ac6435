"""Every damage is found, what can be mended is, and nothing changes without --repair."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path

import pytest

from tests import verbs
from tests.upkeep.check import checked, damaged_bytes, damaged_records
from tests.upkeep.check.checked import append, read
from tests.upkeep.check.damage import Damage, local_path
from tierfs.app.setup.create import init_store
from tierfs.app.store import open_store
from tierfs.base.words.errors import Unavailable
from tierfs.base.words.types import ROOT_DIRECTORY
from tierfs.engine.metadata import policies
from tierfs.upkeep.check import metadata_probe
from tierfs.upkeep.check.findings import Kind, Severity
from tierfs.upkeep.holder.lock import HeldElsewhere, hold

DAMAGES = damaged_records.DAMAGES | damaged_bytes.DAMAGES

CONTENT = {"s": b"abcdefghij", "t": b"klmnopq", "c": b"rstuvwxyz", "d/e": b"0123"}


run_check = partial(checked.run_check, deep=True)


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`s` in both tiers, `t` and `d/e` local, `c` cold; a local chunk has 4 bytes, an object 8."""
    where = tmp_path_factory.mktemp("origin") / "store"
    init_store(where)
    with open_store(where) as store:
        with store.metadata.write() as txn:
            policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": "4", "object_bytes": "8"})
        for name in ("s", "c"):
            append(store, name, CONTENT[name], seal=True)
            verbs.offload(store, name)
        verbs.evict(store, "c", force=True)
        for name in ("t", "d/e"):
            append(store, name, CONTENT[name])
    return where


@pytest.fixture
def path(origin: Path, tmp_path: Path) -> Path:
    """A store of each test's own."""
    return shutil.copytree(origin, tmp_path / "store")


def rows(path: Path) -> dict[bytes, list[tuple[bytes, bytes]]]:
    """All of the metadata."""
    with open_store(path) as store, store.metadata.read() as txn:
        return {name: list(txn.scan_raw(name)) for name in txn._databases}


def readable(path: Path) -> dict[str, bytes | None]:
    """Return each segment's bytes; None if they cannot be read."""
    with open_store(path) as store:
        return {name: read(store, name) for name in CONTENT}


def files_of(path: Path) -> dict[Path, bytes]:
    """All files but those of the metadata."""
    return {file: file.read_bytes() for file in path.rglob("*/*") if file.is_file() and "metadata" not in file.parts}


@pytest.fixture(params=DAMAGES.values(), ids=DAMAGES.keys())
def damage(request: pytest.FixtureRequest, path: Path) -> Damage:
    with open_store(path) as store:
        request.param.do(store)
    return request.param


def test_a_sound_store_is_clean(path: Path) -> None:
    said, summary = run_check(path)
    assert said == []
    assert (summary.segments, summary.files, summary.read_bytes > 0) == (4, 6, True)
    assert run_check(path, repair=True)[0] == []


def test_every_damage_is_found_and_nothing_is_changed(damage: Damage, path: Path) -> None:
    before, files = rows(path), files_of(path)
    said, summary = run_check(path, deep=damage.deep)
    assert damage.kind in {one.finding.kind for one in said}, [one.finding for one in said]
    assert summary.damaged > 0
    assert not any(one.mended for one in said)
    assert (rows(path), files_of(path).keys()) == (before, files.keys())


def test_what_can_be_mended_is(damage: Damage, path: Path) -> None:
    said, summary = run_check(path, repair=True)
    mine = [one for one in said if one.finding.kind is damage.kind]
    assert mine
    if not damage.mended:
        assert all(not one.mended for one in mine), mine
        assert summary.damaged > 0
        return
    assert summary.damaged == 0, [one for one in said if not one.mended]
    assert bool(summary.lost) == damage.lost
    left, _ = run_check(path)
    assert [one for one in left if one.finding.severity is not Severity.NOTE] == []
    found = readable(path)
    gone = {name for name in CONTENT if found[name] != CONTENT[name]}
    assert len(gone) == (1 if damage.lost else 0), found


def test_a_file_that_can_still_be_written_to_is_a_note_that_repair_mends(path: Path) -> None:
    """A failed chmod after a commit leaves it: no byte is in danger."""
    with open_store(path) as store:
        file = local_path(store, "s")
        file.chmod(0o600)
    said, summary = run_check(path)
    assert [(one.finding.kind, one.finding.severity) for one in said] == [(Kind.FILE_MODE, Severity.NOTE)]
    assert summary.damaged == 0
    assert [one.mended for one in run_check(path, repair=True)[0]] == [True]
    assert file.stat().st_mode & 0o777 == 0o440
    assert run_check(path)[0] == []


def test_after_the_mend_everything_becomes_cold_again(path: Path) -> None:
    for name in ("bit_of_an_object_that_is_local_too", "name_of_a_directory_gone", "checksums_of_an_object_gone"):
        with open_store(path) as store:
            DAMAGES[name].do(store)
        run_check(path, repair=True)
    with open_store(path) as store:
        verbs.offload(store)
        verbs.evict(store, force=True)
    assert run_check(path)[0] == []
    assert readable(path) == CONTENT


def test_repair_is_refused_while_somebody_holds_the_store(path: Path) -> None:
    with open_store(path) as store, hold(store.paths.holder, store.clock):
        assert run_check(path)[0] == []
        with pytest.raises(HeldElsewhere):
            run_check(path, repair=True)


def test_metadata_that_kills_its_reader_is_a_finding(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # a child is killed
    data = path / "metadata" / "data.mdb"
    size = data.stat().st_size
    with data.open("r+b") as file:
        file.truncate(size // 2 // 4096 * 4096)
    said, summary = run_check(path)
    assert [one.finding.kind.value for one in said] == ["metadata-unreadable"]
    assert "tierfs recover" in (said[0].finding.remedy or "")
    assert summary.damaged == 1


ENDS = {
    "cannot start": "import nothing_of_this_name",
    "a file of the caller": "raise SystemExit(3)",
    "killed": "import os; print('reading', flush=True); os.kill(os.getpid(), 9)",
    "no memory": "print('reading', flush=True); raise SystemExit(1)",
    "crash before": "import os; os.kill(os.getpid(), 11)",
}


@pytest.mark.parametrize("program", ENDS.values(), ids=ENDS)
def test_a_reader_that_ends_for_another_reason_accuses_nothing(
    path: Path, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # a child ends
    monkeypatch.setattr(metadata_probe.processes, "python", lambda *_: [sys.executable, "-c", program])
    with pytest.raises(Unavailable, match="could not be checked") as caught:
        run_check(path)
    assert "recover" not in f"{caught.value} {caught.value.remedy}"


def test_a_single_fault_of_a_reader_is_no_proof(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import os, sys; print('reading', flush=True); first = not os.path.exists(sys.argv[1]);"
        "open(sys.argv[1], 'w').close(); first and os.kill(os.getpid(), 11)"
    )
    once = [sys.executable, "-c", program, str(tmp_path / "once")]
    monkeypatch.undo()  # a child is killed
    monkeypatch.setattr(metadata_probe.processes, "python", lambda *_: once)
    assert run_check(path)[0] == []
    assert (tmp_path / "once").exists()
