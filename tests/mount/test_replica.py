"""A mounted replica: bytes the owner makes cold show within a refresh, and no file loses bytes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.conftest import Bucket
from tests.mount.conftest import serving
from tests.mount.waiting import eventually
from tierfs.app.setup.create import init_store
from tierfs.engine.chunkstore.place import Place

pytestmark = [pytest.mark.mount, pytest.mark.timeout(240, method="thread")]

REFRESH_S = 0.2
WITHIN_S = REFRESH_S + 1.0 + 4.0
"""The contract is refresh + 1 s; the rest is for a busy machine."""


@pytest.fixture
def owner(tmp_path: Path) -> Path:
    (tmp_path / "cold").mkdir()
    init_store(tmp_path / "owner", Place.in_directory(tmp_path / "cold"))
    return tmp_path / "owner"


def append(owner: Path, name: str, data: bytes, *options: str) -> None:
    tierfs("append", name, *options, store=owner, stdin=data)
    tierfs("offload", store=owner)


def make_replica(path: Path, *where: str) -> Path:
    tierfs("-q", "replica", *where, store=path)
    (path / "store.toml").write_text(f"[background]\nreplica_refresh_s = {REFRESH_S}\n")
    return path


@pytest.fixture
def mounted(owner: Path, tmp_path: Path) -> Iterator[Path]:
    append(owner, "old", b"from before", "--seal")
    with mounting(make_replica(tmp_path / "replica", "--cold-dir", str(tmp_path / "cold")), tmp_path / "mnt") as path:
        yield path


@contextmanager
def mounting(store: Path, point: Path) -> Iterator[Path]:
    point.mkdir()
    with serving(store, point):
        yield point


def cat(path: Path) -> bytes:
    return subprocess.run(["cat", str(path)], capture_output=True, check=True).stdout


def test_what_the_owner_makes_cold_shows_and_never_shrinks(owner: Path, mounted: Path) -> None:
    assert cat(mounted / "old") == b"from before"
    expected = b""
    for number in range(4):
        expected += b"piece %d;" % number
        append(owner, "dir/grows", b"piece %d;" % number, *(["--seal"] if number == 3 else []))
        sizes: list[int] = []

        def has_grown(sizes: list[int] = sizes, wanted: bytes = expected) -> bool:
            path = mounted / "dir" / "grows"
            if path.exists():
                sizes.append(path.stat().st_size)
            return bool(sizes) and sizes[-1] == len(wanted)

        assert eventually(has_grown, WITHIN_S)
        assert sizes == sorted(sizes)
        assert cat(mounted / "dir" / "grows") == expected
    tierfs("append", "dir/grows2", store=owner, stdin=b"only local")
    tierfs("rm", "old", "--yes", store=owner)
    assert eventually(lambda: not (mounted / "old").exists(), WITHIN_S)
    assert (mounted / "dir" / "grows2").stat().st_size == 0  # the journal names it, the bucket has no byte of it
    with pytest.raises(OSError, match="Read-only"):
        (mounted / "new").touch()


def test_a_replica_is_refreshed_by_one_process_that_says_so(owner: Path, mounted: Path, tmp_path: Path) -> None:
    replica = tmp_path / "replica"
    assert eventually(lambda: tierfs("status", "--json", store=replica).json["holder"] is not None)
    refused = tierfs("replica", "--refresh", store=replica, check=False)
    assert (refused.code, "is locked by" in refused.err, "it updates the replica every" in refused.err) == (
        5,
        True,
        True,
    )
    refused = tierfs("append", "x", store=replica, stdin=b"x", check=False)
    assert (refused.code, "tierfs standby --now" in refused.err) == (6, True)
    assert tierfs("status", "--json", store=replica).json["journal"]["replica"] is True


def test_on_ceph_through_a_takeover(rgw_bucket: Bucket, tmp_path: Path) -> None:
    endpoint, bucket = rgw_bucket
    where = ("--bucket", f"s3://{bucket}/p", "--endpoint-url", endpoint.endpoint_url)
    owner, second, data = tmp_path / "owner", tmp_path / "second", os.urandom(1 << 20)
    tierfs("init", *where, store=owner)
    append(owner, "a/s", b"one ")
    replica = make_replica(tmp_path / "replica", *where)
    with mounting(replica, tmp_path / "mnt") as mounted:
        assert cat(mounted / "a" / "s") == b"one "
        tierfs("-q", "recover", *where, store=second)
        append(second, "a/s", b"two")
        append(second, "t", data, "--seal")
        assert eventually(lambda: (mounted / "t").exists() and cat(mounted / "a" / "s") == b"one two", WITHIN_S)
        assert cat(mounted / "t") == data
    assert tierfs("status", "--json", store=replica).json["store_epoch"] == 2
    checks = {check["name"] for check in tierfs("doctor", "--json", store=replica, check=False).json["checks"]}
    assert "cold tier" in checks
    assert "create-only" not in checks  # to see that takes writing
