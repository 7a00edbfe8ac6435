"""Modes and times of ingested files: kept with the segment's record everywhere, and shown."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.commands import new_store, tierfs
from tests.metadata.test_codec import SEGMENT
from tierfs.cli.commands.ingest_files import _SMALL_FILE_BYTES
from tierfs.metadata.records import IngestedFile
from tierfs.metadata.tables import SEGMENTS
from tierfs.segments.stat import modified_ns

LONG = _SMALL_FILE_BYTES + 1
MODIFIED_NS = 1_234_567_890_123_456_789
MODIFIED = "2009-02-13T23:31:30Z"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return new_store(tmp_path)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    path = tmp_path / "files"
    path.mkdir()
    for name, size, mode in (("a", 1, 0o640), ("b", 2, 0o755), ("empty", 0, 0o600), ("long", LONG, 0o644)):
        (path / name).write_bytes(b"x" * size)
        (path / name).chmod(mode)
        os.utime(path / name, ns=(1, MODIFIED_NS))
    return path


def file_of(name: str, store: Path) -> dict[str, object] | None:
    found: dict[str, object] | None = tierfs("info", name, "--json", store=store).json["file"]
    return found


def assert_kept(store: Path) -> None:
    for name, length, mode in (("a", 1, "0640"), ("b", 2, "0755"), ("empty", 0, "0600"), ("long", LONG, "0644")):
        assert file_of(f"in/{name}", store) == {"mode": mode, "modified_ns": MODIFIED_NS, "length": length}


def test_ingest_keeps_them_and_ls_and_info_show_them(store: Path, files: Path) -> None:
    tierfs("ingest", files, "--into", "in", store=store)
    assert_kept(store)
    lines = tierfs("-q", "ls", "-l", "in", store=store).out.splitlines()
    assert len(lines) == 4
    assert all(MODIFIED in line for line in lines)
    assert f"copy of a file  -rw-r-----, modified {MODIFIED}, 1 B" in tierfs("info", "in/a", store=store).out
    tierfs("append", "in/other", store=store, stdin=b"x")
    assert file_of("in/other", store) is None


@pytest.mark.parametrize("seal", [[], ["--seal"]])
def test_a_repeated_ingest_takes_what_changed(store: Path, files: Path, seal: list[str]) -> None:
    tierfs("ingest", files, "--into", "in", *seal, store=store)
    (files / "a").chmod(0o444)
    os.utime(files / "long", ns=(1, 7))
    done = tierfs("ingest", files, "--into", "in", *seal, store=store)
    assert "4 segments already complete" in done.out
    assert file_of("in/a", store) == {"mode": "0444", "modified_ns": MODIFIED_NS, "length": 1}
    assert file_of("in/long", store) == {"mode": "0644", "modified_ns": 7, "length": LONG}
    before = tierfs("info", "in/a", "--json", store=store).json
    tierfs("ingest", files, "--into", "in", *seal, store=store)
    assert tierfs("info", "in/a", "--json", store=store).json == before, "nothing is written without a change"


def test_what_is_appended_later_has_a_time_of_its_own(store: Path, files: Path) -> None:
    tierfs("ingest", files, "--into", "in", "--open", store=store)
    tierfs("append", "in/a", store=store, stdin=b"more")
    (line,) = tierfs("-q", "ls", "-l", "in/a", store=store).out.splitlines()
    assert MODIFIED not in line
    (files / "a").write_bytes(b"xmore and more")
    os.utime(files / "a", ns=(1, 5))
    tierfs("ingest", files, "--into", "in", store=store)
    assert file_of("in/a", store) == {"mode": "0640", "modified_ns": 5, "length": 14}


def test_recovery_replicas_and_dumps_keep_them(store: Path, files: Path, tmp_path: Path) -> None:
    tierfs("ingest", files, "--into", "in", "--seal", store=store)
    tierfs("offload", store=store)
    tierfs("dump", tmp_path / "all", store=store)
    tierfs("-q", "replica", "--cold-dir", tmp_path / "cold", store=tmp_path / "replica")
    assert_kept(tmp_path / "replica")
    tierfs("-q", "load", tmp_path / "all", store=tmp_path / "loaded")
    assert_kept(tmp_path / "loaded")
    tierfs("-q", "recover", "--cold-dir", tmp_path / "cold", "--yes", store=tmp_path / "recovered", check=False)
    assert_kept(tmp_path / "recovered")


@pytest.mark.mount
def test_a_mount_shows_them_and_copies_have_them(store: Path, files: Path, tmp_path: Path) -> None:
    tierfs("ingest", files, "--into", "in", "--seal", store=store)
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    tierfs("-q", "mount", mnt, store=store)
    try:
        for name, mode in (("a", 0o440), ("b", 0o444), ("empty", 0o400), ("long", 0o444)):
            found = (mnt / "in" / name).stat()
            assert (stat.S_IMODE(found.st_mode), found.st_mtime_ns) == (mode, MODIFIED_NS)
        (files / "a").chmod(0o600)
        tierfs("ingest", files, "--into", "in", store=store)
        copied = os.system(f"cp -p {mnt}/in/long {tmp_path}/copy")
        assert (copied, (tmp_path / "copy").stat().st_mtime_ns) == (0, MODIFIED_NS)
    finally:
        tierfs("-q", "umount", mnt, store=store)


@given(st.integers(0, (1 << 16) - 1), st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 30))
def test_any_of_them_is_read_back_and_counts_for_that_length_only(mode: int, time_ns: int, length: int) -> None:
    record = replace(SEGMENT, file=IngestedFile(mode=mode, modified_ns=time_ns, length=length))
    stored = SEGMENTS.codec.encode(record)
    assert SEGMENTS.codec.decode(stored) == record
    assert SEGMENTS.codec.decode(SEGMENTS.codec.encode(replace(record, file=IngestedFile()))) == replace(
        record, file=IngestedFile()
    )
    own = mode and length == record.length
    assert modified_ns(record) == (time_ns if own else record.modified_ms * 1_000_000)
