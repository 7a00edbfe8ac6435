"""Signs of life: an owner shows them while a standby follows, and no request more without one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.doubles.scripted_storage import ScriptedStorage
from tests.faults.two_owners import new_owner
from tests.stores import TestStore, open_test_store
from tierfs.base.words.errors import Fenced, Unavailable
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.journal import life
from tierfs.engine.journal.life import StandbyMark
from tierfs.engine.journal.names import ALIVE_NAME
from tierfs.upkeep.holder import standby_note
from tierfs.upkeep.holder.signs_of_life import SignsOfLife
from tierfs.upkeep.holder.standby_note import Phase

FIRST, SECOND = StandbyMark("a" * 32, 60), StandbyMark("b" * 32, 12)


class Owner:
    """A store with its signs."""

    def __init__(self, store: TestStore) -> None:
        self.store = store
        self.publisher = store.cold_work().publisher
        self.publisher.publish()
        self.signs = SignsOfLife(store.metadata, self.publisher)

    def see(self) -> None:
        """List the bucket, as once a minute."""
        self.publisher.verify_ownership()

    def after(self, seconds: float) -> bool:
        """Whether a sign is due after a while; it is shown then."""
        clock = self.store.clock
        assert isinstance(clock, ManualClock)
        clock.advance(seconds)
        is_due = self.signs.is_due
        if is_due:
            self.signs.show()
        return is_due


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    with open_test_store(tmp_path / "owner", cold=ScriptedStorage(MemoryStorage())) as store:
        store.append("s", b"abcd")
        yield Owner(store)


def test_nothing_is_due_without_a_standby(owner: Owner) -> None:
    owner.see()
    assert not owner.after(3600)


def test_six_signs_are_shown_in_the_time_of_the_most_impatient_standby(owner: Owner) -> None:
    life.put_mark(owner.store.cold, FIRST)
    owner.see()
    assert owner.after(0)
    assert [owner.after(5) for _ in range(6)] == [False, True] * 3
    life.put_mark(owner.store.cold, SECOND)
    owner.see()
    assert owner.after(0)
    assert [owner.after(1) for _ in range(4)] == [False, True] * 2
    sign = life.seen(owner.store.cold)
    assert sign is not None
    assert set(sign.standbys) == {FIRST.id, SECOND.id}
    assert sign.local_only_bytes == 4
    note = standby_note.read(owner.store.paths)
    assert (note.phase, note.after_s) == (Phase.OWNER, SECOND.after_s)


def test_each_sign_differs_from_the_one_before(owner: Owner) -> None:
    life.put_mark(owner.store.cold, FIRST)
    owner.see()
    beats = set()
    for _ in range(3):
        owner.signs.show()
        sign = life.seen(owner.store.cold)
        assert sign is not None
        beats.add(sign.beat)
    assert len(beats) == 3


def test_signs_end_with_the_last_standby(owner: Owner) -> None:
    life.put_mark(owner.store.cold, FIRST)
    owner.see()
    assert owner.after(0)
    life.remove_marks(owner.store.cold, FIRST.id)
    owner.see()
    assert owner.after(0), "it is noted once"
    assert standby_note.read(owner.store.paths).phase is Phase.NONE
    assert not owner.after(3600)


def test_a_sign_that_fails_is_due_at_once(owner: Owner, expected_warnings: list[str]) -> None:
    """A pause between attempts that grows, as of other work, would look like death."""
    expected_warnings += ["no sign of life reaches the bucket", "signs of life reach the bucket again"]
    life.put_mark(owner.store.cold, FIRST)
    owner.see()
    flaky = owner.store.cold
    assert isinstance(flaky, ScriptedStorage)
    for _ in range(3):
        flaky.fail("put", Unavailable("away"))
        assert owner.after(0)
        assert life.seen(owner.store.cold) is None
        note = standby_note.read(owner.store.paths)
        assert (note.phase, note.after_s, note.age_s(owner.store.clock)) == (Phase.OWNER, FIRST.after_s, None)
    assert owner.after(0)
    assert life.seen(owner.store.cold) is not None


def test_a_note_stays_while_the_bucket_does_not_tell_of_the_standbys(
    owner: Owner, expected_warnings: list[str]
) -> None:
    """As after a restart in an outage: `status` shows since when no sign of life has reached the bucket."""
    expected_warnings.append("no sign of life reaches the bucket")
    life.put_mark(owner.store.cold, FIRST)
    owner.see()
    standby_note.report(owner.store.paths, phase=Phase.OWNER, after_s=60, other_host="b")
    before = standby_note.read(owner.store.paths)
    flaky = owner.store.cold
    assert isinstance(flaky, ScriptedStorage)
    flaky.fail("read", Unavailable("away"))
    assert owner.after(0)
    assert standby_note.read(owner.store.paths) == before


def test_an_owner_that_was_replaced_shows_none(owner: Owner, tmp_path: Path) -> None:
    life.put_mark(owner.store.cold, FIRST)
    owner.see()
    assert owner.after(0)
    with new_owner(owner.store, tmp_path / "new"):
        before = life.seen(owner.store.cold)
        with pytest.raises(Fenced):
            owner.after(3600)
        assert life.seen(owner.store.cold) == before


def test_the_mark_of_this_store_itself_is_removed(owner: Owner) -> None:
    """A standby that became the owner and was killed before it removed its mark."""
    standby_note.report(owner.store.paths, id=FIRST.id)
    life.put_mark(owner.store.cold, FIRST)
    owner.see()
    assert owner.after(0)
    assert not life.has_mark(owner.store.cold, FIRST)
    assert not owner.after(3600)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b'{"store": "s", "host": "h", "beat": "b", "epoch": 1, "standbys": "x", "local_only_bytes": 0}',
        b'{"store": "s", "host": "h", "beat": "b", "epoch": true, "standbys": [], "local_only_bytes": 0}',
        b'{"store": "s", "host": "h", "beat": 5, "epoch": 1, "standbys": [], "local_only_bytes": 0}',
        b'{"store": "s", "host": "h", "beat": "b", "epoch": 1, "standbys": 5, "local_only_bytes": 0}',
        b'{"pad": "' + b"x" * 10_000 + b'"}',
    ],
)
def test_any_other_object_of_that_name_is_no_sign_of_life(data: bytes) -> None:
    storage = MemoryStorage()
    storage.put(ALIVE_NAME, BufferSource(data))
    assert life.seen(storage) is None
