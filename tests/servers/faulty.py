"""A proxy before an S3 server that loses, delays and refuses requests, as its seed draws them.

`python -m tests.servers.faulty URL SEED SHARE` prints its own address and ends when standard input does; its first line
lets the faults begin. Then SHARE of the requests fail: before the server saw them, or after it did what they say, by
an error, a broken connection or, for a conditional create, 409. As many are late.
"""

from __future__ import annotations

import http.client
import random
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from tests.servers.process import ServerProcess

LATE_S = 0.5
_BODY = b"<Error><Code>%s</Code><Message>drawn by a test</Message></Error>"
_REFUSALS = ((500, b"InternalError"), (503, b"SlowDown"))
_CONFLICT = (409, b"ConditionalRequestConflict")
_DROP = (0, b"")


class Faults:
    """What becomes of the next request."""

    def __init__(self, seed: int, share: float) -> None:
        self._chosen, self._share, self._lock = random.Random(seed), share, threading.Lock()
        self.begun = False

    def draw(self, *, conditional: bool) -> tuple[float, bool, tuple[int, bytes] | None]:
        """Return a delay, whether the server sees the request, and the answer in place of its own."""
        if not self.begun:
            return 0, True, None
        with self._lock:
            late_s = LATE_S * self._chosen.random() if self._chosen.random() < self._share else 0.0
            if self._chosen.random() >= self._share:
                return late_s, True, None
            answer = self._chosen.choice([*_REFUSALS, _DROP, *([_CONFLICT] if conditional else [])])
            return late_s, answer is not _CONFLICT and self._chosen.random() < 0.5, answer


class FaultyServer(ServerProcess):
    """A proxy before the server of a URL, in a process of its own; its faults begin when it is told so."""

    def __init__(self, url: str, share: float) -> None:
        words = [sys.executable, "-m", "tests.servers.faulty", url, str(random.randrange(2**32)), str(share)]
        super().__init__(words, cwd=Path(__file__).parents[2])

    def begin(self) -> None:
        """Let requests fail from now on."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()


class FaultyProxy(ThreadingHTTPServer):
    """Listens at a free port."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, url: str, faults: Faults) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.server_address_behind = urlsplit(url).netloc
        self.faults = faults

    @property
    def url(self) -> str:
        """Its URL for clients."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyProxy

    def setup(self) -> None:
        super().setup()
        self._behind = http.client.HTTPConnection(self.server.server_address_behind)

    def finish(self) -> None:
        self._behind.close()
        super().finish()

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        late_s, seen, answer = self.server.faults.draw(conditional="If-None-Match" in self.headers)
        time.sleep(late_s)
        content = b""
        if seen:
            response = self._ask(body)
            content = response.read()
            if answer is None or answer is _DROP:
                self._tell(response, len(content))
        if answer is None or answer is _DROP:
            self.close_connection = answer is _DROP
            self.wfile.write(content if answer is None else content[: len(content) // 2])
            return
        status, code = answer
        self.send_response_only(status)
        text = b"" if self.command == "HEAD" else _BODY % code
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _ask(self, body: bytes) -> http.client.HTTPResponse:
        self._behind.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name != "Expect":  # answered here
                self._behind.putheader(name, value)
        self._behind.endheaders(body or None)
        return self._behind.getresponse()

    def _tell(self, response: http.client.HTTPResponse, length_bytes: int) -> None:
        self.send_response_only(response.status, response.reason)
        for name, value in response.getheaders():
            if name not in ("Content-Length", "Transfer-Encoding") or self.command == "HEAD":
                self.send_header(name, value)
        if self.command != "HEAD" and response.status != http.client.NO_CONTENT:
            self.send_header("Content-Length", str(length_bytes))
        self.end_headers()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main() -> None:
    url, seed, share = sys.argv[1:]
    proxy = FaultyProxy(url, Faults(int(seed), float(share)))
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    print(proxy.url, flush=True)
    while sys.stdin.readline():
        proxy.faults.begun = True


if __name__ == "__main__":
    main()
