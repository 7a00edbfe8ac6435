"""Ranged GETs in threads: a tenth of the CPU per GET of a general client.

The body goes straight into the caller's buffer. One try only: any answer but exactly the requested bytes is left to
the general client, which handles errors and other encodings.
"""

from __future__ import annotations

import socket
import struct

from urllib3.exceptions import ConnectTimeoutError

from tierfs.chunkstore.http.ranged_get import MAX_HEAD_BYTES, IdleConnections, RangedGet, host_of
from tierfs.chunkstore.protocol import OnReceived
from tierfs.chunkstore.s3.client import SOCKET_OPTIONS
from tierfs.chunkstore.validate import step_end
from tierfs.config import ColdSettings

_TIMEVAL = struct.Struct("ll")
_MICROSECONDS = 1_000_000


class ThreadGets:
    """Connections to one HTTP server, and GETs over them. Thread-safe."""

    def __init__(self, origin: str, settings: ColdSettings) -> None:
        """`origin` is scheme, host and port. Nothing is sent yet."""
        self._host = host_of(origin)
        self._settings = settings
        self.idle = IdleConnections(settings.connections)

    def read_into(self, target: str, start: int, buffer: memoryview, etag: str, progress: OnReceived | None) -> int:
        """Fill `buffer` with the object's bytes from `start` on; return how many arrived: all, or the first ones.

        Raises AnsweredOtherwise, TimeoutError and ConnectTimeoutError for a silent server, and the errors of
        `progress`, which must not be OSErrors.
        """
        connection = self.idle.take() or self._connect()
        if connection is None:
            return 0
        get, clean = RangedGet(self._host, target, start, buffer, etag), False
        try:
            connection.sendall(get.request)
            while not get.take_head(connection.recv(MAX_HEAD_BYTES)):
                continue
            while get.missing:
                step = buffer[get.done : step_end(get.done)]
                get.arrived(connection.recv_into(step, 0, socket.MSG_WAITALL))
                if progress is not None and get.missing:
                    progress(get.done)
            if progress is not None:
                progress(get.done)
            clean = get.clean
        except BlockingIOError as exc:  # the kernel's time limit
            raise TimeoutError(f"no byte for {self._settings.read_timeout_s:g} s") from exc
        except OSError:
            pass  # broken: the general client retries, or reports the same error
        finally:
            self.idle.put_back(connection, clean=clean)
        return get.done

    def close(self) -> None:
        """Close idle connections, and those in use when their GET ends."""
        self.idle.close()

    def _connect(self) -> socket.socket | None:
        try:
            connection = socket.create_connection(self._host, self._settings.connect_timeout_s)
        except TimeoutError as exc:
            raise ConnectTimeoutError(f"not connected in {self._settings.connect_timeout_s:g} s") from exc
        except OSError:
            return None
        for option in SOCKET_OPTIONS:
            connection.setsockopt(*option)
        # The kernel's own time limit: with Python's, each call would poll first and take the interpreter lock twice.
        connection.settimeout(None)
        seconds, fraction = divmod(self._settings.read_timeout_s, 1)
        limit = _TIMEVAL.pack(int(seconds), int(fraction * _MICROSECONDS))
        for option_name in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            connection.setsockopt(socket.SOL_SOCKET, option_name, limit)
        return connection
