"""A cold tier that fails, damages and holds back reads at random, and a pool that notices misuse of its memory."""

from __future__ import annotations

import random
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

from tierfs.chunkstore.http.tls import TlsClient
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import RangeUrl
from tierfs.errors import Unavailable
from tierfs.reading.fetch.buffers import BufferPool, PooledBuffer
from tierfs.types import CRC_BLOCK_BYTES

_POISON = 0xA5
_RELEASE_S = 10.0
"""A read that is held back for so long was forgotten by the test."""


@dataclass(frozen=True, slots=True)
class Odds:
    """Probabilities of the failures of a read of the cold tier; 0 to 1 each."""

    fails: float = 0.0
    fails_halfway: float = 0.0
    damages: float = 0.0
    held_back: float = 0.0

    @property
    def harmless(self) -> bool:
        """Whether every read gets its bytes."""
        return self.fails == self.fails_halfway == self.damages == 0


class ChaoticStorage(MemoryStorage):
    """Bytes arrive block by block, so that readers see parts of what is fetched."""

    def __init__(self, chosen: random.Random) -> None:
        super().__init__()
        self._chosen = chosen
        self._held_back: deque[threading.Event] = deque()
        self.odds = Odds()
        self.reads = 0
        self.origin: str | None = None
        self.tls: TlsClient | None = None
        """Of the server that has the objects too, if one has."""

    def read_into(self, name: str, offset: int, buffer: memoryview, **more: Any) -> None:
        if (progress := more.pop("progress", None)) is None:
            super().read_into(name, offset, buffer, **more)
            return
        self.reads += 1
        chosen, odds = self._chosen, self.odds
        self._perhaps_wait()
        if chosen.random() < odds.fails:
            raise Unavailable("down for a moment")
        fails_at = chosen.randrange(len(buffer)) if chosen.random() < odds.fails_halfway else None
        damaged_at = chosen.randrange(len(buffer)) if chosen.random() < odds.damages else None
        for start in range(0, len(buffer), CRC_BLOCK_BYTES):
            part = buffer[start : start + CRC_BLOCK_BYTES]
            super().read_into(name, offset + start, part, **more)
            if damaged_at is not None and start <= damaged_at < start + len(part):
                part[damaged_at - start] ^= 1
            if fails_at is not None and fails_at < start + len(part):
                raise Unavailable("broke off")
            progress(start + len(part))
            self._perhaps_wait()

    def range_url(self, name: str) -> RangeUrl | None:
        served = self.origin is not None and name.startswith("segments/")
        return RangeUrl(self.origin or "", f"/{name}", self.tls) if served else None

    def release_one(self) -> None:
        """Let the read go on that was held back first, if any is."""
        if self._held_back:
            self._held_back.popleft().set()

    def _perhaps_wait(self) -> None:
        if self._chosen.random() < self.odds.held_back:
            event = threading.Event()
            self._held_back.append(event)
            assert event.wait(_RELEASE_S), "held back for ever"


class CheckedPool(BufferPool):
    """Fails when the budget is exceeded, a buffer comes back twice, or one is written to while it is idle."""

    def __init__(self, budget_bytes: int) -> None:
        super().__init__(budget_bytes)
        self.out: set[int] = set()

    def take(self, length_bytes: int) -> PooledBuffer | None:
        buffer = super().take(length_bytes)
        assert self.used_bytes <= self.budget_bytes
        assert self.used_bytes + self._idle_bytes <= self.budget_bytes
        if buffer is not None:
            assert id(buffer) not in self.out
            self.out.add(id(buffer))
            assert buffer.view in (_poison(buffer.class_bytes), bytes(buffer.class_bytes)), "written to while idle"
        return buffer

    def give_back(self, buffer: PooledBuffer) -> None:
        assert id(buffer) in self.out, "given back twice"
        self.out.remove(id(buffer))
        buffer.view[:] = _poison(buffer.class_bytes)
        super().give_back(buffer)


_poisons: dict[int, bytes] = {}


def _poison(length_bytes: int) -> bytes:
    if length_bytes not in _poisons:
        _poisons[length_bytes] = bytes([_POISON]) * length_bytes
    return _poisons[length_bytes]
