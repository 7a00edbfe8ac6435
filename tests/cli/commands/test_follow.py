"""tierfs cat -f: appended bytes appear at once, and following ends in every way it should."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.commands import started, tierfs
from tierfs.app.store import Store, open_store

WAIT_S = 20.0
"""Limit of a test's wait for an event, on a busy machine."""

TRIES = 5


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    tierfs("append", "s", store=path, stdin=b"hello")
    return path


def following(store: Path, *words: object) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return running(store, "cat", "-f", *words)


def running(store: Path, *words: object) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return started(*words, store=store, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def receive(process: subprocess.Popen[bytes], expected: bytes) -> None:
    """Take exactly these bytes from the output as they arrive."""
    assert process.stdout is not None
    got = b""
    deadline_s = time.monotonic() + WAIT_S
    while got != expected:
        assert expected.startswith(got)
        assert select.select([process.stdout], [], [], deadline_s - time.monotonic())[0], f"only {got!r} came"
        data = os.read(process.stdout.fileno(), 1 << 20)
        assert data, process.communicate()[1]
        got += data


def ends(process: subprocess.Popen[bytes]) -> tuple[int, bytes, str]:
    """Return exit code, the rest of the output, and stderr."""
    out, said = process.communicate(timeout=WAIT_S)
    return process.returncode, out, said.decode()


def append(store: Store, data: bytes) -> None:
    writer = store.engine.open_writer("s")
    writer.append(data)
    store.engine.close_writer(writer)


def test_what_is_appended_shows_at_once_until_the_seal(store: Path) -> None:
    with following(store, "s", "--from", 1) as process, open_store(store) as ours:
        receive(process, b"ello")
        for number in range(TRIES):
            append(ours, b"%d" % number)
            receive(process, b"%d" % number)
        writer = ours.engine.open_writer("s")
        writer.append(b"end", last=True, seal=True)
        ours.engine.close_writer(writer)
        assert ends(process) == (0, b"end", "")


def test_a_stream_is_followed_into_the_successor(store: Path) -> None:
    tierfs("policy", "set", "s", "seal_bytes=5", store=store)
    with following(store, "s") as process:
        receive(process, b"hello")
        for line in (b"you", b"there", b"now"):
            tierfs("append", "s", store=store, stdin=line)
            receive(process, line)
        tierfs("seal", "s", store=store)
        assert process.wait(WAIT_S) == 0
    listed = tierfs("-q", "ls", "-l", store=store).out.splitlines()
    assert listed[0].endswith("  s  (sealed by policy, continues in s.5)")
    assert [line.split()[1:3] for line in listed] == [["5", "B"], ["3", "B"], ["8", "B"]], "sizes, of s, s.13 and s.5"
    assert "sealed by policy, continues in s.13" in tierfs("info", "s.5", store=store).out
    assert tierfs("info", "s.5", "--json", store=store).json["successor"] == "s.13"
    assert tierfs("info", "s.13", "--json", store=store).json["status"] == "sealed"
    assert tierfs("append", "s", store=store, stdin=b"x", check=False).code == 7


def test_bytes_that_move_to_the_cold_tier_meanwhile(store: Path) -> None:
    first, second = os.urandom(3_000_000), os.urandom(1_500_000)
    with following(store, "s") as process:
        receive(process, b"hello")
        tierfs("append", "s", store=store, stdin=first)
        receive(process, first)
        tierfs("offload", store=store)
        tierfs("evict", store=store)
        tierfs("append", "s", "--seal", store=store, stdin=second)
        assert ends(process) == (0, second, "")


def test_a_segment_that_is_deleted(store: Path) -> None:
    with following(store, "s") as process:
        receive(process, b"hello")
        tierfs("rm", "s", "--yes", store=store)
        code, rest, said = ends(process)
    assert (code, rest) == (3, b"")
    assert said == "tierfs: segment s was deleted; its bytes up to 5 were written (NotFound, exit 3)\n"


def test_ctrl_c(store: Path) -> None:
    with following(store, "s") as process:
        receive(process, b"hello")
        process.send_signal(signal.SIGINT)
        assert ends(process) == (130, b"", "tierfs: interrupted (Interrupted, exit 130)\n")


@pytest.mark.parametrize("words", [["cat"], ["cat", "-f"]])
def test_ctrl_c_while_the_reader_takes_nothing(store: Path, words: list[str]) -> None:
    tierfs("append", "s", store=store, stdin=bytes(5_000_000))
    with running(store, *words, "s") as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 1)
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 130
        assert ends(process)[2] == "tierfs: interrupted (Interrupted, exit 130)\n"


def test_a_reader_that_went_away_while_nothing_comes(store: Path) -> None:
    with following(store, "s") as process:
        receive(process, b"hello")
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(WAIT_S) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.stdout = None


def test_it_looks_at_nothing_while_nothing_changes(store: Path) -> None:
    with following(store, "s") as process:
        receive(process, b"hello")
        before_s = cpu_s(process.pid)
        time.sleep(1)
        assert cpu_s(process.pid) - before_s < 0.2


def cpu_s(pid: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
