"""tierfs doctor --bench: what it measures of a mount, and which bytes it reads."""

from __future__ import annotations

import os

import pytest

from tests import verbs
from tests.commands import tierfs
from tests.mount.conftest import Mount, append, mount, store
from tierfs.app import store as app
from tierfs.base.words.types import MIB, ByteRange
from tierfs.faces.doctor.bench import windows

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
    refused = tierfs("doctor", "--bench", point / "open", check=False)
    assert (refused.code, "tierfs seal" in refused.err) == (3, True)
    assert store.metadata.last_transaction_id() == before


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
