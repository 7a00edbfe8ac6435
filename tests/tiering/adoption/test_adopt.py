"""The run: all of a segment or nothing of it, whatever fails, and every byte covered by a checksum."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.scripted_storage import ScriptedStorage
from tests.stores import TestStore, assert_layout, open_test_store
from tierfs.app.adopt import Adopted, Adopter
from tierfs.base.bytes.checksum import block_crcs, crc32c
from tierfs.base.bytes.progress import Meter, unseen
from tierfs.base.words.errors import AlreadyExists, Fenced, InvalidRequest, Unavailable
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, LocationId
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.chunkstore.read_only import ReadOnlyStorage
from tierfs.engine.metadata import changes, checksums, directories, policies
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.records import LocationRecord, ObjectRecord
from tierfs.engine.metadata.tables import GARBAGE, LOCATIONS, OBJECTS, OUTBOX_NAME, SEGMENTS
from tierfs.faces.cli.commands import adopt as adopt_command
from tierfs.tiering.adoption import link as linking
from tierfs.tiering.adoption import plan as planning
from tierfs.tiering.adoption.adopt import Adoption, AdoptionOutcome, State
from tierfs.tiering.adoption.plan import AdoptionPlan, ForeignExtent, SegmentPlan, bounded

PLACE = LocationRecord(id=LocationId(0), url="s3://theirs/logs", endpoint_url="http://h", writable=False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def theirs() -> ScriptedStorage:
    return ScriptedStorage(MemoryStorage())


def planned(theirs: ScriptedStorage, name: str, *parts: bytes, start: int = 0) -> SegmentPlan:
    """A segment out of objects of these bytes."""
    extents, at = [], start
    for number, data in enumerate(parts):
        found = theirs.inner.put(f"{name}-{number}", BufferSource(data))
        extents.append(ForeignExtent(at, len(data), found))
        at += len(data)
    return SegmentPlan(name, start, tuple(extents))


def run(store: TestStore, theirs: ScriptedStorage, *plans: SegmentPlan, jobs: int = 2) -> list[AdoptionOutcome]:
    return Adoption(store.metadata, theirs, PLACE, jobs, Meter()).run(plans)


def states(outcomes: list[AdoptionOutcome]) -> list[State]:
    return [outcome.state for outcome in outcomes]


def holders(store: TestStore) -> list[ObjectRecord]:
    with store.metadata.read() as txn:
        return [holder for _, holder in txn.scan(OBJECTS)]


def test_a_segment_of_several_objects(store: TestStore, theirs: ScriptedStorage) -> None:
    assert states(run(store, theirs, planned(theirs, "d/s", b"abcd", b"ef", start=100))) == [State.ADOPTED]
    assert_layout(store, "d/s", local=[], cold=[4, 2])
    segment = store.segment("d/s")
    assert (segment.start_offset, segment.length, segment.sealed) == (100, 106, True)
    assert {(one.name, one.foreign, one.references) for one in holders(store)} == {
        ("d/s-0", True, 1),
        ("d/s-1", True, 1),
    }


def test_large_objects_are_read_in_parts_and_their_grid_has_no_seam(store: TestStore, theirs: ScriptedStorage) -> None:
    data = os.urandom(MIB) * 65 + os.urandom(CRC_BLOCK_BYTES + 1)  # a part of 64 MiB, and a bit
    assert states(run(store, theirs, planned(theirs, "s", data))) == [State.ADOPTED]
    with store.metadata.read() as txn:
        (holder,) = (one for _, one in txn.scan(OBJECTS))
        runs = list(checksums.runs(txn, holder.id))
    assert [run.crc(index) for run in runs for index in range(run.count)] == block_crcs(data)
    assert [run.start for run in runs] == [index * checksums.RUN_BYTES for index in range(len(runs))]
    assert holder.crc32c == crc32c(data)


def test_when_one_object_fails_nothing_of_its_segment_is_made_and_others_go_on(
    store: TestStore, theirs: ScriptedStorage
) -> None:
    bad, good = planned(theirs, "bad", b"abcd", b"ef"), planned(theirs, "good", b"x")
    theirs.inner.delete("bad-1")
    outcomes = run(store, theirs, bad, good)
    assert states(outcomes) == [State.FAILED, State.ADOPTED]
    assert {one.name for one in holders(store)} == {"good-0"}
    with store.metadata.read() as txn:
        assert directories.find(txn, "bad") is None
    theirs.inner.put("bad-1", BufferSource(b"ef"))
    assert states(run(store, theirs, bad, good)) == [State.ADOPTED, State.ALREADY]


def test_an_object_that_changes_while_it_is_read_is_not_adopted(store: TestStore, theirs: ScriptedStorage) -> None:
    plan = planned(theirs, "s", b"abcd")
    theirs.inner.put("s-0", BufferSource(b"efgh"), create_only=False)
    (outcome,) = run(store, theirs, plan)
    assert (outcome.state, type(outcome.error).__name__) == (State.FAILED, "Conflict")
    assert "changed while it was read" in str(outcome.error)
    assert holders(store) == []


def test_a_crash_before_the_commit_leaves_nothing(
    store: TestStore, theirs: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        pass

    def crash(*_: object) -> None:
        raise Crash

    monkeypatch.setattr(linking.sealed_record, "write", crash)
    plans = [planned(theirs, "s", b"abcd", b"ef"), planned(theirs, "t", b"x")]
    with pytest.raises(Crash):
        run(store, theirs, *plans)
    with store.metadata.read() as txn:
        assert [txn.count(table.name) for table in (SEGMENTS, OBJECTS, LOCATIONS)] == [0, 0, 1]
    monkeypatch.undo()
    assert states(run(store, theirs, *plans)) == [State.ADOPTED, State.ADOPTED]


def test_a_place_that_does_not_answer_is_given_up(store: TestStore, theirs: ScriptedStorage) -> None:
    plans = [planned(theirs, f"s{number:02d}", b"abcd") for number in range(40)]
    theirs.fail("read", Unavailable("down"), on=range(1, 1000))
    outcomes = run(store, theirs, *plans, jobs=1)
    assert {outcome.state for outcome in outcomes} == {State.FAILED, State.NOT_TRIED}
    assert 8 <= theirs.calls["read"] <= 11


def test_a_fenced_store_adopts_nothing(store: TestStore, theirs: ScriptedStorage) -> None:
    with store.metadata.write() as txn:
        txn.update_store(journal=replace(txn.store.journal, fenced_by_epoch=7))
    outcomes = run(store, theirs, planned(theirs, "s", b"a"), planned(theirs, "t", b"b"), jobs=1)
    assert isinstance(outcomes[0].error, Fenced)
    assert holders(store) == []


def test_the_journal_names_the_place_then_the_segment_with_objects_and_checksums(
    store: TestStore, theirs: ScriptedStorage
) -> None:
    run(store, theirs, planned(theirs, "s", *(b"%d" % number for number in range(300))))
    with store.metadata.read() as txn:
        changes = [pb.Change.FromString(data) for _, data in txn.scan_raw(OUTBOX_NAME)]
        place = policies.location(txn, LocationId(2))
    assert (place.url, place.endpoint_url, place.writable) == (PLACE.url, PLACE.endpoint_url, False)
    kinds = [change.WhichOneof("body") for change in changes]
    assert kinds == ["owner_begins", "policy", "location", "segment", "cold_link", "cold_link", "segment"]
    links = [change.cold_link for change in changes if change.HasField("cold_link")]
    assert [(len(link.chunks), len(link.objects), len(link.checksums)) for link in links] == [(256,) * 3, (44,) * 3]
    assert all(one.foreign and one.references == 1 for link in links for one in link.objects)


def test_a_place_has_one_record_and_its_newest_profile(store: TestStore, theirs: ScriptedStorage) -> None:
    run(store, theirs, planned(theirs, "s", b"a"))
    other = replace(PLACE, profile="other")
    Adoption(store.metadata, theirs, other, 1, Meter()).run([planned(theirs, "t", b"b")])
    with store.metadata.read() as txn:
        assert [(one.id, one.profile) for _, one in txn.scan(LOCATIONS)] == [(1, ""), (2, "other")]


def test_deleting_makes_no_garbage_of_theirs(store: TestStore, theirs: ScriptedStorage) -> None:
    run(store, theirs, planned(theirs, "d/s", b"abcd", b"ef"))
    store.offload()
    store.evict(force=True)
    assert_layout(store, "d/s", local=[], cold=[4, 2])
    store.engine.truncate("d/s", 4, cold_due_ms=0)
    assert [one.name for one in holders(store)] == ["d/s-1"]
    store.engine.delete("d", recursive=True, cold_due_ms=0)
    store.settle()
    with store.metadata.read() as txn:
        assert list(changes.outbox(txn, 0)) == []
        assert txn.count(GARBAGE.name) == txn.count(OBJECTS.name) == 0
    assert [one.name for one in theirs.inner.list("")] == ["d/s-0", "d/s-1"]


def test_what_is_there_under_the_name_is_never_touched(store: TestStore, theirs: ScriptedStorage) -> None:
    store.append("d/s", b"mine")
    outcomes = run(store, theirs, planned(theirs, "d/s", b"abcd"), planned(theirs, "d", b"x"))
    assert all(isinstance(outcome.error, AlreadyExists) for outcome in outcomes)
    assert store.read("d/s") == b"mine"


@pytest.mark.parametrize("start", [2**63 - 3, -1])
def test_offsets_out_of_range_are_refused(theirs: ScriptedStorage, start: int) -> None:
    plan = AdoptionPlan()
    plan.add(planned(theirs, "s", b"abcd", start=start), "s")
    assert (plan.segments, [type(error) for _, error in plan.refused]) == ([], [InvalidRequest])


def test_a_listing_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MAX_OBJECTS", 3)
    assert list(bounded(iter("abc"), "x")) == ["a", "b", "c"]
    with pytest.raises(InvalidRequest, match="more than 3"):
        list(bounded(iter("abcd"), "x"))


def test_a_place_that_does_not_answer_is_named(theirs: ScriptedStorage) -> None:
    stored = theirs.inner.put("a", BufferSource(b"a"))
    for verb in ("read", "stat", "list"):
        theirs.fail(verb, Unavailable("cannot reach it", remedy="wait"))
    storage = ReadOnlyStorage(theirs)
    for ask in (
        lambda: storage.read_into("a", 0, memoryview(bytearray(1)), if_match=stored.etag),
        lambda: storage.stat("a"),
        lambda: list(storage.list("")),
    ):
        named = f"^{re.escape(repr(theirs))}, which tierfs only reads, is not available: cannot reach it"
        with pytest.raises(Unavailable, match=named) as caught:
            ask()
        assert caught.value.remedy == "wait"
        assert "was adopted" not in str(caught.value), "this is how adopt itself fails, too"


def test_what_was_adopted_is_published_though_another_place_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[str] = []

    def adopt_place(self: Adopter, planned: Adopted, jobs: int, advance: Meter) -> None:
        did.append(planned.only)
        if planned.only == "first":
            raise Unavailable("the server does not answer")

    monkeypatch.setattr(Adopter, "adopt", adopt_place)
    monkeypatch.setattr(Adopter, "settle", lambda *_: did.append("published"))
    places = [Adopted(Place(PLACE), AdoptionPlan(), only) for only in ("first", "next")]
    with pytest.raises(Unavailable, match="does not answer"):
        adopt_command._adopt(object.__new__(Adopter), places, 1, unseen)
    assert did == ["first", "next", "published"]
