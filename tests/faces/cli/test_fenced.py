"""Two stores on one bucket: a server that cannot keep them apart, and one that does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import started, tierfs
from tests.conftest import Bucket
from tests.faults.two_owners import become_owner
from tests.mount.waiting import eventually
from tierfs.app import store as app
from tierfs.base.options.config import Settings
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.tables import LOCATIONS

_ADVISORY = "two owners of one bucket are not prevented"


def take_over(first: Path, second: Path) -> None:
    """Return another host's store, created by `recover`."""
    shutil.copytree(first, second)
    with app.open_store(second) as store:
        location = store.cold_location
        assert location is not None
        storage = Place(location, store.path, Settings().cold).open()
        become_owner(store.metadata, storage)
        storage.close()


@pytest.mark.parametrize(("url", "text"), [("", "only an advisory lease prevents two owners"), ("s3://b/p", _ADVISORY)])
def test_a_server_without_create_only_is_told_of_everywhere(store: Path, url: str, text: str) -> None:
    with app.open_store(store) as opened, opened.metadata.write() as txn:
        location = opened.cold_location
        assert location is not None
        txn.put(LOCATIONS, tables.u32(location.id), replace(location, create_only_put=False, url=url or location.url))
    assert text in tierfs("status", store=store).out
    if url:  # there is no such server
        return
    with started("daemon", "-f", store=store, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert text in process.stderr.readline().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


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


def recovered(tmp_path: Path) -> Path:
    """A store whose bucket another one recovered since, which no record of it says."""
    (tmp_path / "cold").mkdir()
    store = tmp_path / "one"
    tierfs("-q", "init", "--cold-dir", tmp_path / "cold", store=store, check=False)
    tierfs("append", "s", store=store, stdin=b"x")
    tierfs("-q", "offload", store=store)
    tierfs("-q", "recover", "--cold-dir", tmp_path / "cold", store=tmp_path / "two", check=False)
    return store


@pytest.mark.mount
@pytest.mark.parametrize("options", [[], ["-f"]])
def test_a_daemon_of_a_fenced_store_says_so_and_is_not_at_work(tmp_path: Path, options: list[str]) -> None:
    store = recovered(tmp_path)
    for _ in range(2):  # the second time its own record says it
        done = tierfs("daemon", *options, store=store, check=False)
        assert (done.code, done.out) == (6, "")
        assert "another store owns the bucket since epoch 2" in done.err
        assert "to see and save the data that is only on this disk: tierfs status" in done.err
    assert tierfs("status", "--json", store=store, check=False).json["holder"] is None


@pytest.mark.mount
def test_a_daemon_that_is_fenced_later_ends_with_the_exit_code_of_a_fenced_store(tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    store = tmp_path / "one"
    tierfs("-q", "init", "--cold-dir", tmp_path / "cold", store=store, check=False)
    tierfs("append", "s", store=store, stdin=b"x")
    tierfs("-q", "offload", store=store)
    with started("daemon", "-f", store=store, stderr=subprocess.PIPE) as process:
        assert eventually(lambda: tierfs("status", "--json", store=store, check=False).json["holder"] is not None)
        tierfs("-q", "recover", "--cold-dir", tmp_path / "cold", store=tmp_path / "two", check=False)
        tierfs("status", store=store, check=False)  # it asks the bucket at once, and records the answer
        assert process.wait(60) == 6
