"""A cold tier whose reads begin and go on when the test says so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import trio

from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import Progress
from tierfs.errors import TierfsError

_NOT_SENT_S = 20.0
"""A read that has not begun by then will not."""

_FORGOTTEN_S = 60.0
"""A read that is held up for so long was forgotten by the test."""


@dataclass(slots=True)
class Get:
    """One read of the cold tier."""

    name: str = ""
    offset: int = 0
    length_bytes: int = 0
    error: TierfsError | None = None
    begun: threading.Event = field(default_factory=threading.Event)
    may_go_on: threading.Event = field(default_factory=threading.Event)

    async def has_begun(self) -> None:
        """Return when the storage was asked."""
        assert await trio.to_thread.run_sync(self.begun.wait, _NOT_SENT_S), "this read was not sent"

    def go_on(self, error: TierfsError | None = None) -> None:
        """Let it get its bytes, or the error."""
        self.error = error
        self.may_go_on.set()


class ScriptedStorage(MemoryStorage):
    """Reads with progress follow the script, one after the other; those beyond its end are not held up."""

    def __init__(self) -> None:
        super().__init__()
        self.gets: list[Get] = []
        self._script: Iterator[Get] = iter(())
        self._scripting = threading.Lock()

    def script(self, count: int) -> list[Get]:
        """Hold up the next `count` reads."""
        gets = [Get() for _ in range(count)]
        self._script = iter(gets)
        return gets

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        if progress is None:
            super().read_into(name, offset, buffer, if_match=if_match)
            return
        with self._scripting:
            get = next(self._script, None)
            held = get is not None
            get = get or Get()
            get.name, get.offset, get.length_bytes = name, offset, len(buffer)
            self.gets.append(get)
        get.begun.set()
        if held:
            assert get.may_go_on.wait(_FORGOTTEN_S)
        if get.error is not None:
            raise get.error
        super().read_into(name, offset, buffer, if_match=if_match, progress=progress)
