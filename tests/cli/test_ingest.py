"""ingest: what becomes a segment, what is left out, and what going on means."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.commands import tierfs


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
    assert tierfs("ls", "in/x", store=store).out == "a\nlink\n"
    assert tierfs("cat", "in/x/link", store=store).out == "b"


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


def test_a_sealed_segment_of_the_same_length_is_trusted(store: Path, files: Path) -> None:
    (files / "a").write_bytes(b"abc")
    tierfs("ingest", files, "--into", "in", "--seal", store=store)
    assert tierfs("ingest", files, "--into", "in", "--json", store=store).json["skipped"] == 1
    with (files / "a").open("ab") as file:
        file.write(b"d")
    done = tierfs("ingest", files, "--into", "in", store=store, check=False)
    assert done.code == 5
    assert "in/a is there already and it is sealed at 3 of 4 bytes" in done.err


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
    done = tierfs("ingest", files / "x", files / "y", "--into", "in", store=store, check=False)
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
