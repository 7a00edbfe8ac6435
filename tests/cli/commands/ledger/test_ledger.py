"""tierfs ledger: append and read entries by the command line and through a mount."""

from __future__ import annotations

import json
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import tierfs
from tests.mount.conftest import Mount, mount, store
from tierfs.app import store as app
from tierfs.ledger import pulsar_api_pb2 as pb

__all__ = ["mount", "store"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tierfs("-q", "init", "--cold", "none", store=tmp_path / "store")
    return tmp_path / "store"


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def create(path: Path, *words: object) -> str:
    return tierfs("ledger", "create", *words, store=path).out.strip()


def test_lines_of_a_pipe_are_durable_as_they_come(path: Path) -> None:
    name = create(path, "t")
    command = [sys.executable, "-m", "tierfs", "--store", str(path), "ledger", "append", name, "--lines"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\ntw")
        process.stdin.flush()
        while tierfs("ledger", "info", name, "--json", store=path).json["entries"] < 1:
            assert process.poll() is None
        out, _ = process.communicate(b"o\n", timeout=60)
    assert out.decode() == f"{name} 0 2\n"
    assert tierfs("ledger", "read", name, store=path).out == "one\ntwo\n"


def message(payload: bytes) -> bytes:
    metadata = pb.MessageMetadata(producer_name=b"p", sequence_id=1, publish_time=2).SerializeToString()
    return struct.pack(">I", len(metadata)) + metadata + payload


def test_messages_inside_entries(path: Path, tmp_path: Path) -> None:
    name = create(path, "t", "--id", 5)
    (tmp_path / "good").write_bytes(message(b"hello"))
    (tmp_path / "bad").write_bytes(b"no message")
    tierfs("ledger", "append", name, tmp_path / "good", tmp_path / "bad", tmp_path / "good", store=path)
    done = tierfs("ledger", "read", name, "--messages", store=path, check=False)
    told = lines(done.out)
    assert [one.get("payload") for one in told] == ["hello", None, "hello"]
    assert [(one["ledger_id"], one["entry_id"]) for one in told] == [(5, 0), (5, 1), (5, 2)]
    assert "entry 5:1 is damaged" in told[1]["error"]
    assert (done.code, "1 entry of" in done.err) == (74, True)
    assert tierfs("ledger", "read", name, "--messages", "--to", 1, store=path).code == 0


def test_an_append_that_ends_early_tells_what_is_durable(path: Path, tmp_path: Path) -> None:
    name = create(path, "t")
    good = tmp_path / "good"
    good.write_bytes(b"x" * (5 << 20))  # a batch of its own
    refused = tierfs("ledger", "append", name, good, tmp_path, store=path, check=False)
    assert refused.code != 0
    assert tierfs("ledger", "info", name, "--json", store=path).json["entries"] == 0  # told before anything is read
    command = [sys.executable, "-m", "tierfs", "--store", str(path), "ledger", "append", name, "--lines"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\ntwo\nthr")
        process.stdin.flush()
        while tierfs("ledger", "info", name, "--json", store=path).json["entries"] < 2:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"2 entries are acknowledged: {name} 0 2" in error.decode()


def closed(path: Path, managed_ledger: str, number: int, data: bytes = b"entry") -> str:
    name = create(path, managed_ledger, "--id", number)
    tierfs("ledger", "append", name, store=path, stdin=data)
    tierfs("ledger", "close", name, store=path)
    return name


@pytest.mark.mount
def test_a_mount_shows_entries_back_to_back(store: app.Store, mount: Mount) -> None:
    first, second = (create(store.path, "topic", "--id", number) for number in (1, 2))
    tierfs("ledger", "append", first, "--lines", store=store.path, stdin=b"one\ntwo\n")
    tierfs("ledger", "append", second, "--lines", store=store.path, stdin=b"three\n")
    point = mount().path
    found = subprocess.run(f"cat {point}/topic/*", shell=True, capture_output=True, check=True)
    assert found.stdout == b"one\ntwo\nthree\n"
