"""A dump of one segment that says more than its segment: refused as a whole, and nothing else ever changes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.doubles.mutations import edits, mutations, times
from tests.filled_store import FilledStore
from tests.stores import TestStore, open_test_store
from tests.tiering.backup import dumps
from tests.tiering.backup.dumps import NAME
from tierfs.base.words.errors import DataLoss, InvalidRequest, NotFound, TierfsError
from tierfs.base.words.types import AttemptId, SegmentId
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.metadata import changes, directories, policies, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.records import IntentRecord
from tierfs.engine.metadata.tables import INTENTS, OBJECTS

PACKED = {"chunk_bytes": "1048576", "object_bytes": str(16 * 100_000)}
HUGE = 2**62 + 1


@pytest.fixture(scope="module", params=["off", "zstd"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FilledStore:
    cold, path = MemoryStorage(ManualClock()), tmp_path_factory.mktemp("filled") / "store"
    with open_test_store(path, policy={**PACKED, "compression": request.param}, cold=cold) as opened:
        dumps.filled(opened)
        with opened.metadata.write() as txn:
            policies.change(txn, NAME, put_settings={"read_priority": "offloaded-only"})
    return FilledStore.of(opened, cold)


@pytest.fixture
def store(filled: FilledStore, tmp_path: Path) -> Iterator[TestStore]:
    with closing(filled.opened(tmp_path / "store", MemoryStorage(ManualClock(), filled.objects))) as opened:
        yield opened


def id_of(store: TestStore, name: str) -> int:
    return store.segment(name).id


def object_of(store: TestStore, name: str) -> pb.ObjectRecord:
    """Return an object of one segment alone."""
    with store.metadata.read() as txn:
        state = changes.segment_state(txn, directories.segment_by_name(txn, name))
        holders = [holder for change in state for holder in change.cold_link.objects]
    return next(holder for holder in holders if not holder.packed)


def test_the_dump_that_tierfs_makes_is_loaded(store: TestStore) -> None:
    segment, pieces = store.segment(NAME), dumps.dumped(store)
    assert {change.WhichOneof("body") for change in pieces[0].changes} == {"segment", "policy", "cold_link"}
    assert any(holder.packed for change in pieces[0].changes for holder in change.cold_link.objects)
    before, data = store.read(NAME), dumps.bytes_of_others(store)
    dumps.remove(store)
    dumps.put_pieces(store, pieces, segment.id)
    assert dumps.load(store).lost_bytes == 0
    assert store.read(NAME) == before
    assert dumps.bytes_of_others(store) == data


def extra(**body: object) -> Callable[[TestStore, pb.SegmentDump], None]:
    return lambda _, piece: piece.changes.append(pb.Change(**body))


def of(name: str, kind: str) -> Callable[[TestStore, pb.SegmentDump], None]:
    """Add a change of another segment, as its own dump has it."""

    def add(store: TestStore, piece: pb.SegmentDump) -> None:
        with store.metadata.read() as txn:
            state = list(changes.segment_state(txn, directories.segment_by_name(txn, name)))
        piece.changes.extend(change for change in state if change.HasField(kind))

    return add


def in_segment(**fields: object) -> Callable[[TestStore, pb.SegmentDump], None]:
    return lambda _, piece: piece.changes[0].segment.MergeFrom(pb.SegmentRecord(**fields))


def in_object(**fields: object) -> Callable[[TestStore, pb.SegmentDump], None]:
    """Change the first object that is the segment's own."""

    def change(_: TestStore, piece: pb.SegmentDump) -> None:
        holder = next(holder for change in piece.changes for holder in change.cold_link.objects if not holder.packed)
        holder.MergeFrom(pb.ObjectRecord(**fields))

    return change


def of_others_object(_: TestStore, piece: pb.SegmentDump, **fields: object) -> None:
    taken = object_of(_, "v")
    taken.MergeFrom(pb.ObjectRecord(**fields))
    link = piece.changes[-1].cold_link
    link.chunks[0].object_id, link.chunks[0].length, link.chunks[0].object_offset = taken.id, taken.length, 0
    link.ClearField("objects")
    link.ClearField("checksums")
    link.objects.append(taken)


def other_number(store: TestStore, piece: pb.SegmentDump) -> None:
    """Name the object of another segment by an id that is free."""
    of_others_object(store, piece, id=9000)


def pack_is_foreign(_: TestStore, piece: pb.SegmentDump) -> None:
    next(holder for change in piece.changes for holder in change.cold_link.objects if holder.packed).foreign = True


def twice(_: TestStore, piece: pb.SegmentDump) -> None:
    piece.changes.append(piece.changes[-1])


def numbered(_: TestStore, piece: pb.SegmentDump) -> None:
    piece.changes[-1].sequence = 10**6


def without_segment(_: TestStore, piece: pb.SegmentDump) -> None:
    del piece.changes[0]


def without_links(_: TestStore, piece: pb.SegmentDump) -> None:
    piece.changes[-1].cold_link.ClearField("chunks")


def unused_object(store: TestStore, piece: pb.SegmentDump) -> None:
    piece.changes[-1].cold_link.objects.append(pb.ObjectRecord.FromString(object_of(store, "v").SerializeToString()))
    piece.changes[-1].cold_link.objects[-1].id = 9000


def checksums_of_the_pack(store: TestStore, piece: pb.SegmentDump) -> None:
    """Claim others for a pack, before the link that describes it."""
    link = next(change for change in piece.changes if any(holder.packed for holder in change.cold_link.objects))
    link.cold_link.checksums.append(pb.ChecksumRun(start=0, crcs=b"evil", object_id=9001))


def being_made(store: TestStore, piece: pb.SegmentDump) -> None:
    name = next(holder.name for change in piece.changes for holder in change.cold_link.objects if not holder.packed)
    attempt = AttemptId("a" * 32)
    with store.metadata.write() as txn:
        intent = IntentRecord(
            attempt=attempt, location_id=1, name=name, segment_id=SegmentId(1), start_offset=0, end_offset=1
        )
        txn.put(INTENTS, attempt.encode(), intent)


def impossible_with_the_directory(store: TestStore, piece: pb.SegmentDump) -> None:
    with store.metadata.write() as txn:
        policies.change(txn, "", put_settings={"offload_after": "7200"})
    piece.changes[1].policy.settings["retention_age"] = "3600"


REFUSED: dict[str, Callable[[TestStore, pb.SegmentDump], None]] = {
    "another segment": of("u", "segment"),
    "links of another segment": of("v", "cold_link"),
    "bytes of another segment go": lambda store, piece: piece.changes.append(
        pb.Change(cold_unlink=pb.ColdUnlink(segment_id=id_of(store, "u"), start_offsets=[0]))
    ),
    "another segment goes": lambda store, piece: piece.changes.append(pb.Change(segment_removed=id_of(store, "u"))),
    "a pack with other segments": extra(pack_link=pb.PackLink()),
    "a policy of the root": extra(policy=pb.PolicyRecord(version=1, target_id=1, settings={"retention_age": "1"})),
    "the root's policy in place of its own": lambda _, piece: setattr(piece.changes[1].policy, "target_id", 1),
    "a policy that contradicts the directory's": impossible_with_the_directory,
    "an impossible policy": lambda _, piece: piece.changes[1].policy.settings.update(chunk_bytes="x"),
    "a directory": extra(directory=pb.DirectoryRecord(version=1, id=900, parent_id=1, name="d", inode=901)),
    "a directory goes": extra(directory_removed=1),
    "a location": extra(location=pb.LocationRecord(version=1, id=1, url="file:/etc")),
    "another location": extra(location=pb.LocationRecord(version=1, id=7, url="file:/etc")),
    "garbage": extra(garbage=pb.GarbageRecord(version=1, sequence=1, tier=1, location_id=1, name="segments/x")),
    "local garbage": extra(garbage=pb.GarbageRecord(version=1, sequence=1, name="../../precious")),
    "an owner": extra(owner_begins=pb.OwnerBegins(store_epoch=99)),
    "counters": extra(counters=pb.Counters(next_id=HUGE)),
    "a batch": extra(batch=pb.BatchRecord(version=1, application="a", batch="1")),
    "a ledger": extra(ledger=pb.LedgerRecord(version=1, segment_id=7)),
    "another etag": lambda store, piece: piece.changes.append(pb.Change(object=object_of(store, "v"))),
    "a change of no kind": extra(),
    "a change with a number": numbered,
    "no segment": without_segment,
    "the segment twice": lambda _, piece: piece.changes.append(piece.changes[0]),
    "a link twice": twice,
    "a link without chunks": without_links,
    "an object of another segment": of_others_object,
    "an object of another segment under another number": other_number,
    "an object that is being written": being_made,
    "an object that it does not use": unused_object,
    "a pack that is foreign": pack_is_foreign,
    "checksums of another object": checksums_of_the_pack,
    "an object in a place of others": in_object(location_id=7),
    "an object of no form": in_object(name="segments/precious"),
    "an object that leads up": in_object(name="segments/../precious"),
    "an object of the journal": in_object(name="journal/00000000000000000001"),
    "an object beside it, of the journal": in_object(index_name="journal/00000000000000000001"),
    "a copy of entries that is none": in_object(entries_name="dumps/precious"),
    "an object of another ledger": in_object(encoding=1, segment_id=5, stored_length=99),
    "an object near the last number": in_object(id=HUGE),
    "a number near the last": in_segment(commit_id=HUGE),
    "a writer near the last": in_segment(writer_epoch=HUGE),
    "a successor near the last": in_segment(successor_id=HUGE),
    "local chunks": in_segment(local=pb.TierState(count=1, bytes=4)),
    "an active chunk": in_segment(active=True),
    "a writer": in_segment(writer=pb.WriterInfo(pid=1)),
    "the view of a replica": in_segment(owner_view=pb.OwnerView(length=1)),
    "a segment that is being removed": in_segment(status=3),
    "another name": in_segment(name="other"),
    "another segment's number": in_segment(id=900),
    "an impossible stream": in_segment(stream_name="../x"),
    "a segment that ends before its bytes": in_segment(length=1),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_dump_may_not_hold_is_refused_with_nothing_changed(store: TestStore, case: str) -> None:
    segment_id, (piece,) = id_of(store, NAME), dumps.dumped(store)
    dumps.remove(store)
    REFUSED[case](store, piece)
    name = dumps.put_pieces(store, [piece], segment_id)
    before, names = dumps.everything(store), {item.name for item in store.cold.list("")}
    with pytest.raises((DataLoss, InvalidRequest), match=r"dumps/\d+-f+ is refused, with nothing changed: ") as caught:
        dumps.load(store, name)
    assert "journal is damaged" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert dumps.everything(store) == before
    assert {item.name for item in store.cold.list("")} == names


def in_run(**fields: object) -> Callable[[pb.ChecksumRun], None]:
    def change(run: pb.ChecksumRun) -> None:
        for name in ("frame_lengths", "stored_lengths"):
            if name in fields:
                run.ClearField(name)  # type: ignore[arg-type]
        run.MergeFrom(pb.ChecksumRun(**fields))  # type: ignore[arg-type]

    return change


FRAMES: dict[str, Callable[[pb.ChecksumRun], None]] = {
    "none": in_run(frame_lengths=[], stored_lengths=[]),
    "of fewer bytes": in_run(frame_lengths=[1, 1], stored_lengths=[9, 9]),
    "of more bytes": in_run(frame_lengths=[131072, 1], stored_lengths=[9, 9]),
    "too many": in_run(frame_lengths=[1] * 4000, stored_lengths=[9] * 4000),
    "more lengths than frames": in_run(frame_lengths=[4, 4, 4], stored_lengths=[9, 9]),
    "behind the object": in_run(stored_start=2**60),
    "behind the block": in_run(frame_start=1),
    "off the grid": in_run(start=1),
    "too long": in_run(frame_lengths=[2**31]),
    "a gap without end": in_run(frame_lengths=[0, 8], stored_lengths=[2**31, 9]),
}


@pytest.mark.parametrize("case", FRAMES)
def test_frames_that_no_object_has_are_refused_with_nothing_changed(tmp_path: Path, case: str) -> None:
    with open_test_store(tmp_path / "store", policy={**PACKED, "compression": "zstd"}) as store:
        store.append(NAME, b"abcdefgh")
        store.offload()
        segment_id, (piece,) = id_of(store, NAME), dumps.dumped(store)
        dumps.remove(store)
        (link,) = [change.cold_link for change in piece.changes if change.HasField("cold_link")]
        link.objects[0].stored_length = 2**33
        FRAMES[case](link.checksums[0])
        before = dumps.everything(store)
        with pytest.raises(DataLoss, match="is refused, with nothing changed: a checksum run has impossible frames"):
            dumps.load(store, dumps.put_pieces(store, [piece], segment_id))
        assert dumps.everything(store) == before


def test_parts_of_two_dumps_are_no_dump(store: TestStore) -> None:
    segment_id, (piece,) = id_of(store, NAME), dumps.dumped(store)
    dumps.remove(store)
    for other in ({"path": "a/x"}, {"store_id": "f" * 32}, {"store_epoch": 9}, {"sequence": 1}, {"written_ms": 1}):
        second = pb.SegmentDump()
        second.CopyFrom(piece)
        del second.changes[:]
        second.MergeFrom(pb.SegmentDump(**other))
        name = dumps.put_pieces(store, [piece, second], segment_id)
        with pytest.raises(DataLoss, match="several dumps"):
            dumps.load(store, name)


@pytest.mark.parametrize("path", ["", "/", "a//s", "../s", "a/../s", ".tierfs-removed-9", ".tierfs-removed-9/s"])
def test_an_impossible_path_is_refused(store: TestStore, path: str) -> None:
    segment_id, (piece,) = id_of(store, NAME), dumps.dumped(store)
    dumps.remove(store)
    piece.path = path
    with pytest.raises(DataLoss, match="is refused"):
        dumps.load(store, dumps.put_pieces(store, [piece], segment_id))


def test_a_dump_of_another_store_is_refused(store: TestStore) -> None:
    segment_id, (piece,) = id_of(store, NAME), dumps.dumped(store)
    dumps.remove(store)
    piece.store_id = "f" * 32
    with pytest.raises(NotFound, match="another store's"):
        dumps.load(store, dumps.put_pieces(store, [piece], segment_id))


def test_the_record_and_checksums_of_a_pack_stay_as_the_store_has_them(store: TestStore) -> None:
    segment_id, (piece,) = id_of(store, NAME), dumps.dumped(store)
    dumps.remove(store)
    for change in piece.changes:
        for holder in change.cold_link.objects:
            if holder.packed:
                holder.etag, holder.written_ms, holder.attempt = "evil", 1, "evil"
                for run in change.cold_link.checksums:
                    run.crcs = bytes(len(run.crcs))
    with store.metadata.read() as txn:
        mine = {holder.id for change in piece.changes for holder in change.cold_link.objects if not holder.packed}
        assert any(holder.packed for _, holder in txn.scan(OBJECTS))
    before = dumps.of_others(store, segment_id, mine)
    dumps.put_pieces(store, [piece], segment_id)
    dumps.load(store)
    assert dumps.of_others(store, segment_id, mine) == before


def test_a_segment_never_continues_in_one_that_does_not_continue_it(store: TestStore) -> None:
    segment_id, (piece,) = id_of(store, NAME), dumps.dumped(store)
    dumps.remove(store)
    segment = piece.changes[0].segment
    for successor in (segment_id, id_of(store, "u"), id_of(store, "v"), id_of(store, "a/t"), 10_000):
        segment.status, segment.successor_id, segment.predecessor_id = 2, successor, id_of(store, "u")
        dumps.put_pieces(store, [piece], segment_id)
        dumps.load(store)
        loaded = store.segment(NAME)
        assert (loaded.successor_id, loaded.predecessor_id) == (0, 0)
        dumps.remove(store)


def test_no_mutation_of_a_dump_changes_another_segment(store: TestStore) -> None:
    seed, count = 2718, 2000 * times()
    segment_id, (piece,) = id_of(store, NAME), dumps.dumped(store)
    with store.metadata.read() as txn:
        stray = [*changes.state_changes(txn), pb.Change(segment_removed=id_of(store, "u"))]
        known = {tables.read_u64(key) for key, _ in txn.scan_raw(OBJECTS.name)}
    own = {holder.id for change in piece.changes for holder in change.cold_link.objects if not holder.packed}
    data = dumps.bytes_of_others(store)
    dumps.remove(store)
    before = dumps.of_others(store, segment_id, own)
    kept = {item.name for item in store.cold.list("") if not item.name.startswith(("journal/", "dumps/"))}
    precious = store.path.parent / "precious"
    precious.write_bytes(b"precious")
    edited = (item.SerializeToString() for item in edits(piece, seed, count, also=stray))
    raw = mutations(piece.SerializeToString(), seed, count // 4)
    loaded = 0
    for payload in (*edited, *raw):
        name = dumps.put(store, dumps.framed(payload), segment_id)
        try:
            restored = dumps.load(store, name)
        except TierfsError:
            continue
        loaded += 1
        with store.metadata.read() as txn:
            new = {tables.read_u64(key) for key, _ in txn.scan_raw(OBJECTS.name)} - known
        assert {path: store.read(path) for path in data} == data, random.Random(seed)
        changed = dumps.of_others(store, segment_id, own | new)
        made = {key for key in changed.keys() - before.keys() if key[0] in (b"directories", b"dirents")}
        assert {key: value for key, value in changed.items() if key not in made} == before
        dumps.remove(store, restored.segment)
        _drop_directories(store, restored.segment)
    assert loaded > count // 50, "mutations that are harmless are loaded"
    assert precious.read_bytes() == b"precious"
    store.clock.advance(7200)  # type: ignore[attr-defined]
    store.collect(grace_s=10**6)
    after = {item.name for item in store.cold.list("")}
    assert {name for name in kept - after} <= dumps_objects(piece), "only objects of the removed segment went"
    assert dumps.bytes_of_others(store) == data


def dumps_objects(piece: pb.SegmentDump) -> set[str]:
    return {holder.name for change in piece.changes for holder in change.cold_link.objects if not holder.packed}


def _drop_directories(store: TestStore, path: str) -> None:
    """Take away the directories that a load made."""
    top = path.split("/", maxsplit=1)[0]
    if top not in ("a", "u", "v"):
        dumps.remove(store, top)
