"""Files whose times no record can have: they come in, with the nearest time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.commands import tierfs
from tierfs.base.words.types import MAX_TIME_MS
from tierfs.engine.chunkstore.protocol import StoredObject
from tierfs.engine.metadata.record_parts import IngestedFile

SECONDS = {
    "of NTFS": -11_644_473_600,
    "before 64 bits": -9_300_000_000,
    "before 1970": -1,
    "zero": 0,
    "of today": 1_700_000_000,
    "after 64 bits": 9_300_000_000,
    "2400": 13_569_465_600,
    "no date": 300_000_000_000,
    "far": 9_999_999_999_999,
}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory of files with all of these times, as far as the file system has them."""
    place = tmp_path / "files"
    place.mkdir()
    for name, time_s in SECONDS.items():
        (place / name).write_text(name)
        os.utime(place / name, (time_s, time_s))
    return place


def test_each_file_is_ingested_and_known_again(files: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    tierfs("-q", "init", "--cold", "none", store=store)
    assert "into 9 segments" in tierfs("ingest", files, "--into", "x", store=store).out
    assert "9 segments already complete" in tierfs("ingest", files, "--into", "x", store=store).out
    for name in SECONDS:
        kept_ns = tierfs("info", f"x/{name}", "--json", store=store).json["file"]["modified_ns"]
        assert kept_ns == max(-(2**63), min(2**63 - 1, (files / name).stat().st_mtime_ns))
        assert tierfs("cat", f"x/{name}", store=store).out == name


def test_each_file_is_adopted_and_survives_a_recovery(files: Path, tmp_path: Path) -> None:
    store, cold = tmp_path / "store", tmp_path / "cold"
    cold.mkdir()
    tierfs("-q", "init", "--cold-dir", cold, store=store)
    assert "9 segments: 9 adopted" in tierfs("adopt", "--as", "objects", files, "--into", "y", store=store).out
    assert "9 already adopted" in tierfs("adopt", "--as", "objects", files, "--into", "y", store=store).out
    tierfs("offload", "/", store=store)
    tierfs("recover", "--cold-dir", cold, store=tmp_path / "again", check=False)
    listed = tierfs("ls", "-l", "y", store=tmp_path / "again").out
    assert [name for name in SECONDS if f"  {name}\n" not in listed] == []


@pytest.mark.parametrize(
    ("time_ms", "kept_ms"),
    [(-1, 1), (0, 0), (1, 1), (MAX_TIME_MS, MAX_TIME_MS), (MAX_TIME_MS + 1, MAX_TIME_MS), (-(10**18), 1)],
)
def test_the_time_of_an_object(time_ms: int, kept_ms: int) -> None:
    assert StoredObject("a", 1, "e", time_ms).modified_ms == kept_ms


@pytest.mark.parametrize("past", [1, 10**12])
def test_the_time_of_a_file(past: int) -> None:
    for limit, beyond in ((2**63 - 1, past), (-(2**63), -past)):
        assert IngestedFile(modified_ns=limit).modified_ns == limit
        assert IngestedFile(modified_ns=limit + beyond).modified_ns == limit
