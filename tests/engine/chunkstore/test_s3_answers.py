"""Answers of an S3 server that nobody could have meant: each is an object, or a typed error."""

from __future__ import annotations

import random
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

import pytest

from tests.doubles.mutations import NAMES, mutations, times
from tierfs.base.options.config import ColdSettings
from tierfs.base.words.errors import PermissionDenied, TierfsError, Unavailable
from tierfs.base.words.names import printable
from tierfs.base.words.units import MAX_BYTES
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.chunkstore.s3.location import S3Location
from tierfs.engine.chunkstore.s3.storage import S3Storage

T = TypeVar("T")

LISTING = """<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix>p/</Prefix>
<KeyCount>2</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>
<Contents><Key>p/a</Key><LastModified>2024-01-02T03:04:05.000Z</LastModified><ETag>"e1"</ETag><Size>5</Size></Contents>
<Contents><Key>p/b</Key><LastModified>2024-01-02T03:04:05.000Z</LastModified><ETag>"e2"</ETag><Size>7</Size></Contents>
</ListBucketResult>"""
UPLOADS = """<?xml version="1.0" encoding="UTF-8"?>
<ListMultipartUploadsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Bucket>b</Bucket>
<Upload><Key>p/a</Key><UploadId>u</UploadId><Initiated>2024-01-02T03:04:05.000Z</Initiated></Upload>
<IsTruncated>false</IsTruncated></ListMultipartUploadsResult>"""
HEADERS = {
    "Content-Length": "5",
    "ETag": '"e1"',
    "Last-Modified": "Tue, 02 Jan 2024 03:04:05 GMT",
    "x-amz-meta-store": "s",
}
MANY_DIGITS = "1" * 5000
NO_NUMBERS = ("x", "", "-1", "1.5", "1e3", "0x10", MANY_DIGITS, str(MAX_BYTES + 1), str(2**64))
NO_TIMES = ("x", "", "9" * 30, "2024-13-45T99:99:99Z", "1e400")


class Canned(ThreadingHTTPServer):
    """Answers every request with the same bytes and headers."""

    daemon_threads = True
    allow_reuse_address = True
    body = b""
    headers: dict[str, str]

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.headers = {}
        self.asked_first: list[bool] = []
        """Of each PUT: whether its body waited for `100 Continue`."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet
    server: Canned

    def do_GET(self) -> None:
        if self.command == "PUT":
            self.server.asked_first.append("Expect" in self.headers)
        length = self.headers.get("Content-Length")
        self.rfile.read(int(length or 0))
        self.send_response(200)
        body = b"" if self.command == "HEAD" else self.server.body
        for name, value in {"Content-Length": str(len(body)), **self.server.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def server(aws_environment: None) -> Iterator[Canned]:
    with Canned() as canned:
        thread = threading.Thread(target=canned.serve_forever, args=(0.01,))
        thread.start()
        yield canned
        canned.shutdown()
        thread.join()


@pytest.fixture
def storage(server: Canned) -> Iterator[S3Storage]:
    server.headers, server.body = {}, LISTING.encode()
    location = S3Location("b", "p", f"http://127.0.0.1:{server.server_port}")
    with closing(S3Storage(location, ColdSettings(connect_timeout_s=1, read_timeout_s=2))) as opened:
        yield opened


def changed(text: str, tag: str, value: str | None) -> bytes:
    element = "" if value is None else f"<{tag}>{value}</{tag}>"
    return re.sub(f"<{tag}>[^<]*</{tag}>", lambda _: element, text, count=1).encode("utf-8", "surrogatepass")


def short(value: object) -> str:
    return str(value)[:24]


def refusal(call: Callable[[], object]) -> TierfsError:
    with pytest.raises(TierfsError) as refused:
        call()
    assert str(refused.value).isprintable()
    return refused.value


def outcome(call: Callable[[], T]) -> T | TierfsError:
    try:
        return call()
    except TierfsError as exc:
        return exc


def listed(storage: S3Storage) -> list[int]:
    return [stored.modified_ms for stored in storage.list("")]


def begun(storage: S3Storage) -> list[int]:
    return [upload.started_ms for upload in storage.uploads("")]


@pytest.mark.parametrize("value", [None, *NO_NUMBERS], ids=short)
def test_a_listed_size_that_is_none_is_a_typed_error(server: Canned, storage: S3Storage, value: str | None) -> None:
    server.body = changed(LISTING, "Size", value)
    assert isinstance(refusal(lambda: listed(storage)), Unavailable)


@pytest.mark.parametrize(("tag", "value"), [("Key", None), ("ETag", None), ("Key", "other/a")])
def test_a_field_that_is_missing_or_not_asked_for_is_a_typed_error(
    server: Canned, storage: S3Storage, tag: str, value: str | None
) -> None:
    server.body = changed(LISTING, tag, value)
    assert isinstance(refusal(lambda: listed(storage)), Unavailable)


@pytest.mark.parametrize("value", [None, "-1", *NO_TIMES])
def test_a_time_that_is_none_is_a_typed_error_or_unknown(server: Canned, storage: S3Storage, value: str | None) -> None:
    for text, tag, call in ((LISTING, "LastModified", listed), (UPLOADS, "Initiated", begun)):
        server.body = changed(text, tag, value)
        times_ms = outcome(lambda call=call: call(storage))  # type: ignore[misc]
        assert isinstance(times_ms, Unavailable) or min(times_ms) >= 0
    server.body = changed(LISTING, "LastModified", "0001-01-01T00:00:00Z")
    assert [modified_ms > 0 for modified_ms in listed(storage)] == [False, True], "before the epoch"


@pytest.mark.parametrize("body", [b"", b"<html>sign in</html>", b"\x00\xff", LISTING.encode()[:300]])
def test_another_answer_than_a_listing_is_a_typed_error_or_empty(
    server: Canned, storage: S3Storage, body: bytes
) -> None:
    server.body = body
    found = outcome(lambda: listed(storage))
    assert isinstance(found, Unavailable) or found == []


@pytest.mark.parametrize(
    ("header", "value"),
    [
        *(("Content-Length", value) for value in ("x", "-1", MANY_DIGITS, str(2**64))),
        *(("Last-Modified", value) for value in NO_TIMES),
        ("ETag", None),
        ("Last-Modified", None),
    ],
    ids=short,
)
def test_a_head_that_is_none_is_a_typed_error(
    server: Canned, storage: S3Storage, header: str, value: str | None
) -> None:
    headers = {**HEADERS, header: value}
    server.headers = {name: said.encode().decode("latin-1") for name, said in headers.items() if said is not None}
    assert isinstance(refusal(lambda: storage.stat("a")), Unavailable)
    server.headers = {"Last-Modified": "never"}
    assert isinstance(refusal(lambda: storage.put("a", BufferSource(b"x"), create_only=False)), Unavailable)


@pytest.mark.filterwarnings("ignore:tzname")  # of the library that parses times for botocore
def test_mutated_answers_are_objects_or_typed_errors(server: Canned, storage: S3Storage) -> None:
    chance = random.Random(28)
    tags = ("Key", "LastModified", "ETag", "Size", "KeyCount", "IsTruncated", "Prefix")
    values = [printable(name) for name in NAMES if len(name) < 2000] + [*NO_NUMBERS, *NO_TIMES]
    bodies = list(mutations(LISTING.encode(), 28, 60 * times()))
    bodies += [changed(LISTING, chance.choice(tags), chance.choice(values)) for _ in range(60 * times())]
    for body in bodies:
        server.body = body
        found = outcome(lambda: list(storage.list("")))
        if isinstance(found, TierfsError):
            assert str(found).isprintable()
            continue
        for stored in found:
            assert 0 <= stored.length_bytes <= MAX_BYTES
            assert 0 <= stored.modified_ms < 253_402_300_800_000


@pytest.mark.parametrize(("length", "asked_first"), [(0, False), (1, False), (262_143, False), (262_144, True)])
def test_a_small_body_is_sent_without_asking(
    server: Canned, storage: S3Storage, length: int, asked_first: bool
) -> None:
    """A journal entry or a pool of appends waits for one round trip, not for two."""
    server.headers, before = {"ETag": '"e1"'}, len(server.asked_first)
    outcome(lambda: storage.put("a", BufferSource(bytes(length)), create_only=False))
    assert server.asked_first[before:] == [asked_first]


@pytest.mark.parametrize("length", [1, 262_143, 262_144])
def test_a_server_that_refuses_and_closes_before_it_has_the_body_is_heard(aws_environment: None, length: int) -> None:
    """A key without the right to write must not look like an outage."""
    error = b"<Error><Code>AccessDenied</Code></Error>"
    head = f"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: {len(error)}\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def refuse() -> None:
            connection, _ = listening.accept()
            with connection:
                received = b""
                while b"\r\n\r\n" not in received:
                    received += connection.recv(1000)
                connection.sendall(head.encode() + error)

        thread = threading.Thread(target=refuse)
        thread.start()
        location = S3Location("b", "p", f"http://127.0.0.1:{listening.getsockname()[1]}")
        with closing(S3Storage(location, ColdSettings())) as storage, pytest.raises(PermissionDenied):
            storage.put("a", BufferSource(bytes(length)), create_only=False)
        thread.join()
