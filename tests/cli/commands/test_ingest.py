"""tierfs ingest: files become segments, others are left out, and a repeated run continues."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.commands import tierfs
from tierfs.app import open_store
from tierfs.cli.commands.append import BLOCK_BYTES
from tierfs.cli.commands.ingest import _Work
from tierfs.cli.commands.ingest_files import Item, batches
from tierfs.cli.main import cli
from tierfs.metadata import directories
from tierfs.segments.writer import SegmentWriter

end = _Work._end


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    return path


@pytest.fixture
def files(tmp_path: Path) -> Path:
    path = tmp_path / "files"
    path.mkdir()
    return path


def test_files_and_directories_become_names(store: Path, files: Path) -> None:
    (files / "sub").mkdir()
    (files / "sub" / "a").write_bytes(b"a")
    (files / "b").write_bytes(b"b")
    (files / "link").symlink_to("b")
    tierfs("ingest", files / "link", files / "sub", "--into", "in/x", store=store)
    assert tierfs("ls", "in/x", store=store).out == "link\nsub/\n"
    assert tierfs("ls", "in/x/sub", store=store).out == "a\n"
    assert tierfs("cat", "in/x/link", store=store).out == "b"


def names_below(store: Path, path: str) -> list[str]:
    """The names of all segments below a directory, relative to it."""
    with open_store(store) as opened, opened.metadata.read() as txn:
        return sorted(os.path.relpath(name, path) for name, _ in directories.segments_at(txn, path))


@pytest.mark.parametrize(
    "paths",
    [
        ["d30"],
        ["d30/"],
        ["d30", "d31"],
        ["d30/", "d31//"],
        ["d30/.", "d31"],
        ["d30", "d30/in"],
        ["c", "d30"],
        ["c/one", "."],
    ],
    ids=" ".join,
)
def test_names_are_those_that_cp_gives(
    store: Path, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paths: list[str]
) -> None:
    for name in ("c/one", "d30/a", "d30/in/b", "d31/a"):
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        (files / name).write_text(name)
    monkeypatch.chdir(files)
    copied = tmp_path / "copied"
    if len(paths) > 1:
        copied.mkdir()  # one directory becomes the new one, as with `cp` too
    subprocess.run(["cp", "-r", *paths, copied], check=True)
    for _ in range(2):
        tierfs("ingest", *paths, "--into", "x", store=store)
    expected = sorted(str(path.relative_to(copied)) for path in copied.rglob("*") if path.is_file())
    assert names_below(store, "x") == expected


def test_directories_of_one_name_that_hold_the_same_file_are_refused(store: Path, files: Path) -> None:
    for name in ("a/logs/web", "b/logs/web", "b/logs/app"):
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        (files / name).write_text(name)
    done = tierfs("ingest", files / "a/logs", files / "b/logs", "--into", "x", store=store, check=False)
    assert (done.code, "would both become x/logs/web" in done.err) == (2, True)
    (files / "b/logs/web").unlink()
    tierfs("ingest", files / "a/logs", files / "b/logs", "--into", "x", store=store)
    assert names_below(store, "x") == ["logs/app", "logs/web"]


def test_links_and_special_files_are_left_out_with_one_warning(store: Path, files: Path, tmp_path: Path) -> None:
    (files / "a").write_bytes(b"a")
    (files / "link").symlink_to("a")
    (files / "linked").symlink_to(tmp_path)
    os.mkfifo(files / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(files / "socket"))
    done = tierfs("ingest", files, "--into", "in", store=store, check=False)
    assert (done.code, done.out) == (0, "ingested 1 B into 1 segment\n")
    assert done.err.splitlines() == [f"tierfs: warning: left out 4 link or special files, the first: {files}/link"]
    assert tierfs("ls", "in", store=store).out == "a\n"


def test_names_that_cannot_be_are_reported_and_the_others_go_on(store: Path, files: Path) -> None:
    (files / "good").write_bytes(b"1")
    (files / "new\nline").write_bytes(b"2")
    (files / os.fsdecode(b"not-utf8-\xff")).write_bytes(b"3")
    done = tierfs("ingest", files, "--into", "in", store=store, check=False)
    assert done.code == 2
    assert done.out == "ingested 1 B into 1 segment\n"
    assert len(done.err.splitlines()) == 2
    assert "new\\nline" in done.err
    assert "not-utf8-\\udcff" in done.err


def test_names_hadoop_cannot_read_are_summed_up(store: Path, files: Path) -> None:
    for name in ("_a", ".b", "c"):
        (files / name).touch()
    done = tierfs("ingest", files, "--into", "in", store=store, check=False)
    assert done.code == 0
    assert done.err.startswith("tierfs: warning: Hadoop and Spark cannot read 2 names, the first: ")
    assert len(done.err.splitlines()) == 1


BLOCK = 128 * 1024


@pytest.mark.parametrize(("seal", "cold"), [(True, True), (False, False)])
def test_a_changed_file_of_the_same_size_is_a_conflict(store: Path, files: Path, seal: bool, cold: bool) -> None:
    data = bytearray(os.urandom(9 * BLOCK + 5))
    tierfs("policy", "set", "/", f"chunk_bytes={3 * BLOCK}", store=store)
    (files / "a").write_bytes(data)
    tierfs("ingest", files / "a", "--into", "in", *["--seal"] * seal, store=store)
    if cold:
        tierfs("offload", store=store)
        tierfs("evict", store=store)
    data[-2] ^= 1
    data[5 * BLOCK] ^= 1
    (files / "a").write_bytes(data)
    done = tierfs("ingest", files / "a", "--into", "in", "--seal", store=store, check=False)
    assert done.code == 5
    assert f"in/a already exists and differs from the file in bytes {5 * BLOCK} to {6 * BLOCK}" in done.err
    assert "ingested 0 B into 0 segments" in done.out


def test_a_changed_small_file_of_the_same_size_is_a_conflict(store: Path, files: Path) -> None:
    for name in ("a", "b"):
        (files / name).write_bytes(b"abc")
    tierfs("ingest", files, "--into", "in", "--seal", store=store)
    (files / "b").write_bytes(b"abd")
    done = tierfs("ingest", files, "--into", "in", "--seal", store=store, check=False)
    assert done.code == 5
    assert "in/b already exists and differs from the file in bytes 0 to 3" in done.err
    assert "1 segment already complete" in done.out


def test_small_files_are_compared_where_they_share_an_object_too(store: Path, files: Path) -> None:
    data = {name: bytearray(os.urandom(4000 + number)) for number, name in enumerate("abcd")}
    data["e"] = bytearray(os.urandom(2 * BLOCK))
    for name, content in data.items():
        (files / name).write_bytes(content)
    tierfs("ingest", files, "--into", "in", "--seal", store=store)
    assert tierfs("offload", "--json", store=store).json["objects"] == 1
    tierfs("evict", store=store)
    assert tierfs("ingest", files, "--into", "in", "--seal", "--json", store=store).json["skipped"] == len(data)
    for name in "be":
        data[name][-1] ^= 1
        (files / name).write_bytes(data[name])
    done = tierfs("ingest", files, "--into", "in", "--seal", store=store, check=False)
    assert done.code == 5
    assert "in/b already exists and differs from the file in bytes 0 to 4001" in done.err
    assert f"in/e already exists and differs from the file in bytes 0 to {2 * BLOCK}" in done.err
    assert "3 segments already complete" in done.out


def test_a_segment_that_is_not_the_files_beginning_is_named_with_its_place(store: Path, files: Path) -> None:
    data = os.urandom(3 * BLOCK)
    other = bytes([data[BLOCK] ^ 1])
    tierfs("append", "in/a", store=store, stdin=data[:BLOCK] + other + data[BLOCK + 1 : 2 * BLOCK])
    (files / "a").write_bytes(data)
    done = tierfs("ingest", files, "--into", "in", store=store, check=False)
    assert done.code == 5
    assert f"differs from the file in bytes {BLOCK} to {2 * BLOCK}" in done.err


def test_a_sealed_segment_of_the_same_length_is_compared(store: Path, files: Path) -> None:
    (files / "a").write_bytes(b"abc")
    tierfs("ingest", files, "--into", "in", "--seal", store=store)
    assert tierfs("ingest", files, "--into", "in", "--json", store=store).json["skipped"] == 1
    with (files / "a").open("ab") as file:
        file.write(b"d")
    done = tierfs("ingest", files, "--into", "in", store=store, check=False)
    assert done.code == 5
    assert "in/a already exists and it is sealed at 3 of 4 bytes" in done.err


@pytest.mark.parametrize("held", [b"xbc", b"abcdef", b"xb"])
def test_other_bytes_are_a_conflict_and_stay(store: Path, files: Path, held: bytes) -> None:
    tierfs("append", "in/a", store=store, stdin=held)
    (files / "a").write_bytes(b"abc")
    (files / "b").write_bytes(b"b")
    done = tierfs("ingest", files, "--into", "in", store=store, check=False)
    assert (done.code, done.out) == (5, "ingested 1 B into 1 segment\n")
    assert "in/a" in done.err
    assert tierfs("cat", "in/a", store=store).out == held.decode()


def test_an_interrupted_file_goes_on_where_it_stopped(store: Path, files: Path) -> None:
    data = os.urandom(5_000_001)
    tierfs("append", "in/a", store=store, stdin=data[:2_000_000])
    (files / "a").write_bytes(data)
    done = tierfs("ingest", files / "a", "--into", "in", "--seal", "--json", store=store).json
    assert (done["segments"], done["bytes"]) == (1, 3_000_001)
    info = tierfs("info", "in/a", "--json", store=store).json
    assert (info["length"], info["sealed"]) == (5_000_001, True)


def test_two_files_for_one_name_are_refused_first(store: Path, files: Path) -> None:
    for directory in ("x", "y"):
        (files / directory).mkdir()
        (files / directory / "a").touch()
    done = tierfs("ingest", f"{files}/x/.", f"{files}/y/.", "--into", "in", store=store, check=False)
    assert done.code == 2
    assert "would both become in/a" in done.err
    assert tierfs("ls", store=store).out == ""


def test_many_small_files_in_parallel(store: Path, files: Path) -> None:
    for number in range(300):
        (files / f"f{number:03}").write_bytes(str(number).encode())
    assert tierfs("ingest", files, "--into", "in", "--jobs", "8", "--json", store=store).json["segments"] == 300
    assert tierfs("ls", "in", store=store).out.splitlines() == [f"f{number:03}" for number in range(300)]
    assert tierfs("cat", "in/f123", store=store).out == "123"


def test_small_files_are_committed_together_beside_those_that_are_there(store: Path, files: Path) -> None:
    tierfs("append", "in/f001", store=store, stdin=b"1")
    tierfs("append", "in/f002", store=store, stdin=b"other bytes")
    for number in range(20):
        (files / f"f{number:03}").write_bytes(str(number).encode())
    (files / "long").write_bytes(b"l" * 2_000_000)
    done = tierfs("ingest", files, "--into", "in", "--seal", "--jobs", "1", "--json", store=store, check=False)
    assert (done.code, done.json["segments"], done.json["skipped"]) == (5, 19, 1)
    assert [error["path"] for error in done.json["errors"]] == [str(files / "f002")]
    assert tierfs("info", "in/f019", "--json", store=store).json["sealed"]
    assert tierfs("ingest", files / "f003", "--into", "in", "--json", store=store).json["skipped"] == 1
    assert tierfs("fsck", store=store).code == 0


@pytest.mark.parametrize("jobs", [1, 4, 64])
def test_the_batches_of_all_jobs_leave_half_of_the_usual_descriptors(jobs: int) -> None:
    small = [Item(f"f{number}", f"s{number}", 1) for number in range(1000)]
    found = list(batches(iter(small), jobs))
    assert jobs * max(map(len, found)) <= 512
    assert [item for batch in found for item in batch] == small


def test_ctrl_c_says_what_is_kept(store: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = os.urandom(5 * BLOCK_BYTES)
    (files / "a").write_bytes(data)
    append, seen = SegmentWriter.append, threading.Event()
    monkeypatch.setattr(_Work, "_end", lambda work, error: (end(work, error), seen.set()))

    def interrupt_the_third(self: SegmentWriter, *words: Any, **named: Any) -> Any:
        if self.length == 2 * BLOCK_BYTES:
            os.kill(os.getpid(), signal.SIGINT)
            assert seen.wait(30)
        return append(self, *words, **named)

    monkeypatch.setattr(SegmentWriter, "append", interrupt_the_third)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        words = ["--store", str(store), "ingest", str(files / "a"), "--into", "in"]
        result = CliRunner().invoke(cli, words)
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.exit_code == 130
    assert "ingested 12 MiB into 0 segments; 1 file incomplete: repeat the command to continue" in result.output
    monkeypatch.undo()
    assert tierfs("ingest", files / "a", "--into", "in", "--json", store=store).json["bytes"] == 2 * BLOCK_BYTES
