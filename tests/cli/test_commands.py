"""Commands do what their help says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import tierfs
from tierfs.checksum import crc32c

INFO_KEYS = {"segment", "start_offset", "length", "sealed", "tiers", "crc32c", "read_priority"}
HEAVY = ("boto3", "botocore", "pyfuse3", "pyspark", "trio", "rich", "pydantic")
HEAVY_TO_LOOK = (*HEAVY, "prometheus_client")
HEAVY_WITHOUT_BYTES = (*HEAVY_TO_LOOK, "awscrt")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    return path


def test_append_acknowledges_segment_start_and_end(store: Path, tmp_path: Path) -> None:
    assert tierfs("append", "logs/web", store=store, stdin=b"hello").out == "logs/web 0 5\n"
    (tmp_path / "a").write_bytes(b"123")
    (tmp_path / "b").write_bytes(b"45")
    done = tierfs("append", "logs/web", tmp_path / "a", tmp_path / "b", "--json", store=store)
    assert done.json == {"segment": "logs/web", "start": 5, "end": 10}
    assert tierfs("cat", "logs/web", store=store).out == "hello12345"
    assert tierfs("cat", "logs/web", "--from", "5", "--to", "8", store=store).out == "123"


def test_info_has_its_keys(store: Path) -> None:
    tierfs("append", "s", store=store, stdin=b"hello")
    info = tierfs("info", "s", "--json", store=store).json
    assert set(info) >= INFO_KEYS
    assert info["crc32c"] == f"{crc32c(b'hello'):08x}"
    assert info["tiers"] == {"local": {"chunks": 1, "bytes": 5}, "cold": {"chunks": 0, "bytes": 0}}
    assert info["read_priority"] == "local-first"
    assert "5 B" in tierfs("info", "s", store=store).out


def test_a_clean_append_goes_on_in_the_same_chunk_file(store: Path) -> None:
    for _ in range(5):
        tierfs("append", "s", store=store, stdin=b"x")
    assert tierfs("info", "s", "--json", store=store).json["tiers"]["local"] == {"chunks": 1, "bytes": 5}


def test_a_pipe_is_durable_before_it_ends(store: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tierfs", "--store", str(store), "append", "live"], stdin=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(b"one line\n")
    process.stdin.flush()
    for _ in range(100):
        done = tierfs("cat", "live", store=store, check=False)
        if done.out == "one line\n":
            break
    assert done.out == "one line\n"
    refused = tierfs("append", "live", store=store, stdin=b"x", check=False)
    assert refused.code == 5
    assert f"process {process.pid}" in refused.err
    tierfs("append", "live", "--take-over", store=store, stdin=b"mine\n")
    process.stdin.write(b"lost\n")
    process.stdin.close()
    assert process.wait(30) == 6
    assert tierfs("cat", "live", store=store).out == "one line\nmine\n"


def test_ingest_twice_does_nothing_and_a_longer_file_goes_on(store: Path, tmp_path: Path) -> None:
    files = tmp_path / "files"
    (files / "sub").mkdir(parents=True)
    (files / "a.log").write_bytes(b"a" * 1000)
    (files / "sub" / "b.log").write_bytes(b"b" * 10)
    (files / "empty").touch()
    (files / "link").symlink_to("a.log")
    first = tierfs("ingest", files, "--into", "in", "--open", "--json", store=store).json
    assert (first["segments"], first["bytes"], first["special_files"]) == (3, 1010, 1)
    with (files / "a.log").open("ab") as file:
        file.write(b"more")
    second = tierfs("ingest", files, "--into", "in", "--json", store=store).json
    assert (second["segments"], second["bytes"], second["skipped"]) == (1, 4, 2)
    assert tierfs("cat", "in/a.log", store=store).out == "a" * 1000 + "more"
    assert tierfs("info", "in/sub/b.log", "--json", store=store).json["sealed"]
    (files / "a.log").write_bytes(b"other")
    third = tierfs("ingest", files, "--into", "in", "--json", store=store, check=False)
    assert third.code == 5
    assert third.json["errors"][0]["path"].endswith("a.log")


def test_what_was_ingested_whole_is_sealed_and_a_longer_file_is_told_what_to_do(store: Path, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"whole")
    tierfs("ingest", tmp_path / "a.log", "--into", "in", store=store)
    assert tierfs("info", "in/a.log", "--json", store=store).json["sealed"]
    (tmp_path / "a.log").write_bytes(b"whole and more")
    refused = tierfs("ingest", tmp_path / "a.log", "--into", "in", store=store, check=False)
    assert refused.code == 5
    assert "tierfs unseal in/a.log, then ingest with --open" in refused.err
    tierfs("unseal", "in/a.log", store=store)
    tierfs("ingest", tmp_path / "a.log", "--into", "in", "--open", store=store)
    assert tierfs("cat", "in/a.log", store=store).out == "whole and more"
    assert not tierfs("info", "in/a.log", "--json", store=store).json["sealed"]


def test_the_whole_way_through_the_tiers(store: Path) -> None:
    data = os.urandom(3_000_001)
    tierfs("append", "a/s", store=store, stdin=data)
    assert tierfs("offload", "--json", store=store).json["bytes"] == len(data)
    assert tierfs("offload", store=store).out.startswith("nothing to offload")
    assert tierfs("evict", "--dry-run", "--json", store=store).json["bytes"] == len(data)
    assert tierfs("evict", "a", "--json", store=store).json["bytes"] == len(data)
    info = tierfs("info", "a/s", "--json", store=store).json
    assert info["tiers"]["local"] == {"chunks": 0, "bytes": 0}
    assert info["crc32c"] == f"{crc32c(data):08x}"
    done = subprocess.run(
        [sys.executable, "-m", "tierfs", "--store", str(store), "cat", "a/s"], capture_output=True, check=True
    )
    assert done.stdout == data
    status = tierfs("status", "--json", store=store).json
    assert (status["not_offloaded_bytes"], status["journal"]["unpublished"]) == (0, 0)
    deleted = tierfs("rm", "-r", "a", "--yes", "--json", store=store).json
    assert (deleted["segments"], deleted["cold_bytes"]) == (1, len(data))
    assert tierfs("ls", store=store).out == ""


def test_listings(store: Path) -> None:
    tierfs("append", "d/one", store=store, stdin=b"1")
    tierfs("append", "two", store=store, stdin=b"22", check=True)
    assert tierfs("ls", store=store).out == "d/\ntwo\n"
    lines = [json.loads(line) for line in tierfs("ls", "--json", store=store).out.splitlines()]
    assert [(line["name"], line["kind"]) for line in lines] == [("d", "directory"), ("two", "segment")]
    header, *lines = tierfs("ls", "-l", store=store).out.splitlines()
    assert header.split() == ["bytes", "local", "cold", "modified", "(UTC)", "name"]
    assert header.index("name") == lines[1].index("two"), "columns stand below each other"
    assert "o        2 B" in lines[1]
    assert tierfs("-q", "ls", "-l", store=store).out.splitlines() == lines


def test_names_cannot_play_tricks_on_a_terminal(store: Path) -> None:
    assert "\x1b" not in tierfs("info", "\x1b[31mred", store=store, check=False).err


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["info", "s"], HEAVY_TO_LOOK),
        (["ls"], HEAVY_WITHOUT_BYTES),
        (["status"], HEAVY_WITHOUT_BYTES),
        (["append", "s"], HEAVY),
    ],
)
def test_quick_commands_import_nothing_heavy(store: Path, words: list[str], heavy: tuple[str, ...]) -> None:
    tierfs("append", "s", store=store, stdin=b"x")
    code = (
        "import contextlib, sys\nfrom tierfs.cli.main import cli\n"
        f"with contextlib.suppress(SystemExit):\n    cli.main({['--store', str(store), *words]!r})\n"
        f"print('HEAVY', [name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], input="x", capture_output=True, text=True, check=True)
    assert done.stdout.endswith("HEAVY []\n"), done.stdout


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (["info", "s"], 68),  # it explains the plan
        (["ls", "-l"], 60),
        (["du"], 60),
        (["map", "s"], 68),
        (["status"], 90),  # it asks the bucket whose it is
        (["append", "s"], 66),
        (["cat", "s"], 86),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_everyday_commands_open_metadata_and_files_only(store: Path, words: list[str], most: int) -> None:
    tierfs("append", "s", store=store, stdin=b"x")
    code = (
        "import contextlib, io, json, sys\nfrom tierfs.cli.main import cli\nout = sys.stdout\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):\n"
        f"    cli.main({['--store', str(store), *words]!r})\n"
        "print(json.dumps([name for name in sys.modules if name.partition('.')[0] == 'tierfs']), file=out)"
    )
    done = subprocess.run([sys.executable, "-c", code], input="x", capture_output=True, text=True, check=True)
    own = json.loads(done.stdout)
    assert len(own) < most
    works = (
        "tierfs.tiering",
        "tierfs.holder",
        "tierfs.garbage",
        "tierfs.recovery",
        "tierfs.adoption",
        "tierfs.segments.delete",
        "tierfs.setup.create",
    )
    assert words[0] in ("status", "info", "map") or not [name for name in own if name.startswith(works)]
    assert "tierfs.holder.work" not in own


def test_an_interrupted_reader_of_our_output_is_no_error(store: Path) -> None:
    tierfs("append", "s", store=store, stdin=b"x" * 5_000_000)
    done = subprocess.run(
        f"{sys.executable} -m tierfs --store {store} cat s | head -c 10",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("x" * 10, "")
