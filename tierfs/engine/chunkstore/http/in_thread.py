"""Ranged GETs in threads: a tenth of the CPU per GET of a general client.

The body goes straight into the caller's buffer. One try only: any answer but exactly the requested bytes is left to
the general client, which handles errors and other encodings.
"""

from __future__ import annotations

import socket
import ssl

from urllib3.exceptions import ConnectTimeoutError

from tierfs.base.options.config import ColdSettings
from tierfs.engine.chunkstore.http.connections import IdleConnections, connect, wake_up_for
from tierfs.engine.chunkstore.http.ranged_get import MAX_HEAD_BYTES, RangedGet, origin_of
from tierfs.engine.chunkstore.http.tls import TLS_RECORD_BYTES, WOULD_WAIT, TlsClient, TlsSocket
from tierfs.engine.chunkstore.protocol import OnReceived
from tierfs.engine.chunkstore.validate import FIRST_STEP_BYTES, step_end

# So many bytes wake a thread in the middle of a body: a tenth less CPU than one packet (docs/design/0026-links.md).
_WAKE_BYTES = 256 * 1024


class ThreadGets:
    """Connections to one HTTP server, and GETs over them. Thread-safe."""

    def __init__(self, origin: str, settings: ColdSettings, tls: TlsClient | None = None) -> None:
        """`origin` is scheme, host and port; over https `tls` is needed. Nothing is sent yet."""
        self._origin = origin_of(origin)
        self._settings = settings
        self._tls = tls
        self.idle = IdleConnections(settings.connections, self._origin, tls)

    def read_into(self, target: str, start: int, buffer: memoryview, etag: str, progress: OnReceived | None) -> int:
        """Fill `buffer` with the object's bytes from `start` on; return how many arrived: all, or the first ones.

        Raises AnsweredOtherwise, TimeoutError and ConnectTimeoutError for a silent server, SSLCertVerificationError
        for one that is not to be trusted, and the errors of `progress`, which must not be OSErrors.
        """
        connection = self.idle.take() or self._connect()
        if connection is None:
            return 0
        get, clean = RangedGet(self._origin, target, start, buffer, etag), False
        try:
            connection.sendall(get.request)
            while not get.take_head(connection.recv(MAX_HEAD_BYTES)):
                continue
            _receive(connection, get, progress)
            if progress is not None:
                progress(get.done)
            clean = get.clean
        except WOULD_WAIT as exc:  # the kernel's time limit
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
        limit_s = self._settings.connect_timeout_s
        try:
            return connect(self._origin, self._tls, limit_s, self._settings.read_timeout_s)
        except TimeoutError as exc:
            raise ConnectTimeoutError(f"not connected in {limit_s:g} s") from exc
        except ssl.SSLCertVerificationError:
            raise  # the general client would only say the same
        except OSError:
            return None


def _receive(connection: socket.socket, get: RangedGet, progress: OnReceived | None) -> None:
    """Receive the body; tell `progress` of each step but the last."""
    # TLS may hold a part of what is missing, so that less than that is to come.
    patient_end = get.done + len(get.missing) - _WAKE_BYTES - TLS_RECORD_BYTES
    least = 1
    while get.missing:
        end = step_end(get.done)
        patient = FIRST_STEP_BYTES <= get.done < patient_end
        if patient != (least > 1):
            least = wake_up_for(connection, _WAKE_BYTES if patient else 1)
        _receive_part(connection, get, (min(end, patient_end) if patient else end) - get.done)
        if progress is not None and get.done == end and get.missing:
            progress(get.done)


def _receive_part(connection: socket.socket, get: RangedGet, wanted: int) -> None:
    """Receive so many bytes of the body, or plain ones until a signal. Raises OSError when the connection ends."""
    part = get.missing[:wanted]
    if not isinstance(connection, TlsSocket):
        # recv(2): less only at the end, after an error, or for a signal.
        get.arrived(connection.recv_into(part, 0, socket.MSG_WAITALL))
        return
    while part:  # a record at a time
        count: int = connection.read(len(part), part)  # type: ignore[assignment]  # typed without a buffer
        get.arrived(count)
        part = part[count:]
