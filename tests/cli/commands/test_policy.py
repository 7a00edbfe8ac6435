"""tierfs policy: set values, values in force, and refused values."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.commands import tierfs
from tierfs import policy
from tierfs.app.store import open_store
from tierfs.errors import InvalidRequest
from tierfs.metadata import changes
from tierfs.metadata import records_pb2 as pb
from tierfs.policy import BOUNDED_SIZES, KEYS, MAX_OBJECT_BYTES, Policy
from tierfs.types import ReadPriority

SIZES = [key for key in KEYS if key.endswith("_bytes")]
TIMES = [key for key in KEYS if key not in SIZES and key not in ("read_priority", "retention_needs_offload")]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    tierfs("append", "logs/web", store=path, stdin=b"x")
    return path


def shown(path: str, store: Path) -> dict[str, tuple[object, str, str | None]]:
    """Return value, origin and the name it is set on, by key."""
    data = tierfs("-q", "policy", "show", path, "--json", store=store).json
    return {key: (one["value"], one["origin"], one["set_on"]) for key, one in data["policy"].items()}


def queued(store: Path) -> list[pb.Change]:
    """Return the changes that wait for the journal."""
    with open_store(store) as opened, opened.metadata.read() as txn:
        return [pb.Change.FromString(data) for _, data in changes.outbox(txn, 0)]


def test_the_nearest_one_wins_and_says_where_it_is_set(store: Path) -> None:
    assert shown("logs/web", store)["read_priority"] == ("local-first", "directory", "")
    assert shown("logs/web", store)["chunk_bytes"] == (Policy().chunk_bytes, "built-in", None)
    tierfs("policy", "set", "/", "chunk_bytes=1MiB", "deletion_lag=2h", store=store)
    tierfs("policy", "set", "logs/", "chunk_bytes=2MiB", store=store)
    done = tierfs(
        "policy", "set", "logs/web", "deletion_lag=1.5h", "read_priority=local-only", store=store, check=False
    )
    assert "deletion_lag 90min (segment logs/web): the local bytes are not evicted at all" in done.err
    assert done.out == "logs/web: deletion_lag = 90min, read_priority = local-only\n"
    found = shown("logs/web", store)
    assert found["chunk_bytes"] == (2 << 20, "directory", "logs")
    assert found["deletion_lag"] == (5400, "segment", "logs/web")
    assert found["read_priority"] == ("local-only", "segment", "logs/web")
    assert shown("logs", store)["deletion_lag"] == (7200, "directory", "")
    lines = [line.split() for line in tierfs("policy", "show", "logs", store=store).out.splitlines()]
    assert ["chunk_bytes", "2MiB", "directory", "logs"] in lines
    assert ["deletion_lag", "2h", "directory", "/"] in lines
    assert [line[0] for line in lines] == list(KEYS)


def test_what_is_set_reaches_the_segment_and_the_journal(store: Path) -> None:
    before = len(queued(store))
    tierfs("policy", "set", "logs", "read_priority=offloaded-only", store=store)
    assert tierfs("info", "logs/web", "--json", store=store).json["read_priority"] == "offloaded-only"
    (change,) = queued(store)[before:]
    assert dict(change.policy.settings) == {"read_priority": "offloaded-only"}
    tierfs("policy", "set", "logs", "read_priority=offloaded-only", store=store)
    assert len(queued(store)) == before + 1
    tierfs("policy", "unset", "logs", "read_priority", store=store)
    assert dict(queued(store)[-1].policy.settings) == {}


def test_unset_keeps_the_others_and_succeeds_twice(store: Path) -> None:
    told = tierfs("policy", "set", "", "chunk_bytes=5", "object_bytes=4", store=store, check=False)
    assert (told.code, told.err.count("an object holds one whole chunk at least")) == (0, 1)
    done = tierfs("policy", "unset", "", "chunk_bytes", "deletion_lag", store=store)
    assert done.out == "/: chunk_bytes is no longer set, deletion_lag was not set\n"
    again = tierfs("policy", "unset", "/", "chunk_bytes", "--json", store=store).json
    assert again == {"path": "", "unset": [], "not_set": ["chunk_bytes"]}
    assert shown("", store)["object_bytes"] == (4, "directory", "")


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (["chunk_bytes=0"], ["chunk_bytes", "at least one byte"]),
        (["chunk_bytes=-1"], ["chunk_bytes", "64MiB"]),
        (["object_bytes=many"], ["object_bytes", "'many'"]),
        (["object_bytes=9EiB"], ["object_bytes"]),
        (["deletion_lag=4 months"], ["deletion_lag", "4h"]),
        (["seal_age=0"], ["seal_age", "1h30min, or off"]),
        (["retention_bytes=none"], ["retention_bytes", "64MiB, or off"]),
        (["chunk_age=off"], ["chunk_age", "'off'"]),
        (["retention_age=1d", "offload_after=1d"], ["logs", "retention_age 1d", "offload_after below retention_age"]),
        (["retention_bytes=1GiB", "offload_above_bytes=1GiB"], ["offload_above_bytes below retention_bytes"]),
        (["ledger_entries=0"], ["ledger_entries", "from 1 on, or off"]),
        (["ledger_entries=1e3"], ["ledger_entries", "from 1 on, or off"]),
        (["retention_age=-1"], ["retention_age", "1h30min, or off"]),
        (["deletion_lag=500ms"], ["deletion_lag", "whole seconds"]),
        (["deletion_lag=" + "9" * 400], ["deletion_lag", "hundred years"]),
        (["read_priority=fast"], ["read_priority", *ReadPriority]),
        (["colour=red"], ["'colour'", *KEYS]),
        (["chunk_bytes"], ["'chunk_bytes'", "KEY=VALUE"]),
        (["chunk_bytes=1", "chunk_bytes=2"], ["two values"]),
        (["\x1b[31m=1"], [r"\x1b[31m"]),
        ([], ["KEY=VALUE"]),
    ],
)
def test_bad_ones_are_refused_and_nothing_is_set(store: Path, pairs: list[str], words: list[str]) -> None:
    before = queued(store)
    done = tierfs("policy", "set", "logs", *(["object_bytes=7"] if pairs else []), *pairs, store=store, check=False)
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) <= 2
    assert all(word in done.err for word in words), done.err
    assert queued(store) == before


def test_a_child_switches_off_what_its_parent_sets(store: Path) -> None:
    tierfs("policy", "set", "/", "seal_bytes=1GiB", "retention_age=30d", store=store)
    assert shown("logs/web", store)["retention_age"] == (30 * 86_400, "directory", "")
    done = tierfs("policy", "set", "logs", "retention_age=off", "seal_bytes=off", store=store)
    assert done.out == "logs: retention_age = off, seal_bytes = off\n"
    assert shown("logs/web", store)["retention_age"] == (None, "directory", "logs")
    lines = [line.split() for line in tierfs("policy", "show", "logs", store=store).out.splitlines()]
    assert ["seal_bytes", "off", "directory", "logs"] in lines
    assert ["seal_age", "off", "built-in"] in lines
    tierfs("policy", "unset", "logs", "retention_age", store=store)
    assert shown("logs/web", store)["retention_age"] == (30 * 86_400, "directory", "")


def test_tiering_is_switched_off_in_words_or_as_pulsar_does(store: Path) -> None:
    tierfs("policy", "set", "logs", "offload_after=off", "offload_above_bytes=-1", "deletion_lag=-1", store=store)
    found = shown("logs/web", store)
    assert [found[key][0] for key in ("offload_after", "offload_above_bytes", "deletion_lag")] == [None] * 3
    done = tierfs("policy", "set", "logs", "offload_above_bytes=10GiB", "ledger_entries=50000", store=store)
    assert done.out == "logs: offload_above_bytes = 10GiB, ledger_entries = 50000\n"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("bookkeeper-first", "local-first"),
        ("tiered-storage-first", "offloaded-first"),
        ("BOOKKEEPER_ONLY", "local-only"),
        ("OFFLOADED_ONLY", "offloaded-only"),
    ],
)
def test_read_priorities_have_pulsars_names_too(store: Path, theirs: str, ours: str) -> None:
    done = tierfs("policy", "set", "logs", f"read_priority={theirs}", store=store)
    assert done.out == f"logs: read_priority = {ours}\n"
    assert shown("logs/web", store)["read_priority"] == (ours, "directory", "logs")
    assert tierfs("info", "logs/web", "--json", store=store).json["read_priority"] == ours
    read = tierfs("cat", "logs/web", "--read-priority", theirs, store=store, check=False)
    assert (read.code == 0) is (ours != "offloaded-only"), read


def test_an_offload_that_comes_after_the_retention_is_refused_wherever_it_would_hold(store: Path) -> None:
    tierfs("policy", "set", "logs/web", "offload_after=2d", store=store)
    before = queued(store)
    for path in ("/", "logs"):
        done = tierfs("policy", "set", path, "retention_age=1d", store=store, check=False)
        assert (done.code, done.out) == (2, "")
        assert "policy of logs/web:" in done.err
    assert queued(store) == before
    tierfs("policy", "set", "/", "retention_age=3d", store=store)
    tierfs("policy", "set", "logs", "retention_age=5d", store=store)
    tierfs("policy", "set", "logs/web", "offload_after=4d", store=store)
    done = tierfs("policy", "unset", "logs", "retention_age", store=store, check=False)
    assert "policy of logs/web:" in done.err  # it would inherit three days
    tierfs("policy", "set", "logs", "retention_age=off", store=store)


def test_what_does_not_exist(store: Path) -> None:
    for words in (["show", "no"], ["unset", "no", "chunk_bytes"]):
        done = tierfs("policy", *words, store=store, check=False)
        assert (done.code, done.out) == (3, "")
        assert "no does not exist" in done.err
    assert tierfs("policy", "show", "logs/web/below", store=store, check=False).code == 2
    assert tierfs("policy", "unset", "logs", "colour", store=store, check=False).code == 2
    assert tierfs("policy", "frob", store=store, check=False).code == 2


def test_set_makes_the_directory_that_is_missing_and_its_segments_inherit(store: Path) -> None:
    done = tierfs("policy", "set", "new/deep", "chunk_bytes=3MiB", store=store, check=False)
    assert (done.code, done.out, done.err) == (0, "new/deep: chunk_bytes = 3MiB\n", "created the directory new/deep\n")
    tierfs("append", "new/deep/s", store=store, stdin=b"x")
    assert shown("new/deep/s", store)["chunk_bytes"] == (3 << 20, "directory", "new/deep")
    again = tierfs("policy", "set", "new/deep", "chunk_bytes=4MiB", "--json", store=store).json
    assert again == {"path": "new/deep", "set": {"chunk_bytes": 4 << 20}, "made": False}
    kinds = [change.WhichOneof("body") for change in queued(store)]
    assert kinds.count("directory") == 3, "the bucket learns of logs, new and new/deep"


def test_what_is_refused_makes_no_directory(store: Path) -> None:
    before = queued(store)
    done = tierfs("policy", "set", "new", "retention_age=1d", "offload_after=2d", store=store, check=False)
    assert (done.code, done.out) == (2, "")
    for path in ("logs/web/below", ".tierfs-removed-1"):
        assert tierfs("policy", "set", path, "chunk_bytes=1", store=store, check=False).code == 2
    assert tierfs("ls", store=store).out == "logs/\n"
    assert queued(store) == before


def test_settings_of_a_host_stand_above_or_below_policies_and_are_named(store: Path) -> None:
    tierfs("-q", "config", "set", "read.priority=local-only", "background.retention_needs_offload=false", store=store)
    assert shown("logs", store)["read_priority"] == ("local-first", "directory", "")
    assert shown("logs", store)["retention_needs_offload"] == (False, "setting", "background.retention_needs_offload")
    tierfs("policy", "set", "logs", "retention_needs_offload=yes", store=store)
    assert shown("logs", store)["retention_needs_offload"] == (True, "directory", "logs")
    tierfs("policy", "unset", "/", "read_priority", store=store)
    assert shown("logs", store)["read_priority"] == ("local-only", "setting", "read.priority")
    tierfs("-q", "config", "set", "read.override_priority=offloaded-only", store=store)
    assert shown("logs", store)["read_priority"] == ("offloaded-only", "setting", "read.override_priority")


@given(st.sampled_from(SIZES), st.integers(1, (1 << 63) - 1))
def test_sizes_are_read_back_as_they_are_written(key: str, size: int) -> None:
    if key in BOUNDED_SIZES:
        size = size % MAX_OBJECT_BYTES + 1
    assert policy.parse(key, policy.format(key, size)) == str(size)


@given(st.sampled_from(TIMES), st.integers(1, 100 * 365 * 86_400))
def test_times_are_read_back_as_they_are_written(key: str, seconds: int) -> None:
    assert policy.parse(key, policy.format(key, seconds)) == str(seconds)


@given(st.sampled_from(KEYS), st.text())
def test_any_text_is_refused_or_read_as_one_value(key: str, text: str) -> None:
    with contextlib.suppress(InvalidRequest):
        stored = policy.parse(key, text)
        value = policy.from_stored(key, stored)
        assert policy.parse(key, policy.format(key, value)) == stored


def test_every_key_has_a_value_and_words() -> None:
    for key in KEYS:
        value = policy.value_of(Policy(), key)
        assert policy.from_stored(key, policy.parse(key, policy.format(key, value))) == value
        assert policy.allowed(key)
