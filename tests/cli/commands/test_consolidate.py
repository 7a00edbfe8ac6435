"""tierfs consolidate: alone, through the holder, and on Ceph, where the server copies the bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import verbs
from tests.commands import tierfs
from tests.conftest import Bucket
from tests.mount.waiting import eventually
from tierfs.app import store as app
from tierfs.holder import lock
from tierfs.holder.verbs import CONSOLIDATE, perform
from tierfs.metrics import MetricName
from tierfs.setup.create import ColdChoice, init_store
from tierfs.types import MIB


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    return path


def cold_pieces(path: Path, *sizes: int, name: str = "logs/s") -> bytes:
    """Append one cold object of each size, with nothing kept local; return the bytes."""
    data = b""
    with app.open_store(path) as store:
        for size in sizes:
            part = os.urandom(size)
            writer = store.engine.open_writer(name)
            writer.append(part)
            store.engine.close_writer(writer)
            verbs.offload(store, name)
            data += part
        verbs.evict(store, name, force=True)
    return data


def test_it_says_what_it_did_and_then_that_there_is_nothing_to_do(store: Path) -> None:
    data = cold_pieces(store, 1000, 2000, 3000)
    assert "would make 1 object of 3 chunks" in tierfs("consolidate", "--dry-run", store=store).out
    assert tierfs("info", "logs/s", "--json", store=store, check=False)
    said = tierfs("consolidate", "logs", store=store).out
    assert "made 1 object of 3 chunks in 1 segment" in said
    assert "copied by the server" in said
    assert tierfs("consolidate", store=store).out == "nothing to consolidate below /\n"
    with app.open_store(store) as opened:
        found = bytearray()
        verbs.cat(opened, "logs/s", None, None, None, found.extend)
    assert bytes(found) == data


def test_as_json(store: Path) -> None:
    cold_pieces(store, 10, 20)
    report = tierfs("--json", "consolidate", "logs/s", store=store).json
    assert report["path"] == "logs/s"
    assert (report["objects_before"], report["objects_after"], report["bytes"]) == (2, 1, 30)
    assert report["client_bytes"] == 0  # the kernel copies


def test_a_path_that_is_missing(store: Path) -> None:
    done = tierfs("consolidate", "nope", store=store, check=False)
    assert (done.code, "does not exist" in done.err) == (3, True)


def test_without_a_cold_tier(tmp_path: Path) -> None:
    tierfs("-q", "init", "--cold", "none", store=tmp_path / "s")
    done = tierfs("consolidate", store=tmp_path / "s", check=False)
    assert (done.code, "needs a cold tier" in done.err) == (2, True)


@pytest.fixture
def daemon(store: Path) -> Iterator[Path]:
    """Yield a store held by another process."""
    environment = {**os.environ, "TIERFS_OFFLOAD__CONSOLIDATE_CHUNKS": "0"}
    command = [sys.executable, "-m", "tierfs", "--store", str(store), "daemon", "-f"]
    cold_pieces(store, 100, 200, 300)
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: lock.current(store / "locks" / "holder") is not None)
        yield store
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def test_the_holder_does_it(daemon: Path) -> None:
    report = tierfs("--json", "consolidate", store=daemon).json
    assert (report["objects_before"], report["objects_after"]) == (3, 1)
    assert tierfs("consolidate", store=daemon).out == "nothing to consolidate below /\n"


@pytest.mark.parametrize(
    ("sizes", "uploaded"), [((5 * MIB, 6 * MIB + 1, 7 * MIB), 0), ((6 * MIB, 1000, 11 * MIB), 5 * MIB)]
)
def test_on_ceph_the_server_copies(rgw_bucket: Bucket, tmp_path: Path, sizes: tuple[int, ...], uploaded: int) -> None:
    """The composition moves no byte through this machine; only the read-back for the check is a download."""
    endpoint, bucket = rgw_bucket
    path = tmp_path / "store"
    init_store(path, ColdChoice(bucket_url=f"s3://{bucket}/p", endpoint_url=endpoint.endpoint_url))
    data = cold_pieces(path, *sizes)
    with app.open_store(path) as store:
        before = store.metrics.values(MetricName.STORAGE_BYTES)
        report = perform(store, CONSOLIDATE, "")
        assert (report.objects_before, report.objects_after, report.bytes) == (3, 1, len(data))
        assert report.client_bytes == uploaded
        ways = store.metrics.values(MetricName.COMPOSED_BYTES)
        assert ways == {("cold", "client"): uploaded, ("cold", "server"): len(data) - uploaded}
        read = store.metrics.values(MetricName.STORAGE_BYTES)["cold", "read"] - before.get(("cold", "read"), 0)
        assert len(data) <= read < len(data) + MIB  # and the edges of pieces that share a block, if there are any
        found = bytearray()
        verbs.cat(store, "logs/s", None, None, None, found.extend)
    assert bytes(found) == data
