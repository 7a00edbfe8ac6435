"""tierfs ledger: append and read entries by the command line and through a mount."""

from __future__ import annotations

import hashlib
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


def test_a_ledger_from_its_first_entry_to_its_end(path: Path, tmp_path: Path) -> None:
    name = create(path, "public/default/topic", "--id", 7)
    assert name == "public/default/topic/00000000000000000007"
    (tmp_path / "one").write_bytes(b"first")
    (tmp_path / "two").write_bytes(b"")
    appended = tierfs("ledger", "append", name, tmp_path / "one", tmp_path / "two", store=path)
    assert appended.out == f"{name} 0 2\n"
    assert tierfs("ledger", "append", name, store=path, stdin=b"third").out == f"{name} 2 3\n"
    expected = {
        "segment": name,
        "ledger_id": 7,
        "managed_ledger": "public/default/topic",
        "entries": 3,
        "last_entry_id": 2,
        "length": 10,
        "state": "open",
        "offload": "none",
    }
    assert lines(tierfs("ledger", "ls", "--json", store=path).out) == [expected]
    assert tierfs("ledger", "close", name, "--json", store=path).json == expected | {"state": "closed"}
    assert "3, the last is 2" in tierfs("ledger", "info", name, store=path).out
    refused = tierfs("ledger", "append", name, store=path, stdin=b"late", check=False)
    assert (refused.code, "sealed" in refused.err) == (7, True)
    assert tierfs("ledger", "read", name, store=path).out == "firstthird"


def test_entries_are_lines_or_files(path: Path) -> None:
    name = create(path, "t")
    data = b"a\n\nlonger\nno line feed"
    assert tierfs("ledger", "append", name, "--lines", store=path, stdin=data).out == f"{name} 0 4\n"
    told = lines(tierfs("ledger", "read", name, "--json", store=path).out)
    assert [(one["entry_id"], one["offset"], one["length"]) for one in told] == [
        (0, 0, 2),
        (1, 2, 1),
        (2, 3, 7),
        (3, 10, 12),
    ]
    assert told[2]["sha256"] == hashlib.sha256(b"longer\n").hexdigest()
    assert tierfs("ledger", "read", name, "--from", 1, "--to", 3, store=path).out == "\nlonger\n"
    assert tierfs("ledger", "read", name, "--from", 4, store=path).out == ""
    assert tierfs("ledger", "append", name, "--lines", store=path).out == f"{name} 4 4\n"


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


def test_many_entries_of_which_some_are_empty(path: Path) -> None:
    name = create(path, "t")
    data = b"".join(b"%d\n" % number for number in range(10_000))
    tierfs("ledger", "append", name, "--lines", store=path, stdin=data)
    told = lines(tierfs("ledger", "read", name, "--json", "--from", 4000, "--to", 9000, store=path).out)
    assert [one["entry_id"] for one in told] == list(range(4000, 9000))
    assert tierfs("ledger", "read", name, "--from", 9999, store=path).out == "9999\n"


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


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["create", "t", "--id", "-1"], 2, "is not between 0 and"),
        (["create", "/"], 2, "needs the name of its managed ledger"),
        (["create", "t", "--id", "1"], 5, "exists"),
        (["terminate", "nowhere"], 3, "nowhere does not exist"),
        (["append", "t/2"], 3, "ledger t/2 does not exist"),
        (["append", "s"], 2, "s is not a ledger"),
        (["read", "s"], 2, "s is not a ledger"),
        (["close", "s"], 2, "s is not a ledger"),
        (["ls", "nowhere"], 3, "nowhere does not exist"),
        (["read", "t/00000000000000000001", "--from", "2"], 2, "has entries 0 to 1, not 2 to 1"),
    ],
)
def test_bad_input(path: Path, words: list[str], code: int, told: str) -> None:
    tierfs("append", "s", store=path, stdin=b"bytes")
    tierfs("ledger", "append", create(path, "t", "--id", 1), store=path, stdin=b"entry")
    refused = tierfs("ledger", *words, store=path, stdin=b"x", check=False)
    assert (refused.code, told in refused.err) == (code, True), refused


def test_an_id_that_somebody_chose_is_passed_over(path: Path) -> None:
    for number in range(100):
        create(path, "t", "--id", number + 1)
    assert int(create(path, "t").rpartition("/")[2]) > 100


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


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """Return a store with a cold tier."""
    (tmp_path / "cold").mkdir()
    tierfs("-q", "init", "--cold-dir", tmp_path / "cold", store=tmp_path / "held")
    return tmp_path / "held"


def test_offload_says_that_open_ledgers_stay(held: Path) -> None:
    name = create(held, "t")
    tierfs("ledger", "append", name, store=held, stdin=b"entry")
    told = tierfs("offload", store=held, check=False)
    assert (told.code, "5 B of open ledgers stay on this disk alone until they are closed" in told.err) == (0, True)
    tierfs("ledger", "close", name, store=held)
    assert "offloaded 5 B of 1 segment in 1 object" in tierfs("offload", store=held).out
    assert "evicted 5 B" in tierfs("evict", store=held).out
    assert tierfs("ledger", "read", name, store=held).out == "entry"


def closed(path: Path, managed_ledger: str, number: int, data: bytes = b"entry") -> str:
    name = create(path, managed_ledger, "--id", number)
    tierfs("ledger", "append", name, store=path, stdin=data)
    tierfs("ledger", "close", name, store=path)
    return name


def test_a_prefix_is_offloaded(held: Path) -> None:
    for number in (1, 2, 3):
        closed(held, "t", number)
    told = tierfs("ledger", "offload", "t", "--before", "2:1", "--json", store=held).json
    assert (told["first_unoffloaded"], told["ledgers"], told["bytes"]) == ("3:0", 2, 10)
    assert "first that is not is 3:1" in tierfs("ledger", "offload", "t", store=held).out
    assert "nothing to offload in t: 3 ledgers cold" in tierfs("ledger", "offload", "t", store=held).out
    for wrong, words in (("x", "is not a position"), ("9:0", "has no ledger 9"), ("2:7", "ledger 2 ends at 1")):
        refused = tierfs("ledger", "offload", "t", "--before", wrong, store=held, check=False)
        assert (refused.code, words in refused.err) == (2, True), refused


def test_without_a_cold_tier_nothing_is_offloaded(path: Path) -> None:
    name = closed(path, "t", 1)
    refused = tierfs("ledger", "offload", "t", store=path, check=False)
    assert (refused.code, "needs a cold tier" in refused.err) == (2, True)
    assert tierfs("ledger", "read", name, store=path).out == "entry"


def test_a_managed_ledger_goes_on_in_the_next_ledger(path: Path) -> None:
    first = tierfs("ledger", "append", "a/topic", "--lines", "--json", store=path, stdin=b"1\n2\n").json
    assert (first["entries"], first["ledgers"]) == (2, 1)
    tierfs("policy", "set", "a/topic", "ledger_entries=3", store=path)
    more = b"".join(b"%d\n" % number for number in range(3, 9))
    told = tierfs("ledger", "append", "a/topic", "--lines", store=path, stdin=more)
    shown = lines(tierfs("ledger", "ls", "a/topic", "--json", store=path).out)
    assert [(one["entries"], one["state"]) for one in shown] == [(3, "closed"), (3, "closed"), (2, "open")]
    one, _, three = (found["ledger_id"] for found in shown)
    assert told.out == f"a/topic {one}:2 {three}:1\n"
    read = "".join(tierfs("ledger", "read", found["segment"], store=path).out for found in shown)
    assert read == "".join(f"{number}\n" for number in range(1, 9))
    assert tierfs("ledger", "append", "a/topic", "--lines", store=path).out == "a/topic - -\n"
    assert f"its last entry is {three}:1" in tierfs("ledger", "terminate", "a/topic", store=path).out
    refused = tierfs("ledger", "append", "a/topic", store=path, stdin=b"late", check=False)
    assert (refused.code, "a/topic was terminated" in refused.err) == (7, True)


def test_bytes_are_not_appended_to_a_ledger(path: Path) -> None:
    name = create(path, "t")
    refused = tierfs("append", name, store=path, stdin=b"bytes", check=False)
    assert (refused.code, f"{name} is a ledger" in refused.err) == (2, True)


@pytest.mark.mount
def test_a_mount_shows_entries_back_to_back(store: app.Store, mount: Mount) -> None:
    first, second = (create(store.path, "topic", "--id", number) for number in (1, 2))
    tierfs("ledger", "append", first, "--lines", store=store.path, stdin=b"one\ntwo\n")
    tierfs("ledger", "append", second, "--lines", store=store.path, stdin=b"three\n")
    point = mount().path
    found = subprocess.run(f"cat {point}/topic/*", shell=True, capture_output=True, check=True)
    assert found.stdout == b"one\ntwo\nthree\n"
