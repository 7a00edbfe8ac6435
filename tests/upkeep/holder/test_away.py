"""A cold tier that cannot be connected: the store is held, local bytes are read, and work goes on once it is back."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import new_store, tierfs
from tests.mount.waiting import eventually
from tierfs.app.mount import connect_early
from tierfs.app.store import open_store
from tierfs.base.words.types import LocationId
from tierfs.engine.metadata import policies, tables
from tierfs.engine.metadata.tables import LOCATIONS

SOON_S = 30.0
"""Far below the time-outs of a server with all tries, and far above a start on a busy machine."""


def missing(cold: Path) -> None:
    cold.rename(cold.with_name("elsewhere"))


def a_file(cold: Path) -> None:
    missing(cold)
    cold.touch()


def a_dangling_link(cold: Path) -> None:
    missing(cold)
    cold.symlink_to("/nonexistent/place")


def back(cold: Path) -> None:
    cold.unlink(missing_ok=True)
    cold.with_name("elsewhere").rename(cold)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    path = new_store(tmp_path)
    (path / "store.toml").write_text("[background]\nretry_first_s = 0.2\nretry_longest_s = 0.5\nowner_check_s = 1\n")
    tierfs("-q", "append", "s", store=path, stdin=b"local\n")
    yield path
    for words in (["umount", tmp_path / "mnt"], []):
        if words and (tmp_path / "mnt").is_mount():
            tierfs("-q", *words, store=path)
    holder = tierfs("--json", "status", store=path, check=False).json["holder"]
    if holder is not None:
        os.kill(holder["pid"], 15)
        assert eventually(lambda: tierfs("--json", "status", store=path).json["holder"] is None)


def stuck(store: Path) -> list[str]:
    return [each["error"] for each in tierfs("--json", "status", store=store, check=False).json["troubles"]]


@pytest.mark.parametrize("away", [missing, a_file, a_dangling_link])
def test_a_daemon_holds_a_store_whose_directory_is_away(store: Path, away: Callable[[Path], None]) -> None:
    cold = store.parent / "cold"
    away(cold)
    began_s = time.monotonic()
    assert "background work started" in tierfs("daemon", store=store).out
    assert time.monotonic() - began_s < SOON_S
    assert eventually(lambda: any("not the store's cold tier" in error for error in stuck(store)))
    back(cold)
    assert eventually(lambda: stuck(store) == [])
    assert eventually(lambda: tierfs("--json", "status", store=store).json["journal"]["unpublished"] == 0)


def put_elsewhere(store: Path, url: str, endpoint: str, profile: str = "") -> None:
    """Record another address, as a restored disk or changed credentials leave it."""
    with open_store(store) as opened, opened.metadata.write_notes() as txn:
        place = replace(policies.location(txn, LocationId(1)), url=url, endpoint_url=endpoint, profile=profile)
        txn.put(LOCATIONS, tables.u32(place.id), place)


@pytest.fixture
def silent() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:  # nobody accepts: the kernel does
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_the_first_request_of_a_mount_is_not_waited_for(
    store: Path, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    (store / "store.toml").write_text("[cold]\nread_timeout_s = 3\nattempts = 4\n")
    put_elsewhere(store, "s3://bucket/prefix", f"http://{silent}")
    with open_store(store) as opened:
        began_s = time.monotonic()
        connect_early(opened)
        assert time.monotonic() - began_s < 4 * 3


PLACES = {
    "silent S3": ("s3://bucket/prefix", "http://{}", "", True),
    "no credentials": ("s3://bucket/prefix", "http://{}", "", False),
    "unknown profile": ("s3://bucket/prefix", "http://{}", "nobody", True),
    "silent HDFS": ("hdfs://{}/tier", "", "", True),
}


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("verb", ["mount", "daemon"])
def test_a_server_is_not_waited_for(
    store: Path, silent: str, kind: str, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, endpoint, profile, has_keys = PLACES[kind]
    put_elsewhere(store, url.format(silent), endpoint.format(silent), profile)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x") if has_keys else monkeypatch.delenv(name, raising=False)
    (tmp_path / "mnt").mkdir()
    began_s = time.monotonic()
    tierfs("-q", verb, *([tmp_path / "mnt"] if verb == "mount" else []), store=store)
    assert time.monotonic() - began_s < SOON_S
    if verb == "mount":
        assert (tmp_path / "mnt" / "s").read_bytes() == b"local\n"
        assert time.monotonic() - began_s < SOON_S
    assert tierfs("cat", "s", store=store).out == "local\n"
