"""The protocol of a ranged GET, without a server: an answer cut anywhere brings the same, any other one nothing."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.servers.answers import BODY, LENGTH, OTHER, START, WAYS
from tests.servers.scripted_http import ETAG, head
from tierfs.chunkstore.http.connections import IdleConnections
from tierfs.chunkstore.http.ranged_get import MAX_HEAD_BYTES, AnsweredOtherwise, HttpOrigin, RangedGet

SERVER = HttpOrigin("http", "127.0.0.1", 80)


def get_into(view: memoryview) -> RangedGet:
    return RangedGet(SERVER, "/o?s", START, view, ETAG)


def take(get: RangedGet, answer: bytes, cuts: list[int]) -> bytes:
    """Give an answer to a GET in pieces, as drivers do; returns what is left of it."""
    ends = sorted({*cuts, len(answer)} - {0})
    at = 0
    while not get.take_head(answer[at : min(ends[0], at + MAX_HEAD_BYTES)]):
        at = min(ends[0], at + MAX_HEAD_BYTES)
        ends = [end for end in ends if end > at]
    at = min(ends[0], at + MAX_HEAD_BYTES)
    while missing := get.missing:
        ends = [end for end in ends if end > at]
        piece = answer[at : min(ends[0], at + len(missing))]
        missing[: len(piece)] = piece
        get.arrived(len(piece))
        at += len(piece)
    return answer[at:]


@pytest.mark.parametrize("way", WAYS)
@given(cuts=st.lists(st.integers(1, LENGTH), max_size=20))
def test_an_answer_is_taken_however_it_is_cut(way: str, cuts: list[int]) -> None:
    answer = b"".join(step for step in WAYS[way] if isinstance(step, bytes))
    buffer = bytearray(LENGTH)
    get = get_into(memoryview(buffer))
    assert take(get, answer, cuts) == b""
    assert (bytes(buffer), get.done, get.clean) == (BODY, LENGTH, True)


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


def test_a_connection_closed_before_the_head_is_broken() -> None:
    with pytest.raises(ConnectionError):
        get_into(memoryview(bytearray(1))).take_head(b"")


def test_more_than_was_asked_for_is_refused() -> None:
    get = get_into(memoryview(bytearray(LENGTH)))
    with pytest.raises(AnsweredOtherwise) as refused:
        get.take_head(head(START, LENGTH) + OTHER + b"x")
    assert refused.value.status == 206


def test_the_status_of_a_refusal_is_told() -> None:
    with pytest.raises(AnsweredOtherwise) as refused:
        get_into(memoryview(bytearray(1))).take_head(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n")
    assert refused.value.status == 503


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
