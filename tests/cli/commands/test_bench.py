"""tierfs bench: its measurements, and their complete removal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import verbs
from tests.cli.commands.test_doctor_cold import keys_of, store_over
from tests.commands import Done, started, tierfs
from tests.conftest import Bucket
from tests.mount.conftest import Mount, append, mount, store
from tests.mount.waiting import eventually
from tierfs.app import store as app
from tierfs.bench.figures import Series
from tierfs.bench.mounted import windows
from tierfs.system.mounts import mounts
from tierfs.types import MIB, ByteRange

__all__ = ["mount", "store"]

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread")]

RAW, NULL, RAW_SMALL = "raw GETs, 8 x 8 MiB", "null filesystem", "raw GET of 128 KiB, p50"
COLD, LOCAL, RANDOM = "mount, cold tier", "mount, local tier", "mount, random 4 KiB, p50"
ALL = [RAW, NULL, COLD, LOCAL, RAW_SMALL, RANDOM]
QUICK = ("--size", "2MiB", "--repetitions", "1")


def measured(done: Done) -> dict[str, dict[str, Any]]:
    """Return each measurement by its name; assert that ratios fit their medians."""
    found = {one["what"]: one for one in done.json["measurements"]}
    for one in found.values():
        assert all(value > 0 for value in one["values"])
        if one["limit"] is not None:
            fraction = one["median"] / found[one["limit"]]["median"]
            expected = fraction if one["unit"] == "MB/s" else 1 / fraction
            assert one["ratio"] == pytest.approx(expected, rel=0.001)
    return found


def test_a_store_with_a_directory_and_nothing_stays(tmp_path: Path) -> None:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    before = status_of(path)
    done = tierfs("bench", path, "--json", "--size", "3MiB", "--repetitions", "1")
    found = measured(done)
    assert list(found) == ALL
    assert done.json["link"]["connection_bytes_per_s"] > 0
    assert 3 * MIB < done.json["link"]["read_bytes"] <= 32 * MIB
    limits = [one["limit"] for one in found.values()]
    assert limits[:2] == [None, None]
    assert limits[2] in (RAW, NULL)
    assert limits[3:] == [NULL, None, RAW_SMALL]
    assert os.listdir(tmp_path) == ["store"]
    assert sorted(os.listdir(path / "cold")) == [".tmp", "journal", "tierfs-store"]
    assert status_of(path) == before


def status_of(path: Path) -> dict[str, Any]:
    """Return the store's status without values that other processes on the disk change."""
    found: dict[str, Any] = tierfs("status", "--json", store=path).json
    del found["local_free_bytes"]
    return found


def test_a_store_without_a_cold_tier(tmp_path: Path) -> None:
    tierfs("-q", "init", "--cold", "none", store=tmp_path / "store")
    done = tierfs("bench", tmp_path / "store", "--json", *QUICK)
    assert (list(measured(done)), done.json["link"]) == ([NULL, LOCAL], None)


def test_an_interrupted_run_leaves_nothing(moto_bucket: Bucket, tmp_path: Path) -> None:
    path = store_over(moto_bucket, tmp_path / "store")
    before = keys_of(moto_bucket)
    words = ("bench", path, "--size", "2MiB", "--repetitions", "1000")
    with started(*words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert eventually(lambda: bool(mounts_below(tmp_path)))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 130
    assert keys_of(moto_bucket) == before
    with closing(moto_bucket[0].client()) as client:
        assert "Uploads" not in client.list_multipart_uploads(Bucket=moto_bucket[1])
    assert os.listdir(tmp_path) == ["store"]
    assert mounts_below(tmp_path) == []


def mounts_below(directory: Path) -> list[Path]:
    """Return where stores are mounted below a directory."""
    return [found.mountpoint for found in mounts() if found.mountpoint.is_relative_to(directory)]


def test_a_mount_is_read_and_nothing_is_written(store: app.Store, mount: Mount) -> None:
    append(store, "d/small", b"x" * MIB, seal=True)
    append(store, "d/large", os.urandom(5 * MIB), seal=True)
    append(store, "larger-but-open", b"x" * 6 * MIB)
    append(store, "open/alone", b"x" * 6 * MIB)
    verbs.offload(store, "d/large")
    verbs.evict(store, "d/large")
    point = mount().path
    before = store.metadata.last_transaction_id()
    done = tierfs("bench", point / "d", "--json", "--repetitions", "2")
    found = measured(done)
    assert (done.json["path"], done.json["size_bytes"]) == (f"{point}/d/large", 2 * MIB)
    assert {name: len(one["values"]) for name, one in found.items()} == {RAW: 2, NULL: 2, COLD: 2}
    assert done.json["link"]["streams"] >= 1
    done = tierfs("bench", point / "d" / "small", "--json")
    assert (list(measured(done)), done.json["link"]) == ([NULL, LOCAL], None)
    refused = tierfs("bench", point / "open", check=False)
    assert (refused.code, "tierfs seal" in refused.err) == (3, True)
    assert store.metadata.last_transaction_id() == before
    assert len(mounts()) >= 1


@pytest.mark.parametrize(
    ("length_bytes", "size_bytes", "repetitions", "expected"),
    [
        (10 * MIB, 2 * MIB, 3, [(8 * MIB, 10 * MIB), (6 * MIB, 8 * MIB), (4 * MIB, 6 * MIB)]),
        (10 * MIB, 9 * MIB, 3, [(7 * MIB, 10 * MIB), (4 * MIB, 7 * MIB), (1 * MIB, 4 * MIB)]),
        (2 * MIB + 5, 9 * MIB, 2, [(1 * MIB, 2 * MIB), (0, 1 * MIB)]),
        (5, 9 * MIB, 2, [(0, 5), (0, 5)]),
    ],
)
def test_repetitions_read_other_bytes(
    length_bytes: int, size_bytes: int, repetitions: int, expected: list[tuple[int, int]]
) -> None:
    assert windows(length_bytes, size_bytes, repetitions) == [ByteRange(*one) for one in expected]


def test_ratios_are_to_the_limit_that_binds() -> None:
    series = Series()
    for rate in (300, 100, 200):
        series.add_rate("a", rate * 1_000_000, 1)
    series.add_rate("b", 50_000_000, 1)
    series.add_rate("mount", 25_000_000, 1)
    series.add_delay("get", 0.010)
    series.add_delay("read", 0.040)
    found = series.figure("mount", ["a", "b"])
    assert (found.limit, found.ratio, series.figure("a").median) == ("b", 0.5, 200)
    assert series.figure("mount", ["a"]).ratio == 0.125
    assert series.figure("read", ["get"]).ratio == 0.25


@contextmanager
def null(point: Path, *words: str) -> Iterator[Path]:
    """Run the null filesystem as a program."""
    point.mkdir()
    command = [sys.executable, "-m", "tierfs.bench.null", str(point), str(3 * MIB + 1), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield point / "null"
        finally:
            process.terminate()
            process.wait()
            subprocess.run(["umount", "-l", str(point)], check=True)


def cached_bytes(path: Path) -> int:
    """Return the bytes of a file in the page cache, after fincore has opened it once more."""
    done = subprocess.run(["fincore", "-nbo", "RES", str(path)], check=True, capture_output=True, text=True)
    return int(done.stdout)


@pytest.mark.parametrize("words", [(), ("keep_cache",)])
def test_the_null_filesystem(tmp_path: Path, words: tuple[str, ...]) -> None:
    with null(tmp_path / "mnt", *words) as file:
        assert file.read_bytes() == bytes(3 * MIB + 1)
        assert (cached_bytes(file) > MIB) is bool(words)  # the kernel may drop a page, such as the last, at any time
        assert os.listdir(file.parent / "..") == ["mnt"]
