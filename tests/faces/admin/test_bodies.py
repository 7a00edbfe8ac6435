"""Bodies of requests: what is stored is what the client means, however it is coded, and within the limits."""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from tests.faces.admin.conftest import Served, dialled, serving
from tests.faces.admin.test_limits import answer, resident_kib
from tierfs.base.words.errors import InvalidRequest, Unavailable
from tierfs.faces.admin.answers import Refused
from tierfs.faces.admin.bodies import Bodies

MIB = 1 << 20
LIMIT = 10_000
LINES = b"one,two,\n" * 1000


@pytest.fixture
def served(path: Path) -> Iterator[Served]:
    with serving(path, body_bytes="1MiB", bodies_bytes="2MiB") as served:
        yield served


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZip", " gzip ", "identity, gzip"])
def test_a_coded_body_is_stored_decoded(served: Served, coding: str) -> None:
    body = gzip.compress(LINES)
    told = served.ask("POST", "/v1/append/s", body, Content_Encoding=coding)
    assert told.json == {"segment": "s", "start": 0, "end": len(LINES)}
    assert served.ask("GET", "/v1/bytes/s").body == LINES


def test_every_route_decodes(served: Served) -> None:
    wanted = gzip.compress(b'{"chunk_bytes": "16MiB"}')
    told = served.ask("PATCH", "/v1/policy/logs", wanted, Content_Encoding="gzip")
    assert told.json["policy"]["chunk_bytes"]["value"] == 16 * MIB
    threshold = "/admin/v2/namespaces/logs/n/offloadThreshold"
    served.ask("POST", "/v1/mkdir/logs/n")
    assert served.ask("PUT", threshold, gzip.compress(b"1024"), Content_Encoding="gzip").status == 204
    assert served.ask("GET", threshold).json == 1024
    for method, target in (("POST", "/v1/append/s"), ("PATCH", "/v1/policy/logs"), ("PUT", threshold)):
        for coding in ("br", "deflate", "gzip, gzip", "gzip, br", "zstd"):
            refused = served.ask(method, target, b"x", Content_Encoding=coding)
            assert (refused.status, refused.headers["accept-encoding"]) == (415, "gzip"), (target, coding)
        assert served.ask(method, target, gzip.compress(bytes(2 * MIB)), Content_Encoding="gzip").status == 413
    assert served.ask("GET", "/v1/info/s").status == 404


def test_damaged_bodies_append_nothing(served: Served) -> None:
    coded = gzip.compress(LINES)
    flipped = bytearray(coded)
    flipped[-6] ^= 1  # in the CRC
    bodies = [coded[:-1], coded[: len(coded) // 2], bytes(flipped), coded + b"\0", coded + b"more", LINES, b"", b"\x1f"]
    for body in bodies:
        refused = served.ask("POST", "/v1/append/s?seal=1", body, Content_Encoding="gzip")
        assert (refused.status, refused.json["error"]) == (400, "InvalidRequest")
        assert "gzip" in refused.json["message"]
    assert served.ask("GET", "/v1/info/s").status == 404


@pytest.mark.parametrize(("size", "status"), [(MIB - 1, 200), (MIB, 200), (MIB + 1, 413)])
def test_the_limit_is_that_of_the_decoded_body(served: Served, size: int, status: int) -> None:
    told = served.ask("POST", "/v1/append/s", gzip.compress(bytes(size)), Content_Encoding="gzip")
    assert told.status == status
    length = served.ask("GET", "/v1/info/s")
    assert length.json["length"] == size if status == 200 else length.status == 404


def test_a_bomb_costs_no_more_than_a_body(served: Served) -> None:
    bomb = gzip.compress(bytes(500 * MIB), 1)[:MIB]
    served.ask("POST", "/v1/append/s", gzip.compress(bytes(MIB)), Content_Encoding="gzip")
    before = resident_kib(served.pid)
    for _ in range(5):
        refused = served.ask("POST", "/v1/append/s", bomb, Content_Encoding="gzip")
        assert refused.status == 413
    assert resident_kib(served.pid) - before < 8 * 1024
    assert served.ask("GET", "/v1/info/s").json["length"] == MIB


def test_a_client_that_leaves_in_a_coded_body_gives_the_room_back(served: Served) -> None:
    coded = gzip.compress(os.urandom(MIB // 2))
    head = b"POST /v1/append/s HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(coded)
    for _ in range(10):
        with closing(dialled(served.socket)) as sock:
            sock.sendall(head + coded[:1000])
    assert served.ask("POST", "/v1/append/s", coded, Content_Encoding="gzip").json["end"] == MIB // 2


def test_an_unknown_coding_is_refused_before_the_body_is_sent(served: Served) -> None:
    head = (
        b"POST /v1/append/s HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: 9\r\n"
    )
    with closing(dialled(served.socket)) as sock:
        sock.sendall(head + b"Content-Encoding: br\r\n\r\n")
        sock.shutdown(1)
        assert answer(sock).startswith(b"HTTP/1.1 415 ")


def read(bodies: Bodies, parts: list[bytes], *, coding: bytes = b"gzip", size: int | None = None) -> bytes:
    """What is read of a body that arrives in parts; without an end when the last one is empty."""
    length = sum(map(len, parts)) if size is None else size
    headers = [(b"content-length", b"%d" % length), (b"content-encoding", coding)]
    messages = [
        {"type": "http.request", "body": part, "more_body": at + 1 < len(parts)} for at, part in enumerate(parts)
    ]

    async def receive() -> Any:
        return messages.pop(0) if messages and messages[0]["body"] else {"type": "http.disconnect"}

    return bytes(asyncio.run(bodies.read(Request({"type": "http", "headers": headers}, receive))))


def test_room_is_that_of_the_decoded_bytes_and_all_of_it_comes_back() -> None:
    bodies = Bodies(LIMIT, LIMIT)
    coded = gzip.compress(bytes(LIMIT)) + gzip.compress(b"")
    for parts in ([coded], [coded[at : at + 1] for at in range(len(coded))]):
        assert read(bodies, parts) == bytes(LIMIT)
        assert bodies._free == 0
        bodies.free(LIMIT)
    assert read(bodies, [gzip.compress(b"few")]) == b"few"
    assert bodies._free == LIMIT - 3
    bodies.free(3)
    long, garbled, cut = gzip.compress(bytes(LIMIT + 1)), coded[:12] + b"????" + coded[16:], coded[:-9]
    for part, error in ((long, Refused), (garbled, InvalidRequest), (cut, InvalidRequest)):
        with pytest.raises(error):
            read(bodies, [part])
        assert bodies._free == LIMIT
    with pytest.raises(Unavailable):
        read(bodies, [coded[:9], b""], size=len(coded))
    with pytest.raises(InvalidRequest, match="longer than its Content-Length"):
        read(bodies, [coded], size=9)
    assert bodies._free == LIMIT
