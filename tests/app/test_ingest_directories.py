"""Modes of the directories that ingest copies: kept everywhere, shown by mounts, and set before a file is in one."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.commands import new_store, tierfs
from tests.mount.other_user import require_root, seen
from tests.mount.waiting import eventually
from tierfs.app.store import open_store
from tierfs.metadata import directories

MODES = {"": 0o755, "private": 0o700, "private/deep": 0o755, "shared": 0o2775, "odd": 0o111}
SHOWN = {"": 0o555, "private": 0o500, "private/deep": 0o555, "shared": 0o555, "odd": 0o511}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return new_store(tmp_path)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    path = tmp_path / "files"
    for name in MODES:
        (path / name).mkdir(exist_ok=True)
        (path / name / "file").write_bytes(b"secret")
        (path / name / "file").chmod(0o644)
    for name, mode in MODES.items():
        (path / name).chmod(mode)
    return path


def modes(store: Path) -> dict[str, int]:
    """The modes of the directory `in` and those below it."""
    found = {}
    with open_store(store) as opened, opened.metadata.read() as txn:
        for name in MODES:
            entry = directories.must_find(txn, f"in/{name}".rstrip("/"))
            found[name] = stat.S_IMODE(directories.directory(txn, entry.id).mode)
    return found


def test_ingest_keeps_them(store: Path, files: Path) -> None:
    tierfs("ingest", files, "--into", "in", store=store)
    assert modes(store) == MODES


def test_a_repeated_ingest_takes_what_changed_and_writes_nothing_else(store: Path, files: Path) -> None:
    tierfs("append", "in/private/older", store=store, stdin=b"x")
    tierfs("ingest", files, "--into", "in", store=store)
    assert modes(store) == MODES
    (files / "shared").chmod(0o700)
    tierfs("ingest", files, "--into", "in", store=store)
    assert modes(store) == MODES | {"shared": 0o700}
    with open_store(store) as opened:
        before = opened.metadata.last_transaction_id()
    tierfs("ingest", files, "--into", "in", store=store)
    with open_store(store) as opened:
        assert opened.metadata.last_transaction_id() == before


def test_directories_that_become_one_have_what_all_of_them_permit(store: Path, files: Path) -> None:
    (files / "private/other").write_bytes(b"secret")
    (files / "private/file").unlink()
    tierfs("ingest", f"{files}/private/.", f"{files}/.", "--into", "in", store=store)
    assert modes(store) == MODES | {"": 0o700}


def test_directories_that_keep_their_names_keep_their_modes(store: Path, files: Path) -> None:
    several = [files / name for name in ("private", "shared", "odd", "file")]
    tierfs("ingest", *several, "--into", "in", store=store)
    assert modes(store) == MODES | {"": 0}, "no directory was copied to `in` itself"


def test_a_segment_in_the_place_of_a_directory_is_an_error_of_its_files(store: Path, files: Path) -> None:
    tierfs("append", "in/shared", store=store, stdin=b"x")
    done = tierfs("ingest", files, "--into", "in", store=store, check=False)
    assert done.code == 2
    assert "shared is a segment, not a directory" in done.err
    tierfs("rm", "in/shared", "--yes", store=store)
    tierfs("ingest", files, "--into", "in", store=store)
    assert modes(store) == MODES


def test_recovery_replicas_and_dumps_keep_them(store: Path, files: Path, tmp_path: Path) -> None:
    tierfs("ingest", files, "--into", "in", "--seal", store=store)
    tierfs("offload", store=store)
    tierfs("dump", tmp_path / "all", store=store)
    tierfs("-q", "replica", "--cold-dir", tmp_path / "cold", store=tmp_path / "replica")
    tierfs("-q", "load", tmp_path / "all", store=tmp_path / "loaded")
    tierfs("-q", "recover", "--cold-dir", tmp_path / "cold", "--yes", store=tmp_path / "recovered", check=False)
    assert [modes(tmp_path / name) for name in ("replica", "loaded", "recovered")] == [MODES] * 3


def test_the_roots_mode_is_kept_too(store: Path, files: Path, tmp_path: Path) -> None:
    files.chmod(0o750)
    tierfs("ingest", files, "--into", "/", "--seal", store=store)
    tierfs("offload", store=store)
    tierfs("-q", "recover", "--cold-dir", tmp_path / "cold", "--yes", store=tmp_path / "recovered", check=False)
    for path in (store, tmp_path / "recovered"):
        with open_store(path) as opened, opened.metadata.read() as txn:
            assert stat.S_IMODE(directories.directory(txn, 1).mode) == 0o750


@pytest.mark.mount
def test_a_mount_shows_them_and_other_users_read_what_the_originals_let_them(
    store: Path, files: Path, tmp_path: Path
) -> None:
    require_root()
    tierfs("ingest", files, "--into", "in", "--seal", store=store)
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    tierfs("-q", "mount", mnt, "-o", "allow_other", store=store)
    try:
        for name, mode in SHOWN.items():
            assert stat.S_IMODE((mnt / "in" / name).stat().st_mode) == mode, name
            assert (mnt / "in" / name / "file").read_bytes() == b"secret"
        readable = [name for name in MODES if seen(mnt, f"in/{name}/file") == b"secret"]
        assert readable == ["", "shared", "odd"]
        (files / "shared").chmod(0o700)
        tierfs("ingest", files, "--into", "in", store=store)
        assert eventually(lambda: seen(mnt, "in/shared/file") is None)
    finally:
        tierfs("-q", "umount", mnt, store=store)
