"""Of several standbys one takes over, and a takeover that died continues only while nothing else has happened."""

from __future__ import annotations

import pytest

from tests.app.recovery.standing_by import AFTER_S, LOOK_S, Follower, Hosts, append, check_rows, read
from tests.doubles.manual_clock import ManualClock
from tierfs.app.recovery import promote as promotion
from tierfs.app.recovery import recover
from tierfs.app.standby_orders import pause, resume, take_over_now
from tierfs.base.words.errors import (
    Fenced,
    StorageFull,
)
from tierfs.base.words.types import Ack
from tierfs.engine.journal import epochs


def test_of_two_standbys_one_takes_over_and_the_other_follows_it(hosts: Hosts) -> None:
    first, second = hosts.standby(), hosts.standby()
    for standby in (first, second):
        standby.look()
    for standby in (first, second):
        standby.look(owner=hosts.owner)
    first.look_until_it_is_time()
    append(first.store, "new", b"by the first", Ack.COLD)
    second.look(3)
    assert (first.is_owner, second.is_owner) == (True, False)
    assert read(second.store, "new") == b"by the first"
    second.look_until_it_is_time()  # the first never showed a sign of life: it died at once
    assert second.is_owner, "an owner that was a standby is known to show signs of life"
    assert read(second.store, "new") == b"by the first"
    with pytest.raises(Fenced):
        append(first.store, "new", b"late", Ack.COLD)


def test_a_standby_that_loses_the_race_follows_the_winner(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = hosts.standby(), hosts.standby()
    for standby in (first, second):
        standby.look()
    for standby in (first, second):
        standby.look(owner=hosts.owner)
    rebuild = recover.owned

    def late(*args: object, **named: object) -> object:
        monkeypatch.setattr(promotion, "owned", rebuild)
        first.look_until_it_is_time()
        return rebuild(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(promotion, "owned", late)
    second.look_until_it_is_time()
    assert (first.is_owner, second.is_owner) == (True, False)
    append(first.store, "cold", b"efgh", Ack.COLD)
    second.look()
    assert read(second.store, "cold") == b"abcdefgh"


@pytest.mark.parametrize(("module", "step"), [(epochs, "newest"), (promotion, "reached")], ids=["late", "early"])
def test_a_standby_supersedes_no_other_that_has_just_taken_over(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, module: object, step: str
) -> None:
    """Clients of the other one write already. Its own epoch would be the greater one, as it knows the other's."""
    first, second = hosts.standby(), hosts.standby()
    for standby in (first, second):
        standby.look()
    for standby in (first, second):
        standby.look(owner=hosts.owner)
    original = getattr(module, step)

    def late(*args: object) -> object:
        monkeypatch.setattr(module, step, original)
        first.look_until_it_is_time()
        return original(*args)

    monkeypatch.setattr(module, step, late)
    second.look_until_it_is_time()
    assert (first.is_owner, second.is_owner) == (True, False)
    append(first.store, "s", b"at once", Ack.COLD)
    second.look()
    assert read(second.store, "s") == b"at once"


def dying(hosts: Hosts, monkeypatch: pytest.MonkeyPatch, step: str) -> Follower:
    """A standby whose takeover dies at a step."""

    def dies(*_: object, **__: object) -> None:
        raise StorageFull("the disk is full")

    standby = hosts.answered()
    with monkeypatch.context() as patch:
        patch.setattr(promotion, step, dies)
        with pytest.raises(StorageFull):
            standby.look_until_it_is_time()
    assert standby.store.is_replica
    return standby


@pytest.mark.parametrize("step", ["owned", "settle", "become_owner"])
def test_a_takeover_that_dies_half_way_continues_at_once(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Another process sees what the dead one saw, or its own epoch, which owns the bucket."""
    standby = dying(hosts, monkeypatch, step)
    if step != "owned":
        with pytest.raises(Fenced):
            hosts.owner.append("cold", b"x", Ack.COLD)
    again = hosts.opened_standby(standby.store.path, standby.clock)
    pause(again.store, "not now")
    again.look(2)
    assert again.store.is_replica
    resume(again.store)
    again.look()
    assert again.is_owner
    assert again.note.attempt == again.note.beat == ""
    check_rows(again.store)
    assert read(again.store, "cold") == b"abcd"


def test_a_takeover_that_died_does_not_continue_after_a_sign_of_life(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    standby = dying(hosts, monkeypatch, "owned")
    owner_clock = hosts.owner.store.clock
    assert isinstance(owner_clock, ManualClock)
    owner_clock.advance(AFTER_S)  # it was stopped, and shows a sign at its next tick
    again = hosts.opened_standby(standby.store.path, standby.clock)
    again.look(AFTER_S // LOOK_S, owner=hosts.owner)
    assert again.store.is_replica
    assert again.note.silent_s < AFTER_S // 2
    again.look_until_it_is_time()
    assert again.is_owner


def test_a_takeover_that_died_does_not_continue_against_another_owner(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    standby = dying(hosts, monkeypatch, "become_owner")
    take_over_now(hosts.standby().store)
    again = hosts.opened_standby(standby.store.path, standby.clock)
    again.look(2)
    assert again.store.is_replica
