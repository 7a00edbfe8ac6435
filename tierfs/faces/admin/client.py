"""A client of the admin API's socket for short commands: one append. A library of HTTP takes 30 ms to import."""

from __future__ import annotations

import json
import os
import socket
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tierfs.base.words import errors
from tierfs.base.words.errors import OffsetMismatch, StorageFull, TierfsError, Unavailable, Unconfirmed
from tierfs.base.words.types import ByteRange

_CONTINUE = 100
_OK = 200
_MOST_HEAD_BYTES = 16 * 1024


def append(
    path: Path, name: str, data: bytes, expected_offset: int | None, *, seal: bool, answer_s: float
) -> ByteRange | None:
    """Append by the server at a socket; None, with nothing appended, where none answers there, or it has no room.

    `answer_s`: wait for each of its answers no longer than that, which is longer than it lets a bucket take.

    Raises the error of the append, and Unavailable where it is not known whether the bytes were appended.
    """
    query = f"?seal={int(seal)}" + ("" if expected_offset is None else f"&expect_offset={expected_offset}")
    # With Expect the body is sent only once the server is about to take it: before that nothing can have happened.
    head = (
        f"POST /v1/append/{quote(name)}{query} HTTP/1.1\r\nHost: tierfs\r\nConnection: close\r\n"
        f"Content-Length: {len(data)}\r\nExpect: 100-continue\r\n\r\n"
    )
    with closing(socket.socket(socket.AF_UNIX)) as sock:
        try:
            _connect(sock, path)
            sock.settimeout(answer_s)
            sock.sendall(head.encode())
            status, body = _answer(sock)
        except OSError:
            return None
        if status == _CONTINUE:
            try:
                sock.sendall(data)
                status, body = _answer(sock)
            except OSError as exc:
                remedy = "check its length, then append again with --expect-offset"
                raise Unavailable(f"{name} may or may not have the bytes: {exc}", remedy=remedy) from exc
    if status == _OK:
        return ByteRange(body["start"], body["end"])
    error = _error(body)
    if isinstance(error, StorageFull) or (isinstance(error, Unavailable) and status != _CONTINUE and not body):
        return None  # the caller makes room, or waits for it
    raise error


def _connect(sock: socket.socket, path: Path) -> None:
    # The path of a store may be longer than sockaddr_un(7) takes.
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sock.connect(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.close(directory)


def _answer(sock: socket.socket) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of an answer. Raises ConnectionError for one that is cut."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = sock.recv(_MOST_HEAD_BYTES)
        if not part or len(data) > _MOST_HEAD_BYTES:
            raise ConnectionResetError("the server closed the connection")
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    status = int(lines[0].split(" ")[1])
    if status == _CONTINUE:
        return status, {}
    length = next((int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")), 0)
    while len(body) < length:
        part = sock.recv(length - len(body))
        if not part:
            raise ConnectionResetError("the server closed the connection")
        body += part
    with suppress(ValueError):
        return status, json.loads(body)
    return status, {}


def _error(body: dict[str, Any]) -> TierfsError:
    message, remedy = body.get("message", "the admin API gave no reason"), body.get("remedy")
    if "actual_length" in body:
        return OffsetMismatch(message, actual_length=body["actual_length"], remedy=remedy)
    if "end" in body:
        return Unconfirmed(message, end=body["end"], remedy=remedy)
    return errors.named(body.get("error", ""))(message, remedy=remedy)
