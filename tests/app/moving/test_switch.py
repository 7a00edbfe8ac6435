"""The last step of a move, and of a change of address: nothing is linked or published that the new place lacks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.scripted_storage import ALWAYS, ScriptedStorage, When
from tests.faults.two_owners import new_owner
from tests.mount.waiting import eventually
from tests.stores import LOCATION, KeptOpen, TestStore, open_test_store, quiet
from tierfs.base.words.errors import AlreadyExists, Conflict, DataLoss, Fenced, Unavailable, WrongColdTier
from tierfs.base.words.types import AttemptId, LocationId, SegmentId, Tier
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage, StoredObject
from tierfs.engine.chunkstore.resilient import ResilientStorage
from tierfs.engine.journal import publish, store_mark
from tierfs.engine.journal.names import slot_name
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.journal.store_mark import StoreMark
from tierfs.engine.metadata import changes, frames, tables
from tierfs.engine.metadata.environment import open_environment
from tierfs.engine.metadata.record_parts import ARCHIVED_VERSION
from tierfs.engine.metadata.records import IntentRecord, LocationRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import INTENTS, LOCATIONS, OBJECTS
from tierfs.tiering.archive import moved_tier
from tierfs.tiering.objects import JOBS_PREFIX
from tierfs.tiering.relocate import record_place
from tierfs.upkeep.holder import switch as switching

DATA = b"abcdefghijklmnop"
AWAY = Unavailable("the server is away")

# Longest time in which a small object is made and published; shorter than a mutant may take (tests/mutants).
WRITES_S = 20.0


@pytest.fixture
def store(tmp_path: Path, cold: ScriptedStorage, target: ScriptedStorage) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", cold=cold) as opened:
        opened.elsewhere = target
        opened.append("s", DATA, seal=True)
        opened.offload()
        yield opened


def place_of(store: TestStore) -> LocationRecord:
    with store.metadata.read() as txn:
        return txn.must_get(LOCATIONS, tables.u32(LOCATION), "the cold tier")


def switch(store: TestStore) -> int:
    with store.holding() as work:
        return work.switch(replace(place_of(store), url="memory:elsewhere"), quiet).objects


def rename(store: TestStore) -> None:
    """Record another address, as `config set` does."""
    with store.metadata.write() as txn:
        record_place(txn, replace(place_of(store), url="memory:elsewhere"))


def require_all_there(store: TestStore, *names: str) -> None:
    """The store works with the new place alone: it reads, publishes and offloads."""
    assert place_of(store).url == "memory:elsewhere"
    assert isinstance(store.elsewhere, ScriptedStorage)
    store.cold = KeptOpen(store.elsewhere.inner)
    store.append("later", DATA, seal=True)
    store.offload()
    assert store.evict(force=True).kept_bytes == 0
    for name in (*names, "later"):
        assert store.read(name, Tier.COLD) == DATA


def test_everything_is_copied_and_the_place_recorded(store: TestStore) -> None:
    assert switch(store) > 0
    require_all_there(store, "s")


def test_what_is_linked_during_the_copy_is_copied_too(store: TestStore, target: ScriptedStorage) -> None:
    def offload_more() -> None:
        store.append("s2", DATA, seal=True)
        store.cold_work().offload("s2", quiet)

    target.do("put", offload_more, when=When.AFTER)
    switch(store)
    require_all_there(store, "s", "s2")


def test_objects_that_are_made_faster_than_they_are_copied(
    store: TestStore, target: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter(range(10_000))

    def offload_more() -> None:
        name = f"more{next(numbers)}"
        store.append(name, DATA, seal=True)
        store.cold_work().offload(name, quiet)

    monkeypatch.setattr(switching, "_LAST_S", -1.0)  # no copy is short enough for a last one
    target.do("list", offload_more, on=ALWAYS)
    with pytest.raises(Conflict, match="faster"):
        switch(store)
    assert place_of(store).url == "memory:"
    store.offload()


class Busy:
    """Another thread, which makes an object cold and publishes that whenever a storage is listed."""

    def __init__(
        self, store: TestStore, pool: ThreadPoolExecutor, storage: ScriptedStorage, patch: pytest.MonkeyPatch
    ) -> None:
        patch.setattr(publish, "TURN_S", 0.0)  # a process that publishes may be asked to write meanwhile
        self.names: list[str] = []
        self._store, self._pool, self._work = store, pool, store.cold_work()
        self._running: Future[None] | None = None
        self._watch = open_environment(store.metadata.path).watch
        storage.do("list", self.meet, on=ALWAYS)

    def meet(self) -> None:
        """Return once an object is linked, or waits because nothing may be changed."""
        if self._running is None or self._running.done():
            self._running = self._pool.submit(self._write)
        if threading.current_thread().name.startswith("tierfs-last-copy"):
            assert eventually(lambda: self._watch._waiting or (self._running is not None and self._running.done()))
        else:
            self.finish()

    def finish(self) -> None:
        """Return once it rests."""
        if self._running is not None:
            assert eventually(self._running.done, WRITES_S), "it waits for whoever waits for it"
            self._running.result()

    def _write(self) -> None:
        name = f"more{len(self.names)}"
        self._store.append(name, DATA, seal=True)
        self.names.append(name)
        with suppress(Conflict):  # the place is another one by now
            self._work.offload(name, quiet)


def test_beside_a_writer_that_never_rests_both_places_are_listed_once(
    store: TestStore, target: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: list[str] = []
    listing = ScriptedStorage.list

    def listed(storage: ScriptedStorage, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        whole.extend([prefix] * (not prefix))
        return listing(storage, prefix, after=after)

    with ThreadPoolExecutor(1) as pool:
        busy = Busy(store, pool, target, monkeypatch)
        monkeypatch.setattr(ScriptedStorage, "list", listed)
        switch(store)
        target.behave()
        busy.finish()
    assert len(busy.names) > 1, "it wrote between the copies"
    assert whole == ["", ""], "of the origin and of the target"
    require_all_there(store, "s", *busy.names)


def test_a_last_copy_that_takes_too_long_lets_the_others_go_on(
    store: TestStore, target: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is silent then keeps nobody waiting for longer."""
    monkeypatch.setattr(switching, "_LAST_S", 1.0)
    waited: list[str] = []

    def wait_for_the_writer() -> None:
        if threading.current_thread().name.startswith("tierfs-last-copy") and not waited:
            busy.finish()
            waited.append(busy.names[-1])

    with ThreadPoolExecutor(1) as pool:
        busy = Busy(store, pool, target, monkeypatch)
        target.do("list", wait_for_the_writer, on=ALWAYS)
        switch(store)
        target.behave()
        busy.finish()
    assert waited
    require_all_there(store, "s", *busy.names)


def test_appends_do_not_hold_a_move_up(store: TestStore, target: ScriptedStorage) -> None:
    target.do("list", lambda: store.append("growing", b"abcdefgh"), on=ALWAYS)
    switch(store)
    require_all_there(store, "s")


@pytest.mark.parametrize("verb", ["list", "put", "stat", "read"])
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("refuses", ["origin", "target"])
def test_a_move_that_is_refused_at_any_step_stays_where_it_is_and_goes_on_later(
    store: TestStore, cold: ScriptedStorage, target: ScriptedStorage, verb: str, number: int, refuses: str
) -> None:
    (cold if refuses == "origin" else target).fail(verb, AWAY, on=number)
    try:
        switch(store)
    except Unavailable:
        assert place_of(store).url == "memory:"
        store.append("meanwhile", DATA, seal=True)
        store.offload()
        switch(store)
    require_all_there(store, "s")


def archive(store: TestStore) -> None:
    """Say of all objects that they are in the archive."""
    with store.metadata.write() as txn:
        for record in [record for _, record in txn.scan(OBJECTS) if record.tier is Tier.COLD]:
            changes.move_object(txn, replace(record, archive_class="GLACIER_IR", version=ARCHIVED_VERSION))


def classes(store: TestStore) -> set[str]:
    with store.metadata.read() as txn:
        return {record.archive_class for _, record in txn.scan(OBJECTS) if record.tier is Tier.COLD}


def test_a_place_without_classes_has_no_archive(store: TestStore) -> None:
    """As where a bucket was copied to a directory, by other means, and the store was recovered from there."""
    archive(store)
    with store.holding():
        assert classes(store) == {""}


def test_records_of_the_archive_are_corrected_by_the_next_holder_if_one_dies(
    store: TestStore, target: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A move brings every object into the class of new ones."""

    def die(metadata: MetadataStore, _: LocationId) -> None:
        with metadata.read() as txn:
            if txn.store.archive_left:
                raise AWAY

    archive(store)
    with monkeypatch.context() as patch:
        patch.setattr(moved_tier, "correct", die)
        with pytest.raises(Unavailable):
            switch(store)
    assert classes(store) == {"GLACIER_IR"}
    store.cold = KeptOpen(target)
    with store.holding() as work:
        assert classes(store) == {""}
        work.publish()
    require_all_there(store, "s")


@pytest.mark.parametrize("there", [b"", b"other"])
def test_an_object_of_the_journal_that_is_another_there_is_not_replaced(
    store: TestStore, target: ScriptedStorage, there: bytes
) -> None:
    name = next(store.cold.list("journal/")).name
    target.put(name, BufferSource(there))
    with pytest.raises(DataLoss, match="differs between"):
        switch(store)
    assert target.stat(name).length_bytes == len(there)
    assert place_of(store).url == "memory:"
    target.delete(name)
    switch(store)
    require_all_there(store, "s")


def test_a_request_that_a_dead_holder_had_carried_out_is_done(store: TestStore, target: ScriptedStorage) -> None:
    switch(store)
    place = place_of(store)
    store.cold = KeptOpen(target)
    with store.holding() as work:
        work.publish()
        assert work.switch(place, quiet).objects == 0
        assert work.publish() == 0  # it is not recorded again


def test_an_upload_to_the_place_before_is_not_linked(store: TestStore, cold: ScriptedStorage) -> None:
    store.append("s2", DATA[:8], seal=True)

    cold.do("put", lambda: rename(store), when=When.AFTER, of="segments/s2")
    with pytest.raises(Conflict, match="the address of the cold tier has changed"):
        store.offload("s2")
    assert not store.layout("s2").chunks(Tier.COLD)
    assert store.read("s2") == DATA[:8]


def test_an_entry_for_the_place_before_is_written_to_the_new_one(
    store: TestStore, cold: ScriptedStorage, target: ScriptedStorage
) -> None:
    for stored in cold.list(""):
        buffer = bytearray(stored.length_bytes)
        cold.read_into(stored.name, 0, memoryview(buffer))
        target.put(stored.name, BufferSource(buffer))
    store.append("s2", DATA, seal=True)

    cold.do("put", lambda: rename(store), when=When.AFTER, of="journal/")
    publisher = Publisher(store.metadata, cold)
    with pytest.raises(Conflict, match="the address of the cold tier has changed"):
        publisher.publish()
    with store.metadata.read() as txn:
        before = txn.store.journal.next_slot
    assert Publisher(store.metadata, target).publish() == 2
    with store.metadata.read() as txn:
        assert txn.store.journal.next_slot == before + 2
    require_all_there(store, "s")


def test_a_bucket_under_another_address_has_the_entry_already(store: TestStore, cold: ScriptedStorage) -> None:
    store.append("s2", DATA, seal=True)

    cold.do("put", lambda: rename(store), when=When.AFTER, of="journal/")
    with pytest.raises(Conflict, match="the address of the cold tier has changed"):
        Publisher(store.metadata, cold).publish()
    assert Publisher(store.metadata, cold).publish() == 2
    store.elsewhere = cold
    require_all_there(store, "s")


def test_a_checkpoint_in_the_place_before_does_not_count(store: TestStore, cold: ScriptedStorage) -> None:
    cold.do("put", lambda: rename(store), when=When.AFTER, of="journal/checkpoint")
    with pytest.raises(Conflict, match="the address of the cold tier has changed"):
        store.cold_work().checkpointer.checkpoint()
    with store.metadata.read() as txn:
        assert txn.store.journal.checkpoint_slot == 0


def test_a_job_that_writes_to_the_place_before_is_given_up(store: TestStore) -> None:
    with store.metadata.write() as txn:
        name = f"{JOBS_PREFIX}job/"
        intent = IntentRecord(
            attempt=AttemptId("job"),
            location_id=LOCATION,
            name=name,
            segment_id=SegmentId(0),
            start_offset=0,
            end_offset=0,
        )
        txn.put(INTENTS, b"job", intent)
    switch(store)
    with store.metadata.read() as txn:
        assert not txn.count(INTENTS.name)


def test_a_place_that_another_owner_has_written_to(store: TestStore, target: ScriptedStorage) -> None:
    with store.metadata.read() as txn:
        taken = changes.takeover_entry(txn.store, txn.store.store_epoch + 1, "a" * 32, place_of(store), "host", 1)
    target.put(slot_name(taken.slot + 1), BufferSource(frames.frame(taken)))
    with pytest.raises(WrongColdTier, match="another owner"):
        switch(store)
    assert place_of(store).url == "memory:"


def test_a_place_whose_mark_names_another_store(store: TestStore, target: ScriptedStorage) -> None:
    store_mark.write_mark(target, StoreMark("b" * 32))
    with pytest.raises(WrongColdTier, match="is of the store b"):
        switch(store)
    assert place_of(store).url == "memory:"


def test_a_store_that_was_taken_over_moves_nothing(
    store: TestStore, cold: ScriptedStorage, target: ScriptedStorage, tmp_path: Path
) -> None:
    with new_owner(store, tmp_path / "other"):
        pass
    with pytest.raises(Fenced):
        switch(store)
    assert not list(target.list(""))
    assert place_of(store).url == "memory:"


@pytest.mark.parametrize("name", ["journal/", "segments/"])
def test_a_bit_that_flips_on_the_way_is_not_in_the_new_place(
    store: TestStore, cold: ScriptedStorage, name: str
) -> None:
    """What is copied last is proved by nothing else."""
    cold.damage(5, of=name, on=1)
    switch(store)
    require_all_there(store, "s")
    for stored in cold.inner.list(""):
        if "moved" not in stored.name:
            assert bytes_of(cold, stored.name) == bytes_of(store.elsewhere, stored.name), stored.name


def bytes_of(storage: ChunkStorage, name: str) -> bytes:
    buffer = bytearray(storage.stat(name).length_bytes)
    storage.read_into(name, 0, memoryview(buffer))
    return bytes(buffer)


def test_a_copy_whose_answer_was_lost_is_there(store: TestStore, target: ScriptedStorage) -> None:
    """Of an object that names no attempt, so that the repeated call cannot tell."""
    store.cold.put("theirs", BufferSource(b"of another program"))
    store.elsewhere = ResilientStorage(target, attempts=3, sleep=lambda _: None)
    target.fail("put", AWAY, of="theirs", when=When.AFTER)
    switch(store)
    assert bytes_of(target, "theirs") == b"of another program"


def test_a_place_that_another_owner_writes_to_as_the_last_objects_are_copied(
    store: TestStore, target: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take_over() -> None:
        if threading.current_thread().name.startswith("tierfs-last-copy"):
            with store.metadata.read() as txn:
                epoch = txn.store.store_epoch + 1
                taken = changes.takeover_entry(txn.store, epoch, "a" * 32, place_of(store), "host", 1)
            with suppress(AlreadyExists):
                target.inner.put(slot_name(taken.slot + 9), BufferSource(frames.frame(taken)))

    with ThreadPoolExecutor(1) as pool:
        busy = Busy(store, pool, target, monkeypatch)
        target.do("list", take_over, on=ALWAYS)
        with pytest.raises(WrongColdTier, match="another owner"):
            switch(store)
        busy.finish()
    assert place_of(store).url == "memory:"


def test_an_object_that_is_newer_and_has_another_length_there_is_not_replaced(
    store: TestStore, cold: ScriptedStorage, target: ScriptedStorage
) -> None:
    made: list[str] = []

    def make() -> None:
        before = {stored.name for stored in cold.inner.list("")}
        store.append("s2", DATA, seal=True)
        store.cold_work().offload("s2", quiet)
        name = next(stored.name for stored in cold.inner.list("segments/s2/") if stored.name not in before)
        target.inner.put(name, BufferSource(b"x"))
        made.append(name)

    target.do("list", make, of="journal/")
    with pytest.raises(DataLoss, match="differs between"):
        switch(store)
    assert target.stat(made[0]).length_bytes == 1
    assert place_of(store).url == "memory:"
