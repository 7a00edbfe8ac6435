"""The stack depth of a first cold read: from the caller to the loop's last step, and from a thread to its socket."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from tests.reading.fetch.over_http import Bucket, over_http
from tests.reading.readers import DATA, make_cold
from tests.stores import TestStore, open_test_store
from tierfs.config import ReadSettings
from tierfs.metrics import NullMetrics
from tierfs.reading.fetch.queue import FetchQueue
from tierfs.reading.handle import ReadHandle
from tierfs.reading.reader import Reader

MOST_FRAMES = 15


class Stacks:
    """The stacks that led to what was watched, innermost call first."""

    def __init__(self) -> None:
        self.to_socket: list[list[str]] = []
        self.to_queue: list[list[str]] = []

    def take(self, outermost: str) -> list[str]:
        """The names of the calls from `outermost` to the caller of the watched function."""
        names: list[str] = []
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            names.append(frame.f_code.co_qualname)
            if names[-1] == outermost:
                return names
            frame = frame.f_back
        raise AssertionError(f"{outermost} did not call: {names}")


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> Stacks:
    """Watches what is sent, and what is queued for threads."""
    stacks = Stacks()
    connect, put = socket.create_connection, FetchQueue.put

    class Watched(socket.socket):
        def sendall(self, *args: object) -> None:
            stacks.to_socket.append(stacks.take("FetchQueue._work"))
            super().sendall(*args)  # type: ignore[arg-type]

    def watched(*args: object) -> socket.socket:
        return Watched(fileno=connect(*args).detach())  # type: ignore[arg-type]

    def watched_put(*args: object) -> None:
        stacks.to_queue.append(stacks.take(ReadHandle.read.__qualname__))
        put(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "create_connection", watched)
    monkeypatch.setattr(FetchQueue, "put", watched_put)
    return stacks


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy={"read_priority": "local-first"}, cold=Bucket()) as opened:
        yield opened


async def test_a_first_cold_read_is_at_most_fifteen_calls_deep(store: TestStore, stacks: Stacks) -> None:
    make_cold(store)
    with over_http(store) as (server, cold):
        async with Reader(store.metadata, store.files, lambda _: cold, ReadSettings(), NullMetrics()) as reader:
            handle = reader.open(store.segment("s").id)
            assert bytes(await handle.read(0, 1000)) == DATA[:1000]
            handle.close()
        assert server.answers == len(stacks.to_socket) >= 1
    for stack in (*stacks.to_socket, *stacks.to_queue):
        assert len(stack) <= MOST_FRAMES, "\n".join(stack)
