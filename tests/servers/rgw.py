"""Ceph RGW as a context manager: a real S3 server, memory-backed, about 12 s to start."""

from __future__ import annotations

import fcntl
import random
import socket
import subprocess
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from tests.servers.certificates import S3_DOMAIN, Authority
from tests.servers.endpoint import S3Endpoint
from tests.servers.process import ServerError, ServerProcess

SCRIPT = Path(__file__).with_name("ceph-rgw.sh")

PORTS = range(20_000, 32_000)
"""Below the kernel's ephemeral ports (32768), so that no outgoing connection takes one in between."""

PORT_ATTEMPTS = 100

TLS_PORT = 3
"""That of HTTPS, counted from the first; the script says which it takes."""


_ADMIN_S = 60


class RgwServer(ServerProcess):
    """A single-node Ceph under `directory`, which must be empty, missing, or hold an earlier server.

    Takes four ports that are free. With an authority it answers HTTPS too, and finds buckets by names below S3_DOMAIN.
    """

    def __init__(self, directory: Path, authority: Authority | None = None) -> None:
        super().__init__(_serve(directory))
        self._directory = directory
        self._authority = authority

    @property
    def tls_endpoint(self) -> S3Endpoint:
        """The same server by HTTPS, at 127.0.0.1; the same port of [::1] answers too. Only while it runs."""
        if self._authority is None:
            raise ServerError("this Ceph RGW was given no certificate")
        port = urlsplit(self.endpoint_url).port
        assert port is not None
        url = f"https://127.0.0.1:{port + TLS_PORT}"
        return replace(self.endpoint, endpoint_url=url, authority=self._authority.certificate)

    def add_key(self, access: str, secret: str) -> None:
        """Give the user of the tests one more key."""
        self._admin("key", "create", "--uid=test", "--key-type=s3", f"--access-key={access}", f"--secret-key={secret}")

    def revoke_key(self, access: str) -> None:
        """Refuse a key from now on."""
        self._admin("key", "rm", "--uid=test", "--key-type=s3", f"--access-key={access}")

    def _admin(self, *words: str) -> None:
        command = ["radosgw-admin", "-c", str(self._directory / "ceph.conf"), "-n", "client.rgw", *words]
        with (self._directory / "admin.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of two that change one user at once, one would undo the other's change
            subprocess.run(command, check=True, capture_output=True, timeout=_ADMIN_S)

    def start(self) -> None:
        """Start; once more, elsewhere, if one of four daemons was slow or lost its port: hundreds of tests need it."""
        if self._authority is not None:
            self._more = _tls(self._authority)
        try:
            super().start()
        except ServerError:
            self._command = _serve(self._directory)
            super().start()


def _serve(directory: Path) -> list[str]:
    return [str(SCRIPT), "run", str(directory), str(free_ports(TLS_PORT + 1))]


def _tls(authority: Authority) -> dict[str, str]:
    own = authority.issue("rgw")
    return {"RGW_CERTIFICATE": str(own.certificate), "RGW_KEY": str(own.key), "RGW_DOMAIN": S3_DOMAIN}


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
