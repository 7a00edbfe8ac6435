"""Objects of a bucket as segments: moto for the many, Ceph for what a server decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import Done, tierfs
from tests.conftest import Bucket
from tests.tiering.adoption.foreign import ForeignBucket, cat, counts, states
from tierfs.engine.metadata.tables import GARBAGE, LOCATIONS

KEYS = {
    "logs/web/a b+ü.log": bytes(range(256)) * 1200,
    "logs/web/#epoch?x=1&y": b"what a URL would take for something else",
    "logs/empty": b"",
    "logs/dir/": b"",
    "other": b"not below logs/",
}
LOGS = {key.removeprefix("logs/"): data for key, data in KEYS.items() if key.startswith("logs/") and key[-1] != "/"}


@pytest.fixture(params=["moto", pytest.param("rgw", marks=pytest.mark.s3)])
def theirs(request: pytest.FixtureRequest) -> ForeignBucket:
    found = ForeignBucket(request.getfixturevalue(f"{request.param}_bucket"))
    found.put(KEYS)
    return found


def adopt(store: Path, theirs: ForeignBucket, *places: str, check: bool = True) -> Done:
    return tierfs(
        "-q", "adopt", "--as", "objects", *places, "--into", "in", *theirs.options, "--json", store=store, check=check
    )


def test_objects_become_segments_and_stay_what_they_are(store: Path, theirs: ForeignBucket) -> None:
    before = theirs.state()
    assert states(adopt(store, theirs, theirs.url("logs"))) == {f"in/{name}": "adopted" for name in LOGS}
    for name, data in LOGS.items():
        assert cat(store, f"in/{name}") == data
    assert set(states(adopt(store, theirs, theirs.url("logs/"))).values()) == {"already adopted"}
    assert counts(store)[LOCATIONS.name] == 2
    tierfs("-q", "rm", "-r", "in", "--yes", store=store)
    tierfs("-q", "gc", "--delete", "--grace", "0s", store=store)
    assert counts(store)[GARBAGE.name] == 0
    assert theirs.state() == before


def test_a_bucket_that_is_not_there(store: Path, theirs: ForeignBucket) -> None:
    done = adopt(store, theirs, "s3://no-such-bucket/x", check=False)
    assert (done.code in (2, 3, 4), "no-such-bucket" in done.err) == (True, True), done
    done = adopt(store, theirs, theirs.url("nothing/here"), check=False)
    assert (done.code, "is empty" in done.err) == (3, True)


def test_a_name_cannot_be_a_segment_and_a_directory(store: Path, moto_bucket: Bucket) -> None:
    theirs = ForeignBucket(moto_bucket)
    theirs.put({"p/a": b"1", "p/a/b/c": b"2", "p/a-b": b"3"})
    done = adopt(store, theirs, theirs.url("p/"), check=False)
    assert (done.code, states(done)) == (2, {"in/a": "adopted", "in/a-b": "adopted"})
    assert [(error["name"], error["kind"]) for error in done.json["errors"]] == [("in/a/b/c", "NotDirectory")]


def test_beside_our_own_objects_only_theirs_are_adopted_and_none_is_an_orphan(
    tmp_path: Path, moto_bucket: Bucket
) -> None:
    """The whole bucket is our cold tier, and they write names like ours, as our own store id even."""
    theirs, store = ForeignBucket(moto_bucket), tmp_path / "store"
    tierfs("-q", "init", "--bucket", theirs.url(), *theirs.options, store=store)
    tierfs("-q", "append", "mine", "--seal", store=store, stdin=b"mine")
    tierfs("-q", "offload", store=store)
    store_id = tierfs("status", "--json", store=store).json["store_id"]
    key = f"segments/web/77/chunk-{0:020d}-{4:020d}-e1-{'a' * 32}"
    client = moto_bucket[0].client()
    client.put_object(Bucket=moto_bucket[1], Key=key, Body=b"evil", Metadata={"store": store_id})
    client.close()
    before = theirs.below("segments/")
    every = adopt(store, theirs, theirs.url(), "--dry-run")
    assert states(every) == {f"in/{key}": "would be adopted"}
    assert {out["why"] for out in every.json["left_out"]} == {"this store's own"}
    assert len(every.json["left_out"]) >= 3
    assert tierfs("gc", "--grace", "0s", store=store).out.count("orphan  ") == 1
    name = key.removeprefix("segments/web/")
    assert states(adopt(store, theirs, theirs.url("segments/web"))) == {f"in/{name}": "adopted"}
    tierfs("-q", "gc", "--delete", "--grace", "0s", store=store)
    assert theirs.below("segments/") == before
    assert cat(store, f"in/{name}") == b"evil"
