"""The protocol of a ranged GET, without a server: an answer cut anywhere brings the same, any other one nothing."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.servers.answers import BAD, BODY, LAST, LENGTH, OTHER, START, WAYS
from tests.servers.scripted_http import ETAG, Step, head
from tierfs.engine.chunkstore.http.connections import IdleConnections
from tierfs.engine.chunkstore.http.ranged_get import MAX_HEAD_BYTES, AnsweredOtherwise, HttpOrigin, RangedGet

SERVER = HttpOrigin("http", "127.0.0.1", 80)


def get_into(view: memoryview) -> RangedGet:
    return RangedGet(SERVER, "/o?s", START, view, ETAG)


def take(get: RangedGet, answer: bytes, cuts: list[int]) -> bytes:
    """Give an answer to a GET in pieces, as drivers do, until it is closed; returns what is left of it."""
    ends, at = sorted({*cuts, len(answer)}), 0

    def piece(most: int) -> bytes:
        nonlocal at
        end = next((end for end in ends if end > at), at)
        start, at = at, min(end, at + most, len(answer))
        return answer[start:at]

    while not get.take_head(piece(MAX_HEAD_BYTES)):
        pass
    while missing := get.missing:
        received = piece(len(missing))
        missing[: len(received)] = received
        get.arrived(len(received))
    return answer[at:]


def said(steps: tuple[Step, ...]) -> bytes:
    return b"".join(step for step in steps if isinstance(step, bytes))


CUTS = st.lists(st.integers(1, LENGTH), max_size=20)


@pytest.mark.parametrize("way", [*WAYS, *LAST])
@given(cuts=CUTS)
def test_an_answer_is_taken_however_it_is_cut(way: str, cuts: list[int]) -> None:
    buffer = bytearray(LENGTH)
    get = get_into(memoryview(buffer))
    assert take(get, said((WAYS | LAST)[way]), cuts) == b""
    assert (bytes(buffer), get.done, get.clean) == (BODY, LENGTH, way in WAYS)


@settings(max_examples=20)
@pytest.mark.parametrize("way", BAD)
@given(cuts=CUTS)
def test_any_other_answer_is_none_however_it_is_cut(way: str, cuts: list[int]) -> None:
    get = get_into(memoryview(bytearray(LENGTH)))
    with pytest.raises((AnsweredOtherwise, ConnectionError)):
        take(get, said(BAD[way]), cuts)
    assert not get.clean


@given(changed=st.integers(0, len(head(START, LENGTH)) - 1), byte=st.binary(min_size=1, max_size=1))
def test_a_head_with_another_byte_is_refused_or_tells_the_same(changed: int, byte: bytes) -> None:
    whole = head(START, LENGTH)
    get = get_into(memoryview(bytearray(LENGTH)))
    try:
        is_whole = get.take_head(whole[:changed] + byte + whole[changed + 1 :])
    except AnsweredOtherwise:
        return
    assert not is_whole or (get.done, len(get.missing)) == (0, LENGTH)


@pytest.mark.parametrize("arrived", [0, LENGTH - 1])
def test_an_answer_without_its_end_is_a_broken_connection(arrived: int) -> None:
    get = get_into(memoryview(bytearray(LENGTH)))
    assert get.take_head(head(START, LENGTH) + BODY[:arrived])
    with pytest.raises(ConnectionError):
        get.arrived(0)
    assert (get.done, get.clean) == (arrived, False)
    with pytest.raises(ConnectionError):
        get_into(memoryview(bytearray(1))).take_head(b"")


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (head(START, LENGTH) + OTHER + b"x", 206),  # more than was asked for
        (b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n", 503),
    ],
    ids=["more", "refusal"],
)
def test_the_status_of_another_answer_is_told(answer: bytes, status: int) -> None:
    with pytest.raises(AnsweredOtherwise) as refused:
        get_into(memoryview(bytearray(LENGTH))).take_head(answer)
    assert refused.value.status == status


def test_idle_connections_are_reused_last_first_and_closed_beyond_their_number() -> None:
    idle = IdleConnections(2, SERVER)
    pairs = [socket.socketpair() for _ in range(3)]
    for ours, _ in pairs:
        idle.put_back(ours, clean=True)
    assert (len(idle), pairs[2][0].fileno()) == (2, -1)
    pairs[1][1].send(b"unasked")
    assert idle.take() is pairs[0][0]
    assert pairs[1][0].fileno() == -1
    assert idle.take() is None
    idle.close()
    idle.put_back(pairs[0][0], clean=True)
    assert pairs[0][0].fileno() == -1
    for _, theirs in pairs:
        theirs.close()
