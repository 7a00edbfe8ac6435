"""Guard: who may ask over TCP, and what no client of an API ever sends. An ASGI application around another."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

_BEARER = "bearer"

# An authority without userinfo: RFC 9110, section 4.2.4, and RFC 3986, section 3.2.
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|(?:[0-9A-Za-z._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)(?::[0-9]{0,5})?")

# The target of a request with the origin's name in it (RFC 9112, section 3.2.2).
_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?#]*)")


@dataclass(frozen=True, slots=True)
class Admission:
    """The conditions that a listener sets for each request."""

    token: str | None = None
    """The bearer token; None on a Unix socket, where the kernel tells who asks."""
    hosts: frozenset[str] | None = None
    """Names, without a port, that `Host` may have; None: any."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a request is refused."""

    status: int
    kind: str
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


def refusal(
    admission: Admission, headers: Iterable[tuple[bytes, bytes]], raw_path: bytes, target: bytes = b"/"
) -> Refusal | None:
    """Return why a request is refused; None where it is not. `target` is that of its first line."""
    held: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        held.setdefault(name, []).append(value)
    if b"origin" in held:  # a browser, of a page that someone looks at; there is no CORS
        return Refusal(403, "PermissionDenied", "requests of web pages are refused")
    host = _host_of(held.get(b"host", []), target)
    if host is None:  # RFC 9112, section 3.2
        return Refusal(400, "InvalidRequest", "a request needs exactly one Host, like localhost:9160")
    if admission.hosts is not None and host not in admission.hosts:
        # A name that a stranger's DNS points here, from a browser (DNS rebinding).
        return Refusal(421, "PermissionDenied", "this server does not serve this Host")
    if admission.token is not None and not _is_token(held.get(b"authorization", []), admission.token):
        challenge = ((b"www-authenticate", b'Bearer realm="tierfs"'),)
        return Refusal(401, "PermissionDenied", "the bearer token is missing or wrong", challenge)
    if b"#" in target:  # the name would end there, and be another segment's
        return Refusal(400, "InvalidRequest", "the target has a #; write it as %23 in a name")
    try:
        unquote_to_bytes(raw_path).decode()
    except UnicodeDecodeError:
        return Refusal(400, "InvalidRequest", "the path is not valid UTF-8")
    return None


def _host_of(values: list[bytes], target: bytes) -> str | None:
    """Return the host that a request is meant for, without its port, in lower case; None if it is invalid.

    One in the target counts instead of the header, which has to be valid all the same.
    """
    if len(values) != 1:
        return None
    match = _HOST.fullmatch(values[0])
    if match is not None and target[:1] not in (b"/", b"*"):
        absolute = _ABSOLUTE.match(target)
        match = None if absolute is None else _HOST.fullmatch(absolute[1])
    return None if match is None else match[1].decode("ascii").lower()


def _is_token(values: list[bytes], token: str) -> bool:
    if len(values) != 1:
        return False
    scheme, _, given = values[0].partition(b" ")
    # Constant time: how long it takes says nothing of how much is right.
    right = hmac.compare_digest(given.strip(), token.encode())
    return right and scheme.lower() == _BEARER.encode()


def guarded(app: ASGIApp, answer: Callable[[Refusal], ASGIApp]) -> ASGIApp:
    """Return `app` behind the checks; `answer` makes the answer to a request that is refused."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        state = scope["state"]
        refused = refusal(state["admission"], scope["headers"], scope["raw_path"], state["target"])
        await (app if refused is None else answer(refused))(scope, receive, send)

    return guard
