"""Appends that the cold tier acknowledges, where an upload, the journal, the process or a file fails."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.app.recovery.test_from_objects import rebuilt
from tests.doubles.manual_clock import ManualClock
from tests.doubles.scripted_storage import ScriptedStorage, When
from tests.engine.journal.replaying import check_store
from tests.faults.two_owners import become_owner, opened_copy
from tests.mount.waiting import eventually
from tests.stores import AT_ONCE, TestStore
from tests.tiering.test_append_pool import (
    AWAY,
    POLICY,
    STEPS,
    append_together,
    is_published,
    on_another_host,
    pool_of,
    recovered_bytes,
)
from tests.tiering.test_packing import packs
from tierfs.base.system import guards
from tierfs.base.words.errors import Conflict, Fenced, NotFound, Unavailable, Unconfirmed
from tierfs.base.words.types import Ack, ByteRange, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.journal.names import JOURNAL_PREFIX
from tierfs.engine.metadata import directories, tables
from tierfs.engine.metadata.tables import INTENTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.tiering import objects
from tierfs.tiering.packs.append_pool import AppendPool

__all__ = ["POLICY"]


def test_an_upload_that_fails_changes_nothing(store: TestStore, storage: ScriptedStorage) -> None:
    writer = store.engine.open_writer("d/s")
    writer.append(b"before")
    storage.fail("put", AWAY, of="packs/")
    with pytest.raises(Unavailable, match="is away"):
        writer.append(b"lost")
    assert store.segment("d/s").length == 6
    with store.metadata.read() as txn:
        assert txn.count(INTENTS.name) == 0
    assert writer.append(b"again") == ByteRange(6, 11)
    assert store.read("d/s", Tier.COLD) == b"beforeagain"


def test_an_answer_that_is_lost_is_not_an_append(
    store: TestStore, storage: ScriptedStorage, clock: ManualClock
) -> None:
    """The pack is there and nothing names it: it is garbage."""
    writer = store.engine.open_writer("d/s")
    storage.fail("put", AWAY, of="packs/", when=When.AFTER)
    with pytest.raises(Unavailable):
        writer.append(b"lost")
    assert len(packs(store)) == 1
    assert writer.append(b"kept") == ByteRange(0, 4)
    store.engine.close_writer(writer)
    clock.advance(2 * 3600)
    store.settle()
    assert len(packs(store)) == 1
    assert store.read("d/s", Tier.COLD) == b"kept"


@pytest.mark.parametrize(("verb", "when"), [("put", When.BEFORE), ("put", When.AFTER), ("list", When.BEFORE)])
def test_an_append_that_the_journal_does_not_name_says_so_and_is_not_lost(
    store: TestStore, storage: ScriptedStorage, tmp_path: Path, verb: str, when: When
) -> None:
    writer = store.engine.open_writer("d/s")
    writer.append(b"before")
    storage.fail(verb, AWAY, on=range(1, 100), of="journal/", when=when)
    pool_of(store)._sleep = lambda _: store.pauses.sleep(AT_ONCE.deadline_s)  # a second try would find the entry
    with pytest.raises(Unconfirmed, match="6 to 13") as caught:
        writer.append(b"unknown")
    assert caught.value.end == 13
    assert store.segment("d/s").length == 13
    storage.behave()
    with pytest.raises(Conflict):  # a repeat at the offset that was expected doubles nothing
        writer.append(b"unknown", expected_offset=6)
    assert writer.append(b"after", expected_offset=13) == ByteRange(13, 18)
    assert is_published(store)
    assert recovered_bytes(store, tmp_path / "other", "d/s") == b"beforeunknownafter"


def test_the_journal_is_asked_again_until_the_deadline(store: TestStore, storage: ScriptedStorage) -> None:
    writer = store.engine.open_writer("d/s")
    pool_of(store).settings = replace(AT_ONCE, deadline_s=60)
    storage.fail("put", AWAY, of="journal/", when=When.AFTER)
    writer.append(b"abc")
    assert is_published(store)


def test_ctrl_c_ends_the_wait_for_the_journal(store: TestStore, storage: ScriptedStorage) -> None:
    """The append has its result all the same: its bytes are there, unconfirmed."""
    writer = store.engine.open_writer("d/s")
    pool_of(store).settings = replace(AT_ONCE, deadline_s=60)
    storage.do("put", lambda: os.kill(os.getpid(), signal.SIGINT), on=2, of="journal/")
    storage.fail("put", AWAY, on=range(1, 1000), of="journal/")
    with pytest.raises(KeyboardInterrupt) as raised:
        writer.append(b"abc")
    assert isinstance(raised.value.__context__, Unconfirmed)
    assert raised.value.__context__.end == store.segment("d/s").length == 3
    storage.behave()
    assert writer.append(b"def") == ByteRange(3, 6)


def test_a_second_ctrl_c_ends_a_request_to_the_journal_that_hangs(store: TestStore, storage: ScriptedStorage) -> None:
    writer = store.engine.open_writer("d/s")

    answered = threading.Event()

    def pressed_twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert eventually(guards.is_interrupted)
        os.kill(os.getpid(), signal.SIGINT)
        answered.wait(60)

    storage.do("put", pressed_twice, of="journal/")
    with pytest.raises(KeyboardInterrupt) as raised:
        writer.append(b"abc")
    assert not answered.is_set()
    assert isinstance(raised.value.__context__, Unconfirmed)
    assert writer.append(b"def") == ByteRange(3, 6)
    answered.set()


def test_an_append_to_a_store_that_was_taken_over_is_not_acknowledged(
    store: TestStore, storage: ScriptedStorage, tmp_path: Path
) -> None:
    writer = store.engine.open_writer("d/s")
    writer.append(b"before")
    with opened_copy(store, tmp_path / "copy") as owner:
        storage.do("put", lambda: become_owner(owner.metadata, owner.cold), of="packs/")
        with pytest.raises(Fenced):
            writer.append(b"too late")
        with pytest.raises(Fenced):
            writer.append(b"later still")
        assert owner.segment("d/s").length == 6


def test_a_pack_that_another_holder_gave_up_is_made_again(
    store: TestStore, storage: ScriptedStorage, clock: ManualClock
) -> None:
    writer = store.engine.open_writer("d/s")
    storage.do("put", lambda: objects.abandon_all(store.metadata), of="packs/")
    assert writer.append(b"abc") == ByteRange(0, 3)
    assert len(packs(store)) == 2
    store.engine.close_writer(writer)
    clock.advance(2 * 3600)
    store.settle()
    assert len(packs(store)) == 1
    assert store.read("d/s", Tier.COLD) == b"abc"


def test_a_removed_segment_fails_alone(store: TestStore) -> None:
    writers = [store.engine.open_writer(name) for name in ("d/a", "d/b")]
    with store.metadata.write() as txn:
        segment = directories.segment_by_name(txn, "d/a")
        txn.delete(tables.SEGMENTS.name, tables.u64(segment.id))
        txn.delete(tables.DIRENTS.name, tables.dirent(segment.parent_id, "a"))
    first, second = append_together(store, writers, [b"aaa", b"bbb"])
    assert isinstance(first, NotFound)
    assert second == ByteRange(0, 3)


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize(("verb", "of", "when"), STEPS)
@pytest.mark.parametrize("host_is_lost", [False, True], ids=["process", "host"])
@pytest.mark.parametrize("policy", [POLICY, POLICY | {"compression": "zstd"}], ids=["plain", "compressed"])
def test_a_kill_at_each_step_loses_and_doubles_nothing(
    store: TestStore,
    storage: ScriptedStorage,
    clock: ManualClock,
    tmp_path: Path,
    verb: str,
    of: str,
    when: When,
    host_is_lost: bool,
) -> None:
    writer = store.engine.open_writer("d/s")
    writer.append(b"acknowledged")

    def kill() -> None:
        raise Killed

    storage.do(verb, kill, when=when, of=of)
    with pytest.raises(Killed):
        writer.append(b" unknown")
    storage.behave()
    store.kill()
    store.start()
    if host_is_lost:
        with on_another_host(store, tmp_path / "other") as other:
            assert other.read("d/s") in (b"acknowledged", b"acknowledged unknown")
        return
    length = store.segment("d/s").length
    assert length in (12, 20)
    again = store.engine.open_writer("d/s", expected_offset=length)
    again.append(b"!")
    store.engine.close_writer(again)
    store.settle()
    whole = b"acknowledged" + b" unknown" * (length == 20) + b"!"
    assert store.read("d/s", Tier.COLD) == store.read("d/s") == whole
    clock.advance(2 * 3600)
    store.settle()
    with store.metadata.read() as txn:
        assert txn.count(INTENTS.name) == 0
        check_store(txn)
    assert recovered_bytes(store, tmp_path / "other", "d/s") == whole


def test_a_commit_that_fails_leaves_nothing(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = store.engine.open_writer("d/s")
    writer.append(b"before")
    link = AppendPool._link

    def failing(self: AppendPool, txn: WriteTransaction, changed: Sequence[object]) -> None:
        link(self, txn, changed)  # type: ignore[arg-type]
        raise Unavailable("the disk")

    with monkeypatch.context() as patch:
        patch.setattr(AppendPool, "_link", failing)
        with pytest.raises(Unavailable, match="the disk"):
            writer.append(b"lost")
    assert store.segment("d/s").length == 6
    with store.metadata.read() as txn:
        assert txn.count(INTENTS.name) == 0
    assert writer.append(b"after") == ByteRange(6, 11)


def test_a_file_that_cannot_be_synced_fails_alone(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    writers = [store.engine.open_writer(name) for name in ("d/a", "d/b")]
    descriptors = store.engine._tools.descriptors
    sync = type(descriptors).sync

    def failing(self: object, chunk: object) -> None:
        if chunk is writers[0]._chunk:
            raise Unavailable("this disk")
        sync(self, chunk)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(type(descriptors), "sync", failing)
        first, second = append_together(store, writers, [b"aaa", b"bbb"])
    assert isinstance(first, Unavailable)
    assert second == ByteRange(0, 3)
    assert writers[0].append(b"again") == ByteRange(0, 5)
    assert store.read("d/a", Tier.COLD) == b"again"


@pytest.mark.parametrize("acks", ["l", "c", "cc", "lc", "cl"])
def test_without_a_journal_the_pack_of_a_failed_append_gives_way(
    store: TestStore, storage: ScriptedStorage, tmp_path: Path, acks: str
) -> None:
    """It is longer than those that were written at its offset afterwards, and never was in the segment."""
    store.append("d/s", b"begin", ack=Ack.COLD)
    writer = store.engine.open_writer("d/s", ack=Ack.COLD)
    storage.fail("put", AWAY, of="packs/", when=When.AFTER)
    with pytest.raises(Unavailable):
        writer.append(b"failed" * 10)
    store.engine.close_writer(writer)
    assert isinstance(storage.inner, MemoryStorage)
    failed = dict(storage.inner.objects)  # a server may carry out the deletion that an offload asks for much later
    whole = b"begin"
    for number, ack in enumerate(acks):
        data = bytes([65 + number]) * 15
        store.append("d/s", data, ack=Ack.COLD if ack == "c" else Ack.LOCAL)
        store.offload()
        whole += data
    bucket = MemoryStorage(store.clock)
    held = {**failed, **storage.inner.objects}
    bucket.objects = {name: each for name, each in held.items() if not name.startswith(JOURNAL_PREFIX)}
    with rebuilt(tmp_path / "rebuilt", bucket) as other:
        assert other.store.read("d/s") == whole


def test_gc_ends_the_pack_of_an_appender_that_was_killed_beside_a_living_holder(
    store: TestStore, storage: ScriptedStorage, clock: ManualClock
) -> None:
    def kill() -> None:
        raise Killed

    with store.holding() as work:  # its first action, which ends what dead processes left, is over
        writer = store.engine.open_writer("d/s")
        storage.do("put", kill, when=When.AFTER, of="packs/")
        with pytest.raises(Killed):
            writer.append(b"abc")
        store.engine.close_writer(writer)
        assert work.collect_all(grace_s=0).deleted == 0
        clock.advance(24 * 3600)
        assert work.collect_all(grace_s=0).deleted >= 1
        assert packs(store) == []
        with store.metadata.read() as txn:
            assert txn.count(INTENTS.name) == 0
