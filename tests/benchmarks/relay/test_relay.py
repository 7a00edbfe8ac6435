"""A relay between a client and a real server: bytes unchanged, late, slow, and counted."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from urllib.parse import urlsplit

import pytest

from tests.benchmarks.relay.loop import Counts, Slowness
from tests.benchmarks.relay.process import RelayServer
from tests.servers.moto_server import MotoServer

MB = 1_000_000
HEADERS_BYTES = 4096
"""More than a server says before the bytes of an object."""

PATIENCE_S = 60
DELAY_S = 0.1
RATE_BYTES_S = 20 * MB
FAR = Slowness(delay_s=DELAY_S)
SLOW = Slowness(rate_bytes_s=RATE_BYTES_S)
SLOW_UP = Slowness(upload_bytes_s=RATE_BYTES_S)


def test_an_object_comes_through_and_is_counted(object_url: str) -> None:
    with RelayServer(object_url) as relay:
        assert relay.counts == Counts()
        through = object_url.replace(urlsplit(object_url).netloc, urlsplit(relay.endpoint_url).netloc)
        done = subprocess.run(["curl", "-s", through], capture_output=True, check=True)
        assert done.stdout == OBJECT
        counts = relay.counts
    assert counts.connections == 1
    assert len(OBJECT) < counts.received_bytes < len(OBJECT) + HEADERS_BYTES
    assert 0 < counts.sent_bytes < HEADERS_BYTES


def test_each_answer_comes_later_and_the_connection_stays() -> None:
    with echo() as url, RelayServer(url, FAR) as relay, connected(relay) as client:
        for word in (b"one", b"two"):
            client.sendall(word)
            assert client.recv(10) == word
        assert relay.counts == Counts(connections=1, received_bytes=6, sent_bytes=6)


def test_bytes_that_follow_each_other_are_late_together() -> None:
    with echo() as url, RelayServer(url, FAR) as relay, connected(relay) as client:
        data = random.Random(5).randbytes(MB)
        sending = threading.Thread(target=client.sendall, args=(data,))
        sending.start()
        assert received(client, len(data)) == data
        sending.join()


def test_bytes_of_a_slow_upload_come_through() -> None:
    with echo() as url, RelayServer(url, SLOW_UP) as relay, connected(relay) as client:
        data = random.Random(5).randbytes(4 * MB)
        sending = threading.Thread(target=client.sendall, args=(data,))
        sending.start()
        assert received(client, len(data)) == data
        sending.join()


def test_the_server_is_told_of_a_client_that_breaks_off() -> None:
    told = threading.Event()
    with endless(told) as url, RelayServer(url, SLOW) as relay:
        with connected(relay) as client:
            received(client, MB)
        assert told.wait(PATIENCE_S)
        counts = relay.counts
        assert counts.connections == 1
        assert counts.received_bytes >= MB


def test_the_end_of_requests_reaches_the_server_after_them() -> None:
    with echo() as url, RelayServer(url, FAR) as relay, connected(relay) as client:
        client.sendall(b"last")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(10) == b"last"
        assert client.recv(10) == b""


def test_a_server_that_takes_no_connection_ends_the_client_s() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with RelayServer(url) as relay, connected(relay) as client:
        assert client.recv(10) == b""


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--to", "9200"], "'9200' is not HOST:PORT"),
        (["--to", "127.0.0.1:9200", "--delay-ms", "-1"], "'-1' is not a number from 0 on"),
        (["--to", "127.0.0.1:9200", "--rate-mb-s", "fast"], "'fast' is not a number from 0 on"),
    ],
)
def test_bad_options_are_told_in_a_line(words: list[str], problem: str) -> None:
    command = [sys.executable, "-m", "tests.benchmarks.relay", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert problem in done.stderr.splitlines()[-1]


OBJECT = random.Random(3).randbytes(3 * MB)


@pytest.fixture(scope="module")
def object_url() -> Iterator[str]:
    with MotoServer() as server:
        bucket = server.endpoint.create_bucket()
        client = server.endpoint.client()
        client.put_object(Bucket=bucket, Key="k", Body=OBJECT)
        yield client.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "k"})
        client.close()


@contextmanager
def serving(answer: Callable[[socket.socket], None], told: threading.Event | None = None) -> Iterator[str]:
    """Give each connection to `answer`; the block is given the URL. `told` is set when a client broke off."""

    def accept() -> None:
        while True:
            try:
                one, _ = listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=run, args=(one,), daemon=True).start()

    def run(one: socket.socket) -> None:
        with one:
            try:
                answer(one)
            except OSError:
                if told is not None:
                    told.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def echo() -> AbstractContextManager[str]:
    def answer(one: socket.socket) -> None:
        while data := one.recv(MB):
            one.sendall(data)

    return serving(answer)


def endless(told: threading.Event | None = None) -> AbstractContextManager[str]:
    def answer(one: socket.socket) -> None:
        while True:
            one.sendall(bytes(MB))

    return serving(answer, told)


def connected(relay: RelayServer) -> socket.socket:
    parts = urlsplit(relay.endpoint_url)
    assert parts.hostname
    assert parts.port
    return socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_S)


def received(client: socket.socket, length_bytes: int) -> bytes:
    found = bytearray()
    while len(found) < length_bytes:
        data = client.recv(min(MB, length_bytes - len(found)))
        assert data
        found += data
    return bytes(found)
