"""Objects of every kind that are begun before a switch, beside it and after it, by processes that outlive it.

Each is in the new place as soon as a record names it, or no record does.
"""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

import pytest

from tests.app.batches.batch_writes import Driver
from tests.app.moving.test_switch import place_of, switch
from tests.commands import tierfs
from tests.doubles.scripted_storage import Held, ScriptedStorage
from tests.ledgers import new_ledger, offloader
from tests.stores import KeptOpen, TestStore, open_test_store, quiet
from tests.tiering.test_objects import Nothing
from tests.tiering.test_repack import POLICY, dying_pack, walk
from tierfs.app.batches.commit import GivenUp
from tierfs.app.dump import dump_segment
from tierfs.app.setup import place_change
from tierfs.app.store import Store, open_store
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.errors import Conflict, NotFound, TierfsError, Unavailable, WrongColdTier
from tierfs.base.words.types import Ack, Tier
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal import cold_identity
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata.records import StoreRecord
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.tiering import objects
from tierfs.upkeep.holder.work import ColdWork

BEFORE = "before"


@dataclass
class Kind:
    """A kind of object: what it is made of, what makes it, and the call that writes it."""

    prepare: Callable[[TestStore], None]
    make: Callable[[TestStore], object]
    of: str
    verb: str = "put"


def sealed(store: TestStore) -> None:
    store.append("s", os.urandom(200_000), seal=True)


def small(store: TestStore) -> None:
    for number in range(20):
        store.append(f"s{number:02d}", os.urandom(3000), seal=True)


def pieces(store: TestStore) -> None:
    for _ in range(3):
        store.append("s", os.urandom(200_000))
        store.offload("s")
        store.evict("s")
    store.engine.seal("s")


def dying(store: TestStore) -> None:
    dying_pack(store)


def ledger(store: TestStore) -> None:
    new_ledger(store, [b"entry"] * 1000)


def nothing(store: TestStore) -> None:
    pass


def offload(store: TestStore) -> None:
    store.cold_work().offload("", quiet)


def consolidate(store: TestStore) -> None:
    store.cold_work().consolidate("", dry_run=False, report=quiet)


def repack(store: TestStore) -> None:
    walk(store.cold_work().repacker)


def acknowledged(store: TestStore) -> None:
    engine = store.another_engine()
    try:
        engine.open_writer("acked", ack=Ack.COLD).append(b"acknowledged")
    finally:
        engine.close()


def offload_ledger(store: TestStore) -> None:
    (name,) = (name for name in _names(store) if name.startswith("topic/"))
    offloader(store).offload(store.segment(name).id, uuid4())


def batch(store: TestStore) -> None:
    Driver(store).write({f"out/{number}": b"abc" * number for number in range(1, 4)})


KINDS = {
    "an object": Kind(sealed, offload, "segments/"),
    "a pack": Kind(small, offload, "packs/"),
    "a pool's pack": Kind(nothing, acknowledged, "packs/"),
    "a joined object": Kind(pieces, consolidate, "segments/", "compose"),
    "a pack of the rest": Kind(dying, repack, "packs/"),
    "a ledger": Kind(ledger, offload_ledger, "-ledger-"),
    "a write's objects": Kind(nothing, batch, "uploads/"),
}


@dataclass
class Maker:
    """A process that makes an object beside the switch, and never gets to publish it."""

    store: TestStore
    kind: Kind
    errors: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.kind.make(self.store)
        except BaseException as exc:
            self.errors.append(exc)

    def end(self) -> None:
        self.thread.join(60)
        assert not self.thread.is_alive(), "it does not end"


class Stopped(BaseException):
    """The process ends here."""


@pytest.fixture
def store(tmp_path: Path, cold: ScriptedStorage, target: ScriptedStorage) -> Iterator[TestStore]:
    settings = OffloadSettings(relocate_min_bytes=1000)
    with open_test_store(tmp_path / "store", policy=POLICY, settings=settings, cold=cold) as opened:
        opened.elsewhere = target
        opened.append("first", b"some bytes", seal=True)
        opened.offload()
        yield opened


@pytest.fixture(params=KINDS)
def maker(request: pytest.FixtureRequest, store: TestStore, monkeypatch: pytest.MonkeyPatch) -> Maker:
    made = Maker(store, KINDS[request.param])
    made.kind.prepare(store)
    store.cold_work().publish()
    publish = Publisher.publish

    def publish_elsewhere(publisher: Publisher, **options: object) -> int:
        if threading.current_thread() is not made.thread:
            return publish(publisher, **options)  # type: ignore[arg-type]
        with store.metadata.read() as txn:
            if txn.store.next_outbox > first:
                raise Stopped
        return 0

    with store.metadata.read() as txn:
        first = txn.store.next_outbox
    monkeypatch.setattr(Publisher, "publish", publish_elsewhere)
    return made


def _names(store: TestStore) -> list[str]:
    from tests.simulation.world import listed

    return sorted(listed(store.metadata))


def begin(maker: Maker, cold: ScriptedStorage) -> Held:
    """Begin an object: its intent is there, and it is not."""
    held = cold.hold(maker.kind.verb, of=maker.kind.of)
    maker.thread.start()
    held.wait_begun()
    return held


def objects_of(store: TestStore) -> int:
    with store.metadata.read() as txn:
        return sum(record.tier is Tier.COLD for _, record in txn.scan(OBJECTS))


def require_all_there(store: TestStore, target: ScriptedStorage) -> None:
    """Every object that a record names is in the new place, and all that is readable from the cold tier is right."""
    assert place_of(store).url == "memory:elsewhere"
    with store.metadata.read() as txn:
        records = [record for _, record in txn.scan(OBJECTS) if record.tier is Tier.COLD]
    assert records
    for record in records:
        for name in filter(None, (record.name, record.index_name, record.entries_name)):
            target.inner.stat(name)
    before = {name: store.read(name) for name in _names(store)}
    store.cold = KeptOpen(target.inner)
    assert {name: store.read(name) for name in before} == before
    store.offload()


def switch_of(work: ColdWork, store: TestStore) -> None:
    work.switch(replace(place_of(store), url="memory:elsewhere"), quiet)


# Calls of the new place: the first one of the copy, and the last one before the place is recorded.
MOMENTS = {"beside the copy": ("put", ""), "behind it": ("list", "journal/")}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_made_after_the_first_copy_is_copied_with_all_that_belongs_to_it(
    store: TestStore, cold: ScriptedStorage, target: ScriptedStorage, kind: str
) -> None:
    """Index and positions of a ledger, manifest and marker of a write: later copies list few names."""
    KINDS[kind].prepare(store)
    store.cold_work().publish()
    before = {stored.name for stored in cold.inner.list("")}

    def make() -> None:
        KINDS[kind].make(store)
        store.cold_work().publish()

    target.do("list", make, of="journal/")
    switch(store)
    made = {stored.name for stored in cold.inner.list("") if "/moved-" not in stored.name} - before
    assert any(KINDS[kind].of in name for name in made)
    assert made <= {stored.name for stored in target.inner.list("")}
    require_all_there(store, target)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("begun", [BEFORE, "beside"])
def test_an_object_that_is_linked_beside_the_switch_is_in_the_new_place(
    store: TestStore, cold: ScriptedStorage, target: ScriptedStorage, maker: Maker, begun: str, moment: str
) -> None:
    with store.holding() as work:
        held = begin(maker, cold) if begun == BEFORE else None

        def link() -> None:
            if held is None:
                maker.thread.start()
            else:
                held.go_on()
            maker.end()

        verb, of = MOMENTS[moment]
        target.do(verb, link, of=of)
        switch_of(work, store)
    assert [error for error in maker.errors if not isinstance(error, Stopped)] == []
    assert objects_of(store) > 1
    require_all_there(store, target)


def test_an_object_that_is_begun_before_the_switch_is_not_linked_behind_it(
    store: TestStore, cold: ScriptedStorage, target: ScriptedStorage, maker: Maker
) -> None:
    with store.holding() as work:
        held = begin(maker, cold)
        switch_of(work, store)
        store.cold = KeptOpen(target.inner)  # what a pool connects to when it writes its appends again
        held.go_on()
        maker.end()
    assert all(isinstance(error, Conflict | Stopped) for error in maker.errors), maker.errors
    require_all_there(store, target)


@pytest.mark.parametrize("maker", ["a pool's pack"], indirect=True)
@pytest.mark.parametrize("error", [NotFound("packs/a: No such file or directory"), Unavailable("down")], ids=type)
def test_an_append_that_fails_in_the_place_before_is_written_again_in_the_new_one(
    store: TestStore,
    cold: ScriptedStorage,
    target: ScriptedStorage,
    maker: Maker,
    error: TierfsError,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The place that was left may be gone while an upload into it is under way."""

    def fail(*_: object, **__: object) -> None:
        raise error

    with store.holding() as work:
        held = begin(maker, cold)
        switch_of(work, store)
        store.cold = KeptOpen(target.inner)
        monkeypatch.setattr(cold.inner, "put", fail)
        held.go_on()
        maker.end()
    assert [type(each) for each in maker.errors] == [Stopped]
    assert store.read("acked") == b"acknowledged"
    require_all_there(store, target)


def test_a_process_that_outlives_the_switch_begins_nothing_in_the_place_before(
    store: TestStore, cold: ScriptedStorage, target: ScriptedStorage
) -> None:
    jobs, (_, tier) = Driver(store).jobs, store.cold_tier()
    tier.require_ours()  # which holds for a moment
    switch(store)
    left = {stored.name for stored in cold.inner.list("")}
    with pytest.raises(Conflict, match="the address of the cold tier has changed"):
        jobs.begin("out")
    with pytest.raises(Conflict, match="the address of the cold tier has changed"):
        objects.make(store.metadata, tier, Nothing(store))
    assert {stored.name for stored in cold.inner.list("")} == left
    require_all_there(store, target)


def test_a_write_that_was_begun_before_the_switch_is_given_up_by_that_name(
    store: TestStore, target: ScriptedStorage
) -> None:
    driver = Driver(store)
    plan = driver.begin()
    uploaded = driver.upload(plan, {"out/1": b"abc"})
    switch(store)
    store.cold = KeptOpen(target.inner)
    with pytest.raises(GivenUp, match="was abandoned"):
        Driver(store).commit(plan, uploaded)


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[Store]:
    tierfs("-q", "init", "--cold-dir", made(tmp_path / "cold"), store=tmp_path / "s")
    tierfs("-q", "append", "s", store=tmp_path / "s", stdin=b"bytes")
    tierfs("-q", "offload", store=tmp_path / "s")
    with open_store(tmp_path / "s") as opened:
        yield opened


def made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def link(store: Store, *, published: bool) -> None:
    """Link an object, as another process does."""
    work = store.cold_work()
    with pytest.MonkeyPatch.context() as patch:
        if not published:
            patch.setattr(work.publisher, "publish", lambda **_: 0)
        store.engine.open_writer("later", ack=Ack.LOCAL).append(b"later bytes")
        store.engine.seal("later")
        work.offload("later", quiet)


def change(store: Store, to: Path) -> None:
    place_change.change(store.metadata, store.paths, store.settings.cold, {"url": str(to)})


@pytest.mark.parametrize("published", [True, False])
@pytest.mark.parametrize("when", [BEFORE, "beside"])
def test_an_address_is_not_recorded_where_an_object_is_missing_that_was_linked_just_now(
    on_disk: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, published: bool
) -> None:
    """Of a copy that was made by other means, and is a moment old."""
    shutil.copytree(tmp_path / "cold", tmp_path / "nas")
    examine, looks = cold_identity.examine, itertools.count()

    def examined(storage: ChunkStorage, record: StoreRecord) -> None:
        examine(storage, record)
        if "nas" in repr(storage) and next(looks) == 0:  # the place before is looked at, too
            link(on_disk, published=published)

    if when == BEFORE:
        link(on_disk, published=published)
    else:
        monkeypatch.setattr(cold_identity, "examine", examined)
    with pytest.raises(WrongColdTier, match="ends at slot" if published else "which is new"):
        change(on_disk, tmp_path / "nas")
    shutil.copytree(tmp_path / "cold", tmp_path / "nas", dirs_exist_ok=True)
    change(on_disk, tmp_path / "nas")
    shutil.rmtree(tmp_path / "cold")
    assert "clean" in tierfs("check", "--read", store=tmp_path / "s").out


def test_an_address_is_not_recorded_while_objects_are_made_faster_than_they_are_looked_for(
    on_disk: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.symlink(tmp_path / "cold", tmp_path / "same")
    examine, numbers = cold_identity.examine, itertools.count()

    def examined(storage: ChunkStorage, record: StoreRecord) -> None:
        examine(storage, record)
        name = f"more{next(numbers)}"
        on_disk.engine.open_writer(name).append(b"more")
        on_disk.engine.seal(name)
        on_disk.cold_work().offload(name, quiet)

    monkeypatch.setattr(cold_identity, "examine", examined)
    with pytest.raises(Conflict, match="faster than they are checked"):
        change(on_disk, tmp_path / "same")


def test_no_dump_is_written_to_a_place_that_is_being_left(on_disk: Store) -> None:
    """No record names it, so the copy would not miss it."""
    changing = place_change.changing(on_disk.paths, on_disk.clock)
    with changing, pytest.raises(Conflict, match="changes the cold tier's place"):
        dump_segment(on_disk, "s")
    assert dump_segment(on_disk, "s").bytes
