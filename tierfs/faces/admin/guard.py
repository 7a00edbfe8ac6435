"""Guard: who may ask over TCP, and what no client of an API ever sends. An ASGI application around another."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.names import printable
from tierfs.faces.admin.dashboard.paths import Access, access_of, login
from tierfs.faces.admin.dashboard.sessions import LoginSessions
from tierfs.faces.admin.senders import SenderTokens, may_follow

_BEARER = "bearer"

# Names that lead to a page on the Unix socket: through a port of ssh, and what programs write there. The DNS of a
# stranger has none of them.
_OF_SOCKET = frozenset({"localhost", "127.0.0.1", "[::1]", "tierfs"})

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
    """Names, without a port, that `Host` may have; None: any, for pages those of this machine."""
    sessions: LoginSessions | None = None
    """Of browsers, which log in with the token; None on a Unix socket."""
    senders: SenderTokens | None = None
    """Further tokens, each for following into one directory."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a request is refused."""

    status: int
    kind: str
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    remedy: str | None = None


def refusal(
    admission: Admission,
    headers: Iterable[tuple[bytes, bytes]],
    raw_path: bytes,
    target: bytes = b"/",
    method: str = "GET",
) -> Refusal | None:
    """Return why a request is refused; None where it is not. `target` is that of its first line."""
    held: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        held.setdefault(name, []).append(value)
    path = _decoded(raw_path)
    access = Access.API if path is None else access_of(path)
    if b"origin" in held and not (access is Access.FORM and method == "POST" and _is_own(held)):
        # A browser, of a page that someone looks at; there is no CORS.
        return Refusal(403, "PermissionDenied", "requests of web pages are refused")
    host = _host_of(held.get(b"host", []), target)
    if host is None:  # RFC 9112, section 3.2
        return Refusal(400, "InvalidRequest", "a request needs exactly one Host, like localhost:9160")
    hosts = _OF_SOCKET if admission.hosts is None and access is not Access.API else admission.hosts
    if hosts is not None and host not in hosts:
        # A name that a stranger's DNS points here, from a browser (DNS rebinding).
        return Refusal(421, "PermissionDenied", "this server does not serve this Host")
    refused = _unauthenticated(admission, held, access, path or "", target, method)
    if refused is not None:
        return refused
    if b"#" in target:  # the name would end there, and be another segment's
        return Refusal(400, "InvalidRequest", "the target has a #; write it as %23 in a name")
    if path is None:
        return Refusal(400, "InvalidRequest", "the path is not valid UTF-8")
    return None


def _unauthenticated(
    admission: Admission, held: Mapping[bytes, list[bytes]], access: Access, path: str, target: bytes, method: str
) -> Refusal | None:
    """Return why a request without a right token is refused; a session opens pages, and without one a login does."""
    if admission.token is None or access in (Access.FORM, Access.ASSET):
        return None
    given = _bearer_of(held.get(b"authorization", []))
    # Constant time: how long it takes says nothing of how much is right.
    if given is not None and hmac.compare_digest(given, admission.token.encode()):
        return None
    directory = None if given is None or admission.senders is None else admission.senders.directory_of(given)
    if directory is not None:
        if may_follow(path, directory):
            return None
        message = f"this token is only for following into {printable(directory) or '/'}"
        return Refusal(
            403, "PermissionDenied", message, remedy="give that directory, as --into of follow and follow --list"
        )
    if access is Access.PAGE and admission.sessions is not None and method in ("GET", "HEAD"):
        if admission.sessions.is_open(held.get(b"cookie", [])):
            return None
        return Refusal(303, "PermissionDenied", "log in first", ((b"location", login(target).encode("ascii")),))
    challenge = ((b"www-authenticate", b'Bearer realm="tierfs"'),)
    return Refusal(401, "PermissionDenied", "the bearer token is missing or wrong", challenge)


def _decoded(raw_path: bytes) -> str | None:
    """Return a path as the router sees it; None if it is not valid UTF-8."""
    try:
        return unquote_to_bytes(raw_path).decode()
    except UnicodeDecodeError:
        return None


def _is_own(held: Mapping[bytes, list[bytes]]) -> bool:
    """Return whether the page that sends a form is one of this server: its origin is the host of the request."""
    origins, hosts = held[b"origin"], held.get(b"host", [])
    if len(origins) != 1 or len(hosts) != 1:
        return False
    scheme, _, authority = origins[0].partition(b"://")
    return scheme in (b"http", b"https") and authority.lower() == hosts[0].lower()


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


def _bearer_of(values: list[bytes]) -> bytes | None:
    """Return the token of a request; None without exactly one."""
    if len(values) != 1:
        return None
    scheme, _, given = values[0].partition(b" ")
    return given.strip() if scheme.lower() == _BEARER.encode() else None


def guarded(app: ASGIApp, answer: Callable[[Refusal], ASGIApp]) -> ASGIApp:
    """Return `app` behind the checks; `answer` makes the answer to a request that is refused."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        state = scope["state"]
        refused = refusal(state["admission"], scope["headers"], scope["raw_path"], state["target"], scope["method"])
        await (app if refused is None else answer(refused))(scope, receive, send)

    return guard
