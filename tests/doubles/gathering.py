"""A storage far away that holds reads of chunks back until as many as a test asks for are in flight at once."""

from __future__ import annotations

import threading
from typing import Any

from tests.doubles.scripted_storage import PATIENCE_S
from tierfs.engine.chunkstore.link import Link
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.chunkstore.wrappers import Wrapped

FAR_S = 0.040
"""The time of its first answer, as its link tells it."""


class Gathering(Wrapped):
    """Fails a read that waits for others in vain."""

    def __init__(self, inner: ChunkStorage, wanted: int, *, held_from: int = 0) -> None:
        """Reads of bytes before `held_from` of an object are not held."""
        super().__init__(inner)
        self.link = Link()
        self.link.answered(FAR_S)
        self.most = 0
        self._wanted = wanted
        self._held_from = held_from
        self._running = 0
        self._changed = threading.Condition()

    def read_into(self, name: str, offset: int, buffer: memoryview, **more: Any) -> None:
        with self._changed:
            self._running += 1
            self.most = max(self.most, self._running)
            self._changed.notify_all()
            if name.startswith("segments/") and offset >= self._held_from:
                assert self._changed.wait_for(lambda: self.most >= self._wanted, PATIENCE_S), f"only {self.most}"
        try:
            super().read_into(name, offset, buffer, **more)
        finally:
            with self._changed:
                self._running -= 1
