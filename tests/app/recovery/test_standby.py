"""A standby takes over when its owner is silent, not before, and nothing that the bucket acknowledged is lost."""

from __future__ import annotations

import itertools
import threading
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn

import pytest

from tests import verbs
from tests.app.recovery.standing_by import AFTER_S, LOOK_S, Hosts, Owner, append, check_rows, read
from tests.commands import tierfs
from tests.doubles.manual_clock import ManualClock
from tierfs.app.recovery import promote, recover
from tierfs.app.standby_orders import create_standby, pause, resume, take_over_now
from tierfs.app.store import Store
from tierfs.base.bytes.progress import unseen
from tierfs.base.system.metrics import MetricName as M
from tierfs.base.system.metrics import Sampled
from tierfs.base.words.errors import (
    AlreadyExists,
    Fenced,
    InvalidRequest,
    PermissionDenied,
    TierfsError,
    Unavailable,
    WrongColdTier,
)
from tierfs.base.words.types import Ack
from tierfs.engine.journal import left, life
from tierfs.engine.journal.left import Left
from tierfs.engine.journal.names import standby_of
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.upkeep.holder import lock
from tierfs.upkeep.holder.samples import samples_of
from tierfs.upkeep.holder.standby_note import Phase

FAILOVERS = 10
APPENDERS = 3


def segment(store: Store, name: str) -> SegmentRecord:
    with store.metadata.read() as txn:
        return directories.segment_by_name(txn, name)


def journal(hosts: Hosts) -> set[str]:
    return {path.name for path in (hosts.root / "cold" / "journal").iterdir()}


def slots(hosts: Hosts) -> set[str]:
    return {name for name in journal(hosts) if name.isdigit()}


def marks(hosts: Hosts) -> int:
    return sum(standby_of(f"journal/{name}") is not None for name in journal(hosts))


def test_a_store_without_a_standby_sends_no_sign_of_life(hosts: Hosts) -> None:
    for _ in range(20):
        hosts.owner.tick()
    assert "alive" not in journal(hosts)


def test_an_owner_at_rest_is_alive(hosts: Hosts) -> None:
    standby, before = hosts.answered(), slots(hosts)
    standby.look(10 * AFTER_S // LOOK_S, owner=hosts.owner)
    assert standby.store.is_replica
    assert standby.note.phase is Phase.FOLLOWS
    assert slots(hosts) == before, "it published nothing"


def test_a_silent_owner_is_replaced_and_fenced(hosts: Hosts) -> None:
    """What the bucket acknowledged is there; what only the old disk has is told by both hosts."""
    owner = hosts.owner
    owner.append("local", b"only here", Ack.LOCAL)
    owner.append("both", b"cold", Ack.COLD)
    owner.append("both", b" and local", Ack.LOCAL)
    standby = hosts.answered()
    standby.look(AFTER_S // LOOK_S - 1)
    assert standby.store.is_replica, "not before its time"
    assert standby.note.phase is Phase.SILENT
    standby.look_until_it_is_time()
    assert standby.is_owner
    assert standby.owned == [True]
    check_rows(standby.store)
    assert read(standby.store, "cold") == b"abcd"
    assert read(standby.store, "both") == b"cold"
    append(standby.store, "both", b"er", Ack.COLD)
    assert read(standby.store, "both") == b"colder"
    taken = standby.note.taken
    assert taken is not None
    assert taken.local_only_bytes == len(b"only here and local")
    assert taken.incomplete == (
        "cold: open, ends at 4: later bytes, if any",
        "local: open, ends at 0: later bytes, if any",
        "both: open, ends at 4: later bytes, if any",
    )
    with pytest.raises(Fenced):
        owner.append("cold", b"x", Ack.COLD)
    with pytest.raises(Fenced):
        owner.tick()
    assert verbs.status(owner.store).not_offloaded_bytes >= len(b"only here and local")
    assert marks(hosts) == 0, "it is no standby any more"


def of_standby(store: Store) -> tuple[Sampled | None, ...]:
    """Silence, limit, and whether a takeover is blocked, as metrics."""
    samples = samples_of(store.watched, holds=True, backlog=None, uptime_s=1)
    return tuple(samples.get(name) for name in (M.STANDBY_SILENT, M.STANDBY_TAKEOVER, M.STANDBY_BLOCKED))


def test_metrics_of_both_hosts_show_how_near_a_takeover_is(hosts: Hosts) -> None:
    assert of_standby(hosts.owner.store) == (None, None, None)
    standby = hosts.answered()
    with lock.hold(standby.store.paths.holder, standby.clock):
        standby.look(3)
        assert of_standby(standby.store) == (3 * LOOK_S, AFTER_S, 0)
        pause(standby.store, "the owner gets a new disk")
        assert of_standby(standby.store) == (3 * LOOK_S, AFTER_S, 1)
    owner_clock = hosts.owner.store.clock
    assert isinstance(owner_clock, ManualClock)
    owner_clock.advance(7)
    assert of_standby(hosts.owner.store) == (7, AFTER_S, None)
    take_over_now(standby.store)
    assert of_standby(standby.store) == (None, None, None), "it has no standby yet"


def test_readers_keep_their_files(hosts: Hosts) -> None:
    """An inode that changed would end every `tail -f` of the standby's mount."""
    hosts.owner.append("grows", b"cold", Ack.COLD)
    standby = hosts.answered()
    before = segment(standby.store, "grows")
    standby.look_until_it_is_time()
    after = segment(standby.store, "grows")
    assert (after.inode, after.length) == (before.inode, before.length)
    assert after.writer_epoch > before.writer_epoch


def test_an_owner_that_never_answered_is_not_replaced(hosts: Hosts) -> None:
    """One of an older tierfs, or without a holder, is silent also while it is alive."""
    standby = hosts.standby()
    standby.look(3 * AFTER_S // LOOK_S)
    assert standby.store.is_replica
    assert standby.note.phase is Phase.BLOCKED
    assert "has not answered" in standby.note.why


def test_an_answer_of_the_past_is_none(hosts: Hosts) -> None:
    """The mark was removed, so the owner stopped answering; the sign of life that is still there proves nothing."""
    standby = hosts.answered()
    for path in (hosts.root / "cold" / "journal").glob("standby-*"):
        path.unlink()
    hosts.owner.tick()
    for _ in range(3):
        standby.look_until_it_is_time()
    assert standby.store.is_replica
    assert marks(hosts) == 1, "it is put again"
    again = hosts.opened_standby(standby.store.path, standby.clock)
    again.look_until_it_is_time()
    assert again.store.is_replica, "another process knows that it is of the past, too"
    again.look(owner=hosts.owner)
    again.look_until_it_is_time()
    assert again.is_owner


def test_a_bucket_out_of_reach_is_no_silence(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: object) -> None:
        raise Unavailable("no route to host")

    standby = hosts.answered()
    with monkeypatch.context() as patch:
        patch.setattr(life, "seen", away)
        for _ in range(3 * AFTER_S // LOOK_S):
            standby.look()
            assert "cannot be reached from here: no route to host" in standby.note.why
    standby.look(AFTER_S // LOOK_S - 1)
    assert standby.store.is_replica
    standby.look_until_it_is_time()
    assert standby.is_owner


def test_a_person_can_pause_takeovers(hosts: Hosts) -> None:
    standby = hosts.answered()
    pause(standby.store, "the owner gets a new disk")
    standby.look_until_it_is_time()
    assert standby.store.is_replica
    assert standby.note.phase is Phase.BLOCKED
    assert "the owner gets a new disk" in standby.note.why
    resume(standby.store)
    standby.look()
    assert standby.is_owner


def test_a_person_can_take_over_at_once(hosts: Hosts) -> None:
    standby = hosts.answered()
    pause(standby.store, "nobody but me")
    taken = take_over_now(standby.store)
    assert (standby.is_owner, taken.epoch) == (True, 2)
    with pytest.raises(InvalidRequest, match="not a replica"):
        take_over_now(standby.store)


def test_a_takeover_that_fails_each_time_is_logged_once(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As with keys that may only read: a standby tries again every few seconds, for hours."""

    def refused(*_: object) -> NoReturn:
        raise PermissionDenied("the server refused to write")

    standby = hosts.answered()
    with monkeypatch.context() as patch:
        patch.setattr(promote, "promote", refused)
        with pytest.raises(PermissionDenied):
            standby.look_until_it_is_time()
        for _ in range(10):
            with pytest.raises(PermissionDenied):
                standby.look()
    assert "the server refused to write" in standby.note.why
    said = [record.getMessage() for record in caplog.records if "take" in record.getMessage()]
    assert sum("this standby takes the bucket over" in line for line in said) == 1, said
    assert sum("the takeover failed" in line for line in said) == 1, said
    standby.look()
    assert standby.is_owner


@pytest.mark.parametrize(
    ("check", "told"),
    [
        ("sh -c 'echo the owner answers a ping; exit 3'", "exit code 3): the owner answers a ping"),
        ("sleep 100", "did not end within"),
        ("/no/such/program", "cannot run"),
    ],
)
def test_a_check_can_refuse(hosts: Hosts, check: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERFS_STANDBY__CHECK_TIMEOUT_S", "100ms")
    standby = hosts.answered(check)
    standby.look_until_it_is_time()
    assert standby.store.is_replica
    assert standby.note.phase is Phase.BLOCKED
    assert told in standby.note.why


def test_a_check_knows_what_it_is_about_and_can_allow(hosts: Hosts) -> None:
    seen = hosts.root / "seen"
    standby = hosts.answered(f"sh -c 'echo $TIERFS_STORE $TIERFS_STANDBY_SILENT_S > {seen}'")
    standby.look_until_it_is_time()
    assert standby.is_owner
    assert seen.read_text().split() == [str(standby.store.path), str(AFTER_S)]


def test_a_previous_owner_says_that_the_takeover_is_over(hosts: Hosts) -> None:
    hosts.answered().look_until_it_is_time()
    store = hosts.owner.store
    with pytest.raises(Fenced):
        hosts.owner.tick()
    done = tierfs("standby", store=store.path)
    assert done.out == ("another store owns the bucket since epoch 2; bytes that only this disk has: tierfs status\n")


def test_a_standby_that_starts_again_counts_on_without_the_time_between(hosts: Hosts) -> None:
    standby = hosts.answered()
    standby.look(AFTER_S // LOOK_S - 2)
    standby.clock.advance(10 * AFTER_S)
    again = hosts.opened_standby(standby.store.path, standby.clock)
    again.look(2)
    assert again.store.is_replica
    assert again.note.silent_s < AFTER_S
    again.look(3)
    assert again.is_owner


def test_an_owner_that_was_stopped_and_goes_on_does_no_harm(hosts: Hosts) -> None:
    """It shows one more sign of life, of its own epoch, over that of the new owner."""
    first, second = hosts.answered(), hosts.standby()
    second.look(owner=hosts.owner)
    second.look(owner=hosts.owner)
    stopped = hosts.owner
    seen = life.seen(stopped.work.publisher.storage)
    assert seen is not None
    late = replace(seen, beat="late")
    first.look_until_it_is_time()
    new = Owner.of(first.store)
    second.look(2, owner=new)
    with pytest.raises(Fenced):
        stopped.tick()
    second.look(AFTER_S // LOOK_S - 2)  # the new owner has died, too
    life.show(stopped.work.publisher.storage, late)  # as between its listing and its request
    second.look(4)
    assert second.is_owner


def test_a_replica_that_is_no_standby_any_more_removes_its_mark(hosts: Hosts) -> None:
    standby = hosts.answered()
    assert marks(hosts) == 1
    settings = standby.store.path / "store.toml"
    settings.write_text("")
    standby.store.reload()
    plain = hosts.opened_standby(standby.store.path, standby.clock)
    plain.look(2)
    assert marks(hosts) == 0


def test_the_directory_of_an_owner_is_refused_with_the_way_on(hosts: Hosts) -> None:
    with pytest.raises(AlreadyExists) as refused:
        create_standby(hosts.owner.store.path, hosts.place, AFTER_S, "")
    assert "choose a new directory" in (refused.value.remedy or "")


def test_a_recovery_by_hand_is_followed(hosts: Hosts) -> None:
    standby = hosts.answered()
    recover.recover_store(hosts.root / "by-hand", hosts.place, unseen)
    standby.look_until_it_is_time()
    assert standby.store.is_replica
    assert "has not answered" in standby.note.why, "that store has no holder yet"


def test_ten_failovers_under_load_lose_nothing_that_the_bucket_acknowledged(hosts: Hosts) -> None:
    """Each owner is replaced while it acknowledges appends: nothing but the journal stops it."""
    acknowledged: dict[str, bytes] = {}
    follower, owner = hosts.answered(), hosts.owner
    for number in range(FAILOVERS):
        load = [Appender(owner.store, f"s{index}", number) for index in range(APPENDERS)]
        for appender in load:
            appender.start()
        assert all(appender.has_begun.wait(60) for appender in load)
        take_over_now(follower.store)
        for appender in load:
            appender.join(60)
            acknowledged[appender.segment] = acknowledged.get(appender.segment, b"") + bytes(appender.acknowledged)
        for name, data in acknowledged.items():
            found = read(follower.store, name)
            assert found.startswith(data)
            acknowledged[name] = found  # an append whose answer was lost may be there, whole
        check_rows(follower.store)
        owner = hosts.owner = Owner.of(follower.store)
        follower = hosts.answered()
    assert hosts.owner.store.metadata.store_id == follower.store.metadata.store_id


class Appender(threading.Thread):
    """Appends until its store is fenced."""

    def __init__(self, store: Store, segment: str, number: int) -> None:
        super().__init__()
        self.store = store
        self.segment = segment
        self.number = number
        self.acknowledged = bytearray()
        self.has_begun = threading.Event()

    def run(self) -> None:
        writer = self.store.engine.open_writer(self.segment, ack=Ack.COLD)
        for count in itertools.count():
            data = b"%d.%d " % (self.number, count)
            try:
                writer.append(data)
            except TierfsError:
                return
            self.acknowledged += data
            self.has_begun.set()


@pytest.mark.parametrize("after_s", [20, 60])
def test_a_standby_in_a_place_that_was_left_says_how_to_follow(hosts: Hosts, after_s: int) -> None:
    """It is silent there, but its owner is not dead; a takeover looks sooner than the listing of each minute."""
    follower = hosts.standby(after_s=after_s)
    follower.look()
    follower.look(owner=hosts.owner)
    note = Left(int(max(slots(hosts))), hosts.owner.store.metadata.store_id, "file:/nas")
    left.put(hosts.owner.work.cold.storage, note)
    with suppress(WrongColdTier):  # of the takeover
        follower.look_until_it_is_time()
    assert not follower.is_owner
    assert follower.note.phase is Phase.BLOCKED
    assert "was moved to file:/nas" in follower.note.why
    assert "tierfs config cold.url=file:/nas" in follower.note.why
    assert "cannot be reached" not in follower.note.why
