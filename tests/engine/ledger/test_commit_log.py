"""RocketMQ's messages: every field comes back, damage is named, and one is recognised from any place before it."""

from __future__ import annotations

import os
import zlib
from contextlib import suppress

import pytest
from cramjam import lz4, zstd
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.ledger.rocketmq import coda, log, message
from tierfs.base.words.errors import DataLoss
from tierfs.engine.ledger.commit_log import HEAD_BYTES, decode, first_head, head_of

NOW = 1_700_000_000_000


def test_every_field_comes_back() -> None:
    data = message(
        "grüße".encode(), queue_offset=7, log_offset=1 << 40, topic="t", properties={"KEYS": "a", "TAGS": "b c"}
    )
    decoded = decode(memoryview(data + b"more"), "it")
    assert decoded.as_json(12) == {
        "queue_offset": 7,
        "offset": 12,
        "length": len(data),
        "store_time_ms": NOW,
        "born_time_ms": NOW - 5,
        "topic": "t",
        "queue_id": 3,
        "store_host": "10.0.0.1:10911",
        "born_host": "10.0.0.1:10911",
        "properties": {"KEYS": "a", "TAGS": "b c"},
        "payload": "grüße",
    }
    assert decoded.log_offset == 1 << 40


@pytest.mark.parametrize("second_version", [False, True])
def test_the_second_version_and_ipv6(second_version: bool) -> None:
    data = message(b"\xff", topic="t" * 130 if second_version else "t", host="::1", second_version=second_version)
    decoded = decode(memoryview(data), "it")
    assert (decoded.store_host, decoded.as_json(0)["payload_base64"]) == ("[::1]:10911", "/w==")
    head = head_of(memoryview(data))
    assert head is not None
    assert (head.size, head.store_ms) == (len(data), NOW)


@pytest.mark.parametrize("body", [b"", b"a" * 1_000_000, os.urandom(70_000)], ids=["empty", "repeated", "random"])
@pytest.mark.parametrize(
    ("number", "compress"),
    [(0, zlib.compress), (1, lz4.compress), (2, zstd.compress), (3, zlib.compress)],
    ids=["old", "lz4", "zstd", "zlib"],
)
def test_bodies_of_each_compression_are_unpacked(number: int, compress: object, body: bytes) -> None:
    data = message(bytes(compress(body)), system_flag=1 | number << 8)  # type: ignore[operator]
    assert decode(memoryview(data), "it").body == body


@pytest.mark.parametrize("number", [0, 1, 2, 3, 5])
def test_bodies_that_cannot_be_unpacked_are_named(number: int) -> None:
    data = message(b"not compressed at all", system_flag=1 | number << 8)
    with pytest.raises(DataLoss, match=r"^it "):
        decode(memoryview(data), "it")


def test_a_damaged_body_is_named() -> None:
    data = bytearray(message(b"body"))
    data[data.index(b"body")] ^= 1
    with pytest.raises(DataLoss, match="it is damaged: the CRC32"):
        decode(memoryview(data), "it")


@given(st.integers(0, 120), st.binary(min_size=1, max_size=4))
def test_anything_ends_with_a_message_or_that_error(at: int, junk: bytes) -> None:
    data = bytearray(message(b"x" * 20, properties={"a": "b"}))
    data[at : at + len(junk)] = junk
    with suppress(DataLoss):
        decode(memoryview(data), "it")


@pytest.mark.parametrize("cut", [0, 1, 15, HEAD_BYTES - 1])
def test_too_few_bytes_are_no_head(cut: int) -> None:
    assert head_of(memoryview(message(b"x")[:cut])) is None


def test_a_message_is_recognised_from_any_place_before_it() -> None:
    bodies = [b"a" * 30, message(b"in a body", log_offset=3), b"\xda\xa3\x20\xa7" * 9, b"d"]
    data = log(bodies, [NOW + number for number in range(4)], start=1000)
    data += coda(NOW + 3)
    starts = []
    at = 0
    while at < len(data):
        starts.append(at)
        head = head_of(memoryview(data)[at:])
        assert head is not None
        at += head.size
    assert len(starts) == 5
    for at in range(len(data)):
        expected = next((start for start in starts if start >= at), None)
        recognised = first_head(memoryview(data)[at:], 1000 + at, 1000 + len(data))
        assert (recognised[0] if recognised else None) == (None if expected is None else 1000 + expected), at


def test_text_has_no_message() -> None:
    assert first_head(memoryview(os.urandom(100_000)), 0, 100_000) is None
