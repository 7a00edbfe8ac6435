"""The queue of transfers and its threads: small ones with a waiting reader run at once, others in a few threads.

Large transfers take as many threads as the link has streams, those with a waiting reader first, then read-ahead,
nearest to its reader first: more threads gain nothing and delay each other. Small transfers with a waiting reader have
threads of their own, so that random reads run beside each other and beside any read-ahead.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable

from tierfs.base.words.types import MIB
from tierfs.reading.fetch.span import Transfer

# Priority of a transfer a reader waits for; read-ahead uses its distance in bytes.
WANTED_NOW = -1

# Priority of a second GET: in a thread of its own, as all stream threads may be waiting for first ones.
HEDGE = -2

# The size of random reads, and of the first range of a sequential reader.
SMALL_BYTES = MIB


class FetchQueue:
    """Runs transfers in threads, which are started on demand. Thread-safe."""

    def __init__(self, streams: Callable[[], int], urgent_streams: int, run: Callable[[Transfer], None]) -> None:
        """`streams` may change its answer; `run` is called in a thread and raises nothing."""
        self._run = run
        self._streams = streams
        self._urgent_streams = urgent_streams
        self._changed = threading.Condition()
        self._urgent: list[tuple[int, Transfer, bool]] = []
        self._others: list[tuple[int, int, Transfer]] = []
        self._streams_busy = 0
        self._threads = 0
        self._idle = 0
        self._closed = False
        self._numbers = itertools.count()

    @property
    def running(self) -> int:
        """Threads at work."""
        return self._threads - self._idle

    def put(self, transfer: Transfer, priority: int) -> None:
        """Queue a transfer. It may be queued again with a better priority, because each has only one owner."""
        number = next(self._numbers)
        with self._changed:
            if priority == HEDGE or (priority == WANTED_NOW and len(transfer.view) <= SMALL_BYTES):
                heapq.heappush(self._urgent, (number, transfer, False))
            else:
                heapq.heappush(self._others, (priority, number, transfer))
                if self._streams_busy >= self._streams():
                    return  # a thread that ends takes it
            self._wake_one()

    def hand_over(self, transfer: Transfer) -> None:
        """Run a small transfer owned by the caller next."""
        with self._changed:
            heapq.heappush(self._urgent, (next(self._numbers), transfer, True))
            self._wake_one()

    def close(self) -> None:
        """Start nothing more; threads end after their current transfer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wake_one(self) -> None:
        if self._idle:
            self._idle -= 1  # here, not when it wakes: the next one queued needs another thread
            self._changed.notify()
        elif self._threads < self._streams() + self._urgent_streams:
            self._threads += 1
            threading.Thread(target=self._work, name="tierfs-fetch", daemon=True).start()

    def _work(self) -> None:
        while (taken := self._wait()) is not None:
            transfer, streamed = taken
            self._run(transfer)
            if streamed:
                with self._changed:
                    self._streams_busy -= 1

    def _wait(self) -> tuple[Transfer, bool] | None:
        """Return the next transfer, and whether it takes one of the streams; None once closed."""
        with self._changed:
            while not self._closed:
                taken = self._take()
                if taken is not None:
                    return taken
                self._idle += 1
                self._changed.wait()
            return None

    def _take(self) -> tuple[Transfer, bool] | None:
        while self._urgent:
            _, transfer, handed_over = heapq.heappop(self._urgent)
            if handed_over or transfer.own():
                return transfer, False
        while self._others and self._streams_busy < self._streams():
            transfer = heapq.heappop(self._others)[2]
            if transfer.own():
                self._streams_busy += 1
                if self._others and self._streams_busy < self._streams():  # their number has grown
                    self._wake_one()
                return transfer, True
        return None
