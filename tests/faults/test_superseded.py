"""A superseded owner acknowledges nothing for longer than `owner_check_s`, with a daemon or without one."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.doubles.manual_clock import ManualClock
from tests.doubles.scripted_storage import ALWAYS, ScriptedStorage, When
from tests.faults.two_owners import become_owner
from tests.mount.waiting import eventually
from tests.stores import create_ledger
from tests.verbs import offload
from tierfs.app.setup.create import init_store
from tierfs.app.store import Store, open_store
from tierfs.base.options.config import BackgroundSettings
from tierfs.base.words.errors import Fenced, Unavailable
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.journal import owner_watch
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata import directories

CHECK_S = BackgroundSettings().owner_check_s


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store with a cold segment, a sealed one and a ledger, whose journal is published."""
    (tmp_path / "cold").mkdir()
    init_store(tmp_path / "first", Place.in_directory(tmp_path / "cold"))
    with open_store(tmp_path / "first") as store:
        append(store, "s", b"cold")
        append(store, "sealed", b"sealed")
        store.engine.seal("sealed")
        create_ledger(store.metadata, "m/1")
        offload(store)
    return tmp_path / "first"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(path: Path, clock: ManualClock) -> Iterator[Store]:
    with open_store(path, clock) as opened:
        yield opened


def append(store: Store, name: str, data: bytes) -> None:
    writer = store.engine.open_writer(name)
    try:
        writer.append(data)
    finally:
        store.engine.close_writer(writer)


def take_over(store: Store, path: Path) -> None:
    """Make the bucket another host's, which does not notify the store."""
    shutil.copytree(store.path, path)
    with open_store(path) as other:
        assert other.cold_location_id is not None
        become_owner(other.metadata, other.storage_of(other.cold_location_id))


def test_an_appender_without_a_daemon_is_fenced_after_owner_check_s(
    store: Store, clock: ManualClock, tmp_path: Path
) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"a")
    take_over(store, tmp_path / "second")
    clock.advance(CHECK_S - 1)
    writer.append(b"b")  # the window that the documents state
    clock.advance(1)
    with pytest.raises(Fenced, match="since epoch 2"):
        writer.append(b"c")
    with store.metadata.read() as txn:
        assert directories.segment_by_name(txn, "s").length == len(b"coldab")


def test_status_says_at_once_that_the_bucket_is_lost(path: Path, tmp_path: Path) -> None:
    with open_store(path) as store:
        take_over(store, tmp_path / "second")
    text = tierfs("status", store=path).out
    assert "fenced by epoch 2 on another-host" in text
    assert tierfs("append", "s", store=path, stdin=b"x", check=False).code == 6


@pytest.fixture
def cold(store: Store) -> ScriptedStorage:
    """Return the store's cold tier, which follows a script from now on."""
    assert store.cold_location_id is not None
    location = store.cold_location
    assert location is not None
    connection = store.locations.connection_at(location)
    scripted = ScriptedStorage(connection.bare)
    store.locations._connected[location.id] = replace(connection, bare=scripted)
    return scripted


def test_appends_list_the_bucket_once_a_period_and_not_within_it(
    store: Store, clock: ManualClock, cold: ScriptedStorage
) -> None:
    for _ in range(3):
        for _ in range(20):
            append(store, "s", b"x")
        clock.advance(CHECK_S)
    assert cold.calls["list"] == 3


def test_a_process_asks_for_all_others_of_the_store(store: Store, clock: ManualClock, cold: ScriptedStorage) -> None:
    append(store, "s", b"x")
    assert cold.calls["list"] == 1
    with open_store(store.path, clock) as another:
        another.locations._connected = store.locations._connected
        append(another, "s", b"x")
        another.locations._connected = {}
    assert cold.calls["list"] == 1


def test_a_busy_appender_asks_ahead_and_never_waits(
    store: Store, clock: ManualClock, cold: ScriptedStorage, tmp_path: Path
) -> None:
    writer = store.engine.open_writer("s")
    take_over(store, tmp_path / "second")
    listing = cold.hold("list")
    clock.advance(CHECK_S - 1)
    writer.append(b"b")
    listing.wait_begun()
    writer.append(b"c")  # the listing is under way, and nobody waits for it
    listing.go_on()

    def is_fenced() -> bool:
        try:
            writer.append(b"d")
        except Fenced:
            return True
        return False

    assert eventually(is_fenced)


def test_appends_go_on_while_the_bucket_is_away(store: Store, clock: ManualClock, cold: ScriptedStorage) -> None:
    cold.fail("list", Unavailable("the server does not answer"), on=ALWAYS)
    append(store, "s", b"a")
    assert cold.calls["list"] == 1
    append(store, "s", b"b")
    assert cold.calls["list"] == 1  # it is asked again after the period
    error = store.owner_watch.ask()
    assert "does not answer" in str(error)
    cold.behave()
    clock.advance(CHECK_S)
    append(store, "s", b"c")
    assert store.owner_watch.ask() is None


def test_a_server_that_never_answers_is_waited_for_once(
    store: Store, cold: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_watch, "WAIT_S", 0.05)
    listing = cold.hold("list")
    append(store, "s", b"a")
    append(store, "s", b"b")
    assert cold.calls["list"] == 1
    store.close()  # waits for no server either
    listing.go_on()


@pytest.mark.parametrize("moment", ["after the intent", "after the slot", "after two entries and a checkpoint"])
def test_a_store_is_not_taken_for_its_own_successor(
    store: Store, clock: ManualClock, cold: ScriptedStorage, moment: str
) -> None:
    """The holder publishes while an appender of another process lists the journal."""
    before = cold.hold("list", when=When.BEFORE)
    asking = threading.Thread(target=append, args=(store, "s", b"a"))
    asking.start()
    before.wait_begun()
    with open_store(store.path, clock) as holder:
        append(holder, "t", b"x")
        match moment:
            case "after the intent":
                put = ScriptedStorage(holder.storage_of(holder.cold_location_id))
                put.fail("put", Unavailable("away"))
                with pytest.raises(Unavailable):
                    Publisher(holder.metadata, put).publish()
            case "after the slot":
                put = ScriptedStorage(holder.storage_of(holder.cold_location_id))
                put.fail("put", Unavailable("the answer was lost"), when=When.AFTER)
                with pytest.raises(Unavailable):
                    Publisher(holder.metadata, put).publish()
            case _:
                for name in ("u", "v"):
                    append(holder, name, b"x")
                    holder.cold_work().publisher.publish()
                    holder.cold_work().checkpointer.checkpoint()
        before.go_on()
        asking.join(30)
    append(store, "s", b"b")
    with store.metadata.read() as txn:
        assert (txn.store.journal.fenced_by_epoch, txn.store.journal.wrong_place) == (0, "")
        assert directories.segment_by_name(txn, "s").length == len(b"coldab")
