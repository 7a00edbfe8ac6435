"""What a stranger can cost: heads, bodies, silence and connections are bounded, and others are served meanwhile."""

from __future__ import annotations

import resource
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from tests.faces.admin.conftest import Served, dialled, serving
from tests.mount.waiting import eventually
from tierfs.faces.admin.protocol import HEAD_BYTES

MIB = 1 << 20
CONNECTIONS = 20
HEAD = b"POST /v1/append/s HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture
def served(path: Path) -> Iterator[Served]:
    limits = {"connections": CONNECTIONS, "head_s": "500ms", "body_s": "500ms", "body_bytes": "1MiB"}
    with serving(path, **limits) as served:
        yield served


def answer(sock: socket.socket) -> bytes:
    """What comes until the server closes."""
    data = b""
    with suppress(ConnectionError):
        while part := sock.recv(65536):
            data += part
    return data


def resident_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


LONG_HEADS = [
    pytest.param(b"GET /" + b"x" * 10 * MIB, id="path"),
    pytest.param(HEAD + b"a: " + b"x" * 10 * MIB, id="header"),
    pytest.param(HEAD + b"a: b\r\n" * 2 * MIB, id="headers"),
]


@pytest.mark.parametrize(
    "sent",
    [
        *LONG_HEADS,
        pytest.param(HEAD + b"content-length: 1000000\r\n\r\n" + b"x" * 600_000, id="half a body"),
        pytest.param(HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * MIB, id="trailers"),
    ],
)
def test_what_a_stranger_sent_goes_with_its_connection(served: Served, sent: bytes) -> None:
    def send(times: int) -> int:
        for _ in range(times):
            with closing(dialled(served.socket)) as sock:
                with suppress(ConnectionError):  # it is closed in the middle
                    sock.sendall(sent)
                sock.shutdown(socket.SHUT_WR)
                told = answer(sock)
            assert told.startswith(b"HTTP/1.1 4") or told == b""
        return resident_kib(served.pid)

    before = send(2)
    assert send(12) - before < 5 * 1024
    assert served.ask("GET", "/v1/health").status == 200


@pytest.mark.parametrize(
    "head", [*LONG_HEADS, pytest.param(HEAD + b"a: b\r\n" * (HEAD_BYTES // 20) + b"\r\n", id="many short headers")]
)
def test_a_long_head_is_cut_off(served: Served, head: bytes) -> None:
    with closing(dialled(served.socket)) as sock:
        with suppress(ConnectionError):
            sock.sendall(head)
        told = answer(sock)
    assert told.startswith(b"HTTP/1.1 431") or told == b""


@pytest.mark.parametrize(("size", "status"), [(HEAD_BYTES - 300, b"400"), (HEAD_BYTES + 1, b"431")])
def test_a_head_that_comes_at_once_is_measured_too(served: Served, size: int, status: bytes) -> None:
    with closing(dialled(served.socket)) as sock:
        sock.sendall(HEAD + b"a: " + b"x" * size + b"\r\nconnection: close\r\n\r\n")
        assert answer(sock).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(
    "sent", [b"", b"POST /v1/app", HEAD, HEAD + b"content-length: 9\r\n\r\n", HEAD + b"content-length: 9\r\n\r\nhalf"]
)
def test_a_connection_that_falls_silent_is_ended(served: Served, sent: bytes) -> None:
    with closing(dialled(served.socket)) as sock:
        sock.sendall(sent)
        assert b"200" not in answer(sock)
    assert served.ask("GET", "/v1/info/s").status == 404, "half a body is not appended"


def test_a_body_that_drips_is_not_cut(served: Served) -> None:
    with closing(dialled(served.socket)) as sock:
        sock.sendall(HEAD + b"connection: close\r\ncontent-length: 12\r\n\r\n")
        for at in range(12):
            sock.sendall(b"%x" % at)
            assert not eventually(lambda: False, within_s=0.1)
        assert answer(sock).endswith(b'"end": 12}')


@pytest.mark.parametrize(
    "rest",
    [
        b"content-length: 99999999999999999999\r\n\r\n",
        b"content-length: -1\r\n\r\n",
        b"content-length: 1\r\ncontent-length: 2\r\n\r\nx",
        b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        b"transfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        b"\r\n",
        b"content-length : 1\r\n\r\nx",
        b"\0\r\n\r\n",
    ],
)
def test_a_body_of_no_known_length_is_refused(served: Served, rest: bytes) -> None:
    with closing(dialled(served.socket)) as sock:
        sock.sendall(HEAD + b"connection: close\r\n" + rest)
        assert answer(sock).startswith(b"HTTP/1.1 400")
    assert served.ask("GET", "/v1/info/s").status == 404


def test_the_largest_body_is_taken(served: Served) -> None:
    assert served.ask("POST", "/v1/append/s", bytes(MIB)).json["end"] == MIB
    assert served.ask("POST", "/v1/append/s", bytes(MIB + 1)).status == 413


def test_more_connections_are_closed_and_room_comes_back(served: Served) -> None:
    with ExitStack() as stack:
        held = [stack.enter_context(closing(dialled(served.socket))) for _ in range(10 * CONNECTIONS)]
        for sock in held[2 * CONNECTIONS :]:
            assert answer(sock) == b""
    assert eventually(lambda: served.ask("GET", "/v1/health").status == 200 if _is_open(served) else False)


def test_connections_in_a_handshake_count_and_the_owner_s_socket_has_its_own_limit(
    path: Path, port: int, certificate: Path
) -> None:
    files = {"certificate": str(certificate), "key": str(certificate.with_name("key.pem"))}
    with serving(path, connections=CONNECTIONS, head_s="2s", listen=f"127.0.0.1:{port}", **files) as served:
        address = ("127.0.0.1", port)
        with ExitStack() as stack:
            for _ in range(CONNECTIONS):
                stack.enter_context(socket.create_connection(address, timeout=30))
            with socket.create_connection(address, timeout=1) as another:
                assert answer(another) == b""
            assert served.ask("GET", "/v1/health").status == 200
        assert eventually(lambda: _shakes_hands(address, certificate))


def _shakes_hands(address: tuple[str, int], certificate: Path) -> bool:
    context = ssl.create_default_context(cafile=certificate)
    with socket.create_connection(address, timeout=30) as sock, suppress(OSError):
        context.wrap_socket(sock, server_hostname="localhost").close()
        return True
    return False


def test_a_server_without_descriptors_rests_and_goes_on(path: Path) -> None:
    with serving(path) as served:
        before = resource.prlimit(served.pid, resource.RLIMIT_NOFILE)
        held = len(list(Path(f"/proc/{served.pid}/fd").iterdir()))

        def refusals() -> int:
            return sum(file.read_text().count("no connections are accepted") for file in (path / "log").iterdir())

        with ExitStack() as stack:
            resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (held + 5, before[1]))
            for _ in range(20):
                stack.enter_context(closing(dialled(served.socket)))
            assert eventually(lambda: refusals() > 1)
        resource.prlimit(served.pid, resource.RLIMIT_NOFILE, before)
        assert served.ask("GET", "/v1/health").status == 200
        assert refusals() < 10


def _is_open(served: Served) -> bool:
    with closing(dialled(served.socket)) as sock:
        sock.sendall(b"GET /v1/health HTTP/1.1\r\nHost: x\r\nconnection: close\r\n\r\n")
        return answer(sock).startswith(b"HTTP/1.1 200")
