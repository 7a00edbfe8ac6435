"""Cold objects in another storage class, and back: what moves, what stays, and what readers and recoveries see."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.conftest import Bucket
from tests.reality.reference import reference
from tests.tiering.archive.archiving import ARCHIVED, IN_PARTS, LARGE, SMALL, ArchivedStore
from tierfs.app.store import open_store
from tierfs.engine.chunkstore.protocol import StoredObject
from tierfs.engine.chunkstore.wrappers import Wrapped
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.record_parts import ARCHIVED_VERSION
from tierfs.engine.metadata.records import RECORD_VERSION
from tierfs.tiering.archive.command import met_in
from tierfs.tiering.archive.due import ArchiveTarget, DueObjects, Movable
from tierfs.tiering.archive.move import ArchiveMove
from tierfs.tiering.objects import ChunksMoved, abandon_all

DATA = {"a/large": reference(0, LARGE), "a/small": reference(1, SMALL), "a/other": reference(2, SMALL)}


@pytest.fixture
def store(tmp_path: Path, moto_bucket: Bucket) -> ArchivedStore:
    store = ArchivedStore.new(tmp_path / "store", moto_bucket)
    store.fill(DATA)
    return store


def require_data(store: ArchivedStore) -> None:
    assert {name: store.read(name) for name in DATA} == DATA


def test_objects_move_to_a_class_and_back(store: ArchivedStore) -> None:
    """A new name for each, the same id, and the old name is deleted later, when no reader needs it."""
    parts = reference(0, IN_PARTS)
    store.fill({"b/parts": parts})
    before = {record.id: record for record in store.records()}
    assert store.run("archive", "--class", "STANDARD_IA", "-n", "--json").json["objects"] == 3
    assert set(store.classes().values()) == {"STANDARD"}
    done = store.run("archive", "--class", "STANDARD_IA", "--json").json
    after = {record.id: record for record in store.records()}
    assert (done["objects"], done["client_bytes"]) == (len(before), 0)
    assert before.keys() == after.keys()
    for number, record in after.items():
        old = before[number]
        assert (record.archive_class, record.version) == ("STANDARD_IA", ARCHIVED_VERSION)
        assert (record.crc32c, record.created_ms, record.references) == (old.crc32c, old.created_ms, old.references)
        assert record.name != old.name
    assert {row.name for row in store.garbage()} == {record.name for record in before.values()}
    assert all(row.due_ms > 0 and row.after_sequence for row in store.garbage())
    assert {store.classes()[record.name] for record in after.values()} == {"STANDARD_IA"}
    require_data(store)
    assert store.run("archive", "--class", "STANDARD_IA", "--json").json["objects"] == 0
    assert store.run("archive", "--back", "--json").json["objects"] == 3
    assert {(record.archive_class, record.version) for record in store.records()} == {("", RECORD_VERSION)}
    assert {store.classes()[record.name] for record in store.records()} == {"STANDARD"}
    require_data(store)
    assert store.read("b/parts") == parts
    store.run("check", "--read")


def test_a_class_that_must_be_restored_is_one_clear_error_until_it_is_thawed(store: ArchivedStore) -> None:
    store.run("archive", "a/large", "--class", "DEEP_ARCHIVE", check=False)
    assert "tierfs thaw" in store.run("info", "a/large").out
    refused = store.run("cat", "a/large", check=False)
    assert (refused.code, refused.out) == (ARCHIVED, "")
    assert refused.err.count("\n") == 2, "one error and its remedy"
    assert "tierfs thaw" in refused.err
    assert store.read("a/small") == DATA["a/small"]
    assert store.run("archive", "a/large", "--back", check=False).code == ARCHIVED
    thawed = store.run("thaw", "a", "--days", "2", "--wait", "--json").json
    assert (thawed["objects"], thawed["ready"], thawed["is_ready"]) == (1, 1, True)
    assert thawed["until_ms"] > 0
    require_data(store)
    assert store.run("thaw", "a", "--json").json["requested"] == 0, "it is back already"
    store.run("archive", "--back")
    assert store.run("thaw", "a", "--json").json["objects"] == 0
    require_data(store)


def test_a_move_brings_the_objects_out_of_the_archive(store: ArchivedStore, tmp_path: Path) -> None:
    """Into the class of new objects, and the records say so, so that the policies move them again."""
    (nas := tmp_path / "nas").mkdir()
    store.run("archive", "a/large", "--class", "DEEP_ARCHIVE", check=False)
    store.run("archive", "--class", "STANDARD_IA", check=False)
    refused = store.run("move", "--to", nas, check=False)
    assert (refused.code, "nothing is moved: 1 object of" in refused.err, [*nas.iterdir()]) == (ARCHIVED, True, [])
    store.run("thaw", "/", "--wait")
    store.run("-q", "move", "--to", f"s3://{store.bucket[1]}/q")
    assert {(record.archive_class, record.version) for record in store.records()} == {("", RECORD_VERSION)}
    assert "archive" not in store.run("status").out
    require_data(store)
    store.run("check", "--read")
    assert store.run("archive", "--class", "STANDARD_IA", "--json").json["objects"] == 2
    store.run("-q", "move", "--to", nas)
    assert {record.archive_class for record in store.records()} == {""}
    require_data(store)


def test_what_is_shown(store: ArchivedStore) -> None:
    assert "archive" not in store.run("status").out
    store.run("archive", "a/large", "--class", "STANDARD_IA")
    shown = store.run("info", "a/large", "--json").json["archive"]
    assert shown == [{"storage_class": "STANDARD_IA", "bytes": LARGE, "objects": 1, "must_be_restored": False}]
    assert store.run("info", "a/small", "--json").json["archive"] == []
    assert store.run("du", "-s", "--json").json["archived_bytes"] == LARGE
    status = store.run("status", "--json", check=False).json
    assert (status["archived_objects"], status["archived_bytes"]) == (1, LARGE)
    (chunk,) = store.run("info", "--map", "a/large", "--json").json["chunks"]
    assert chunk["archive_class"] == "STANDARD_IA"


def test_an_object_of_several_segments_moves_when_all_of_them_do(store: ArchivedStore) -> None:
    store.run("clone", "a/large", "b/clone")
    done = store.run("archive", "a", "--class", "STANDARD_IA", "--json").json
    assert (done["objects"], done["shared"]) == (1, 1)
    assert {record.packed > 0: record.archive_class for record in store.records()} == {True: "STANDARD_IA", False: ""}
    assert store.run("archive", "--class", "STANDARD_IA", "--json").json["objects"] == 1
    require_data(store)
    assert store.read("b/clone") == DATA["a/large"]


def test_a_recovery_sees_the_archive(store: ArchivedStore, tmp_path: Path) -> None:
    """From the journal, and from the objects alone: their listing has the classes; what cannot be read ends it."""
    store.run("archive", "a/large", "--class", "DEEP_ARCHIVE", check=False)
    store.run("archive", "--class", "STANDARD_IA", check=False)
    names = {record.name: record.archive_class for record in store.records()}
    endpoint, bucket = store.bucket
    place = ("--bucket", f"s3://{bucket}/p", "--endpoint-url", endpoint.endpoint_url)
    again = ArchivedStore(tmp_path / "again", store.bucket)
    again.run("recover", *place, "--yes", check=False)
    assert {record.name: record.archive_class for record in again.records()} == names
    assert again.read("a/small") == DATA["a/small"]
    with closing(endpoint.client()) as client:
        journal = client.list_objects_v2(Bucket=bucket, Prefix="p/journal/")["Contents"]
        replaced = [f"p/{row.name}" for row in store.garbage()]
        for key in (*(entry["Key"] for entry in journal), *replaced):
            client.delete_object(Bucket=bucket, Key=key)
    last = ArchivedStore(tmp_path / "last", store.bucket)
    words = ("recover", "--from-objects", *place, "--yes")
    refused = last.run(*words, check=False)
    assert refused.code == ARCHIVED
    assert f"1 object of {LARGE:,} bytes must be restored first (1 as DEEP_ARCHIVE)" in refused.err
    last.run(*words, "--thaw", "2", check=False)
    assert {record.name: record.archive_class for record in last.records()} == names
    require_data(last)
    last.run("archive", "--back")
    assert {record.archive_class for record in last.records()} == {""}
    require_data(last)


def test_a_replica_reads_the_archive(store: ArchivedStore, tmp_path: Path) -> None:
    endpoint, bucket = store.bucket
    replica = ArchivedStore(tmp_path / "replica", store.bucket)
    replica.run("replica", "--bucket", f"s3://{bucket}/p", "--endpoint-url", endpoint.endpoint_url)
    store.run("archive", "--class", "STANDARD_IA")
    require_data(replica)
    replica.run("replica", "--refresh", check=False)
    assert {record.archive_class for record in replica.records()} == {"STANDARD_IA"}
    require_data(replica)
    assert replica.run("archive", "--back", check=False).code in (2, 5, 6)


def test_what_is_refused(store: ArchivedStore, tmp_path: Path) -> None:
    assert "no policy archive_class" in store.run("archive", check=False).err
    assert "mutually exclusive" in store.run("archive", "--back", "--class", "X", check=False).err
    store.run("config", "a", "archive_class=STANDARD_IA", "archive_after=1d")
    assert "archive_after=off" in store.run("archive", "a", "--back", check=False).err
    assert (tmp_path / "nas").mkdir() is None
    for words in (("move", "--to", tmp_path / "nas"), ("config", f"cold.url={tmp_path / 'nas'}")):
        refused = store.run(*words, check=False)
        assert (refused.code, "policy of a: archive_after 1d" in refused.err) == (2, True), refused


def test_what_a_place_without_classes_refuses(tmp_path: Path) -> None:
    """Each way to set a policy goes through one check, and so does the first place of a store."""
    store, bare = tmp_path / "plain", tmp_path / "bare"
    tierfs("-q", "init", store=store)
    both = ("archive_class=STANDARD_IA", "archive_after=1d")
    (nas := tmp_path / "nas").mkdir()
    for words in (
        ("archive", "--class", "STANDARD_IA"),
        ("config", "/", *both),
        ("config", "new/one", both[0]),
        ("config", "/", both[1]),
    ):
        refused = tierfs(*words, store=store, check=False)
        assert (refused.code, "has no storage classes" in refused.err) == (2, True), refused
    shown = tierfs("config", "/", "archive_after", "--json", store=store).json["policy"]
    assert shown["archive_after"]["origin"] == "built-in"
    tierfs("-q", "config", "/", "archive_after=off", store=store)
    tierfs("-q", "init", "--cold", "none", store=bare)
    tierfs("config", "/", *both, store=bare, check=False)
    refused = tierfs("config", f"cold.url={nas}", store=bare, check=False)
    assert (refused.code, "has no storage classes" in refused.err) == (2, True), refused


def test_joining_leaves_the_archive_alone(store: ArchivedStore) -> None:
    store.run("archive", "--class", "STANDARD_IA")
    before = store.records()
    store.run("config", "a", "compression=zstd")
    assert store.run("consolidate", "--compress", "--json").json["objects_after"] == 0
    assert store.records() == before


def test_a_copy_whose_intent_is_gone_is_not_linked(store: ArchivedStore) -> None:
    """Another holder took it for that of a dead process, and deletes it."""
    with open_store(store.path) as opened:
        work, metadata = opened.cold_work(), opened.metadata

        class Abandoning(Wrapped):
            def stat(self, name: str) -> StoredObject:
                abandon_all(metadata)
                return super().stat(name)

        with metadata.read() as txn:
            segment = directories.segment_by_name(txn, "a/large")
            due = DueObjects(Movable.of(txn, work.cold.location_id), asked=True)
        target = ArchiveTarget("STANDARD_IA", opened.clock.now_ms())
        (action,) = met_in(metadata, due, segment.id, "a/large", target)
        move = ArchiveMove(metadata, work.cold, lambda name: Abandoning(work.in_class(name)), grace_ms=0)
        with pytest.raises(ChunksMoved):
            move.run(action)
    assert {record.archive_class for record in store.records()} == {""}
    require_data(store)
