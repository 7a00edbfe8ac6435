"""Reads over HTTP: ranges, conditions and tiers, as RFC 9110 has them."""

from __future__ import annotations

import os
from pathlib import Path

from tests.commands import tierfs
from tests.faces.admin.conftest import Served

DATA = os.urandom((1 << 20) + 4099)
SIZE = len(DATA)

RANGES = [
    (None, 200, 0, SIZE),
    ("bytes=0-0", 206, 0, 1),
    ("bytes=5-", 206, 5, SIZE),
    ("bytes=1048575-1048577", 206, 1048575, 1048578),
    (f"bytes=10-{SIZE + 9}", 206, 10, SIZE),
    ("bytes=10-99999999999999999999", 206, 10, SIZE),
    ("bytes=-7", 206, SIZE - 7, SIZE),
    (f"bytes=-{SIZE + 7}", 206, 0, SIZE),
    ("bytes=-0", 416, 0, 0),
    (f"bytes={SIZE}-", 416, 0, 0),
    ("bytes=9-8", 200, 0, SIZE),
    ("bytes=-", 200, 0, SIZE),
    ("bytes=0-1,5-6", 200, 0, SIZE),
    ("lines=0-1", 200, 0, SIZE),
]


def test_ranges_are_answered_as_rfc_9110_says(served: Served) -> None:
    served.ask("POST", "/v1/append/s", DATA)
    for text, status, start, end in RANGES:
        headers = {} if text is None else {"Range": text}
        got = served.ask("GET", "/v1/bytes/s", **headers)
        assert (got.status, got.body) == (status, DATA[start:end]), text
        head = served.ask("HEAD", "/v1/bytes/s", **headers)
        assert (head.status, head.body, head.headers.get("content-length")) == (
            status,
            b"",
            got.headers["content-length"],
        )
        if status == 206:
            assert got.headers["content-range"] == f"bytes {start}-{end - 1}/{SIZE}"
        if status == 416:
            assert got.headers["content-range"] == f"bytes */{SIZE}"


def test_conditions_are_answered_as_rfc_9110_says(served: Served) -> None:
    served.ask("POST", "/v1/append/s", b"0123456789")
    etag = served.ask("GET", "/v1/bytes/s").headers["etag"]
    for headers, status in (
        ({"If-None-Match": etag}, 304),
        ({"If-None-Match": f'"x", W/{etag}'}, 304),
        ({"If-None-Match": "*"}, 304),
        ({"If-None-Match": '"x"'}, 200),
        ({"If-Match": etag}, 200),
        ({"If-Match": '"x"'}, 412),
        ({"If-Range": etag, "Range": "bytes=0-1"}, 206),
        ({"If-Range": '"x"', "Range": "bytes=0-1"}, 200),
    ):
        assert served.ask("GET", "/v1/bytes/s", **headers).status == status, headers
    served.ask("POST", "/v1/append/s", b"!")
    assert served.ask("GET", "/v1/bytes/s", **{"If-Range": etag, "Range": "bytes=9-"}).body == b"0123456789!"
    assert served.ask("GET", "/v1/bytes/s", **{"If-None-Match": etag}).status == 200


def test_an_empty_and_a_truncated_segment(served: Served) -> None:
    served.ask("POST", "/v1/append/empty", b"")
    got = served.ask("GET", "/v1/bytes/empty")
    assert (got.status, got.body, got.headers["tierfs-length"]) == (200, b"", "0")
    assert served.ask("GET", "/v1/bytes/empty", Range="bytes=0-").status == 416
    served.ask("POST", "/v1/append/s", b"0123456789")
    served.ask("POST", "/v1/truncate/s?before=4")
    got = served.ask("GET", "/v1/bytes/s", Range="bytes=1-2")
    assert (got.body, got.headers["tierfs-start-offset"], got.headers["tierfs-length"]) == (b"56", "4", "10")


def test_bytes_are_read_from_either_tier_or_refused(served: Served, path: Path) -> None:
    served.ask("POST", "/v1/append/s?seal=1", DATA)
    tierfs("offload", store=path)
    tierfs("evict", "--force", "s", store=path)
    assert served.ask("GET", "/v1/bytes/s").body == DATA
    assert served.ask("GET", "/v1/bytes/s?read_priority=local-only").json["error"] == "Unavailable"


def test_a_reader_that_leaves_costs_nothing(served: Served) -> None:
    served.ask("POST", "/v1/append/s", DATA)
    for _ in range(5):
        connection = served.connection()
        connection.request("GET", "/v1/bytes/s")
        connection.close()
    assert served.ask("GET", "/v1/bytes/s").body == DATA
