"""tierfs adopt pulsar, as a user types it: a directory with what objects say beside them, and buckets."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Done, tierfs
from tests.tiering.adoption.foreign import ForeignBucket, cat, directory_state, write_files
from tests.tiering.adoption.pulsar import TOPIC, attempt, in_files, offloaded, without_tail

PAYLOADS = [b"first", b"", b"x" * 120, *(b"%d" % number for number in range(40)), b"last"]
NAME = f"in/{TOPIC}/00000000000000000007"


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    return write_files(tmp_path / "theirs", in_files(offloaded(PAYLOADS), offloaded([b"other"], 8)))


def adopt(store: Path, *words: object, check: bool = True) -> Done:
    return tierfs("adopt", "--as", "pulsar", *words, "--into", "in", "--json", store=store, check=check)


def told(done: Done) -> dict[str, tuple[str, int]]:
    return {one["segment"]: (one["state"], one["length"]) for one in done.json["segments"]}


def read(store: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in tierfs("ledger", "read", name, "--json", store=store).out.splitlines()]


def test_a_directory_of_ledgers(store: Path, theirs: Path) -> None:
    before = directory_state(theirs)
    length = len(b"".join(PAYLOADS))
    assert told(adopt(store, theirs, "--dry-run"))[NAME] == ("would be adopted", length)
    assert told(adopt(store, theirs)) == {NAME: ("adopted", length), NAME.replace("7", "8"): ("adopted", 5)}
    assert cat(store, NAME) == b"".join(PAYLOADS)
    assert [one["length"] for one in read(store, NAME)] == list(map(len, PAYLOADS))
    assert tierfs("info", NAME, "--json", store=store).json["ledger"]["state"] == "closed"
    assert {state for state, _ in told(adopt(store, theirs)).values()} == {"already adopted"}
    tierfs("-q", "check", "--read", store=store)
    assert "ok" in tierfs("check", "/", store=store).out
    tierfs("-q", "rm", "-r", "in", "--yes", store=store)
    tierfs("-q", "gc", "--delete", "--grace", "0s", store=store)
    assert directory_state(theirs) == before


def test_a_copy_of_a_place_is_another_place(store: Path, theirs: Path) -> None:
    adopt(store, theirs)
    copy = shutil.copytree(theirs, theirs.with_name("copy"))
    done = adopt(store, copy, check=False)
    told = f"a segment of the objects in file:{theirs}, not of those in file:{copy}"
    assert done.code == 5
    assert [told in one["error"] for one in done.json["errors"]] == [True, True]
    tierfs("-q", "rm", "-r", "in", "--now", "--yes", store=store)
    adopt(store, copy)
    assert cat(store, NAME) == b"".join(PAYLOADS)


def test_files_without_what_they_say_of_themselves_are_adopted_with_a_warning(store: Path, theirs: Path) -> None:
    for path in theirs.glob("*.json"):
        path.unlink()
    done = tierfs("adopt", "--as", "pulsar", theirs, "--into", "in", store=store, check=False)
    assert (done.code, done.out.splitlines()[-1]) == (0, "2 segments: 2 adopted")
    assert "format version of 4 files is unknown" in done.err
    assert "managed ledger of 2 ledgers is unknown" in done.err
    assert cat(store, "in/unknown/00000000000000000008") == b"other"


@pytest.mark.parametrize("said", ['{"metadata": {"a": 1}}', '{"metadata": {}}', "[" * 60_000, " " * 70_000])
def test_what_lies_beside_an_object_is_hostile(store: Path, theirs: Path, said: str) -> None:
    (theirs / f"{offloaded(PAYLOADS).key}.json").write_text(said)
    done = adopt(store, theirs, check=False)
    assert (done.code, list(told(done))) == (74, [NAME.replace("7", "8")])
    assert done.json["errors"][0]["kind"] == "DataLoss"


def test_lost_entries_are_one_clear_line(store: Path, tmp_path: Path) -> None:
    theirs = write_files(tmp_path / "lossy", in_files(without_tail(PAYLOADS, 10)))
    done = tierfs("adopt", "--as", "pulsar", theirs, "--into", "in", store=store, check=False)
    assert done.code == 74
    assert f"{NAME}: 34 of 44 entries are not in its object, from entry 10 on" in done.err
    assert "--accept-loss" in done.err
    done = tierfs("adopt", "--as", "pulsar", theirs, "--into", "in", "--accept-loss", store=store, check=False)
    assert done.code == 0
    assert "10 entries; lost: 34 entries" in done.out


@pytest.mark.parametrize("copies", [True, False], ids=["with copies of rows", "without"])
def test_entries_come_back_by_a_recovery_or_by_adopting_again(tmp_path: Path, theirs: Path, copies: bool) -> None:
    lost, found, cold = tmp_path / "lost", tmp_path / "found", tmp_path / "cold"
    cold.mkdir()
    tierfs("-q", "init", "--cold-dir", cold, store=lost)
    adopt(lost, theirs)
    for path in () if copies else (cold / "ledgers").iterdir():
        path.unlink()
    done = tierfs("recover", "--cold-dir", cold, store=found, check=False)
    assert ("adopt it again" in done.out + done.err) is not copies
    again = {state for state, _ in told(adopt(found, theirs)).values()}
    assert again == {"already adopted" if copies else "taken back"}
    assert [one["length"] for one in read(found, NAME)] == list(map(len, PAYLOADS))
    assert cat(found, NAME) == b"".join(PAYLOADS)
    tierfs("-q", "check", "--repair", store=found, check=False)  # which writes copies again that are gone
    tierfs("-q", "check", "--read", store=found)
    assert len(list((cold / "ledgers").iterdir())) == 2


@pytest.fixture(params=["moto", pytest.param("rgw", marks=pytest.mark.s3)])
def bucket(request: pytest.FixtureRequest) -> ForeignBucket:
    return ForeignBucket(request.getfixturevalue(f"{request.param}_bucket"))


def test_a_bucket_of_ledgers(store: Path, bucket: ForeignBucket) -> None:
    endpoint, name = bucket.bucket
    client = endpoint.client()
    unsaid = offloaded([b"unsaid"], 9, uuid=attempt(9), metadata={})
    for ledger in (offloaded(PAYLOADS), unsaid):
        for key, data in ledger.objects.items():
            client.put_object(Bucket=name, Key=f"pulsar/{key}", Body=data, Metadata=dict(ledger.said))
    client.close()
    before = bucket.state()
    done = adopt(store, bucket.url("pulsar"), *bucket.options, check=False)
    assert (done.code, told(done)) == (74, {NAME: ("adopted", len(b"".join(PAYLOADS)))})
    ((error,)) = done.json["errors"]
    assert f"{unsaid.key}-index has no format version" in error["error"]
    assert cat(store, NAME) == b"".join(PAYLOADS)
    assert told(adopt(store, bucket.url("pulsar"), *bucket.options, check=False))[NAME][0] == "already adopted"
    assert bucket.state() == before
