"""A store that the admin API serves over TCP in this process, a host that sends logs there, and the line between."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.app.follow.following import Told
from tests.doubles.manual_clock import ManualClock
from tests.verbs import cat
from tierfs.app.connection import CONNECTIONS, StorePlace
from tierfs.app.follow.follower import LogFollower
from tierfs.app.follow.remote import RemoteTarget
from tierfs.app.follow.server import AdminServer, ServerAddress
from tierfs.app.follow.sources import sources_of
from tierfs.app.setup.create import init_store
from tierfs.app.store import open_store
from tierfs.base.words.types import MIB
from tierfs.faces.admin import listen

TIMEOUT_S = 30
TOKEN = "a-token-of-enough-characters"


class ServedStore:
    """A store and its server. Stop it."""

    def __init__(self, root: Path) -> None:
        self.path = root / "store"
        init_store(self.path)
        self.token = self.path / "admin.token"
        self.token.touch(0o600)
        self.token.write_text(TOKEN)
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.port = free.getsockname()[1]
        self._pool = ThreadPoolExecutor(1)
        self._done: Future[None] | None = None
        self._end: Callable[[], object] = lambda: None

    def start(self, body_bytes: int = MIB, senders: str = "", **write: object) -> None:
        """Serve, with some settings of `write`."""
        admin = [f'listen = "127.0.0.1:{self.port}"', f"body_bytes = {body_bytes}", f'senders = "{senders}"']
        others = [f'{key} = "{value}"' for key, value in write.items()]
        (self.path / "store.toml").write_text("\n".join(["[admin]", *admin, "[write]", *others, ""]))
        serves = threading.Event()
        self._done = self._pool.submit(asyncio.run, self._serve(serves))
        self._done.add_done_callback(lambda _: serves.set())  # or it failed
        assert serves.wait(TIMEOUT_S)
        if self._done.done():
            self._done.result()

    async def _serve(self, serves: threading.Event) -> None:
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        self._end = lambda: loop.call_soon_threadsafe(ended.set)
        await listen.serve(CONNECTIONS.get(StorePlace(str(self.path))), serves.set, lambda _: ended)

    def stop(self) -> None:
        """End the server; idempotent."""
        if self._done is not None:
            self._end()
            self._done.result(TIMEOUT_S)
        self._done = None

    def text(self, name: str) -> str:
        """The bytes of a segment."""
        parts: list[bytes] = []
        with closing(open_store(self.path)) as store:
            cat(store, name, None, None, None, lambda data: parts.append(bytes(data)))
        return b"".join(parts).decode()


@dataclass
class Host:
    """A host with logs, whose clock the test moves. Restart it at the end."""

    root: Path
    port: int
    sender: str = "web1"
    into: str = "hosts/web1"
    typed: str = ""
    clock: ManualClock = field(default_factory=ManualClock)
    told: Told = field(default_factory=Told)
    token: Path | None = None
    _follower: LogFollower | None = None

    def __post_init__(self) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)

    @property
    def logs(self) -> Path:
        """The directory of its logs."""
        return self.root / "logs"

    def target(self, *, waits: bool = False) -> RemoteTarget:
        """Its connection to the server."""
        address = ServerAddress("127.0.0.1", self.port, is_encrypted=False, token_file=self.token)
        stop = threading.Event()
        return RemoteTarget(
            AdminServer(address), self.into, self.sender, self.told, stop=stop, waits=waits, clock=self.clock
        )

    @property
    def follower(self) -> LogFollower:
        """The follower; made by the first look after a restart."""
        if self._follower is None:
            self._follower = LogFollower(self.target(), sources_of([self.typed or str(self.logs)]), self.told)
        return self._follower

    def look(self, times: int = 1) -> None:
        """Look at all files, after each time for which a look after an error waits."""
        for _ in range(times):
            follower = self.follower
            self.clock.advance(6)
            follower.look()

    def restart(self) -> None:
        """End the process; the next look is of another one."""
        if self._follower is not None:
            self._follower.close()
        self._follower = None

    def write(self, text: str, name: str = "app.log") -> None:
        """Append to a log."""
        with (self.logs / name).open("a") as file:
            file.write(text)


class CutLine:
    """A port that leads to another one, and can lose answers: what the server says is not passed on then. Close it."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.loses = 0
        """Answers that are lost next."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more connections."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(TIMEOUT_S)

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                threading.Thread(target=self._pass, args=(near,), daemon=True).start()

    def _pass(self, near: socket.socket) -> None:
        with near, socket.create_connection(("127.0.0.1", self._to)) as far, suppress(OSError):
            threading.Thread(target=_copy, args=(near, far), daemon=True).start()
            while data := far.recv(1 << 16):
                if self.loses:
                    self.loses -= 1
                    near.shutdown(socket.SHUT_RDWR)
                    return
                near.sendall(data)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def serving(root: Path) -> Iterator[ServedStore]:
    """A store that is served as long as the block lasts."""
    served = ServedStore(root)
    served.start()
    try:
        yield served
    finally:
        served.stop()
        assert os.path.exists(served.path)
