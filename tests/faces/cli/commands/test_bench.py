"""tierfs doctor --bench: what it measures of a mount, and which bytes it reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import verbs
from tests.commands import tierfs
from tests.mount.conftest import Mount, append, mount, store
from tierfs.app import store as app
from tierfs.base.words.types import MIB, ByteRange
from tierfs.engine.metadata import policies
from tierfs.faces.doctor.bench import windows
from tierfs.faces.doctor.compression import bench_compression

__all__ = ["mount", "store"]

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread")]


def test_a_mount_is_read_and_nothing_is_written(store: app.Store, mount: Mount) -> None:
    append(store, "d/small", b"x" * MIB, seal=True)
    append(store, "d/large", os.urandom(5 * MIB), seal=True)
    append(store, "larger-but-open", b"x" * 6 * MIB)
    append(store, "open/alone", b"x" * 6 * MIB)
    verbs.offload(store, "d/large")
    verbs.evict(store, "d/large")
    point = mount().path
    before = store.metadata.last_transaction_id()
    for name, limits, tier in (("d", "raw GETs, 8 x 8 MiB", "cold"), ("d/small", "chunk files", "local")):
        found = tierfs("doctor", "--bench", point / name, "--json", "--repetitions", "2").json
        through, raw = found["measurements"]
        assert (through["what"], raw["what"], found["repetitions"]) == (f"mount, {tier} tier", limits, 2)
        assert found["ratio"] == through["median"] / raw["median"]
        assert [len(one["values"]) for one in (through, raw)] == [2, 2]
        assert min(through["values"] + raw["values"]) > 0
    assert (found["path"], found["size_bytes"]) == (f"{point}/d/small", MIB)
    held = found["compression"]
    assert (held["generated"], held["sample_bytes"], held["plain_cold_bytes"]) == (False, MIB, 5 * MIB)
    assert held["ratio"] > 100
    assert min(held["compress"]["value"], held["decompress"]["value"]) > 0
    refused = tierfs("doctor", "--bench", point / "open", check=False)
    assert (refused.code, "tierfs seal" in refused.err) == (3, True)
    assert store.metadata.last_transaction_id() == before


def test_objects_that_are_compressed_are_received_as_they_are_stored(store: app.Store, mount: Mount) -> None:
    with store.metadata.write() as txn:
        policies.change(txn, "", put_settings={"compression": "zstd"})
    append(store, "log", b"one line like the next\n" * (4 * MIB // 23), seal=True)
    verbs.offload(store, "log")
    verbs.evict(store, "log")
    found = tierfs("doctor", "--bench", mount().path, "--json", "--repetitions", "1").json
    assert [one["what"] for one in found["measurements"]] == ["mount, cold tier", "raw GETs, 8 x 8 MiB"]
    assert found["compression"]["plain_cold_bytes"] == found["compression"]["saved_bytes"] == 0


def test_what_auto_would_save_is_of_the_plain_cold_bytes(store: app.Store, mount: Mount) -> None:
    append(store, "text", b"one line like the next\n" * (2 * MIB // 23), seal=True)
    append(store, "noise", os.urandom(2 * MIB), seal=True)
    verbs.offload(store)
    found = tierfs("doctor", "--bench", mount().path, "--json", "--repetitions", "1").json["compression"]
    assert 0 < found["saved_bytes"] < found["plain_cold_bytes"] < 5 * MIB
    lines = tierfs("-q", "doctor", "--bench", mount().path, "--repetitions", "1").out.splitlines()
    assert lines[-1].startswith("compression=auto would save about ")


def test_the_sample_has_as_much_of_each_segment_as_it_has_bytes(store: app.Store, tmp_path: Path) -> None:
    for name, data in (("a/large", os.urandom(3 * MIB)), ("b/1", b"x" * 200_000), ("b/2", b"y" * 200_000)):
        append(store, name, data)
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    found = bench_compression(store, tmp_path, "")
    assert not found.generated
    assert 3 * MIB <= found.sample.plain_bytes <= 4 * MIB + 400_000
    assert found.by_auto.stored_bytes >= 3 * MIB
    only = bench_compression(store, tmp_path, "b")
    assert (only.sample.plain_bytes, only.by_auto.plain_bytes) == (400_000, 400_000)
    assert only.by_auto.stored_bytes < 1000


def test_without_bytes_lines_are_made_up(store: app.Store, tmp_path: Path) -> None:
    found = bench_compression(store, tmp_path, "")
    assert (found.generated, found.saved_bytes, found.sample.plain_bytes > 4 * MIB) == (True, 0, True)
    assert 3 < (found.sample.ratio or 0) < 20


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
