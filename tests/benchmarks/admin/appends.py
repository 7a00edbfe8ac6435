"""Durable appends over HTTP, beside those of threads, and plain writes and syncs of the same groups.

The clients share the cores with the server: all of them are one thread, with one request that was made beforehand.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.measuring import cpu_seconds
from tests.benchmarks.writing.small_appends import MEASURED_S, WARM_S, Load, limit, rate, writers_of
from tests.faces.admin.conftest import dialled
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.system.store_paths import StorePaths
from tierfs.upkeep.holder import lock

CLIENTS = 32
APPEND_BYTES = 1024
WANTED_PER_S = 1500
_OK = b"HTTP/1.1 200"
_END = b"}"
_END_S = 30.0


@dataclass
class Figures:
    """Of several turns, in the order in which they were made."""

    limits: list[float] = field(default_factory=list)
    threads: list[float] = field(default_factory=list)
    http: list[float] = field(default_factory=list)
    delays_ms: list[float] = field(default_factory=list)
    server_ms: list[float] = field(default_factory=list)
    """CPU of the server for an append."""
    clients_ms: list[float] = field(default_factory=list)


def bench_admin_appends(directory: Path, repetitions: int) -> str:
    """Return a table of appends per second; what each turn compares runs one after the other."""
    path, load, figures = directory / "admin", Load(CLIENTS, 1), Figures()
    data = [os.urandom(APPEND_BYTES)]
    init_store(path, None)
    for turn in range(repetitions):
        figures.limits.append(limit(directory / f"limit-admin-{turn}", load, data))
        with app.open_store(path) as store, writers_of(store, load, turn) as writers:
            figures.threads.append(rate(writers, load.threads, MEASURED_S, [], data))
        with served(path) as pid:
            _ask(path, f"s{turn}", data[0], figures, pid)
    return _table(figures)


@contextmanager
def served(path: Path) -> Iterator[int]:
    """`tierfs admin`, as users start it; the block is given its process."""
    subprocess.run([sys.executable, "-m", "tierfs", "-q", "--store", str(path), "admin"], check=True)
    server = lock.current(StorePaths(path).admin)
    assert server is not None
    try:
        yield server.pid
    finally:
        os.kill(server.pid, signal.SIGTERM)
        until_s = time.monotonic() + _END_S
        while lock.current(StorePaths(path).admin) is not None:
            assert time.monotonic() < until_s
            time.sleep(0.01)


def _ask(path: Path, name: str, data: bytes, figures: Figures, pid: int) -> None:
    """Append from kept connections, each as soon as it has its answer."""
    request = f"POST /v1/append/{name} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
    delays, started_s = list[float](), time.monotonic()
    counts_s, ends_s = started_s + WARM_S, started_s + WARM_S + MEASURED_S
    with ExitStack() as stack, closing(select.epoll()) as epoll:
        socks: dict[int, socket.socket] = {}
        sent_s: dict[int, float] = {}
        answers: defaultdict[int, bytes] = defaultdict(bytes)
        for _ in range(CLIENTS):
            sock = stack.enter_context(closing(dialled(StorePaths(path).admin_socket)))
            socks[sock.fileno()] = sock
            sent_s[sock.fileno()] = time.monotonic()
            epoll.register(sock, select.EPOLLIN)
            sock.sendall(request)
        server_s, clients_s = 0.0, 0.0
        while sent_s:
            for fd, _ in epoll.poll():
                answers[fd] += socks[fd].recv(65536)
                assert answers[fd].startswith(_OK), answers[fd]
                if not answers[fd].endswith(_END):
                    continue
                answers[fd], now_s = b"", time.monotonic()
                began_s = sent_s.pop(fd)
                if began_s >= counts_s:
                    if not delays:
                        server_s, clients_s = cpu_seconds(pid), time.thread_time()
                    delays.append(now_s - began_s)
                if now_s < ends_s:
                    sent_s[fd] = now_s
                    socks[fd].sendall(request)
    figures.http.append(len(delays) / MEASURED_S)
    figures.server_ms.append(1e3 * (cpu_seconds(pid) - server_s) / len(delays))
    figures.clients_ms.append(1e3 * (time.thread_time() - clients_s) / len(delays))
    figures.delays_ms += [1e3 * delay for delay in delays]


def _table(figures: Figures) -> str:
    cuts = statistics.quantiles(figures.delays_ms, n=100)
    lines = [
        f"### Durable appends of {APPEND_BYTES} bytes over HTTP, {CLIENTS} kept connections, one segment",
        "",
        "| | appends/s (min, median, max) | ratio to the limit |",
        "|---|---|---|",
    ]
    limited = statistics.median(figures.limits)
    for name, rates in (
        (f"limit: groups of {CLIENTS} written, synced and committed", figures.limits),
        (f"{CLIENTS} threads of one process", figures.threads),
        ("`tierfs admin`", figures.http),
    ):
        shown = ", ".join(f"{value:,.0f}" for value in (min(rates), statistics.median(rates), max(rates)))
        lines.append(f"| {name} | {shown} | {statistics.median(rates) / limited:.2f} |")
    lines.append("")
    lines.append(
        f"By HTTP: p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms; CPU of the server "
        f"{statistics.median(figures.server_ms):.2f} ms for an append, of the clients "
        f"{statistics.median(figures.clients_ms):.2f} ms; wanted {WANTED_PER_S:,} appends/s."
    )
    return "\n".join(lines) + "\n"
