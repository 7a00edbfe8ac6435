"""Ledgers of nothing but empty entries: no chunk refers to their objects, and every check looks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import Done, tierfs
from tests.stores import TestStore, open_test_store
from tests.tiering.adoption.adopting import run, states
from tests.tiering.adoption.foreign import ForeignBucket, write_files
from tests.tiering.adoption.pulsar import TOPIC, attempt, in_files, in_memory, offloaded
from tierfs.app.store import open_store
from tierfs.engine.metadata import empty_ledgers, entries
from tierfs.tiering.adoption.adopt import State
from tierfs.upkeep.check.scrub.copy_reader import Fault
from tierfs.upkeep.check.unchunked import defect, unchunked

EMPTY, WHOLE = offloaded([b"", b"", b""]), offloaded([b"one", b"two"], 8, uuid=attempt(2))
NAME = f"in/{TOPIC}/00000000000000000007"


def bucket_of(fixture: str) -> object:
    return pytest.param(fixture, marks=[pytest.mark.s3] if fixture == "rgw_bucket" else [])


class Theirs:
    """A place with both ledgers: its words for `adopt`, and the removal of one object of it."""

    def __init__(self, words: tuple[object, ...], url: str, remove: Callable[[str], object]) -> None:
        self.words, self.url, self.remove = words, url, remove


@pytest.fixture(params=["directory", "moto_bucket", bucket_of("rgw_bucket")])
def theirs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Theirs]:
    if request.param == "directory":
        root = write_files(tmp_path / "theirs", in_files(EMPTY, WHOLE))
        yield Theirs((root,), f"file:{root}", lambda name: (root / name).unlink())
        return
    bucket = ForeignBucket(request.getfixturevalue(request.param))
    endpoint, name = bucket.bucket
    client = endpoint.client()
    for ledger in (EMPTY, WHOLE):
        for key, data in ledger.objects.items():
            client.put_object(Bucket=name, Key=f"pulsar/{key}", Body=data, Metadata=dict(ledger.said))
    url = bucket.url("pulsar")
    yield Theirs((url, *bucket.options), url, lambda key: client.delete_object(Bucket=name, Key=f"pulsar/{key}"))
    client.close()


def adopt(store: Path, theirs: Theirs) -> list[str]:
    done = tierfs("adopt", "--as", "pulsar", *theirs.words, "--into", "in", "--json", store=store)
    return [row["state"] for row in done.json["segments"]]


def checks(store: Path) -> list[Done]:
    """All that look at a ledger's copies: of the whole store, of the ledger, and of its objects."""
    words = (("check",), ("check", NAME), ("check", "--read"), ("ledger", "verify", "in"))
    return [tierfs(*each, store=store, check=False) for each in words]


def test_objects_of_an_empty_ledger_are_checked_exported_and_missed(
    store: Path, theirs: Theirs, tmp_path: Path
) -> None:
    adopt(store, theirs)
    assert [done.code for done in checks(store)] == [0, 0, 0, 0]
    assert "it has objects" in tierfs("check", NAME, store=store).out
    exported = tierfs("ledger", "export", "in", tmp_path / "out", store=store).out
    assert exported.count(" copied, ") == 2
    for key, data in EMPTY.objects.items():
        assert (tmp_path / "out" / key).read_bytes() == data
    theirs.remove(f"{EMPTY.key}-index")
    done = checks(store)
    assert [each.code for each in done] == [74, 74, 74, 74]
    assert all(f"{EMPTY.key}-index" in each.out for each in done)
    assert "object-missing" in done[0].out
    assert tierfs("ledger", "export", NAME, tmp_path / "again", store=store, check=False).code == 3


def test_a_recovered_store_does_not_accuse_objects_of_an_empty_ledger(
    store: Path, theirs: Theirs, tmp_path: Path
) -> None:
    """The journal has the number of its entries, and not their places in the object."""
    adopt(store, theirs)
    tierfs("-q", "offload", store=store)
    recovered = tmp_path / "recovered"
    tierfs("-q", "recover", "--cold-dir", store / "cold", store=recovered)
    adopt(recovered, theirs)
    done = checks(recovered)
    assert [each.code for each in done] == [0, 0, 0, 0], [each.out for each in done]
    assert "2 ledgers verified" in done[-1].out


def test_a_replica_says_that_it_may_not_look_for_the_objects(store: Path, theirs: Theirs, tmp_path: Path) -> None:
    adopt(store, theirs)
    tierfs("-q", "offload", store=store)
    replica = tmp_path / "replica"
    tierfs("-q", "replica", "--cold-dir", store / "cold", store=replica)
    looked = tierfs("check", NAME, store=replica, check=False)
    assert "not accessible" in looked.out or theirs.url in looked.out, looked.out
    assert "not responding" in tierfs("check", store=replica).out


def test_a_store_without_a_cold_tier_checks_the_objects_it_adopted(tmp_path: Path) -> None:
    """There is no bucket to list, and the objects of others can be looked at."""
    store, root = tmp_path / "store", write_files(tmp_path / "theirs", {"a": b"hallo\n", "b": b"b\n"})
    tierfs("-q", "init", "--cold", "none", store=store)
    tierfs("-q", "adopt", "--as", "objects", root, "--into", "in", store=store)
    assert "clean" in tierfs("check", store=store).out
    (root / "a").unlink()
    done = tierfs("check", store=store, check=False)
    assert (done.code, "in/a: object a: it is missing" in done.out) == (74, True), done.out
    (root / "b").unlink()
    assert "not accessible" in tierfs("check", store=store, check=False).out


def test_a_place_of_empty_ledgers_alone_that_is_away(store: Path, tmp_path: Path) -> None:
    root = write_files(tmp_path / "theirs", in_files(EMPTY))
    tierfs("-q", "adopt", "--as", "pulsar", root, "--into", "in", store=store)
    root.rename(tmp_path / "unmounted")
    root.mkdir()
    done = tierfs("check", store=store, check=False)
    assert ("missing" in done.out, "expected 1 object of this store, found 0" in done.out) == (False, True), done.out
    root.rmdir()
    assert "not responding" in tierfs("check", store=store).out


def test_nothing_to_offload_of_what_has_no_bytes(store: Path) -> None:
    tierfs("-q", "append", "none", "--seal", store=store, stdin=b"")
    assert tierfs("offload", "none", store=store).out == "nothing to offload below none: it has no bytes on this disk\n"


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "opened") as test_store:
        test_store.cold_work().publish()
        yield test_store


def record_of(store: TestStore) -> object:
    with store.metadata.read() as txn:
        return empty_ledgers.find(txn, entries.find(txn, store.segment(NAME).id))


def test_objects_that_were_written_again_are_recorded(store: Path, tmp_path: Path) -> None:
    root = write_files(tmp_path / "theirs", in_files(EMPTY))
    words = ("adopt", "--as", "pulsar", root, "--into", "in", "--json")
    tierfs(*words, store=store)
    (root / EMPTY.key).rename(root / "old")  # kept, so that the new one has another inode
    (root / EMPTY.key).write_bytes(EMPTY.data)
    assert "its ETag has changed" in tierfs("ledger", "verify", "in", store=store).out
    again = [tierfs(*words, store=store).json["segments"][0]["state"] for _ in range(2)]
    assert again == ["taken back", "already adopted"]
    assert "ok  " in tierfs("ledger", "verify", "in", store=store).out


def test_objects_that_an_earlier_version_did_not_record_are_recorded(opened: TestStore) -> None:
    theirs = in_memory(EMPTY)
    run(opened, theirs)
    with opened.metadata.write() as txn:
        known = entries.find(txn, opened.segment(NAME).id)
        kept = dict(empty_ledgers.foreign(known.offload.driver_properties))
        entries.put_ledger(txn, replace(known, offload=replace(known.offload, driver_properties=kept)))
    assert record_of(opened) is None
    assert states(run(opened, theirs)) == [State.TAKEN_BACK]
    assert record_of(opened) is not None


def test_another_size_is_damage(store: Path, tmp_path: Path) -> None:
    root = write_files(tmp_path / "theirs", in_files(EMPTY, WHOLE))
    tierfs("-q", "adopt", "--as", "pulsar", root, "--into", "in", store=store)
    (root / EMPTY.key).write_bytes(EMPTY.data[:-1])
    with open_store(store) as found:
        with found.metadata.read() as txn:
            ((_, record),) = unchunked(txn)
        wrong = defect(found.storage_of, record)
    assert wrong is not None
    assert (wrong.fault, "its record says" in wrong.why) == (Fault.DAMAGED, True)
    assert "object-differs" in tierfs("check", store=store, check=False).out
