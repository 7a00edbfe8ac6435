"""tierfs du: sums per directory, tier by tier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands import tierfs
from tests.stores import open_test_store
from tierfs.segments.stat import Usage, usage
from tierfs.types import EntryKind

KEYS = ["name", "kind", "bytes", "local_bytes", "cold_bytes", "segments"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    return path


def lines(*words: object, store: Path) -> list[list[Any]]:
    """Return the values of every JSON line, in the order of KEYS."""
    found = [json.loads(line) for line in tierfs("du", *words, "--json", store=store).out.splitlines()]
    assert all(list(line) == KEYS for line in found)
    return [list(line.values()) for line in found]


def test_directories_are_summed_up_children_first(store: Path) -> None:
    tierfs("append", "a/b/one", store=store, stdin=b"x" * 1000)
    tierfs("append", "a/two", store=store, stdin=b"x" * 500)
    tierfs("append", "three", store=store, stdin=b"x" * 24)
    tierfs("offload", "a", store=store)
    tierfs("evict", "a/b", store=store)
    everything = [
        ["a/b", "directory", 1000, 0, 1000, 1],
        ["a", "directory", 1500, 500, 1500, 2],
        ["", "directory", 1524, 524, 1500, 3],
    ]
    assert lines(store=store) == everything
    assert lines("/", "-s", store=store) == everything[-1:]
    assert lines("a/", store=store) == everything[:-1]
    assert lines("a/two", store=store) == [["a/two", "segment", 500, 500, 500, 1]]
    text = tierfs("du", "--summarize", store=store).out.splitlines()
    assert [line.split() for line in text] == [
        ["bytes", "local", "cold", "name"],
        ["1.5", "KiB", "524", "B", "1.5", "KiB", "/"],
    ]


def test_an_empty_store_and_names_that_are_not_there(store: Path) -> None:
    assert lines(store=store) == [["", "directory", 0, 0, 0, 0]]
    tierfs("append", "s", store=store, stdin=b"x")
    for name, code in (("none", 3), ("s/below", 2), ("..", 2)):
        done = tierfs("du", name, store=store, check=False)
        assert (done.code, done.out) == (code, "")


def test_bytes_below_the_start_and_in_both_tiers_count_once(tmp_path: Path) -> None:
    with open_test_store(tmp_path) as store:
        store.append("d/s", b"abcdefgh", seal=True)
        store.offload()
        with store.metadata.read() as txn:
            assert list(usage(txn, "d")) == [Usage("d", EntryKind.DIRECTORY, 8, 8, 8, 1)]


def test_the_deepest_tree_there_can_be(tmp_path: Path) -> None:
    depth = 400
    with open_test_store(tmp_path) as store:
        store.append("/".join("d" * depth), b"x")
        with store.metadata.read() as txn:
            found = list(usage(txn, ""))
    assert len(found) == depth
    assert {one.bytes for one in found} == {1}
