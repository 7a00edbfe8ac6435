"""Connections to HTTP servers, encrypted or not: opening them in a thread, and keeping idle ones.

A connection of a thread waits in the kernel, with the kernel's time limits: with Python's, each call would ask the
kernel twice and take the interpreter lock twice.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import threading
import weakref

from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.http.ranged_get import HttpOrigin
from tierfs.engine.chunkstore.http.tls import TlsClient, TlsSocket

# As botocore sets them with tcp_keepalive: a vanished peer is noticed while a connection is idle.
SOCKET_OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
]

_TIMEVAL = struct.Struct("ll")
_MICROSECONDS = 1_000_000

# Room for bytes that have arrived and were not taken. The kernel offers a server at first no more room than we ask to
# be woken for, and then each side waits for the other: with four times as much HTTPS is 7 % faster (measured).
_WINDOW_BYTES = MIB


def connect(origin: HttpOrigin, tls: TlsClient | None, connect_s: float, wait_s: float) -> socket.socket:
    """Open a connection for one thread at a time, encrypted if `tls` is given.

    Later calls wait at most `wait_s` for the server, and then raise one of WOULD_WAIT. Raises OSError: TimeoutError
    after `connect_s`, SSLCertVerificationError for a certificate that is not to be trusted.
    """
    connection = socket.create_connection((origin.host, origin.port), connect_s)
    try:
        prepare(connection)
        if tls is not None:
            connection = wrapped = tls.wrap(connection, origin)
            wrapped.do_handshake()
        _wait_in_kernel(connection, wait_s)
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(connection: socket.socket) -> None:
    """Set the options of a new connection."""
    for option in SOCKET_OPTIONS:
        connection.setsockopt(*option)
    wake_up_for(connection, _WINDOW_BYTES)  # the kernel makes room for so much, and keeps it
    wake_up_for(connection, 1)


def wake_up_for(connection: socket.socket, least_bytes: int) -> int:
    """Have the kernel wake us for so many bytes or the connection's end, not for each packet; return the number.

    Bytes that never come make a reader wait for its time limit: what is read next must have as many.
    """
    # socket(7): read(2) and poll(2) heed it.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least_bytes)
    return least_bytes


def _wait_in_kernel(connection: socket.socket, limit_s: float) -> None:
    if isinstance(connection, TlsSocket):
        # Python's TLS repeats a read that the kernel gave up, unless it takes the socket for a non-blocking one.
        connection.settimeout(0)
        os.set_blocking(connection.fileno(), True)
    else:
        connection.settimeout(None)
    seconds, fraction = divmod(limit_s, 1)
    limit = _TIMEVAL.pack(int(seconds), int(fraction * _MICROSECONDS))
    for option_name in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connection.setsockopt(socket.SOL_SOCKET, option_name, limit)


class IdleConnections:
    """Open connections to one server between two requests. Thread-safe."""

    def __init__(self, most: int, origin: HttpOrigin, tls: TlsClient | None = None) -> None:
        """Keep at most so many."""
        self._most = most
        self._origin = origin
        self._tls = tls
        self._lock = threading.Lock()
        self._closed = False
        self._idle: list[socket.socket] = []
        # A pool that is dropped without close() leaks no connection, as with urllib3's.
        weakref.finalize(self, _close_all, self._idle)

    def __len__(self) -> int:
        return len(self._idle)

    def take(self) -> socket.socket | None:
        """Take the open connection used last, the least likely to be closed by the server; None without any.

        Connections found closed are dropped.
        """
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if _is_quiet(connection):
                    return connection
                connection.close()
        return None

    def put_back(self, connection: socket.socket, *, clean: bool) -> None:
        """Keep a clean connection if there is room, else close it."""
        if clean and self._tls is not None and isinstance(connection, TlsSocket):
            self._tls.remember(connection, self._origin)
        with self._lock:
            if clean and not self._closed and len(self._idle) < self._most:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close all connections; those in use are closed when put back."""
        with self._lock:
            self._closed = True
            _close_all(self._idle)


def _is_quiet(connection: socket.socket) -> bool:
    """Return whether the server neither closed the connection nor sent unrequested bytes."""
    try:
        # The kernel's bytes, not the decrypted ones.
        socket.socket.recv(connection, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return not isinstance(connection, TlsSocket) or not connection.pending()
    except OSError:
        return False
    return isinstance(connection, TlsSocket) and _sent_only_tickets(connection)


def _sent_only_tickets(connection: TlsSocket) -> bool:
    """Take in what TLS itself has to say, as tickets of sessions; return whether nothing else has come."""
    was_blocking = os.get_blocking(connection.fileno())
    os.set_blocking(connection.fileno(), False)
    try:
        connection.recv(1)
    except ssl.SSLWantReadError:
        return True
    except OSError:
        return False
    finally:
        os.set_blocking(connection.fileno(), was_blocking)
    return False


def _close_all(connections: list[socket.socket]) -> None:
    while connections:
        connections.pop().close()
