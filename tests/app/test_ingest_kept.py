"""Modes and times of what ingest copies: kept everywhere, shown by mounts, and set before a file is in a directory."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.commands import new_store, tierfs
from tests.engine.metadata.test_codec import SEGMENT
from tests.mount.other_user import require_root, seen
from tests.mount.waiting import eventually
from tierfs.app.store import open_store
from tierfs.base.words.types import CRC_BLOCK_BYTES
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.record_parts import IngestedFile
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.segments.stat import modified_ns
from tierfs.faces.cli.commands.ingest_batches import SMALL_FILE_BYTES

MODES = {"": 0o755, "private": 0o700, "private/deep": 0o755, "shared": 0o2775, "odd": 0o111}
SHOWN = {"": 0o555, "private": 0o500, "private/deep": 0o555, "shared": 0o555, "odd": 0o511}
FILES = {"a": (1, 0o640), "b": (2, 0o755), "empty": (0, 0o600), "long": (SMALL_FILE_BYTES + 1, 0o644)}
"""Length and mode; small files are committed together, a long one alone."""
SHOWN_FILES = {"a": 0o440, "b": 0o444, "empty": 0o400, "long": 0o444}
MODIFIED_NS = 1_234_567_890_123_456_789


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return new_store(tmp_path)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    path = tmp_path / "files"
    for name in MODES:
        (path / name).mkdir(exist_ok=True)
        (path / name / "file").write_bytes(b"secret")
        (path / name / "file").chmod(0o644)
    for name, (length, mode) in FILES.items():
        (path / name).write_bytes(b"x" * length)
        (path / name).chmod(mode)
        os.utime(path / name, ns=(1, MODIFIED_NS))
    for name, mode in MODES.items():
        (path / name).chmod(mode)
    return path


def modes(store: Path) -> dict[str, int]:
    """The modes of the directory `in` and those below it."""
    found = {}
    with open_store(store) as opened, opened.metadata.read() as txn:
        for name in MODES:
            entry = directories.must_find(txn, f"in/{name}".rstrip("/"))
            found[name] = stat.S_IMODE(directories.directory(txn, entry.id).mode)
    return found


def files_of(store: Path) -> dict[str, tuple[int, int, int]]:
    """The mode, time and length of each of FILES."""
    with open_store(store) as opened, opened.metadata.read() as txn:
        records = {name: directories.segment_by_name(txn, f"in/{name}").file for name in FILES}
    return {name: (stat.S_IMODE(file.mode), file.modified_ns, file.length) for name, file in records.items()}


KEPT = {name: (mode, MODIFIED_NS, length) for name, (length, mode) in FILES.items()}


def test_a_repeated_ingest_takes_what_changed_and_writes_nothing_else(store: Path, files: Path) -> None:
    tierfs("append", "in/private/older", store=store, stdin=b"x")
    tierfs("ingest", files, "--into", "in", store=store)
    assert (modes(store), files_of(store)) == (MODES, KEPT)
    (files / "shared").chmod(0o700)
    (files / "a").chmod(0o444)
    os.utime(files / "long", ns=(1, 7))
    tierfs("ingest", files, "--into", "in", store=store)
    assert modes(store) == MODES | {"shared": 0o700}
    assert files_of(store) == KEPT | {"a": (0o444, MODIFIED_NS, 1), "long": (0o644, 7, SMALL_FILE_BYTES + 1)}
    with open_store(store) as opened:
        before = opened.metadata.last_transaction_id()
    tierfs("ingest", files, "--into", "in", store=store)
    with open_store(store) as opened:
        assert opened.metadata.last_transaction_id() == before


def test_directories_that_become_one_have_what_all_of_them_permit(store: Path, files: Path) -> None:
    (files / "private/other").write_bytes(b"secret")
    (files / "private/file").unlink()
    tierfs("ingest", f"{files}/private/.", f"{files}/.", "--into", "in", store=store)
    assert modes(store) == MODES | {"": 0o700}


def test_directories_that_keep_their_names_keep_their_modes(store: Path, files: Path) -> None:
    several = [files / name for name in ("private", "shared", "odd", "file")]
    tierfs("ingest", *several, "--into", "in", store=store)
    assert modes(store) == MODES | {"": 0}, "no directory was copied to `in` itself"


def test_a_segment_in_the_place_of_a_directory_is_an_error_of_its_files(store: Path, files: Path) -> None:
    tierfs("append", "in/shared", store=store, stdin=b"x")
    done = tierfs("ingest", files, "--into", "in", store=store, check=False)
    assert (done.code, "shared is a segment, not a directory" in done.err) == (2, True)
    tierfs("rm", "in/shared", "--yes", store=store)
    tierfs("ingest", files, "--into", "in", store=store)
    assert modes(store) == MODES


def test_recovery_replicas_and_dumps_keep_modes_and_times(store: Path, files: Path, tmp_path: Path) -> None:
    files.chmod(0o750)
    tierfs("ingest", files, "--into", "/", "--seal", store=store)
    tierfs("ingest", files, "--into", "in", "--seal", store=store)
    tierfs("offload", store=store)
    tierfs("backup", tmp_path / "all", store=store)
    tierfs("-q", "replica", "--cold-dir", tmp_path / "cold", store=tmp_path / "replica")
    tierfs("-q", "restore", tmp_path / "all", store=tmp_path / "loaded")
    tierfs("-q", "recover", "--cold-dir", tmp_path / "cold", "--yes", store=tmp_path / "recovered", check=False)
    for path in (store, tmp_path / "replica", tmp_path / "loaded", tmp_path / "recovered"):
        assert (modes(path), files_of(path)) == (MODES | {"": 0o750}, KEPT)
        with open_store(path) as opened, opened.metadata.read() as txn:
            assert stat.S_IMODE(directories.directory(txn, 1).mode) == 0o750, "the root's mode too"


@pytest.mark.mount
def test_a_mount_shows_modes_and_other_users_read_what_the_originals_let_them(
    store: Path, files: Path, tmp_path: Path
) -> None:
    require_root()
    tierfs("ingest", files, "--into", "in", "--seal", store=store)
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    tierfs("-q", "mount", mnt, "-o", "allow_other", store=store)
    try:
        for name, mode in SHOWN.items():
            assert stat.S_IMODE((mnt / "in" / name).stat().st_mode) == mode, name
            assert (mnt / "in" / name / "file").read_bytes() == b"secret"
        for name, mode in SHOWN_FILES.items():
            found = (mnt / "in" / name).stat()
            assert (stat.S_IMODE(found.st_mode), found.st_mtime_ns) == (mode, MODIFIED_NS)
        readable = [name for name in MODES if seen(mnt, f"in/{name}/file") == b"secret"]
        assert readable == ["", "shared", "odd"]
        shutil.copy2(mnt / "in/long", tmp_path / "copy")
        assert (tmp_path / "copy").stat().st_mtime_ns == MODIFIED_NS
        (files / "shared").chmod(0o700)
        tierfs("ingest", files, "--into", "in", store=store)
        assert eventually(lambda: seen(mnt, "in/shared/file") is None)
    finally:
        tierfs("-q", "umount", mnt, store=store)


@given(st.integers(0, (1 << 16) - 1), st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 30))
def test_any_mode_and_time_are_read_back_and_count_for_that_length_only(mode: int, time_ns: int, length: int) -> None:
    record = replace(SEGMENT, file=IngestedFile(mode=mode, modified_ns=time_ns, length=length))
    without = replace(record, file=IngestedFile())
    for one in (record, without):
        assert SEGMENTS.codec.decode(SEGMENTS.codec.encode(one)) == one
    own = mode and length == record.length
    assert modified_ns(record) == (time_ns if own else record.modified_ms * 1_000_000)


def empty_directories(path: Path) -> list[str]:
    return sorted(
        f"{inner.relative_to(path)}" for inner in path.rglob("*") if inner.is_dir() and not inner.is_symlink()
    )


@pytest.mark.mount
def test_empty_directories_are_copied_to_the_bucket_too(store: Path, tmp_path: Path) -> None:
    """A bare repository of git without the directory `refs` is none."""
    repository, files, mnt = tmp_path / "repository", tmp_path / "files", tmp_path / "mnt"
    subprocess.run(["git", "init", "-q", "--bare", str(repository)], check=True)
    for name in ("alone", "deep/er/est", "beside"):
        (files / name).mkdir(parents=True)
    (files / "beside/file").write_bytes(b"1")
    (files / "private").mkdir(mode=0o700)
    (files / "linked").mkdir()
    (files / "linked/link").symlink_to("../beside")
    (tmp_path / "nothing").mkdir()
    mnt.mkdir()
    tierfs("-q", "ingest", repository, "--into", "r", store=store)
    tierfs("ingest", files, "--into", "in", store=store, check=False)
    tierfs("-q", "ingest", tmp_path / "nothing", "--into", "nothing", store=store)
    tierfs("-q", "ingest", files, repository, "--into", "both", store=store, check=False)
    tierfs("-q", "offload", store=store)
    shutil.rmtree(store)
    tierfs("-q", "recover", "--cold-dir", tmp_path / "cold", store=store)
    tierfs("-q", "mount", mnt, store=store)
    try:
        assert empty_directories(mnt / "in") == empty_directories(files)
        assert empty_directories(mnt / "both/files") == empty_directories(files)
        assert (mnt / "nothing").is_dir()
        assert stat.S_IMODE((mnt / "in/private").stat().st_mode) == 0o500
        git = ["git", "-c", "safe.directory=*", f"--git-dir={mnt}/r", "rev-parse", "--is-bare-repository"]
        assert subprocess.run(git, capture_output=True, check=True).stdout == b"true\n"
    finally:
        tierfs("-q", "umount", mnt)


def test_an_empty_directory_with_an_impossible_name_is_refused(store: Path, tmp_path: Path) -> None:
    (tmp_path / "files/a\tb").mkdir(parents=True)
    refused = tierfs("ingest", tmp_path / "files", "--into", "in", store=store, check=False)
    assert (refused.code, "cannot be part of a segment's name" in refused.err) == (2, True)


@pytest.mark.parametrize("cut", [1, CRC_BLOCK_BYTES, CRC_BLOCK_BYTES + 1, 2 * CRC_BLOCK_BYTES + 9])
@pytest.mark.parametrize("tier", ["local", "cold"])
def test_a_file_goes_on_behind_a_head_that_was_dropped(store: Path, tmp_path: Path, cut: int, tier: str) -> None:
    """As a timer repeats it: what is left is compared, and the rest of the file is appended."""
    size, file = 2 * CRC_BLOCK_BYTES + 10, tmp_path / "app.log"
    data = random.Random(cut).randbytes(size + 100)
    file.write_bytes(data[:size])
    tierfs("-q", "ingest", "--open", file, "--into", "a", store=store)
    if tier == "cold":
        tierfs("-q", "offload", store=store)
        tierfs("-q", "evict", store=store)
    tierfs("-q", "trim", "a/app.log", "--before", cut, "--yes", store=store)
    file.write_bytes(data)
    for _ in range(2):
        tierfs("-q", "ingest", "--open", file, "--into", "a", store=store)
    with open_store(store) as opened, opened.metadata.read() as txn:
        segment = directories.segment_by_name(txn, "a/app.log")
        assert (segment.start_offset, segment.length) == (cut, len(data))
    file.write_bytes(data[: size - 1] + b"other" + data)
    refused = tierfs("ingest", "--open", file, "--into", "a", store=store, check=False)
    assert (refused.code, "differ" in refused.err) == (5, True)


def test_of_a_segment_without_a_byte_left_nothing_can_be_compared(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "app.log"
    file.write_bytes(b"1\n2\n")
    tierfs("-q", "ingest", "--open", file, "--into", "a", store=store)
    tierfs("-q", "trim", "a/app.log", "--before", 4, "--yes", store=store)
    file.write_bytes(b"1\n2\n3\n")
    refused = tierfs("ingest", "--open", file, "--into", "a", store=store, check=False)
    assert (refused.code, f"tail -c +5 {file} | tierfs append a/app.log" in refused.err) == (5, True)
