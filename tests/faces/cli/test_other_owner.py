"""A store that another user owns is opened on request only: its metadata say what is written and deleted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Done, tierfs
from tierfs.app import check, dump, mount
from tierfs.app.sources import open_source
from tierfs.app.store import open_store
from tierfs.base.options.config import ColdSettings
from tierfs.base.system.store_paths import ALLOW_OTHER_OWNER, StorePaths, require_own
from tierfs.base.words.errors import PermissionDenied, TierfsError
from tierfs.pipeline.reader.extents import PlaceConnections, ScannedStore

OTHER_UID = 54321


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of another user."""
    if os.geteuid() != 0:
        pytest.skip("giving a store to another user needs root")
    store = tmp_path / "store"
    tierfs("-q", "init", "--cold", "none", store=store)
    tierfs("-q", "append", "s", store=store, stdin=b"abc")
    for place in (store, *store.rglob("*")):
        os.chown(place, OTHER_UID, -1)
    return store


def states(path: Path) -> dict[Path, int]:
    return {place: place.stat().st_mtime_ns for place in (path, *path.rglob("*"))}


def refused(done: Done) -> None:
    assert done.code == 4
    error, remedy = done.err.strip().splitlines()
    assert f"belongs to user {OTHER_UID}, not to user root (0)" in error
    assert "--allow-other-owner" in remedy
    assert f"{ALLOW_OTHER_OWNER}=1" in remedy


def test_what_a_store_makes_is_its_owners_alone(tmp_path: Path) -> None:
    store = tmp_path / "store"
    old = os.umask(0)
    try:
        tierfs("-q", "init", store=store)
        tierfs("-q", "append", "d/s", store=store, stdin=b"abc")
        tierfs("-q", "seal", "d/s", store=store)
        tierfs("-q", "offload", store=store)
    finally:
        os.umask(old)
    assert store.stat().st_mode & 0o777 == 0o700
    open_to_others = {place for place in store.rglob("*") if place.stat().st_mode & 0o022 and not place.is_symlink()}
    assert open_to_others == set()


@pytest.mark.parametrize(
    "words", [("ls",), ("cat", "s"), ("append", "s"), ("gc",), ("check",), ("daemon", "-f"), ("mount",)]
)
def test_no_command_opens_a_store_of_another_user(path: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "mnt").mkdir()
    before = states(path)
    more = (tmp_path / "mnt", "-f") if words == ("mount",) else ()
    refused(tierfs(*words, *more, store=path, check=False))
    assert states(path) == before, "not even a log is written there"


def test_the_flag_opens_a_store_of_another_user(path: Path) -> None:
    assert tierfs("--allow-other-owner", "cat", "s", store=path).out == "abc"
    assert tierfs("cat", "--allow-other-owner", "s", store=path).out == "abc"


def test_a_variable_opens_a_store_of_another_user_for_libraries_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    openers: list[Callable[[], object]] = [
        lambda: open_store(path).close(),
        lambda: open_source(str(path)).close(),
        lambda: check.Checking(path, check.Options(), lambda _: None, lambda _: None).run(),
    ]
    for value in ("", "0", "no"):
        monkeypatch.setenv(ALLOW_OTHER_OWNER, value)
        for opener in openers:
            with pytest.raises(PermissionDenied, match="belongs to user"):
                opener()
    for value in ("1", "true", "YES"):
        monkeypatch.setenv(ALLOW_OTHER_OWNER, value)
        for opener in openers:
            opener()


def test_a_mount_option_opens_a_store_of_another_user(path: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "none"
    with pytest.raises(PermissionDenied, match="belongs to user"):
        mount.mount_foreground(path, nowhere, "ro,allow_other")
    with pytest.raises(TierfsError) as caught:
        mount.mount_foreground(path, nowhere, "ro,allow_other_owner")
    assert str(nowhere) in str(caught.value)


def test_no_store_is_made_in_a_directory_of_another_user(tmp_path: Path, path: Path) -> None:
    dump_file = tmp_path / "dump"
    tierfs("--allow-other-owner", "-q", "backup", dump_file, store=path)
    empty = tmp_path / "empty"
    empty.mkdir(mode=0o755)
    os.chown(empty, OTHER_UID, -1)
    for words in (
        ("init", "--cold", "none"),
        ("recover", "--cold-dir", tmp_path),
        ("replica", "--cold-dir", tmp_path),
        ("restore", dump_file),
    ):
        refused(tierfs(*words, store=empty, check=False))
    with pytest.raises(PermissionDenied):
        dump.load_store(empty, dump_file)
    assert (list(empty.iterdir()), empty.stat().st_mode & 0o777) == ([], 0o755)


def test_metadata_of_another_user_are_refused_too(path: Path) -> None:
    os.chown(path, 0, -1)
    refused(tierfs("ls", store=path, check=False))
    os.chown(StorePaths(path).metadata, 0, -1)
    assert tierfs("ls", store=path).out == "s\n"
    StorePaths(path).metadata.chmod(0o770)
    assert "is writable by other users" in tierfs("ls", store=path, check=False).err


def test_a_directory_of_root_is_another_users() -> None:
    """As every user can test it."""
    if os.geteuid() == 0:
        require_own(Path("/"))
    else:
        with pytest.raises(PermissionDenied, match=r"belongs to user root \(0\)"):
            require_own(Path("/"))


def test_an_executor_reads_no_local_files_of_a_user_it_does_not_trust(path: Path) -> None:
    with open_store(path, any_owner=True) as store:
        place = ScannedStore(str(path), store.metadata.store_id, (), ColdSettings())
    connections = PlaceConnections()
    assert not connections.sees(place)
    assert connections.metadata(place) is None
    with pytest.raises(PermissionDenied, match="belongs to user"):
        connections.files(place)
