"""Files of a directory as segments, by the command; the directory stays as it was to the last timestamp."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from tests.adoption.foreign import directory_state, write_files
from tests.commands import Done, tierfs
from tierfs.app.store import open_store
from tierfs.metadata.tables import CHUNKS, DIRENTS, GARBAGE, LOCATIONS, OBJECTS

FILES = {
    "web/2026/a.log": os.urandom(300_000),
    "web/2026/b.log": b"b" * 128 * 1024,
    "empty": b"",
    ".metadata/x": b"their own business",
    ".tmp/y": b"and so is this",
    "ünï\N{SNOWMAN}": b"utf-8",
}


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    return write_files(tmp_path / "theirs", FILES)


def adopt(store: Path, *words: object, into: str = "in") -> Done:
    return tierfs("-q", "adopt", "objects", *words, "--into", into, "--json", store=store)


def states(done: Done) -> dict[str, str]:
    return {one["segment"]: one["state"] for one in done.json["segments"]}


def counts(store: Path) -> dict[bytes, int]:
    with open_store(store) as opened, opened.metadata.read() as txn:
        return {table.name: txn.count(table.name) for table in (DIRENTS, OBJECTS, CHUNKS, GARBAGE, LOCATIONS)}


def cat(store: Path, name: str) -> bytes:
    command = [sys.executable, "-m", "tierfs", "--store", str(store), "cat", name]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout


def test_every_file_is_a_segment_with_its_bytes(store: Path, theirs: Path) -> None:
    before, rows = directory_state(theirs), counts(store)
    assert states(adopt(store, theirs, "--dry-run")) == {f"in/{name}": "would be adopted" for name in FILES}
    assert (counts(store), directory_state(theirs)) == (rows, before)
    assert states(adopt(store, theirs)) == {f"in/{name}": "adopted" for name in FILES}
    assert states(adopt(store, theirs / "web/2026/b.log", into="one")) == {"one/b.log": "adopted"}
    assert cat(store, "one/b.log") == FILES["web/2026/b.log"]
    for name, data in FILES.items():
        assert sha256(cat(store, f"in/{name}")).digest() == sha256(data).digest()
        info = tierfs("info", f"in/{name}", "--json", store=store).json
        assert (info["length"], info["sealed"], info["tiers"]["local"]["bytes"]) == (len(data), True, 0)
        assert info["tiers"]["cold"] == {"chunks": 1 if data else 0, "bytes": len(data)}
    assert directory_state(theirs) == before


def test_whatever_verb_runs_the_files_stay(store: Path, theirs: Path) -> None:
    before = directory_state(theirs)
    adopt(store, theirs)
    adopt(store, theirs, into="again")
    tierfs("-q", "offload", store=store)
    tierfs("-q", "evict", "--force", store=store)
    tierfs("-q", "rm", "-r", "in", "--now", "--yes", store=store)
    tierfs("-q", "gc", "--delete", "--grace", "0s", store=store)
    assert counts(store)[GARBAGE.name] == 0
    assert cat(store, "again/web/2026/a.log") == FILES["web/2026/a.log"]
    tierfs("-q", "rm", "-r", "again", "--now", "--yes", store=store)
    tierfs("-q", "gc", "--delete", "--grace", "0s", store=store)
    assert counts(store) == {DIRENTS.name: 0, OBJECTS.name: 0, CHUNKS.name: 0, GARBAGE.name: 0, LOCATIONS.name: 2}
    assert directory_state(theirs) == before


def test_adopted_segments_are_unsealed_joined_and_cut_like_any_other(store: Path, theirs: Path) -> None:
    before = directory_state(theirs)
    adopt(store, theirs)
    whole, tail = "in/web/2026/a.log", FILES["web/2026/b.log"]
    tierfs("-q", "unseal", whole, store=store)
    tierfs("-q", "append", whole, store=store, stdin=b"and mine")
    tierfs("-q", "concat", whole, "in/web/2026/b.log", "--yes", store=store)
    tierfs("-q", "offload", store=store)
    tierfs("-q", "evict", "--force", store=store)
    assert cat(store, whole) == FILES["web/2026/a.log"] + b"and mine" + tail
    end = len(FILES["web/2026/a.log"]) + len(b"and mine")
    tierfs("-q", "truncate", whole, "--before", end + 1, "--yes", store=store)
    tierfs("-q", "gc", "--delete", "--grace", "0s", store=store)
    assert cat(store, whole) == tail[1:]
    assert directory_state(theirs) == before


def test_adopting_again_changes_nothing_and_reads_nothing(store: Path, theirs: Path) -> None:
    adopt(store, theirs)
    before = counts(store)
    (theirs / "new").write_bytes(b"new")
    again = states(adopt(store, theirs))
    assert again.pop("in/new") == "adopted"
    assert set(again.values()) == {"already adopted"}
    after = counts(store)
    assert {key: after[key] - before[key] for key in (DIRENTS.name, OBJECTS.name, LOCATIONS.name)} == {
        DIRENTS.name: 1,
        OBJECTS.name: 1,
        LOCATIONS.name: 0,
    }


def test_a_segment_of_other_bytes_is_in_the_way_and_others_go_on(store: Path, theirs: Path) -> None:
    tierfs("-q", "append", "in/web/2026/a.log", store=store, stdin=b"mine")
    done = tierfs("adopt", "objects", theirs, "--into", "in", "--json", store=store, check=False)
    assert done.code == 5
    found = states(done)
    assert found.pop("in/web/2026/a.log") == "failed"
    assert set(found.values()) == {"adopted"}
    assert cat(store, "in/web/2026/a.log") == b"mine"
    (error,) = done.json["errors"]
    assert (error["kind"], error["name"]) == ("AlreadyExists", "in/web/2026/a.log")


def test_a_file_that_changed_after_adoption_is_never_read_as_other_bytes(store: Path, theirs: Path) -> None:
    adopt(store, theirs)
    path = theirs / "web/2026/b.log"
    status = path.stat()
    with path.open("r+b") as file:
        file.write(b"x")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert_data_loss(store, "in/web/2026/b.log")  # by its checksum: name, size and time are as they were
    path.write_bytes(b"c" * status.st_size)
    assert_data_loss(store, "in/web/2026/b.log")
    replacement = theirs / "replacement"
    replacement.write_bytes(b"d" * status.st_size)
    os.utime(replacement, ns=(status.st_atime_ns, status.st_mtime_ns))
    replacement.rename(path)  # size and mtime are those that were adopted
    assert_data_loss(store, "in/web/2026/b.log")
    again = tierfs("adopt", "objects", theirs, "--into", "in", "--json", store=store, check=False)
    assert (again.code, states(again)["in/web/2026/b.log"]) == (5, "failed")


def assert_data_loss(store: Path, name: str) -> None:
    done = tierfs("cat", name, store=store, check=False)
    assert (done.code, done.out) == (74, "")


def test_a_directory_that_is_gone_is_not_available_and_its_name_is_said(store: Path, theirs: Path) -> None:
    adopt(store, theirs)
    (store / "store.toml").write_text("[read]\ndeadline_s = 1\n")  # else a read waits for it to come back
    theirs.rename(theirs.with_name("elsewhere"))
    done = tierfs("cat", "in/web/2026/b.log", store=store, check=False)
    assert (done.code, done.out) == (11, "")
    assert str(theirs) in done.err
    tierfs("-q", "rm", "-r", "in", "--now", "--yes", store=store)


def test_after_a_recovery_adopting_again_is_what_it_takes(tmp_path: Path, theirs: Path) -> None:
    lost, found, cold = tmp_path / "lost", tmp_path / "found", tmp_path / "cold"
    cold.mkdir()
    tierfs("-q", "init", "--cold-dir", cold, store=lost)
    adopt(lost, theirs)
    tierfs("-q", "recover", "--cold-dir", cold, store=found)
    again = states(adopt(found, theirs))
    assert again.pop("in/empty") == "already adopted"
    assert set(again.values()) == {"already adopted"}
    with open_store(found) as opened, opened.metadata.read() as txn:
        assert [place.from_journal for _, place in txn.scan(LOCATIONS)] == [False, False]
    assert cat(found, "in/web/2026/a.log") == FILES["web/2026/a.log"]
