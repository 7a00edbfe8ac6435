"""The admin API of another host: requests of one thread on a connection that is kept, and errors by their cause."""

from __future__ import annotations

import json
import socket
import ssl
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system import addresses, osio
from tierfs.base.words import errors
from tierfs.base.words.errors import InvalidRequest, NotFound, PermissionDenied, TierfsError, Unavailable
from tierfs.base.words.names import printable

# For a connection, and for an answer: longer than `ack.deadline_s`, and shorter than a watchdog's patience.
_CONNECT_S = 10.0
_ANSWER_S = 60.0

# A server closes connections that were idle for 5 s (uvicorn), perhaps while the next request is on its way.
_IDLE_S = 4.0

_OK, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _TOO_LARGE, _MISDIRECTED = 200, 401, 403, 404, 413, 421
_MOST_TOKEN_BYTES = 4096

# Reasons of OpenSSL for a server that does not speak TLS.
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG")


class TooLarge(InvalidRequest):
    """The server takes no body of this length; a shorter one it may."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The URL of an admin API, and what is needed to talk to it."""

    host: str
    port: int
    is_encrypted: bool
    token_file: Path | None = None
    ca_bundle: Path | None = None

    @classmethod
    def parse(cls, url: str, token_file: Path | None, ca_bundle: Path | None) -> ServerAddress:
        """Return the address in a URL. Raises InvalidRequest for one that is none, or would send the token in clear."""
        example = "https://logs.example:9160"
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            parts, host, port = urlsplit(""), "", None
        rest = (parts.path.strip("/"), parts.query, parts.fragment, parts.username, parts.password)
        if parts.scheme not in ("https", "http") or not host or port is None or any(rest):
            raise InvalidRequest(
                f"invalid --to {printable(url)}: expected https://HOST:PORT", remedy=f"use a URL like {example}"
            )
        if parts.scheme == "http" and not addresses.is_loopback(host):
            raise InvalidRequest(
                f"--to {printable(url)}: lines and token would be sent unencrypted", remedy=f"use a URL like {example}"
            )
        return cls(host, port, parts.scheme == "https", token_file, ca_bundle)

    @property
    def url(self) -> str:
        """The address as a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_encrypted else 'http'}://{host}:{self.port}"


class AdminServer:
    """Requests to one admin API. Use it in one thread; close it."""

    def __init__(self, address: ServerAddress) -> None:
        """Connect with the first request. Raises InvalidRequest for certificates that cannot be read."""
        self.address = address
        self._connection: HTTPConnection | None = None
        self._used_s = 0.0
        self._tls = _tls(address.ca_bundle) if address.is_encrypted else None

    def get(self, path: str, **query: str | int) -> dict[str, Any]:
        """Return the answer to a GET of a path with names; raises as `post`."""
        return self._answer("GET", f"{quote(path)}?{urlencode(query)}", b"")

    def post(self, path: str, body: bytes) -> dict[str, Any]:
        """Return the answer to a POST.

        Raises Unavailable where it is not known whether the server has done it, and the error that it answers with;
        PermissionDenied, NotFound and InvalidRequest where token, host, or certificate are wrong.
        """
        return self._answer("POST", quote(path), body)

    def reload(self) -> None:
        """Read the certificates again, for the next connection. Raises InvalidRequest; those of before then stay."""
        self._tls = _tls(self.address.ca_bundle) if self.address.is_encrypted else None

    def close(self) -> None:
        """Close the connection; idempotent."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _answer(self, method: str, target: str, body: bytes) -> dict[str, Any]:
        url = self.address.url
        try:
            connection = self._connected()
            connection.request(method, target, body or None, self._headers())
            response = connection.getresponse()
            status, data = response.status, response.read()
        except (OSError, HTTPException) as exc:
            self.close()
            raise _unreached(url, exc) from exc
        except BaseException:
            self.close()
            raise
        if response.will_close:
            self.close()
        answer: dict[str, Any] = {}
        with suppress(ValueError):
            parsed = json.loads(data)
            answer = parsed if isinstance(parsed, dict) else {}
        if status == _OK and answer:
            return answer
        raise _error(url, status, answer)

    def _connected(self) -> HTTPConnection:
        """Return a connection that the server has not closed, and is not about to close, as those that are idle."""
        kept, now_s = self._connection, time.monotonic()
        is_young = now_s - self._used_s < _IDLE_S
        self._used_s = now_s
        if kept is not None and is_young and not _has_ended(kept):
            return kept
        self.close()
        host, port = self.address.host, self.address.port
        made = (
            HTTPConnection(host, port, timeout=_CONNECT_S)
            if self._tls is None
            else HTTPSConnection(host, port, timeout=_CONNECT_S, context=self._tls)
        )
        made.connect()
        made.sock.settimeout(_ANSWER_S)
        self._connection = made
        return made

    def _headers(self) -> dict[str, str]:
        """Return the headers of a request; the token is read again for each, so that it can be replaced."""
        path = self.address.token_file
        if path is None:
            return {}
        try:
            with path.open("rb") as file:
                token = file.read(_MOST_TOKEN_BYTES).decode("ascii").strip()
        except (OSError, UnicodeError) as exc:
            why = exc.strerror if isinstance(exc, OSError) else "it is not ASCII"
            raise PermissionDenied(
                f"cannot read the token in {printable(str(path))}: {why}",
                remedy="give the token of the server with --token-file, readable for this user",
            ) from exc
        return {"Authorization": f"Bearer {token}"}


def _has_ended(kept: HTTPConnection) -> bool:
    """Return whether the server has closed a connection, or sent something that nobody requested."""
    return osio.readable(kept.sock.fileno())


def error_of(answer: Any) -> TierfsError:
    """Return the error that an answer has."""
    given = answer if isinstance(answer, dict) else {}
    message = str(given.get("message") or "the server gave no reason")
    remedy = given.get("remedy")
    return errors.named(str(given.get("error", "")))(message, remedy=None if remedy is None else str(remedy))


def _tls(ca_bundle: Path | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=None if ca_bundle is None else str(ca_bundle))
    except OSError as exc:
        raise InvalidRequest(
            f"{printable(str(ca_bundle))}: cannot read certificates from it ({exc.strerror or exc})",
            remedy="give a file of certificates in PEM with --ca-bundle",
        ) from exc
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _unreached(url: str, exc: Exception) -> TierfsError:
    """Return the error of a request without an answer: one that stays until somebody acts, or Unavailable."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        return PermissionDenied(
            f"the certificate of {url} is not accepted: {exc.verify_message}",
            remedy="give the file of its authority with --ca-bundle, and the name that is in the certificate with --to",
        )
    if isinstance(exc, ssl.SSLError) and exc.reason in _NO_TLS:
        return InvalidRequest(
            f"the server at {url} does not use TLS", remedy="set admin.certificate and admin.key there"
        )
    if isinstance(exc, socket.gaierror) and exc.errno == socket.EAI_NONAME:
        return NotFound(f"unknown host in {url}", remedy="correct --to, or the name service")
    why = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
    return Unavailable(f"{url} does not answer: {why}")


def _error(url: str, status: int, answer: dict[str, Any]) -> TierfsError:
    if status == _UNAUTHORIZED:
        return PermissionDenied(
            f"{url} does not accept the token",
            remedy="give the file of its token with --token-file, or TIERFS_TOKEN_FILE",
        )
    if status == _MISDIRECTED:
        return PermissionDenied(
            f"{url} serves another name", remedy="use the name of its certificate with --to, or add this to admin.names"
        )
    if "error" not in answer or (status == _NOT_FOUND and answer.get("message") == "unknown path"):
        return InvalidRequest(
            f"{url} answers with {status}, and is not a tierfs admin that takes followed logs",
            remedy="start tierfs admin there, of this version or a newer one",
        )
    if status == _TOO_LARGE:
        return TooLarge(str(answer.get("message")), remedy="raise admin.body_bytes there")
    return error_of(answer)
