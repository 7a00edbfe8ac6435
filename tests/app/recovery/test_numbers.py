"""Numbers after a takeover: what a lost owner used unseen is never handed out again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.app.recovery.recovering import lose_journal, recovered
from tests.app.recovery.test_from_objects import rebuilt
from tests.doubles.scripted_storage import ScriptedStorage
from tests.stores import TestStore, open_test_store
from tierfs.base.words.errors import Unavailable
from tierfs.base.words.types import SegmentId, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.segments.bulk_create import WholeSegment
from tierfs.engine.segments.writer_locks import WriterLocks


@pytest.fixture
def owner(tmp_path: Path, cold: MemoryStorage) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "owner", cold=ScriptedStorage(cold)) as store:
        store.append("early", b"abcd")
        store.offload()
        yield store


def die_between_put_and_publish(store: TestStore, name: str, data: bytes) -> None:
    """Leave an object in the bucket that no journal names."""
    flaky = store.cold
    assert isinstance(flaky, ScriptedStorage)
    store.append(name, data)
    flaky.fail("put", Unavailable("the host is gone"), on=2)
    with pytest.raises(Unavailable, match="the host is gone"):
        store.offload()


def test_ids_of_a_lost_owner_are_not_used_again(owner: TestStore, cold: MemoryStorage, tmp_path: Path) -> None:
    die_between_put_and_publish(owner, "a/unpublished", b"dead")
    with owner.metadata.read() as txn:
        lost = range(txn.store.next_id)
    acknowledged = [f"b{number}" for number in range(4)]
    with recovered(tmp_path / "new", cold) as found:
        for name in acknowledged:
            found.store.append(name, b"live")
        found.store.offload()
        assert all(found.store.segment(name).id not in lost for name in acknowledged)
    lose_journal(cold)
    with rebuilt(tmp_path / "again", cold) as again:
        assert again.left == {}
        for name in acknowledged:
            assert again.store.read(name, Tier.COLD) == b"live"
        assert again.store.read("a/unpublished", Tier.COLD) == b"dead"


def test_ids_of_owners_that_left_no_trace_are_not_used_again(
    owner: TestStore, cold: MemoryStorage, tmp_path: Path
) -> None:
    with recovered(tmp_path / "second", cold) as second:
        lose_journal(cold)  # nothing in the bucket tells of the second owner
        with rebuilt(tmp_path / "third", cold) as third:
            second.store.append("of the second", b"x")
            third.store.append("of the third", b"x")
            with second.store.metadata.read() as one, third.store.metadata.read() as other:
                assert one.store.next_id < other.store.next_id
                assert one.store.store_epoch < other.store.store_epoch
            assert second.store.segment("of the second").id != third.store.segment("of the third").id


def test_writers_of_ids_of_late_epochs_have_locks_of_their_own(tmp_path: Path) -> None:
    late = SegmentId((1_000_000 << 32) + 7)
    with closing(WriterLocks(tmp_path / "writers")) as locks, closing(WriterLocks(tmp_path / "writers")) as others:
        assert locks.try_lock(late, 1)
        assert others.is_alive_elsewhere(late, 1)
        assert not others.is_alive_elsewhere(SegmentId(late + 1), 1)
        assert not others.is_alive_elsewhere(late, 2)


def test_the_order_in_which_segments_appeared_is_recovered(
    owner: TestStore, cold: MemoryStorage, tmp_path: Path
) -> None:
    with closing(owner.engine.bulk_creator()) as bulk:
        bulk.create([WholeSegment(name, b"bulk") for name in ("a", "b")], seal=True)
    owner.offload()
    births = [owner.segment(name).birth for name in ("early", "a", "b")]
    with recovered(tmp_path / "new", cold) as found:
        assert [found.store.segment(name).birth for name in ("early", "a", "b")] == births
        found.store.append("c", b"later")
        assert found.store.segment("c").birth > max(births)
