"""The deadline of an append that the cold tier acknowledges, in a pool with others, while requests are unanswered."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.doubles.scripted_storage import Held, ScriptedStorage, When
from tests.mount.waiting import eventually
from tests.stores import AT_ONCE, TestStore
from tests.tiering.test_append_pool import is_published, pool_of
from tests.tiering.test_packing import packs
from tierfs.base.words.errors import TierfsError, Unavailable, Unconfirmed
from tierfs.base.words.types import ByteRange
from tierfs.engine.metadata.tables import INTENTS
from tierfs.engine.segments.writer import SegmentWriter

POLICY = {"chunk_bytes": "100", "object_bytes": "1000", "ack": "cold"}

SHORT_S = 2.0
"""Longer than what comes before the request that is held."""


@pytest.fixture(autouse=True)
def timed(store: TestStore) -> None:
    """By the machine's clock."""
    pool_of(store)._clock = None
    pool_of(store)._sleep = time.sleep


def allow(store: TestStore, seconds: float) -> None:
    """Give appends that begin from now on so much time."""
    pool_of(store).settings = replace(pool_of(store).settings, deadline_s=seconds)


class Appending:
    """One append in a thread of its own."""

    def __init__(self, writer: SegmentWriter, data: bytes) -> None:
        self.end: ByteRange | TierfsError | None = None

        def append() -> None:
            try:
                self.end = writer.append(data)
            except TierfsError as exc:
                self.end = exc

        self._thread = threading.Thread(target=append)
        self._thread.start()

    def ended(self) -> ByteRange | TierfsError | None:
        """Return how it ended; None if it did not, in time for that to be seen."""
        self._thread.join(20)
        return self.end


def test_an_upload_that_is_not_answered_ends_and_what_arrives_later_is_garbage(
    store: TestStore, storage: ScriptedStorage, clock: ManualClock
) -> None:
    writer = store.engine.open_writer("d/s")
    writer.append(b"before")
    held = storage.hold("put", of="packs/", when=When.AFTER)
    allow(store, SHORT_S)
    with pytest.raises(Unavailable, match=r"nothing was appended to d/s: .* within 2s \(ack.deadline_s\)") as caught:
        writer.append(b"lost")
    assert caught.value.remedy is not None
    assert "repeat the append" in caught.value.remedy
    assert held.begun.is_set()
    assert store.segment("d/s").length == 6
    with store.metadata.read() as txn:
        assert txn.count(INTENTS.name) == 0
    assert len(packs(store)) == 2
    held.go_on()
    allow(store, 60)
    assert writer.append(b"again", expected_offset=6) == ByteRange(6, 11)
    store.engine.close_writer(writer)
    clock.advance(2 * 3600)
    store.settle()
    assert len(packs(store)) == 2
    assert store.read("d/s") == b"beforeagain"


def test_an_entry_that_is_not_answered_is_unconfirmed_and_may_arrive_later(
    store: TestStore, storage: ScriptedStorage
) -> None:
    writer = store.engine.open_writer("d/s")
    held = storage.hold("put", of="journal/")
    allow(store, SHORT_S)
    with pytest.raises(Unconfirmed, match="the bytes 0 to 3 of d/s were uploaded but not yet published") as caught:
        writer.append(b"abc")
    assert held.begun.is_set()
    assert caught.value.end == 3
    held.go_on()
    allow(store, 60)
    assert writer.append(b"def", expected_offset=3) == ByteRange(3, 6)
    assert is_published(store)


def test_an_append_that_waits_for_its_turn_ends_too(store: TestStore, storage: ScriptedStorage) -> None:
    writers = [store.engine.open_writer(name) for name in ("d/a", "d/b")]
    held = storage.hold("put", of="packs/")
    first = Appending(writers[0], b"first")
    held.wait_begun()
    allow(store, 0.05)
    second = Appending(writers[1], b"second").ended()
    before = first.end
    held.go_on()
    assert isinstance(second, Unavailable)
    assert "nothing was appended to d/b: previous appends are in progress" in str(second)
    assert before is None
    assert first.ended() == ByteRange(0, 5)
    assert (store.segment("d/a").length, store.segment("d/b").length) == (5, 0)
    allow(store, 60)
    assert Appending(writers[1], b"second").ended() == ByteRange(0, 6)


def in_one_pool(store: TestStore, writers: list[SegmentWriter], held: Held) -> list[Appending]:
    """Two appends of one pool, of which only the first has little time."""
    pool = pool_of(store)
    pool.settings = replace(AT_ONCE, pool_bytes=6, delay_s=60, deadline_s=SHORT_S)
    pool._sent_s = time.monotonic()
    hurried = Appending(writers[0], b"one")
    assert eventually(lambda: len(pool._queue) == 1)
    allow(store, 60)
    patient = Appending(writers[1], b"two")
    held.wait_begun()
    pool.settings = AT_ONCE
    return [hurried, patient]


def test_an_append_with_more_time_is_sent_again_with_the_next_pool(store: TestStore, storage: ScriptedStorage) -> None:
    writers = [store.engine.open_writer(name) for name in ("d/a", "d/b")]
    held = storage.hold("put", of="packs/")
    hurried, patient = in_one_pool(store, writers, held)
    end = hurried.ended()
    assert isinstance(end, Unavailable)
    assert "nothing was appended to d/a" in str(end)
    assert patient.ended() == ByteRange(0, 3)
    assert not held.may_go_on.is_set()
    held.go_on()
    assert (store.segment("d/a").length, store.read("d/b")) == (0, b"two")
    assert is_published(store)


def test_an_append_with_more_time_sees_to_its_publication_itself(store: TestStore, storage: ScriptedStorage) -> None:
    writers = [store.engine.open_writer(name) for name in ("d/a", "d/b")]
    held = storage.hold("put", of="journal/")
    hurried, patient = in_one_pool(store, writers, held)
    end = hurried.ended()
    assert isinstance(end, Unconfirmed)
    assert end.end == 3
    assert patient.ended() == ByteRange(0, 3)
    assert not held.may_go_on.is_set()
    held.go_on()
    assert is_published(store)
    assert (store.read("d/a"), store.read("d/b")) == (b"one", b"two")


def test_nothing_is_committed_after_the_deadline(store: TestStore, storage: ScriptedStorage) -> None:
    """The object is there in time, and its append is not: the caller is told so, and may repeat it."""
    pool_of(store)._clock = store.pauses
    writer = store.engine.open_writer("d/s")
    storage.do("put", lambda: store.pauses.sleep(AT_ONCE.deadline_s + 1), of="packs/", when=When.AFTER)
    with pytest.raises(Unavailable, match="nothing was appended to d/s: the object is stored, but not linked"):
        writer.append(b"abc")
    assert store.segment("d/s").length == 0
    assert writer.append(b"abc") == ByteRange(0, 3)


def test_appends_that_failed_leave_their_segment_as_it_was(store: TestStore, storage: ScriptedStorage) -> None:
    """Two of one writer in one pool: the bytes of the second follow those of the first, which are not there."""
    writer = store.engine.open_writer("d/s")
    writer.append(b"-")
    held = storage.hold("put", of="packs/")
    hurried, patient = in_one_pool(store, [writer, writer], held)
    assert isinstance(hurried.ended(), Unavailable)
    assert patient.ended() == ByteRange(1, 4)
    held.go_on()
    assert store.read("d/s") == b"-two"
