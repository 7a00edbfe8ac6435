"""A fenced store on the command line: refused commands, working ones, and the rescue of its last bytes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.conftest import Bucket
from tests.faults.two_owners import become_owner
from tests.mount.waiting import eventually
from tierfs.app import store as app
from tierfs.config import Settings
from tierfs.metadata import tables
from tierfs.metadata.tables import LOCATIONS
from tierfs.setup.connect import connect_bare
from tierfs.setup.create import ColdChoice, init_store

SHOWN = 20
_ADVISORY = "two owners of one bucket are not kept apart"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store that offloaded some bytes, then lost its bucket to another store."""
    (tmp_path / "cold").mkdir()
    init_store(tmp_path / "first", ColdChoice(cold_dir=tmp_path / "cold"))
    tierfs("append", "a b/s", store=tmp_path / "first", stdin=b"cold bytes")
    tierfs("offload", "", store=tmp_path / "first")
    tierfs("append", "a b/s", store=tmp_path / "first", stdin=b", local bytes")
    take_over(tmp_path / "first", tmp_path / "second")
    return tmp_path / "first"


def take_over(first: Path, second: Path) -> None:
    """Return another host's store, created by `recover`."""
    shutil.copytree(first, second)
    with app.open_store(second) as store:
        location = store.cold_location
        assert location is not None
        storage = connect_bare(location, store.path, Settings().cold)
        become_owner(store.metadata, storage)
        storage.close()


MUTATIONS = [
    ("append", "a b/s"),
    ("append", "new"),
    ("seal", "a b/s"),
    ("rm", "a b/s", "--yes"),
    ("policy", "set", "", "chunk_bytes=1MiB"),
    ("policy", "unset", "", "read_priority"),
    ("offload", "a b"),
    ("evict", "a b"),
    ("gc", "--delete"),
]


def test_every_mutating_verb_is_refused_in_one_line(path: Path) -> None:
    first = tierfs("offload", "", store=path, check=False)  # it learns
    assert first.code == 6
    for words in MUTATIONS:
        refused = tierfs(*words, store=path, stdin=b"x", check=False)
        assert (refused.code, refused.out) == (6, ""), words
        line, remedy = refused.err.splitlines()
        assert "another store owns the bucket since epoch 2; this one may only be read" in line, words
        assert "tierfs status" in remedy, words
    for words in (("ls", ""), ("info", "a b/s"), ("map", "a b/s"), ("du", ""), ("gc",), ("evict", "", "--dry-run")):
        tierfs(*words, store=path)
    assert tierfs("cat", "a b/s", store=path).out == "cold bytes, local bytes"


def test_status_names_the_owner_and_every_range_that_only_this_disk_holds(path: Path) -> None:
    tierfs("offload", "", store=path, check=False)
    text = tierfs("status", store=path).out
    assert "fenced by epoch 2 on another-host since 20" in text
    (line,) = [line for line in text.splitlines() if "--read-priority local-only" in line]
    assert line.endswith("cat 'a b/s' --read-priority local-only --from 10 --to 23")
    exported = subprocess.run(f"{sys.executable} -m {line.strip()}", shell=True, capture_output=True, check=True)
    assert exported.stdout == b", local bytes"
    found = tierfs("status", "--json", store=path).json
    assert [(run["segment"], run["start"], run["end"]) for run in found["only_here"]] == [("a b/s", 10, 23)]
    assert found["journal"]["fencer"]["host"] == "another-host"


def test_status_shows_twenty_ranges_and_counts_the_rest(path: Path) -> None:
    for number in range(30):
        tierfs("append", f"many/{number:02}", store=path, stdin=b"x")
    tierfs("offload", "", store=path, check=False)
    text = tierfs("status", store=path).out
    assert text.count("--read-priority local-only") == SHOWN
    assert "and 11 ranges more" in text
    assert text.endswith("only on this disk: 43 B in 31 ranges\n")
    assert len(tierfs("status", "--json", store=path).json["only_here"]) == 31


def test_a_server_without_create_only_is_told_of_everywhere(path: Path) -> None:
    with app.open_store(path) as store, store.metadata.write() as txn:
        location = store.cold_location
        assert location is not None
        txn.put(LOCATIONS, tables.u32(location.id), replace(location, create_only_put=False))
    assert _ADVISORY in tierfs("status", store=path).out
    process = subprocess.Popen(
        [sys.executable, "-m", "tierfs", "--store", str(path), "daemon", "-f"], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert _ADVISORY in process.stderr.readline()
    finally:
        process.terminate()
        process.communicate(timeout=30)


@contextmanager
def daemon(path: Path) -> Iterator[int]:
    """Run a daemon that checks every half second who owns the bucket; yield its process id."""
    (path / "store.toml").write_text("[background]\nowner_check_s = 0.5\n")
    tierfs("daemon", store=path)
    pid = int(json.loads(tierfs("status", "--json", store=path).out)["holder"]["pid"])
    try:
        yield pid
    finally:
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGTERM)
            assert eventually(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.timeout(180)
def test_two_daemons_on_one_bucket(rgw_bucket: Bucket, tmp_path: Path) -> None:
    endpoint, bucket = rgw_bucket
    where = ("--bucket", f"s3://{bucket}/p", "--endpoint-url", endpoint.endpoint_url)
    first, second = tmp_path / "first", tmp_path / "second"
    tierfs("init", *where, store=first)
    tierfs("append", "s", "--seal", store=first, stdin=b"before")
    tierfs("offload", "", store=first)
    with daemon(first):
        take_over(first, second)
        with daemon(second):
            log = first / "log" / "daemon.log"
            assert eventually(lambda: "another store owns the bucket since epoch 2" in log.read_text())
            refused = tierfs("append", "t", store=first, stdin=b"x", check=False)
            assert (refused.code, "since epoch 2" in refused.err) == (6, True)
            tierfs("append", "t", "--seal", store=second, stdin=b"after")
            tierfs("offload", "", store=second)
            assert tierfs("cat", "t", "--read-priority", "offloaded-only", store=second).out == "after"
            assert tierfs("cat", "s", store=first).out == "before"
            assert tierfs("status", "--json", store=second).json["journal"]["fenced_by_epoch"] == 0
