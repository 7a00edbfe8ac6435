"""All connections of a relay, in one thread."""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass

from tests.benchmarks.relay.flow import Flow

_SO_MAX_PACING_RATE = 47
"""From Linux' asm-generic/socket.h; Python has no name for it. TCP itself spreads what is sent over time."""

_SIOCOUTQNSD = 0x894B
"""From Linux' linux/sockios.h: bytes of a socket that TCP has not sent yet; what it sent, loopback has delivered."""

_PACED_BUFFER_BYTES = 1 << 20
"""Of sockets on the way to a slow client: the server is held up as by the link, and not by megabytes later."""

_EVENTS = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET

Address = tuple[str, int]


@dataclass(frozen=True)
class Slowness:
    """How slow a relay makes a connection."""

    delay_s: float = 0
    """By so much each answer begins later."""
    rate_bytes_s: float = 0
    """The most that one connection gives its client; 0: no limit."""
    upload_bytes_s: float = 0
    """The most that one connection takes from its client; 0: no limit."""


@dataclass
class Counts:
    """What crossed so far."""

    connections: int = 0
    received_bytes: int = 0
    """By clients; bytes that wait in this machine's buffers for a client are not among them."""
    sent_bytes: int = 0
    """To the server."""


class Pair:
    """A client's connection and the one to the server for it.

    The whole delay is put on the way to the server, where bytes are few: to a client that asks and waits for the
    answer it makes no difference, and the many bytes of answers need not be held.
    """

    def __init__(self, client: socket.socket, server: socket.socket, slowness: Slowness) -> None:
        self.client = client
        self.server = server
        self.requests = Flow(client, server, slowness.delay_s, time.monotonic)
        self.answers = Flow(server, client, 0, time.monotonic)

    @property
    def finished(self) -> bool:
        """Whether both directions ended."""
        return self.requests.finished and self.answers.finished

    def woken(self, fd: int, events: int) -> list[Flow]:
        """Return the flows that an event of one of the sockets may move."""
        reading, writing = (
            (self.requests, self.answers) if fd == self.client.fileno() else (self.answers, self.requests)
        )
        found = [reading] if events & ~select.EPOLLOUT else []
        # Every event of an edge-triggered socket says again that it is writable.
        return [*found, writing] if writing.holds_bytes else found

    def received_bytes(self) -> int:
        """Return what was sent to the client, which is less than what was given to its socket."""
        answer = fcntl.ioctl(self.client, _SIOCOUTQNSD, struct.pack("i", 0))
        return self.answers.moved_bytes - int(struct.unpack("i", answer)[0])

    def close(self) -> None:
        """Break off what is left."""
        for one in (self.requests, self.answers, self.client, self.server):
            one.close()


class RelayLoop:
    """Relays every connection of `listener` to `target`, until `control` ends.

    A line of `control`, a file descriptor, asks for the counts, which `tell` is given.
    """

    def __init__(
        self,
        listener: socket.socket,
        target: Address,
        slowness: Slowness,
        control: int,
        tell: Callable[[dict[str, int]], None],
    ) -> None:
        self._listener = listener
        self._target = target
        self._slowness = slowness
        self._control = control
        self._tell = tell
        self._epoll = select.epoll()
        self._pairs: dict[int, Pair] = {}
        self._active: dict[Flow, Pair] = {}
        self._delayed: dict[Flow, Pair] = {}
        self._ended = Counts()
        """Of connections that are closed; their number counts the open ones too."""

    def run(self) -> None:
        """Serve; return when `control` has ended."""
        self._listener.setblocking(False)
        for fd in (self._listener.fileno(), self._control):
            self._epoll.register(fd, select.EPOLLIN)
        while self._turn():
            self._wake_delayed()
            active, self._active = self._active, {}
            for flow, pair in active.items():
                self._pump(flow, pair)

    def _turn(self) -> bool:
        """Wait for something to do; return False at the end."""
        for fd, events in self._poll():
            if fd == self._control:
                if not self._answer():
                    return False
            elif fd == self._listener.fileno():
                self._accept()
            elif fd in self._pairs:
                pair = self._pairs[fd]
                self._active.update(dict.fromkeys(pair.woken(fd, events), pair))
        return True

    def _poll(self) -> list[tuple[int, int]]:
        if self._active:
            return self._epoll.poll(0)
        due_s = min((flow.due_s for flow in self._delayed if flow.due_s is not None), default=None)
        if due_s is None:
            return self._epoll.poll()
        # epoll waits for whole milliseconds, select for microseconds.
        select.select([self._epoll], [], [], max(0, due_s - time.monotonic()))
        return self._epoll.poll(0)

    def _wake_delayed(self) -> None:
        now_s = time.monotonic()
        for flow, pair in list(self._delayed.items()):
            if flow.due_s is None or flow.due_s <= now_s:
                del self._delayed[flow]
                self._active[flow] = pair

    def _pump(self, flow: Flow, pair: Pair) -> None:
        if pair.client.fileno() not in self._pairs:
            return  # closed in this turn
        try:
            again = flow.pump()
        except OSError:  # a side broke off, as clients do with answers they no longer want
            self._close(pair)
            return
        if again:
            self._active[flow] = pair
        if flow.due_s is not None:
            self._delayed[flow] = pair
        if pair.finished:
            self._close(pair)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except BlockingIOError:
                return
            server = self._connect(client)
            if server is None:
                client.close()
                continue
            pair = Pair(client, server, self._slowness)
            self._ended.connections += 1
            for one in (client, server):
                one.setblocking(False)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._pairs[one.fileno()] = pair
                self._epoll.register(one.fileno(), _EVENTS)

    def _connect(self, client: socket.socket) -> socket.socket | None:
        """Return a connection to the server; None where it takes none."""
        server = socket.socket()
        _pace(server, client, self._slowness.rate_bytes_s)
        _pace(client, server, self._slowness.upload_bytes_s)
        try:
            server.connect(self._target)
        except OSError:
            server.close()
            return None
        return server

    def _close(self, pair: Pair) -> None:
        self._ended.received_bytes += pair.received_bytes()
        self._ended.sent_bytes += pair.requests.moved_bytes
        for one in (pair.client, pair.server):
            del self._pairs[one.fileno()]
            self._epoll.unregister(one.fileno())
        for flow in (pair.requests, pair.answers):
            self._active.pop(flow, None)
            self._delayed.pop(flow, None)
        pair.close()

    def _answer(self) -> bool:
        """Tell the counts for each line that asks; return False at the end of the input."""
        asked = os.read(self._control, select.PIPE_BUF)
        for _ in range(asked.count(b"\n")):
            with suppress(BrokenPipeError):
                self._tell(asdict(self._counts()))
        return bool(asked)

    def _counts(self) -> Counts:
        open_pairs = set(self._pairs.values())
        received = sum(pair.received_bytes() for pair in open_pairs)
        sent = sum(pair.requests.moved_bytes for pair in open_pairs)
        ended = self._ended
        return Counts(ended.connections, ended.received_bytes + received, ended.sent_bytes + sent)


def _pace(source: socket.socket, sink: socket.socket, rate_bytes_s: float) -> None:
    """Limit the rate from one to the other, which are not connected to each other."""
    if rate_bytes_s:
        sink.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, struct.pack("@L", int(rate_bytes_s)))
        sink.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _PACED_BUFFER_BYTES)
        source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _PACED_BUFFER_BYTES)
