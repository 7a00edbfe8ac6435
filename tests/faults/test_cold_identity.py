"""The cold tier is ours (design, invariant 12): actions and messages in a place that is not the store's."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests import verbs
from tests.commands import tierfs
from tests.conftest import Bucket
from tests.doubles.scripted_storage import ScriptedStorage
from tests.faults.places import Nas
from tests.faults.two_owners import bucket
from tests.stores import TestStore, open_test_store
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.words.errors import AlreadyExists, Unavailable, WrongColdTier
from tierfs.base.words.types import Tier
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.place import Place, Server
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.engine.chunkstore.validate import MARK_NAME
from tierfs.engine.journal import store_mark
from tierfs.engine.journal.names import entry_slot, slot_name
from tierfs.engine.journal.publish import PROOF_S, Publisher
from tierfs.tiering.policy import EvictAction
from tierfs.upkeep.holder.work import ColdWork

NOT_OURS = "this is not the store's cold tier"

VERBS: dict[str, Callable[[TestStore], object]] = {
    "publish": lambda store: store.cold_work().publish(),
    "offload": lambda store: store.offload(),
    "evict": lambda store: store.evict(),
    "evict --force": lambda store: store.evict(force=True),
    "consolidate": lambda store: store.consolidate(),
    "checkpoint": lambda store: store.cold_work().checkpointer.checkpoint(),
    "holder's eviction": lambda store: evict_all_of_it(store, store.cold_work()),
    "holder's offload": lambda store: store.cold_work().cold.require_ours(),
    "repack": lambda store: store.cold_work().repacker.run(store.layout("s").cold[0].object),
}


@pytest.fixture
def nas(tmp_path: Path) -> Iterator[Nas]:
    place = Nas(tmp_path / "nas")
    place.mount()
    yield place
    place.unmount()


def evict_all_of_it(store: TestStore, work: ColdWork) -> None:
    list(work.evict_segments([EvictAction(store.segment("s").id, store.clock.now_ms())]))


def slots(storage: ChunkStorage) -> list[int]:
    found = (entry_slot(item.name) for item in storage.list("journal/"))
    return [slot for slot in found if slot is not None]


def written(store: TestStore) -> None:
    """Two objects that the journal names, bytes that are only local, and a change to be published."""
    store.append("s", b"abcd")
    store.offload()
    store.append("t", b"efgh")
    store.offload()
    store.append("s", b"only")
    store.append("u", b"")


def empty(storage: ChunkStorage) -> None:
    for found in list(storage.list("")):
        storage.delete(found.name)


def roll_back(storage: ChunkStorage) -> None:
    """An earlier copy: everything from the newest two slots on is missing."""
    *_, last, newest = slots(storage)
    storage.delete(slot_name(newest))
    storage.delete(slot_name(last))
    for found in list(storage.list("segments/t/")):
        storage.delete(found.name)


def exchange(storage: ChunkStorage) -> None:
    """Another store's objects, as many slots as ours and the same names in the journal."""
    count = len(slots(storage))
    empty(storage)
    with other_store(storage) as other:
        for number in range(count - 1):
            other.append(f"of-another-{number}", b"abcd")
            other.cold_work().publish()


@contextmanager
def other_store(storage: ChunkStorage) -> Iterator[TestStore]:
    with tempfile.TemporaryDirectory() as path, open_test_store(Path(path) / "other", cold=storage) as other:
        other.cold_work().publish()
        yield other


PLACES = {"emptied": empty, "rolled back": roll_back, "another store's": exchange}


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("what", PLACES)
def test_nothing_is_done_in_a_place_that_is_not_ours(tmp_path: Path, what: str, marked: bool) -> None:
    storage = MemoryStorage()
    with open_test_store(tmp_path / "store", cold=storage) as store:
        written(store)
        if not marked:
            storage.delete(MARK_NAME)
        PLACES[what](storage)
        if not marked and what == "another store's":
            storage.delete(MARK_NAME)
        objects, local = bucket(storage), store.segment("s").local
        for verb in VERBS.values():
            with pytest.raises(WrongColdTier, match=NOT_OURS) as caught:
                verb(store)
            assert caught.value.remedy
            assert bucket(storage) == objects
            assert store.segment("s").local == local
        assert store.read("s", Tier.LOCAL) == b"abcdonly"


@pytest.mark.parametrize("what", PLACES)
def test_what_waits_to_be_deleted_stays_while_the_place_is_not_ours(tmp_path: Path, what: str) -> None:
    storage = MemoryStorage()
    with open_test_store(tmp_path / "store", cold=storage) as store:
        written(store)
        store.offload()
        before = {found.name: found for found in storage.list("")}
        store.engine.delete("s", recursive=False, cold_due_ms=store.clock.now_ms())
        store.cold_work().publish()
        ours = [name for name in before if name.startswith("segments/s/")]
        kept = bucket(storage)
        PLACES[what](storage)
        for name in ours:
            if name not in bucket(storage):
                storage.put(name, BufferSource(kept[name]))
        assert store.cold_work().collect().failed == len(ours)
        assert set(ours) <= set(bucket(storage))


@pytest.mark.parametrize("marked", [True, False])
def test_a_place_that_is_ours_again_is_used_again(tmp_path: Path, marked: bool) -> None:
    storage = MemoryStorage()
    with open_test_store(tmp_path / "store", cold=storage) as store:
        written(store)
        if not marked:
            storage.delete(MARK_NAME)
        kept = bucket(storage)
        empty(storage)
        with pytest.raises(WrongColdTier):
            store.offload()
        with store.metadata.read() as txn:
            assert NOT_OURS in txn.store.journal.wrong_place
        for name, data in kept.items():
            storage.put(name, BufferSource(data))
        store.offload()
        store.evict()
        assert store.read("s", Tier.COLD) == b"abcdonly"
        assert slots(storage) == list(range(1, len(slots(storage)) + 1))  # no hole
        with store.metadata.read() as txn:
            assert txn.store.journal.wrong_place == ""


def test_an_unmounted_nas_takes_nothing_and_costs_nothing(tmp_path: Path, nas: Nas) -> None:
    path = tmp_path / "store"
    init_store(path, Place.in_directory(nas.path))
    append(path, "s", b"first")
    with app.open_store(path) as store:
        verbs.offload(store)
    nas.unmount()
    append(path, "s", b"second")
    for verb in (
        ["evict", ""],
        ["evict", "--force", ""],
        ["offload", ""],
        ["consolidate", ""],
        ["backup", "--to-bucket", "s"],
    ):
        done = tierfs(*verb, store=path, check=False)
        assert (done.code, NOT_OURS in done.err, "mount" in done.err) == (12, True, True), done
    tierfs("gc", "--delete", store=path, check=False)
    done = tierfs("doctor", "--json", store=path, check=False)
    found = {one["name"]: one for one in done.json["checks"]}["cold tier"]
    assert (done.code, found["level"], NOT_OURS in found["found"]) == (1, "FAIL", True)
    status = tierfs("status", store=path)
    assert NOT_OURS in status.out
    assert "mount" in status.out
    assert nas.below_the_mount_point() == []
    nas.mount()
    with app.open_store(path) as store:
        assert verbs.evict(store, force=True).bytes == 5
        verbs.offload(store)
        verbs.evict(store, force=True)
        with closing(DirectoryStorage(nas.path)) as storage:
            found_slots = slots(storage)
        assert found_slots == list(range(1, len(found_slots) + 1))
        assert not [text for text in verbs.status(store).warnings if NOT_OURS in text]
    assert tierfs("cat", "s", store=path).out == "firstsecond"


def append(path: Path, name: str, data: bytes) -> None:
    tierfs("append", name, store=path, stdin=data)


def test_a_process_that_began_before_the_mount_goes_on_after_it(tmp_path: Path, nas: Nas) -> None:
    path = tmp_path / "store"
    init_store(path, Place.in_directory(nas.path))
    append(path, "s", b"first")
    nas.unmount()
    with app.open_store(path) as store:
        with pytest.raises(WrongColdTier):
            verbs.offload(store)
        nas.mount()
        assert verbs.offload(store).bytes == 5
        nas.unmount()  # lazily: this process holds what was mounted, and goes on there
        append(path, "s", b"second")
        verbs.offload(store)
    assert nas.below_the_mount_point() == []
    nas.mount()
    assert tierfs("cat", "s", "--read-priority", "offloaded-only", store=path).out == "firstsecond"


def test_a_mount_point_that_is_gone_is_named(tmp_path: Path) -> None:
    (tmp_path / "nas").mkdir()
    path = tmp_path / "store"
    init_store(path, Place.in_directory(tmp_path / "nas"))
    append(path, "s", b"first")
    (tmp_path / "nas").rename(tmp_path / "elsewhere")
    done = tierfs("offload", "", store=path, check=False)
    assert (done.code, NOT_OURS in done.err) == (12, True), done
    assert not (tmp_path / "nas").exists()
    assert NOT_OURS in tierfs("status", store=path).out


def test_an_emptied_bucket(moto_bucket: Bucket, tmp_path: Path) -> None:
    endpoint, name = moto_bucket
    path = tmp_path / "store"
    init_store(path, Place.parsed(f"s3://{name}/p", Server(endpoint.endpoint_url)))
    append(path, "s", b"first")
    tierfs("offload", "", store=path)
    with closing(endpoint.client()) as client:
        keys = [entry["Key"] for entry in client.list_objects_v2(Bucket=name)["Contents"]]
        assert f"p/{MARK_NAME}" in keys
        for key in keys:
            client.delete_object(Bucket=name, Key=key)
        for verb in (["evict", ""], ["offload", ""]):
            done = tierfs(*verb, store=path, check=False)
            assert (done.code, NOT_OURS in done.err, "recover" in done.err) == (12, True, True), done
        assert client.list_objects_v2(Bucket=name)["KeyCount"] == 0
    assert NOT_OURS in tierfs("status", store=path).out
    assert tierfs("cat", "s", store=path).out == "first"


def test_a_store_of_before_gets_its_mark_once_the_journal_proves_it(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "store") as store:
        store.cold_work().publish()
        store.cold.delete(MARK_NAME)
        store.cold_work().publisher.require_ownership()
        mark = store_mark.read(store.cold)
        assert mark is not None
        assert mark.store_id == store.metadata.store_id
        assert b'"store": "' + mark.store_id.encode() in bucket(store.cold)[MARK_NAME]


def test_a_damaged_mark_is_mended_by_the_journal(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "store") as store:
        store.offload()
        store.cold.put(MARK_NAME, BufferSource(b"{damaged"), create_only=False)
        store.offload()
        store.append("s", b"x")
        store.offload()
        mark = store_mark.read(store.cold)
        assert mark is not None
        assert mark.store_id == store.metadata.store_id


def test_a_new_store_needs_no_slot_to_begin_and_a_marked_place_refuses_it(tmp_path: Path) -> None:
    storage = MemoryStorage()
    with open_test_store(tmp_path / "first", cold=storage) as first:
        first.cold_work().publisher.require_ownership()  # nothing there, and nothing is claimed of it
        assert bucket(storage) == {}
        first.offload()
        for found in list(storage.list("journal/")):
            storage.delete(found.name)
        with open_test_store(tmp_path / "second", cold=storage) as second, pytest.raises(WrongColdTier):
            second.offload()
        assert slots(storage) == []


class Killed(BaseException):
    pass


@pytest.mark.parametrize("landed", [True, False])
def test_a_standing_intent_is_taken_up_whether_its_slot_is_there_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    with open_test_store(tmp_path / "store") as store:
        store.offload()
        store.append("s", b"abcd")

        def die(*_: object, **__: object) -> None:
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(Publisher, "_confirm" if landed else "_create", die)
            with pytest.raises(Killed):
                store.cold_work().publish()
        assert len(slots(store.cold)) == 1 + landed
        store.cold_work().publisher.require_ownership()
        store.offload()
        found = slots(store.cold)
        assert found == list(range(1, len(found) + 1))


def test_trimmed_slots_are_no_doubt(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "store") as store:
        for number in range(6):
            store.append("s", b"%04d" % number)
            store.offload()
            store.cold_work().checkpointer.checkpoint()
        assert min(slots(store.cold)) > 1
        newest = max(slots(store.cold))
        store.evict()
        store.cold.delete(slot_name(newest))  # its checkpoint has all it said
        store.cold_work().publisher.require_ownership()
        store.offload()


def test_a_proof_counts_for_seconds_only(tmp_path: Path) -> None:
    flaky = ScriptedStorage(MemoryStorage())
    with open_test_store(tmp_path / "store", cold=flaky) as store:
        written(store)
        work = store.cold_work()
        listings = flaky.calls["list"]
        work.cold.require_ours()
        work.cold.require_ours()
        assert flaky.calls["list"] == listings + 1
        store.clock.advance(PROOF_S + 1)  # type: ignore[attr-defined]
        flaky.fail("list", Unavailable("the server does not answer"))
        with pytest.raises(Unavailable):
            evict_all_of_it(store, work)
        assert store.read("s", Tier.LOCAL) == b"abcdonly"
        evict_all_of_it(store, work)
        assert store.segment("s").local.bytes == 4


def test_init_refuses_the_place_of_a_store_whose_journal_is_lost(tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    init_store(tmp_path / "first", Place.in_directory(tmp_path / "cold"))
    shutil.rmtree(tmp_path / "cold" / "journal")
    with pytest.raises(AlreadyExists, match="contains a tierfs store"):
        init_store(tmp_path / "second", Place.in_directory(tmp_path / "cold"))
