"""A proxy before an S3 server that has archived objects: it refuses to read them, and restores them step by step."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_REFUSED = b"<Error><Code>InvalidObjectState</Code><Message>restore it first</Message></Error>"
_EXPIRY = 'ongoing-request="false", expiry-date="Fri, 21 Dec 2035 00:00:00 GMT"'


class ArchiveServer(ThreadingHTTPServer):
    """Archives the objects below `segments/`, as a rule of a bucket does: no metadata of a store know of it."""

    daemon_threads = True

    def __init__(self, url: str, looks: int) -> None:
        """`looks`: HEADs of an object that is coming back until it is there."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = urlsplit(url).netloc
        self.looks = looks
        self.lock = threading.Lock()
        self.left: dict[str, int] = {}
        """Of each object that was requested back, the HEADs until it is there."""
        self.archives = False
        self.reads: list[str] = []
        """GETs of archived objects that are not back."""
        self.restores: list[str] = []

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that broke its connection."""

    @property
    def url(self) -> str:
        """Its URL for clients."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ArchiveServer

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts, server = urlsplit(self.path), self.server
        is_archived = server.archives and "/segments/" in parts.path
        if is_archived and self.command == "POST" and parts.query.startswith("restore"):
            with server.lock:
                server.restores.append(parts.path)
                server.left.setdefault(parts.path, server.looks)
            self._answer(http.client.ACCEPTED, b"", {})
        elif is_archived and self.command == "GET" and server.left.get(parts.path) != 0:
            server.reads.append(parts.path)
            self._answer(http.client.FORBIDDEN, _REFUSED, {})
        else:
            self._pass_on(body, self._restore_of(parts.path) if is_archived and self.command == "HEAD" else {})

    def _restore_of(self, path: str) -> dict[str, str]:
        headers = {"x-amz-storage-class": "GLACIER"}
        with self.server.lock:
            left = self.server.left.get(path)
            if left:
                self.server.left[path] = left - 1
        if left is None:
            return headers
        return {**headers, "x-amz-restore": 'ongoing-request="true"' if left else _EXPIRY}

    def _pass_on(self, body: bytes, headers: dict[str, str]) -> None:
        behind = http.client.HTTPConnection(self.server.behind)
        try:
            behind.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name != "Expect":  # answered here
                    behind.putheader(name, value)
            behind.endheaders(body or None)
            response = behind.getresponse()
            hidden = {*_OF_THE_WAY, *headers}
            own = {name: value for name, value in response.getheaders() if name.lower() not in hidden}
            if self.command == "HEAD" and response.getheader("Content-Length"):
                own["Content-Length"] = str(response.getheader("Content-Length"))
            content = response.read()
            if self.command == "GET" and response.status == http.client.FORBIDDEN:
                self.server.reads.append(urlsplit(self.path).path)  # of the server's own archive
            self._answer(response.status, content, {**own, **headers})
        finally:
            behind.close()

    def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.command != "HEAD" and status != http.client.NO_CONTENT:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

    def log_message(self, *_: object) -> None:
        """Say nothing."""


_OF_THE_WAY = ("content-length", "transfer-encoding", "connection")


@contextmanager
def archive_server(url: str, looks: int) -> Iterator[ArchiveServer]:
    """Serve until the block ends."""
    server = ArchiveServer(url, looks)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
