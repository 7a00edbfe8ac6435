"""An attacker may have chosen every byte of a journal: impossible records are refused before they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.journal.replaying import check_store, empty_copy
from tests.stores import LOCATION
from tierfs.base.words import names
from tierfs.base.words.errors import DataLoss
from tierfs.engine.journal import replay
from tierfs.engine.metadata import directories
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.store import MetadataStore, new_id
from tierfs.engine.metadata.tables import DIRECTORIES, GARBAGE, LOCATIONS, OBJECTS, Table
from tierfs.engine.metadata.transaction import WriteTransaction

STORE_ID = new_id()
HUGE = 2**63


@pytest.fixture
def metadata(tmp_path: Path) -> Iterator[MetadataStore]:
    with empty_copy(tmp_path / "copy", STORE_ID) as copy:
        yield copy


def segment(number: int = 10, name: str = "s", **fields: object) -> pb.Change:
    return pb.Change(
        segment=pb.SegmentRecord(
            **{"version": 1, "id": number, "parent_id": 1, "name": name, "inode": number + 1, "length": 8, **fields}
        )
    )


def chunk(start: int = 0, length: int = 8, number: int = 20, **fields: object) -> pb.ChunkRecord:
    return pb.ChunkRecord(**{"version": 1, "start_offset": start, "length": length, "object_id": number, **fields})


def holder(number: int = 20, **fields: object) -> pb.ObjectRecord:
    base = {"version": 1, "id": number, "tier": 1, "location_id": 1, "length": 8, "etag": "e"}
    return pb.ObjectRecord(**{**base, "name": object_name(number), **fields})


def object_name(number: int, path: str = "s") -> str:
    return f"segments/{path}/10/chunk-{0:020d}-{8:020d}-e1-{number:032x}-c00000000"


def link(chunks: list[pb.ChunkRecord], objects: list[pb.ObjectRecord], *runs: pb.ChecksumRun) -> pb.Change:
    return pb.Change(cold_link=pb.ColdLink(segment_id=10, chunks=chunks, objects=objects, checksums=runs))


def early(brought: pb.ObjectRecord, *runs: pb.ChecksumRun) -> pb.Change:
    return pb.Change(checksums=pb.ObjectChecksums(object=brought, runs=runs))


def run(**fields: object) -> pb.ChecksumRun:
    return pb.ChecksumRun(**{"version": 1, "start": 0, "crcs": bytes(4), "object_id": 20, **fields})


def directory(number: int, parent: int, name: str, **fields: object) -> pb.Change:
    record = {"version": 1, "id": number, "parent_id": parent, "name": name, "inode": number + 100, **fields}
    return pb.Change(directory=pb.DirectoryRecord(**record))


def garbage(**fields: object) -> pb.Change:
    record = {"version": 1, "sequence": 1, "due_ms": 5, "tier": 1, "location_id": 1, "name": object_name(99), **fields}
    return pb.Change(garbage=pb.GarbageRecord(**record))


def location(number: int = 2, **fields: object) -> pb.Change:
    """The archive place, unless the fields say something else."""
    record = {"version": 1, "id": number, "url": "file:/nas", "writable": True, "archive": True, **fields}
    return pb.Change(location=pb.LocationRecord(**record))


def placed(**fields: object) -> pb.ObjectRecord:
    return holder(**{"location_id": 2, "version": 3, "archive_class": "place", **fields})


def emptied(**properties: str) -> list[pb.Change]:
    """A ledger of empty entries, with the properties of an object that no chunk refers to."""
    known = {"location": "2", "data": "x", "index": "", "dataBytes": "8", "dataEtag": "e", "encoding": "1"}
    named = {f"tierfs.{key}": value for key, value in {**known, **properties}.items() if value != "none"}
    offload = pb.OffloadContext(driver_properties=named, uid_msb=1)
    return [segment(kind=1, length=0), pb.Change(ledger=pb.LedgerRecord(version=1, segment_id=10, offload=offload))]


def setting(**settings: str) -> pb.Change:
    return pb.Change(policy=pb.PolicyRecord(version=1, target_id=1, settings=settings))


def apply(metadata: MetadataStore, *changes: pb.Change) -> None:
    with metadata.write() as txn:
        for change in changes:
            replay.apply(txn, change)
        check_store(txn)


REFUSED: dict[str, list[pb.Change]] = {
    "a name that leads up": [segment(name="..")],
    "a name with a slash": [segment(name="a/b")],
    "an empty name": [segment(name="")],
    "a name that is too long": [segment(name="n" * 256)],
    "no id": [segment(0)],
    "an id without a next one": [segment(HUGE)],
    "an inode without a next one": [segment(inode=HUGE)],
    "the root's inode": [segment(inode=1)],
    "an unknown directory": [segment(parent_id=77)],
    "a start behind the end": [segment(start_offset=9)],
    "a length beyond every file": [segment(length=HUGE)],
    "a year nobody sees": [segment(modified_ms=HUGE)],
    "an unknown status": [segment(status=99)],
    "a newer format": [segment(version=99)],
    "two segments of one name": [segment(), segment(12)],
    "a segment with a directory's id": [directory(10, 1, "d"), segment()],
    "a directory with a segment's id": [segment(), directory(10, 1, "d")],
    "a directory above itself": [directory(5, 1, "d"), directory(6, 5, "e"), directory(5, 6, "d")],
    "a directory in itself": [directory(5, 5, "d")],
    "a directory called ..": [directory(5, 1, "..")],
    "a name that is too deep": [
        *(directory(5 + depth, 4 + depth if depth else 1, "n" * 200) for depth in range(3)),
        segment(20, "n" * 200, parent_id=7),
    ],
    "a directory that is not empty goes": [
        directory(5, 1, "d"),
        segment(parent_id=5),
        pb.Change(directory_removed=5),
    ],
    "the root goes": [pb.Change(directory_removed=1)],
    "chunks of an unknown segment": [link([chunk()], [holder()])],
    "a chunk of an unknown object": [segment(), link([chunk()], [])],
    "a chunk without bytes": [segment(), link([chunk(length=0)], [holder()])],
    "a chunk beyond every file": [segment(), link([chunk(HUGE - 1)], [holder()])],
    "a chunk that overflows": [segment(), link([chunk(2**64 - 4)], [holder()])],
    "a chunk beyond its object": [segment(), link([chunk(object_offset=1)], [holder()])],
    "a chunk without object": [segment(), link([chunk(number=0)], [])],
    "chunks that overlap": [segment(length=99), link([chunk(0), chunk(4, number=21)], [holder(), holder(21)])],
    "one id for two objects": [segment(), link([chunk()], [holder()]), link([chunk()], [holder(name=object_name(21))])],
    "an object that leads up": [segment(), link([chunk()], [holder(name="segments/../x")])],
    "an object elsewhere": [segment(), link([chunk()], [holder(name="journal/1")])],
    "an object of no form": [segment(), link([chunk()], [holder(name="segments/s/10/precious")])],
    "an object of an impossible segment": [segment(), link([chunk()], [holder(name=object_name(20, "a/../b"))])],
    "an absolute object": [segment(), link([chunk()], [holder(name="/segments/x")])],
    "an object with a NUL": [segment(), link([chunk()], [holder(name="segments/\0")])],
    "an owned object in a place of others": [segment(), link([chunk()], [holder(location_id=2)])],
    "a foreign object that leads up": [segment(), link([chunk()], [holder(name="../x", foreign=True, location_id=2)])],
    "a local object": [segment(), link([chunk()], [holder(tier=0)])],
    "an object without etag": [segment(), link([chunk()], [holder(etag="")])],
    "an object without bytes": [segment(), link([chunk()], [holder(length=0)])],
    "an object with an impossible id": [segment(), link([chunk(number=HUGE)], [holder(HUGE)])],
    "an object becomes another": [segment(), link([chunk()], [holder()]), pb.Change(object=holder(length=9))],
    "an object gets another name": [
        segment(),
        link([chunk()], [holder()]),
        pb.Change(object=holder(name=object_name(21))),
    ],
    "an object with times behind its end": [
        segment(),
        link([chunk()], [holder(times=pb.ByteTimes(ends=[9], first_ms=[1], written_ms=[2]))]),
    ],
    "an object with a time for no bytes": [
        segment(),
        link([chunk()], [holder(times=pb.ByteTimes(ends=[8], first_ms=[1], written_ms=[2, 3]))]),
    ],
    "an object of an impossible time": [
        segment(),
        link([chunk()], [holder(times=pb.ByteTimes(ends=[8], first_ms=[1], written_ms=[HUGE]))]),
    ],
    "an object loses its etag": [segment(), link([chunk()], [holder()]), pb.Change(object=holder(etag=""))],
    "a cut checksum run": [segment(), link([chunk()], [holder()], run(crcs=bytes(5)))],
    "checksums beyond the object": [segment(), link([chunk()], [holder()], run(crcs=bytes(8)))],
    "checksums that overflow": [segment(), link([chunk()], [holder()], run(start=2**64 - 1))],
    "early checksums beyond the object": [early(holder(), run(crcs=bytes(8)))],
    "early checksums of an object elsewhere": [early(holder(name="journal/1"), run())],
    "early checksums of another object": [segment(), link([chunk()], [holder()]), early(holder(name=object_name(21)))],
    "checksums of nothing": [segment(), link([chunk()], [holder()], run(object_id=99))],
    "an object without a chunk that leads up": emptied(data="../x"),
    "an index without a chunk that leads up": emptied(index="a/../../x"),
    "an object without a chunk and a size": emptied(dataBytes="none"),
    "an object without a chunk of an impossible size": emptied(dataBytes="\u0663"),
    "an own object without a chunk of a negative size": emptied(data="none", ownBytes="-1"),
    "an own object without a chunk that is too large": emptied(data="none", ownBytes=str(1 << 60)),
    "an object without a chunk in the store's own place": emptied(location="1"),
    "an object without a chunk in no place": emptied(location="0"),
    "an object without a chunk of an unknown encoding": emptied(encoding="9"),
    "an object without a chunk that is not encoded": emptied(encoding="0"),
    "an impossible policy": [setting(chunk_bytes="x")],
    "an unknown policy": [setting(no_such="1")],
    "a policy of ages": [setting(chunk_age="9" * 30)],
    "a policy of more bytes than there are": [setting(retention_bytes="9" * 400)],
    "a policy in digits of another script": [setting(chunk_bytes="\u0663")],
    "another store's owner": [pb.Change(owner_begins=pb.OwnerBegins(store_epoch=2, store_id="f" * 32))],
    "an epoch without a next one": [pb.Change(owner_begins=pb.OwnerBegins(store_epoch=HUGE, store_id=STORE_ID))],
    "a counter without a next one": [pb.Change(counters=pb.Counters(next_id=2**64 - 1))],
    "garbage elsewhere": [garbage(name="journal/1")],
    "garbage of this disk": [garbage(tier=0)],
    "garbage that leads up": [garbage(name="segments/../x")],
    "a second archive place": [location(), location(3)],
    "an archive place of others": [location(writable=False)],
    "the cold tier as the archive": [location(1)],
    "an adopted place that becomes the archive": [location(writable=False, archive=False), location()],
    "an archive place that becomes another one": [location(), location(writable=False, archive=False)],
    "an archive place that ends and has objects": [
        location(),
        segment(),
        link([chunk()], [placed()]),
        location(archive=False),
    ],
    "an object in no archive place": [segment(), link([chunk()], [placed()])],
    "an object in the archive that is in the cold tier": [
        location(),
        segment(),
        link([chunk()], [placed(location_id=1)]),
    ],
    "an object of the cold tier that is elsewhere": [location(), segment(), link([chunk()], [holder(location_id=2)])],
    "an object in the archive of an old form": [location(), segment(), link([chunk()], [placed(version=2)])],
    "an object that moves to no archive place": [
        location(archive=False),
        segment(),
        link([chunk()], [holder()]),
        pb.Change(object_moved=placed()),
    ],
    "nothing at all": [pb.Change(sequence=1)],
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_is_refused(metadata: MetadataStore, what: str) -> None:
    *before, last = REFUSED[what]
    apply(metadata, *before)
    with pytest.raises(DataLoss):
        apply(metadata, last)
    with metadata.read() as txn:
        check_store(txn)


def test_newer_kinds_of_changes_name_the_way_out(metadata: MetadataStore) -> None:
    newer = pb.Change.FromString(b"\xfa\x01\x00")  # field 31, which this version does not know
    with pytest.raises(DataLoss) as refused:
        apply(metadata, newer)
    assert refused.value.remedy == "upgrade tierfs"


def test_a_link_twice_counts_once_and_replaces_what_it_covers(metadata: MetadataStore) -> None:
    small = link([chunk(0, 4), chunk(4, 4, number=21)], [holder(length=4), holder(21, length=4)])
    apply(metadata, segment(), small, small)
    whole = link([chunk(0, 8, number=22)], [holder(22)])
    apply(metadata, whole, whole)
    with metadata.read() as txn:
        assert [(one.id, one.references) for _, one in txn.scan(OBJECTS)] == [(22, 1)]
        assert txn.store.next_id == 23


def test_a_directory_may_come_before_its_parent_in_a_checkpoint(metadata: MetadataStore) -> None:
    with metadata.write() as txn:
        replay.apply_state(txn, [directory(5, 6, "child"), directory(6, 1, "parent")], "part")
        replay.finish_checkpoint(txn, pb.CheckpointManifest(version=1, slot=3, last_sequence=9, store_epoch=1))
        check_store(txn)
        assert directories.path_of(txn, 6, "child") == "parent/child"


def test_a_checkpoint_with_an_unknown_parent_is_refused(metadata: MetadataStore) -> None:
    manifest = pb.CheckpointManifest(version=1, slot=3, last_sequence=9, store_epoch=1)
    with metadata.write() as txn:
        replay.apply_state(txn, [directory(5, 6, "child")], "part")
        with pytest.raises(DataLoss):
            replay.finish_checkpoint(txn, manifest)


def entry(**fields: object) -> pb.JournalEntry:
    base = {"version": 1, "store_id": STORE_ID, "store_epoch": 1, "slot": 1, "first_sequence": 1, "last_sequence": 1}
    changes = [pb.Change(sequence=1, counters=pb.Counters(next_id=5))]
    return pb.JournalEntry(**{**base, "changes": changes, **fields})


ENTRIES: dict[str, Callable[[], pb.JournalEntry]] = {
    "another slot": lambda: entry(slot=2),
    "another store": lambda: entry(store_id="f" * 32),
    "a gap in the changes": lambda: entry(first_sequence=2, changes=[pb.Change(sequence=2)]),
    "changes out of order": lambda: entry(changes=[pb.Change(sequence=3)]),
    "a newer format": lambda: entry(version=9),
}


@pytest.mark.parametrize("what", ENTRIES)
def test_an_entry_that_does_not_follow_is_refused(metadata: MetadataStore, what: str) -> None:
    with pytest.raises(DataLoss), metadata.write() as txn:
        replay.apply_entry(txn, ENTRIES[what]())


def test_an_entry_whose_directory_lies_nowhere_is_refused(metadata: MetadataStore) -> None:
    child, parent = directory(5, 6, "child"), directory(6, 1, "parent")
    for number, change in enumerate((parent, child), 1):
        change.sequence = number
    alone = directory(5, 6, "child")
    alone.sequence = 1
    with pytest.raises(DataLoss, match="an unknown directory"), metadata.write() as txn:
        replay.apply_entry(txn, entry(changes=[alone]))
    with metadata.write() as txn:
        replay.apply_entry(txn, entry(changes=[parent, child], last_sequence=2))
        check_store(txn)


def test_an_older_owners_entry_is_void_and_an_applied_change_is_skipped(metadata: MetadataStore) -> None:
    with metadata.write() as txn:
        assert replay.apply_entry(txn, entry(store_epoch=3))
        assert not replay.apply_entry(txn, entry(slot=2, store_epoch=2))
        assert replay.apply_entry(txn, entry(slot=3, store_epoch=3))
        assert (txn.store.journal.next_slot, txn.store.journal.published_sequence) == (4, 1)


def test_a_journal_does_not_say_where_this_host_connects(metadata: MetadataStore) -> None:
    ours = pb.LocationRecord(version=1, id=LOCATION, url="s3://evil", endpoint_url="http://evil")
    other = pb.LocationRecord(version=1, id=7, url="file:/etc")
    apply(metadata, pb.Change(location=ours), pb.Change(location=other))
    with metadata.read() as txn:
        found: dict[int, LocationRecord] = {record.id: record for _, record in txn.scan(LOCATIONS)}
    assert (found[LOCATION].url, found[LOCATION].from_journal) == ("memory:", False)
    assert (found[7].url, found[7].from_journal) == ("file:/etc", True)


def test_objects_and_garbage_in_the_archive_place_are_taken_and_those_elsewhere_are_not(
    metadata: MetadataStore,
) -> None:
    moved = pb.Change(object_moved=placed(name=object_name(21)))
    apply(metadata, location(), segment(), link([chunk()], [holder()]), moved)
    apply(metadata, garbage(location_id=2), garbage(sequence=2, location_id=3))
    with metadata.read() as txn:
        assert [(one.location_id, one.name) for _, one in txn.scan(OBJECTS)] == [(2, object_name(21))]
        assert [row.location_id for _, row in txn.scan(GARBAGE)] == [2]


def longest(*, below: int = 0) -> list[pb.Change]:
    """Return the directories of a path that has `below` bytes less than a name may have."""
    parts = ["n" * 200] * 3 + ["n" * (800 - below - 3 * 201)]
    return [directory(5 + depth, 4 + depth if depth else 1, part) for depth, part in enumerate(parts)]


def test_the_longest_name_is_taken_and_one_byte_more_is_not(metadata: MetadataStore) -> None:
    apply(metadata, *longest(below=2), segment(30, "s", parent_id=8))
    with metadata.read() as txn:
        assert len(directories.path_of(txn, directories.segment_by_id(txn, 30).parent_id, "s")) == 800
    for change in (segment(32, "st", parent_id=8), directory(34, 8, "dt")):
        with pytest.raises(DataLoss, match="too long: 801"):
            apply(metadata, change)


@pytest.mark.parametrize("moved", [directory(5, 40, "n" * 200), directory(5, 1, "other"), directory(6, 1, "n" * 200)])
def test_no_longer_names_arise_by_moving_a_directory(metadata: MetadataStore, moved: pb.Change) -> None:
    """No verb of tierfs moves one: a check of all that lies below would cost as much as that is, each time."""
    apply(metadata, *longest(below=2), segment(30, "s", parent_id=8), directory(40, 1, "above"))
    with pytest.raises(DataLoss, match="a directory moves"):
        apply(metadata, moved)


def test_a_directory_that_is_removed_moves_out_of_sight_and_never_back(metadata: MetadataStore) -> None:
    apply(metadata, *longest(below=2), segment(30, "s", parent_id=8))
    hidden = f".tierfs-removed-{'5' * 19}"
    apply(metadata, directory(5, 1, hidden))
    with metadata.read() as txn:
        assert directories.find(txn, "n" * 200) is None
    with pytest.raises(DataLoss, match="a directory moves"):
        apply(metadata, directory(5, 1, "n" * 200))


def test_a_directory_comes_back_from_the_trash_only_where_no_name_below_it_is_too_long(metadata: MetadataStore) -> None:
    def moved(parent_id: int, name: str, **fields: object) -> pb.Change:
        change = directory(5, parent_id, name)
        change.directory.MergeFrom(pb.DirectoryRecord(**fields))
        return change

    tree, longer = longest(below=2), "m" * 201
    apply(metadata, *tree, segment(30, "s", parent_id=8))
    hidden = names.in_trash(77, 5)
    removal = pb.Removal(path="n" * 200, removed_ms=1, due_ms=77, directories=1)
    apply(metadata, moved(1, hidden, removal=removal))
    with pytest.raises(DataLoss, match="too long"):
        apply(metadata, moved(1, longer))
    apply(metadata, moved(1, "n" * 200))
    with metadata.read() as txn:
        assert directories.find(txn, "n" * 200) is not None


def reads_of(metadata: MetadataStore, monkeypatch: pytest.MonkeyPatch, *changes: pb.Change, state: bool) -> int:
    """Apply changes in one transaction; return how many records of directories that read."""
    reads = 0
    original = WriteTransaction.get

    def counted(txn: WriteTransaction, table: Table[Any], key: bytes) -> Any:
        nonlocal reads
        reads += table is DIRECTORIES
        return original(txn, table, key)

    with metadata.write() as txn, monkeypatch.context() as patch:
        patch.setattr(WriteTransaction, "get", counted)
        if state:
            replay.apply_state(txn, changes, "part")
            replay.finish_checkpoint(txn, pb.CheckpointManifest(slot=1, store_epoch=1, next_id=10_000))
        else:
            for change in changes:
                replay.apply(txn, change)
    return reads


@pytest.mark.parametrize("state", [False, True], ids=["history", "checkpoint"])
def test_the_replay_of_a_deep_tree_reads_each_directory_a_few_times(
    metadata: MetadataStore, monkeypatch: pytest.MonkeyPatch, state: bool
) -> None:
    tree = [directory(5 + level, 4 + level if level else 1, "d") for level in range(399)]
    files = [segment(1000 + 2 * number, chr(97 + number), parent_id=403) for number in range(16)]
    inner = [directory(5000 + level, 5 + level, f"e{level}") for level in range(300)]
    reads = reads_of(metadata, monkeypatch, *tree, *files, *inner, state=state)
    assert reads < 8 * (len(tree) + len(files) + len(inner)), reads


def test_a_replica_takes_no_garbage(tmp_path: Path) -> None:
    with empty_copy(tmp_path / "replica", STORE_ID, replica=True) as replica, replica.write_replayed() as txn:
        replay.apply(txn, garbage())
        assert txn.count(GARBAGE.name) == 0
