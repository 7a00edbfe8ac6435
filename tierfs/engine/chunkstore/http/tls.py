"""TLS for the connections to one storage's servers: whom to trust, and sessions to resume.

One context for all of them: reading the certificates of the system takes 30 ms. Both drivers share it, so that a
connection of one resumes a session of the other.
"""

from __future__ import annotations

import socket
import ssl
import threading

from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.http.ranged_get import HttpOrigin

# Errors of sockets, encrypted or not, that have nothing to say or no room now.
WOULD_WAIT = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

_PROTOCOL = "http/1.1"

# The longest piece that TLS decrypts at once (RFC 8446, 5.1).
TLS_RECORD_BYTES = 16 * 1024


class TlsSocket(ssl.SSLSocket):
    """An encrypted connection."""

    is_remembered = False
    """Whether its session can be resumed by the next connection."""


class TlsClient:
    """Encrypts connections, each verified for its server's name. Thread-safe."""

    def __init__(self, ca_bundle: str | None = None) -> None:
        """Trust the authorities in a file in PEM, or the system's. Raises InvalidRequest for an unusable file."""
        try:
            self.context = ssl.create_default_context(cafile=ca_bundle)
        except OSError as exc:
            raise InvalidRequest(
                f"{printable(str(ca_bundle))}: cannot read certificates from it ({exc.strerror or exc})",
                remedy="set AWS_CA_BUNDLE to a file of certificates in PEM, or unset it",
            ) from exc
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols([_PROTOCOL])
        self.context.sslsocket_class = TlsSocket
        self._lock = threading.Lock()
        self._sessions: dict[HttpOrigin, ssl.SSLSession] = {}

    def wrap(self, connection: socket.socket, origin: HttpOrigin) -> TlsSocket:
        """Return the connection, which becomes invalid, as an encrypted one; `do_handshake` is the caller's."""
        with self._lock:
            session = self._sessions.get(origin)
        wrapped = self.context.wrap_socket(
            connection, server_hostname=origin.host.rstrip("."), session=session, do_handshake_on_connect=False
        )
        assert isinstance(wrapped, TlsSocket)
        return wrapped

    def remember(self, connection: TlsSocket, origin: HttpOrigin) -> None:
        """Resume the connection's session with the next one. Only after an answer: with TLS 1.3 it comes along."""
        if connection.is_remembered:
            return  # copying a session takes 0.1 ms
        connection.is_remembered = True
        session = connection.session
        if session is not None:
            with self._lock:
                self._sessions[origin] = session


def system_bundle() -> str | None:
    """Return the file of the authorities that the system trusts; None where it keeps them otherwise."""
    return ssl.get_default_verify_paths().cafile
