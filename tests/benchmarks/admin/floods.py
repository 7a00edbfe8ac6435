"""Reads of a mount while strangers flood the admin API, beside the same strangers at a server that does nothing.

    python -m tests.benchmarks.admin.floods heads|bodies|connections|nothing PORT

The strangers have the same cores as the mount: what they take from it by themselves is what the second server tells.
"""

from __future__ import annotations

import errno
import resource
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.benchmarks.admin.appends import served
from tests.benchmarks.measuring import GIB, cpu_seconds, store_served
from tests.benchmarks.workloads import dd
from tests.verbs import fill, random_blocks
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.words.types import MIB

READ_BYTES = GIB // 4
READS = 8
"""In each phase; some seconds together."""

HELD = 256
"""Connections that the server of nothing keeps, as `admin.connections`."""

CONNECTIONS = 10_000
SENDERS = 4
DRIPPERS = 200
HEAD_BYTES = 10 * MIB
_HEAD = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\na: "
_BLOCK = b"x" * (256 * 1024)
_DRIP_S = 0.1


def bench_floods(directory: Path, repetitions: int) -> str:
    """Return a table of the rates of reads, and of the processor that the server took."""
    path, mnt = directory / "floods", directory / "mnt"
    init_store(path, None)
    with app.open_store(path) as store:
        fill(store.engine, "s", random_blocks(READ_BYTES))
    port = _free_port()
    (path / "store.toml").write_text(f'[admin]\nlisten = "127.0.0.1:{port}"\n')
    rates: dict[tuple[str, str], list[float]] = {}
    shares: dict[str, list[float]] = {}
    with store_served(path, mnt, "direct_io"):
        for _ in range(repetitions):
            rates.setdefault(("", ""), []).append(_read_rate(mnt / "s"))
            for kind in STRANGERS:
                with _process("nothing", port), _process(kind, port):
                    rates.setdefault((kind, "nothing"), []).append(_read_rate(mnt / "s"))
                with served(path) as pid, _process(kind, port):
                    before, began_s = cpu_seconds(pid), time.monotonic()
                    rates.setdefault((kind, "admin"), []).append(_read_rate(mnt / "s"))
                    shares.setdefault(kind, []).append((cpu_seconds(pid) - before) / (time.monotonic() - began_s))
    lines = [
        "### Reads of a mount while strangers flood the admin API",
        "",
        f"Alone: {statistics.median(rates['', '']):.0f} MB/s, `direct_io`.",
        "",
        "| strangers | MB/s, at a server of nothing | MB/s, at `tierfs admin` | ratio | cores of `tierfs admin` |",
        "|---|---|---|---|---|",
    ]
    for kind, share in shares.items():
        nothing, admin = (statistics.median(rates[kind, at]) for at in ("nothing", "admin"))
        cores = statistics.median(share)
        lines.append(f"| {TITLES[kind]} | {nothing:.0f} | {admin:.0f} | {admin / nothing:.2f} | {cores:.2f} |")
    return "\n".join(lines) + "\n"


def _read_rate(file: Path) -> float:
    return READ_BYTES / 1e6 / statistics.median(dd([file]).seconds for _ in range(READS))


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as sock:
        number: int = sock.getsockname()[1]
        return number


@contextmanager
def _process(kind: str, port: int) -> Iterator[None]:
    """Run `main` in a process of its own, which is under way when the block begins."""
    command = [sys.executable, "-m", "tests.benchmarks.admin.floods", kind, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def _heads(port: int) -> None:
    """Send heads of 10 MB without end, a few at once."""
    left: dict[socket.socket, int] = {}
    epoll = select.epoll()
    by_fd: dict[int, socket.socket] = {}

    def begin() -> None:
        sock = _connecting(port)
        by_fd[sock.fileno()], left[sock] = sock, HEAD_BYTES
        epoll.register(sock, select.EPOLLOUT)

    for _ in range(SENDERS):
        begin()
    while True:
        for fd, _ in epoll.poll():
            sock = by_fd[fd]
            try:
                left[sock] -= sock.send(_HEAD + _BLOCK if left[sock] == HEAD_BYTES else _BLOCK)
            except BlockingIOError:
                continue
            except OSError:
                left[sock] = 0
            if left[sock] <= 0:
                del by_fd[fd], left[sock]
                sock.close()
                begin()


def _bodies(port: int) -> None:
    """Drip bodies, one byte of each at a time."""
    socks: list[socket.socket] = []
    while True:
        while len(socks) < DRIPPERS:
            sock = _connecting(port)
            select.select([], [sock], [], _DRIP_S)
            try:
                sock.send(b"POST /v1/append/s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
            except OSError:
                sock.close()
                break
            socks.append(sock)
        for sock in list(socks):
            try:
                sock.send(b"x")
            except OSError:
                socks.remove(sock)
                sock.close()
        time.sleep(_DRIP_S)


def _connections(port: int) -> None:
    """Hold as many connections as there may be, each opened again once it is closed."""
    epoll = select.epoll()
    socks: dict[int, socket.socket] = {}
    while True:
        for _ in range(min(CONNECTIONS - len(socks), 100)):
            sock = _connecting(port)
            socks[sock.fileno()] = sock
            epoll.register(sock, select.EPOLLIN)
        for fd, _ in epoll.poll(0 if len(socks) < CONNECTIONS else -1):
            socks.pop(fd).close()


def _nothing(port: int) -> None:
    """Accept, read and forget; close what is too much."""
    with closing(socket.create_server(("127.0.0.1", port), backlog=512)) as listener, closing(select.epoll()) as epoll:
        socks: dict[int, socket.socket] = {}
        epoll.register(listener, select.EPOLLIN)
        print("ready", flush=True)
        while True:
            for fd, _ in epoll.poll():
                if fd == listener.fileno():
                    sock, _ = listener.accept()
                    if len(socks) < HELD:
                        sock.setblocking(False)
                        socks[sock.fileno()] = sock
                        epoll.register(sock, select.EPOLLIN)
                    else:
                        sock.close()
                elif not _received(socks[fd]):
                    socks.pop(fd).close()


def _received(sock: socket.socket) -> bytes:
    try:
        return sock.recv(256 * 1024)
    except OSError:
        return b""


def _connecting(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    error = sock.connect_ex(("127.0.0.1", port))
    assert error in (0, errno.EINPROGRESS), errno.errorcode[error]
    return sock


STRANGERS: dict[str, Callable[[int], None]] = {"heads": _heads, "bodies": _bodies, "connections": _connections}
TITLES = {
    "heads": f"{SENDERS} send heads of {HEAD_BYTES >> 20} MiB without end",
    "bodies": f"{DRIPPERS} drip bodies",
    "connections": f"{CONNECTIONS:,} connections",
}


def main() -> None:
    """Be strangers, or the server that does nothing for them, until the process is ended."""
    kind, port = sys.argv[1], int(sys.argv[2])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if kind == "nothing":
        _nothing(port)
    print("ready", flush=True)
    STRANGERS[kind](port)


if __name__ == "__main__":
    main()
