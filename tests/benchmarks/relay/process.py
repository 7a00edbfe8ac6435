"""A relay in a process of its own, as a context manager."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from urllib.parse import urlsplit

from tests.benchmarks.relay.loop import Counts, Slowness
from tests.servers.process import ServerError, ServerProcess

_ROOT = Path(__file__).parents[3]


class RelayServer(ServerProcess):
    """Relays connections to the server of a URL; `endpoint_url` is the way through it."""

    def __init__(self, url: str, slowness: Slowness | None = None) -> None:
        """`slowness`: how slow it is; without one it only counts."""
        parts, chosen = urlsplit(url), slowness or Slowness()
        slow = ["--delay-ms", str(chosen.delay_s * 1e3), "--rate-mb-s", str(chosen.rate_bytes_s / 1e6)]
        slow += ["--upload-mb-s", str(chosen.upload_bytes_s / 1e6)]
        super().__init__([sys.executable, "-m", "tests.benchmarks.relay", "--to", parts.netloc, *slow], cwd=_ROOT)
        self._scheme = parts.scheme

    @property
    def endpoint_url(self) -> str:
        """The URL at which it answers, of the server's scheme: TLS passes through. Only while it runs."""
        return super().endpoint_url.replace("http", self._scheme, 1)

    @property
    def counts(self) -> Counts:
        """What crossed it so far. Only while it runs."""
        if self._process is None:
            raise ServerError("the relay is not running")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Counts(**json.loads(self._process.stdout.readline()))

    @property
    def received_bytes(self) -> int:
        """The bytes of all answers that clients received so far, headers included."""
        return self.counts.received_bytes
