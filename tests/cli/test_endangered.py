"""Lost, suspect and unreachable bytes appear in status, info and doctor, not only in the errno of a reader."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.commands import tierfs

SIZE = 200_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store with two sealed segments that are only cold."""
    where = tmp_path / "store"
    tierfs("-q", "init", store=where)
    tierfs("policy", "set", "/", "chunk_bytes=1MiB", "object_bytes=1MiB", store=where)  # an object for each
    for name in ("a", "b"):
        tierfs("append", name, "--seal", store=where, stdin=os.urandom(SIZE))
    tierfs("offload", store=where)
    tierfs("evict", "--force", store=where)
    return where


def object_of(path: Path, name: str) -> Path:
    """Return the file of a segment's only object."""
    (found,) = (path / "cold").rglob(f"*/{name}/**/chunk-*")
    return found


def endangered(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = tierfs("status", "--json", store=path).json
    assert found["not_offloaded_bytes"] == 0
    return dict(found["endangered"])


def failures(path: Path) -> set[str]:
    """Return the failing checks of doctor."""
    found = tierfs("doctor", "--json", store=path, check=False).json
    return {one["name"] for one in found["checks"] if one["level"] == "FAIL"}


def test_a_missing_object_is_suspect_once_a_reader_met_it(path: Path) -> None:
    nothing = {"lost_bytes": 0, "suspect_local_bytes": 0, "suspect_cold_bytes": 0, "unreachable": []}
    assert endangered(path) == nothing
    where, away = object_of(path, "a"), path / "away"
    where.rename(away)
    assert tierfs("cat", "a", store=path, check=False).code == 74
    assert endangered(path) == nothing | {"suspect_cold_bytes": SIZE}
    advice = "tierfs verify; if they stay, repair them: tierfs fsck --deep --repair"
    assert advice in tierfs("status", store=path).out
    assert (
        f"verify; if they stay: tierfs --store {path} fsck --deep --repair"
        in tierfs("doctor", store=path, check=False).out
    )
    assert tierfs("info", "a", "--json", store=path).json["suspect"] == [{"tier": "cold", "start": 0, "end": SIZE}]
    assert "suspect" in tierfs("info", "a", store=path).out
    assert "suspect bytes" in failures(path)
    away.rename(where)
    tierfs("verify", "a", store=path)
    assert endangered(path) == nothing
    assert "suspect bytes" not in failures(path)


def test_lost_bytes_are_told_and_are_not_called_not_offloaded(path: Path) -> None:
    object_of(path, "a").unlink()
    assert tierfs("fsck", "--repair", "--yes", store=path, check=False).code == 74
    assert endangered(path)["lost_bytes"] == SIZE
    assert "without a verified copy" in tierfs("status", store=path).out
    assert tierfs("info", "a", "--json", store=path).json["lost"] == [[0, SIZE]]
    assert "lost bytes" in failures(path)


def test_an_adopted_directory_that_is_not_mounted_is_told_with_its_bytes(path: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "x").write_bytes(b"x" * 1000)
    tierfs("adopt", "objects", theirs, "--into", "in", store=path)
    (theirs / "x").rename(tmp_path / "x")
    (place,) = endangered(path)["unreachable"]
    assert (place["url"], place["bytes"]) == (f"file:{theirs}", 1000)
    assert "mounted" in place["why"]
    assert "not reachable" in tierfs("status", store=path).out
    assert "bytes not reachable" in failures(path)
    (of_segment,) = tierfs("info", "in/x", "--json", store=path).json["unreachable"]
    assert of_segment == place
    assert "not reachable" in tierfs("info", "in/x", store=path).out
    (tmp_path / "x").rename(theirs / "x")
    assert endangered(path)["unreachable"] == []
