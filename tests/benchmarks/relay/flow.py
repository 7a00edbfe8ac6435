"""One direction of a connection: from a socket through a pipe into another socket, by splice."""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import suppress

from tests.benchmarks.relay.delay_line import Clock, DelayLine

_PIPE_BYTES = 1 << 20
"""The most that Linux gives a user who is not root (fs.pipe-max-size); the default, 64 KiB, moves less per call."""

_FLAGS = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK


class Flow:
    """Moves bytes without reading them. Both sockets must be non-blocking.

    It must be pumped whenever its source became readable, its sink writable, or `due_s` has come.
    """

    def __init__(self, source: socket.socket, sink: socket.socket, delay_s: float, clock: Clock) -> None:
        self._source = source
        self._sink = sink
        self._line = DelayLine(delay_s, clock)
        self._outlet, self._inlet = os.pipe()
        with suppress(OSError):  # many connections of one user: smaller pipes do, more slowly
            fcntl.fcntl(self._inlet, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._ended = False
        self.finished = False
        """Whether the source ended and the sink was told so."""
        self.moved_bytes = 0
        """Into the sink, so far."""

    @property
    def due_s(self) -> float | None:
        """The time at which delayed bytes go on."""
        return self._line.due_s

    @property
    def holds_bytes(self) -> bool:
        """Whether it waits for its sink, or for time to pass."""
        return not self._line.empty

    def pump(self) -> bool:
        """Move what can move in one round; return whether another may move more. Raises OSError when a side broke."""
        filled = self._fill()
        drained = self._drain()
        if self._ended and self._line.empty and not self.finished:
            self.finished = True
            self._sink.shutdown(socket.SHUT_WR)
        # A full pipe and a silent source answer alike, so that room in the pipe is a reason to ask once more.
        return filled or drained

    def close(self) -> None:
        """Give back the pipe. The sockets are not its own."""
        os.close(self._outlet)
        os.close(self._inlet)

    def _fill(self) -> bool:
        if self._ended:
            return False
        try:
            moved = os.splice(self._source.fileno(), self._inlet, _PIPE_BYTES, flags=_FLAGS)
        except BlockingIOError:
            return False
        self._ended = not moved
        self._line.enter(moved)
        return True

    def _drain(self) -> bool:
        ready_bytes = self._line.ready_bytes()
        if not ready_bytes:
            return False
        try:
            moved = os.splice(self._outlet, self._sink.fileno(), ready_bytes, flags=_FLAGS)
        except BlockingIOError:
            return False
        self._line.leave(moved)
        self.moved_bytes += moved
        return True
