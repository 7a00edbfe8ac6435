"""Whose a store, a lock and a cold tier are, and what is refused to all others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.disks import synced
from tests.doubles.manual_clock import ManualClock
from tests.doubles.scripted_storage import ALWAYS, ScriptedStorage
from tests.safety.refused import refused
from tests.stores import TestStore, open_test_store
from tierfs.app import store as app
from tierfs.app.dump import dump_store, load_store
from tierfs.app.move import move, place_to
from tierfs.app.setup import place_change
from tierfs.app.setup.create import init_store
from tierfs.app.setup.store_directory import replace_settings
from tierfs.base.bytes.progress import unseen
from tierfs.base.options.config import Settings
from tierfs.base.system.locks import LockFile
from tierfs.base.system.metrics import MetricSink
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import Conflict, DataLoss, PermissionDenied, TierfsError, WrongColdTier
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata import host
from tierfs.engine.metadata.environment import create_directory
from tierfs.engine.metadata.records import RECORD_VERSION
from tierfs.engine.metadata.store import MetadataStore
from tierfs.faces.admin import listen
from tierfs.upkeep.holder.perform import holding


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[LockFile]:
    with closing(LockFile(tmp_path / "lock")) as lock:
        yield lock


def test_a_lock_shows_and_ends_with_its_owner_although_a_child_has_the_file(tmp_path: Path, lock: LockFile) -> None:
    with closing(LockFile(tmp_path / "lock")) as other:
        assert not other.is_locked()
        assert lock.try_lock()
        assert other.is_locked()
        assert not other.try_lock()
        inherited = os.dup(lock.fd)
        lock.close()
        assert other.try_lock()
        os.close(inherited)


@pytest.mark.parametrize("same", [True, False])
def test_metadata_are_used_from_one_namespace_of_pids(tmp_path: Path, lock: LockFile, same: bool) -> None:
    host.claim_pid_namespace(lock, tmp_path)
    if not same:
        os.pwrite(lock.fd, b"pid:[1]", 0)
    with closing(LockFile(tmp_path / "lock")) as other, refused(not same, Conflict, "another container"):
        host.claim_pid_namespace(other, tmp_path)


@pytest.mark.parametrize("newer", [0, 1])
def test_a_store_of_a_newer_format_is_not_written_nor_read(store: TestStore, newer: int) -> None:
    with store.metadata.write() as txn:
        txn.update_store(min_writer_version=RECORD_VERSION + newer)
    with refused(newer, PermissionDenied, "not write"), store.metadata.write():
        pass
    with store.metadata.write_notes() as txn:
        txn.update_store(min_reader_version=RECORD_VERSION + newer)
    with refused(newer, DataLoss, "reads up to"):
        MetadataStore(store.metadata.path, store.clock).close()


@pytest.mark.parametrize("early_s", [0, 1])
def test_the_owner_is_asked_for_from_the_time_on_that_is_due(store: TestStore, early_s: int) -> None:
    asked: list[int] = []
    store.metadata.ask_owner = lambda: asked.append(1)
    store.metadata.owner_due_s = store.clock.boot_s() + early_s
    with store.metadata.write():
        assert bool(asked) is (early_s == 0)


def test_the_last_time_never_goes_back(store: TestStore) -> None:
    assert isinstance(store.clock, ManualClock)
    store.append("s", b"1")
    with store.metadata.read() as txn:
        before_ms = txn.store.last_wall_ms
    store.clock.jump(-5)
    store.append("t", b"2")
    with store.metadata.read() as txn:
        assert txn.store.last_wall_ms == before_ms


@pytest.fixture
def made(tmp_path: Path) -> Iterator[app.Store]:
    init_store(tmp_path / "made")
    with app.open_store(tmp_path / "made") as opened:
        yield opened


def test_an_empty_directory_does_not_become_the_cold_tier(made: app.Store, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(WrongColdTier):
        place_change.change(made.metadata, StorePaths(made.path), Settings().cold, {"url": str(tmp_path / "empty")})
    assert place_change.of_store(made.metadata, "x").url == "file:cold"


def test_settings_are_never_cut_in_place_though_an_init_was_killed(made: app.Store) -> None:
    paths = StorePaths(made.path)
    os.link(paths.settings, paths.new_settings)
    with paths.settings.open() as before:
        text = before.read()
        replace_settings(paths, text + "# more\n")
        before.seek(0)
        assert before.read() == text
    assert paths.settings.read_text() == text + "# more\n"
    assert not paths.new_settings.exists()


def test_no_store_is_made_inside_the_cold_tier_of_another(made: app.Store, tmp_path: Path) -> None:
    below = tmp_path / "made/cold/segments"
    below.mkdir()
    with pytest.raises(TierfsError, match="cold tier"):
        init_store(tmp_path / "other", Place.in_directory(below))
    assert not list(below.iterdir())


@pytest.mark.parametrize("flips", [False, True])
def test_a_place_that_gives_other_bytes_does_not_become_the_cold_tier(
    made: app.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flips: bool
) -> None:
    writer = made.engine.open_writer("s")
    writer.append(b"abcd", seal=True)
    made.engine.close_writer(writer)
    with holding(made, "a test") as work:
        work.offload("s", unseen)
    (tmp_path / "nas").mkdir()
    shared = Place.shared

    def damaged(place: Place, metrics: MetricSink, *, sweeps: bool) -> ChunkStorage:
        storage = ScriptedStorage(shared(place, metrics, sweeps=sweeps))
        if flips:
            storage.damage(-1, on=ALWAYS, of="segments/")
        return storage

    monkeypatch.setattr(Place, "shared", damaged)
    with refused(flips, DataLoss, "differs between"):
        move(made, place_to(made, {"url": str(tmp_path / "nas")}), unseen)
    assert (place_change.of_store(made.metadata, "x").url == "file:cold") is flips


@pytest.mark.parametrize(("mode", "is_theirs"), [(0o600, False), (0o640, False), (0o604, False), (0o600, True)])
def test_a_token_is_the_secret_of_this_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, is_theirs: bool
) -> None:
    path = tmp_path / "admin.token"
    path.write_text("a-token-of-enough-characters")
    path.chmod(mode)
    if is_theirs:
        monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with refused(mode != 0o600 or is_theirs, PermissionDenied, "other users can read"):
        assert listen._token(path) == path.read_text()


def test_a_backup_and_a_restored_store_keep_their_names_after_a_power_loss(
    tmp_path: Path, made: app.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = synced(monkeypatch)
    dump_store(made, str(tmp_path / "backups"))
    assert done[-1] == str(tmp_path)
    rename = os.rename
    monkeypatch.setattr(os, "rename", lambda *paths: (rename(*paths), done.append("renamed")))
    load_store(tmp_path / "restored", tmp_path / "backups", made.clock)
    assert done[done.index("renamed") + 1] == str(tmp_path / "restored")


def test_a_store_its_metadata_and_its_settings_keep_their_names_after_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = synced(monkeypatch)
    init_store(tmp_path / "store", None)
    assert done[-1] == str(tmp_path / "store"), "after the settings, which mark it as a store"
    done.clear()
    replace_settings(StorePaths(tmp_path / "store"), "")
    assert done[-1] == str(tmp_path / "store")
    done.clear()
    create_directory(tmp_path / "metadata")
    assert done == [str(tmp_path)]
