"""Answers of HTTP servers to one ranged GET: right ones, a connection's last, and bad ones."""

from __future__ import annotations

import random

from tests.servers.scripted_http import ETAG, Do, Script, Step, head

START, LENGTH = 70_000, 50_000
END = START + LENGTH - 1
"""The last byte, as HTTP says it."""

BODY = random.Random(3).randbytes(LENGTH)
OTHER = random.Random(4).randbytes(LENGTH)
FLOOD = 2000
REQUEST = Do.AWAIT_REQUEST
GOOD: Script = (REQUEST, head(START, LENGTH), BODY)
"""One good answer; head and body apart."""

WAYS: dict[str, tuple[Step, ...]] = {
    "head and body apart": (head(START, LENGTH), BODY),
    "head and body in one packet": (head(START, LENGTH) + BODY,),
    "head with a part of the body": (head(START, LENGTH) + BODY[:1], BODY[1:]),
    "head in pieces": (head(START, LENGTH)[:3], head(START, LENGTH)[3:60], head(START, LENGTH)[60:], BODY),
    "head byte by byte": (*(bytes([byte]) for byte in head(START, LENGTH)), BODY),
    "body in pieces": (head(START, LENGTH), *(BODY[at : at + 999] for at in range(0, LENGTH, 999))),
    "an informational answer first": (b"HTTP/1.1 100 Continue\r\n\r\n", head(START, LENGTH), BODY),
    "informational answers in one packet": (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 3 + head(START, LENGTH) + BODY,),
    "a space more than needed": (head(START, LENGTH, content_length=f" {LENGTH} ") + BODY,),
    "Connection: keep-alive": (head(START, LENGTH, "Connection: keep-alive") + BODY,),
    "bare etag": (head(START, LENGTH, etag=ETAG) + BODY,),
    "unknown total": (head(START, LENGTH, content_range=f"bytes {START}-{END}/*") + BODY,),
}


LAST = {
    "Connection: close": (head(START, LENGTH, "Connection: close"), BODY),
    "Connection: Close among others": (head(START, LENGTH, "Connection: TE, Close"), BODY),
    "Connection: close in a second header": (head(START, LENGTH, "Connection: keep-alive", "Connection: close"), BODY),
    "HTTP/1.0": (head(START, LENGTH).replace(b"HTTP/1.1", b"HTTP/1.0"), BODY),
}


XML = b"<Error><Code>AccessDenied</Code></Error>"


def refused(status: str) -> tuple[bytes, ...]:
    lines = f"HTTP/1.1 {status}\r\nContent-Length: {len(XML)}\r\n\r\n"
    return (lines.encode(), XML)


CHUNKED = "Transfer-Encoding: chunked"
FIRST_CHUNK, LAST_CHUNK = f"{LENGTH:x}\r\n".encode(), b"\r\n0\r\n\r\n"

BAD: dict[str, tuple[Step, ...]] = {
    "the whole object": (head(START, LENGTH, status="200 OK", content_range=None), OTHER),
    "200 with a range": (head(START, LENGTH, status="200 OK"), BODY),
    "a redirect": (head(0, 0, "Location: http://127.0.0.1:1/", status="307 Temporary Redirect"),),
    **{
        status: refused(status)
        for status in (
            "403 Forbidden",
            "404 Not Found",
            "412 Precondition Failed",
            "416 Range Not Satisfiable",
            "500 Internal Server Error",
            "503 Slow Down",
        )
    },
    "another range": (head(START, LENGTH, content_range=f"bytes {START + 1}-{START + LENGTH}/1000000"), OTHER),
    "a range that only begins alike": (
        head(START, LENGTH, content_range=f"bytes {START}-{END}0/*"),
        OTHER,
    ),
    "a shorter range": (head(START, LENGTH - 1), BODY[1:]),
    "a longer range": (head(START, LENGTH + 1), BODY + b"x"),
    "no range": (head(START, LENGTH, content_range=None), OTHER),
    "several ranges": (head(START, LENGTH, content_range=None, content_type="multipart/byteranges; boundary=x"), OTHER),
    "no length": (head(START, LENGTH, content_length=None), BODY),
    "a smaller length": (head(START, LENGTH, content_length=str(LENGTH - 1)), BODY[1:]),
    "a larger length": (head(START, LENGTH, content_length=str(LENGTH + 1)), BODY + b"x"),
    "a length that is no number": (head(START, LENGTH, content_length="many"), BODY),
    "two lengths": (head(START, LENGTH, f"Content-Length: {LENGTH + 1}"), BODY),
    "chunked": (
        head(START, LENGTH, CHUNKED, content_length=None),
        FIRST_CHUNK,
        BODY,
        LAST_CHUNK,
    ),
    "chunked with a length": (head(START, LENGTH, CHUNKED), FIRST_CHUNK + BODY, LAST_CHUNK),
    "an unknown encoding": (head(START, LENGTH, "Transfer-Encoding: gzip"), BODY),
    "another etag": (head(START, LENGTH, etag='"ffff"'), OTHER),
    "a weak etag": (head(START, LENGTH, etag=f'W/"{ETAG}"'), OTHER),
    "no etag": (head(START, LENGTH, etag=None), OTHER),
    "garbage": (b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" * 10,),
    "garbage without an end": (b"HTTP/1.1 206 Partial Content\r\nX: " + b"y" * 200_000,),
    "a switch of protocols": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",),
    "informational answers without an end": (b"HTTP/1.1 100 Continue\r\n\r\n" * FLOOD,),
    "closed before the head": (),
    "closed in the head": (head(START, LENGTH)[:40],),
    "closed at the end of the head": (head(START, LENGTH),),
    "closed in the body": (head(START, LENGTH), BODY[:-1]),
    "closed after an informational answer": (b"HTTP/1.1 100 Continue\r\n\r\n",),
}
