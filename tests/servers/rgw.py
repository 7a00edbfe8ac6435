"""Ceph RGW as a context manager: a real S3 server, memory-backed, about 12 s to start."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

from tests.servers.process import ServerError, ServerProcess

SCRIPT = Path(__file__).with_name("ceph-rgw.sh")

PORTS = range(20_000, 32_000)
"""Below the kernel's ephemeral ports (32768), so that no outgoing connection takes one in between."""

PORT_ATTEMPTS = 100


class RgwServer(ServerProcess):
    """A single-node Ceph under `directory`, which must be empty, missing, or hold an earlier server.

    Takes three ports that are free.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(_serve(directory))
        self._directory = directory

    def start(self) -> None:
        """Start; once more, elsewhere, if one of four daemons was slow or lost its port: hundreds of tests need it."""
        try:
            super().start()
        except ServerError:
            self._command = _serve(self._directory)
            super().start()


def _serve(directory: Path) -> list[str]:
    return [str(SCRIPT), "run", str(directory), str(free_ports(3))]


def free_ports(count: int) -> int:
    """First of `count` consecutive loopback ports that nobody listens on."""
    for _ in range(PORT_ATTEMPTS):
        first = random.randrange(PORTS.start, PORTS.stop - count)
        if all_free(range(first, first + count)):
            return first
    raise ServerError(f"no {count} consecutive free ports in {PORTS}")


def all_free(ports: range) -> bool:
    """Whether every one of `ports` can be bound at the same time."""
    with ExitStack() as stack:
        for port in ports:
            listener = stack.enter_context(socket.socket())
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
