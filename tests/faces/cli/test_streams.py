"""Commands at a pipe, a terminal, a full disk and a closed stream, and at Ctrl-C: processes of their own."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.commands import started, tierfs
from tests.mount.waiting import eventually

CLOSED = "tierfs: standard output: closed (InvalidRequest, exit 2)\n"
INTERRUPTED = b"tierfs: interrupted (Interrupted, exit 130)\n"


@pytest.fixture(autouse=True)
def abc(store: Path) -> None:
    tierfs("append", "s", store=store, stdin=b"abc")


def in_shell(redirection: str, store: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell that redirects or closes one of its streams."""
    environment = {**os.environ, "TIERFS_STORE": str(store), "PYTHONWARNINGS": "error"}
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-m", "tierfs", *words]
    return subprocess.run(
        command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, timeout=60
    )


@pytest.mark.parametrize(
    ("redirection", "words", "code", "out", "error"),
    [
        (">&-", "cat s", 2, "", CLOSED),
        (">&-", "info s --json", 2, "", '{"error": "standard output: closed", "kind": "InvalidRequest", "exit": 2, '),
        (">&- <<X\nmore\nX", "append s", 2, "", CLOSED),
        (">&-", "seal s", 0, "", ""),
        ("2>&-", "cat no", 3, "", ""),
        ("2>&-", "cat s -vv", 0, "abc", ""),
        ("<&-", "append s", 2, "", "tierfs: standard input: Bad file descriptor"),
        ("<&-", "cat s", 0, "abc", ""),
    ],
)
def test_a_closed_stream(store: Path, redirection: str, words: str, code: int, out: str, error: str) -> None:
    environment = {**os.environ, "TIERFS_STORE": str(store), "PYTHONWARNINGS": "error"}
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-m", "tierfs", *words.split()]
    done = subprocess.run(
        command, check=False, stdin=subprocess.DEVNULL, capture_output=True, env=environment, timeout=60
    )
    said = done.stderr.decode()
    assert (done.returncode, done.stdout.decode(), said[: len(error)]) == (code, out, error)
    assert error or not said or redirection == "<&-"  # the null file in its place is never closed
    assert tierfs("cat", "s", store=store).out == "abc", "what could not be acknowledged was not appended"


def test_a_pipe_is_durable_before_it_ends_and_its_writer_is_fenced_on_request(store: Path) -> None:
    with started("append", "live", store=store, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0) as process:
        assert process.stdin is not None
        process.stdin.write(b"one line\n")
        assert eventually(lambda: tierfs("cat", "live", store=store, check=False).out == "one line\n")
        refused = tierfs("append", "live", store=store, stdin=b"x", check=False)
        assert (refused.code, f"process {process.pid}" in refused.err) == (5, True)
        tierfs("append", "live", "--take-over", store=store, stdin=b"mine\n")
        process.stdin.write(b"lost\n")
        process.stdin.close()
        assert process.wait(30) == 6
        process.stdin = None
    assert tierfs("cat", "live", store=store).out == "one line\nmine\n"


def test_ctrl_c_during_an_append_says_what_is_acknowledged(store: Path) -> None:
    words = ("--store", store, "append", "t")
    with started(*words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin is not None
        process.stdin.write(b"hello")
        assert eventually(lambda: tierfs("cat", "t", store=store, check=False).out == "hello")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said.decode() == (
        "tierfs: interrupted; 5 bytes are acknowledged: t 0 5; "
        "5 were read from standard input (Interrupted, exit 130)\n"
        "  to append the remaining input, give the same input from its start to: "
        f"tierfs --store {store} append --expect-offset 5 --skip 5 -- t\n"
    )
    again = ("append", "--expect-offset", "5", "--skip", "5", "--seal", "--", "t")
    assert tierfs(*again, store=store, stdin=b"hello!").out == "t 5 6\n"


@pytest.mark.parametrize("words", ["cat", "cat -f"])
def test_ctrl_c_while_the_reader_takes_nothing(store: Path, words: str) -> None:
    tierfs("append", "s", store=store, stdin=bytes(5_000_000))
    with started(*words.split(), "s", store=store, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 1)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.communicate()[1] == INTERRUPTED


def test_a_follower_is_at_rest_until_ctrl_c(store: Path) -> None:
    with started("cat", "-f", "s", store=store, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 9) == b"abc"
        before_s = cpu_s(process.pid)
        time.sleep(1)
        assert cpu_s(process.pid) - before_s < 0.2
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == (b"", INTERRUPTED)
        assert process.returncode == 130


def cpu_s(pid: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_rm_asks_on_a_terminal(store: Path) -> None:
    for answer, code, left in (("n", 1, "s\n"), ("y", 0, "")):
        ours, theirs = pty.openpty()
        with started("rm", "s", store=store, stdin=theirs, stdout=theirs, stderr=theirs) as process:
            os.close(theirs)
            os.write(ours, f"{answer}\n".encode())
            assert process.wait(30) == code
            assert b"remove s: 1 segment, 3 B local" in os.read(ours, 4096)
            os.close(ours)
        assert tierfs("ls", store=store).out == left
