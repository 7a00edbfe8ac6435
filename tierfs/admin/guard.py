"""Guard: who may ask over TCP, and what no client of an API ever sends. An ASGI application around another."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

_BEARER = "bearer"


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


def refusal(admission: Admission, headers: Iterable[tuple[bytes, bytes]], raw_path: bytes) -> Refusal | None:
    """Return why a request is refused; None where it is not."""
    held: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        held.setdefault(name, []).append(value)
    if b"origin" in held:  # a browser, of a page that someone looks at; there is no CORS
        return Refusal(403, "PermissionDenied", "requests of web pages are refused")
    hosts = held.get(b"host", [])
    if len(hosts) != 1:  # RFC 9112, section 3.2
        return Refusal(400, "InvalidRequest", "a request has one Host")
    if admission.hosts is not None and _host_of(hosts[0]) not in admission.hosts:
        # A name that a stranger's DNS points here, from a browser (DNS rebinding).
        return Refusal(421, "PermissionDenied", "this Host is not served here")
    if admission.token is not None and not _is_token(held.get(b"authorization", []), admission.token):
        challenge = ((b"www-authenticate", b'Bearer realm="tierfs"'),)
        return Refusal(401, "PermissionDenied", "the bearer token is missing or wrong", challenge)
    try:
        unquote_to_bytes(raw_path).decode()
    except UnicodeDecodeError:
        return Refusal(400, "InvalidRequest", "the path is not valid UTF-8")
    return None


def _host_of(value: bytes) -> str:
    """Return the host of a `Host` header without its port, in lower case; "" for what is none."""
    text = value.decode("latin-1").lower()
    host, bracket, port = text.rpartition("]") if text.startswith("[") else text.partition(":")
    if text.startswith("["):
        return f"{host}{bracket}" if not port or (port[0] == ":" and port[1:].isascii()) else ""
    return host


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
        refused = refusal(scope["state"]["admission"], scope["headers"], scope["raw_path"])
        await (app if refused is None else answer(refused))(scope, receive, send)

    return guard
