"""`tierfs follow --to` under kills: many senders of rotated logs to one `tierfs admin` over TLS, which is killed.

Each sender is a host of its own by its name. At the end each segment has each line of its log once.
"""

from __future__ import annotations

import random
import signal
import socket
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from tests.mount.waiting import eventually
from tests.reality.followed import END_S, Rotated
from tests.reality.stopped import KILLED
from tests.verbs import cat
from tierfs.app.follow.listing import states
from tierfs.app.setup.create import init_store
from tierfs.app.store import Store, open_store
from tierfs.base.words.errors import NotFound
from tierfs.engine.metadata import directories

TOKEN = "a-token-of-enough-characters"
PROGRAM = [sys.executable, "-m", "tierfs"]

# Of a measurement: bytes of one log, and lines that are written one by one.
MEASURED_BYTES = 200_000_000
MEASURED_TIMES, MEASURED_LINES = 3, 40
LINE_PAUSE_S, PROBE_S = 0.3, 0.002


@dataclass
class SentLogs(Rotated):
    """Logs in one directory, each of one of several hosts."""

    hosts: int = 1

    def name(self, number: int) -> str:
        """The name of a log."""
        return f"{self.host(number)}-{number // self.hosts}.log"

    def host(self, number: int) -> str:
        """The name of its host."""
        return f"h{number % self.hosts:02d}"


@dataclass
class Server:
    """A store that `tierfs admin` serves over TLS."""

    root: Path
    port: int = 0
    process: subprocess.Popen[str] | None = None
    kills: int = 0

    def __post_init__(self) -> None:
        init_store(self.store)
        words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
        files = ["-keyout", self.root / "key.pem", "-out", self.root / "cert.pem"]
        subprocess.run(["openssl", *words.split(), *files], check=True, capture_output=True)
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.port = free.getsockname()[1]
        paths = {"certificate": self.root / "cert.pem", "key": self.root / "key.pem"}
        lines = [f'listen = "127.0.0.1:{self.port}"', *(f'{name} = "{path}"' for name, path in paths.items())]
        (self.store / "store.toml").write_text("\n".join(["[admin]", *lines, ""]))
        self.token.touch(0o600)
        self.token.write_text(TOKEN)

    @property
    def store(self) -> Path:
        """The store."""
        return self.root / "store"

    @property
    def token(self) -> Path:
        """The file of the token."""
        return self.store / "admin.token"

    @property
    def options(self) -> list[str]:
        """The options of a sender."""
        url = f"https://localhost:{self.port}"
        return ["--to", url, "--token-file", str(self.token), "--ca-bundle", str(self.root / "cert.pem")]

    def start(self, call: int = 0) -> None:
        """Start to serve; killed before its changing system call of a number, if one is given."""
        words = ["tierfs", "--store", str(self.store), "admin", "-f"]
        stopped = [sys.executable, "-m", "tests.reality.stopped", str(self.root / "count"), str(call), *words]
        self.process = subprocess.Popen(stopped if call else [sys.executable, "-m", *words], text=True)

    def answers(self) -> bool:
        """Whether it serves."""
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
        except OSError:
            return False
        return True

    def wait_killed(self) -> None:
        """Wait for the kill."""
        assert self.process is not None
        code = self.process.wait(END_S)
        assert code in (KILLED, -signal.SIGKILL), code
        self.kills += 1

    def end(self) -> None:
        """Kill it, if it runs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@dataclass
class SendersDrill:
    """Hosts that send their logs to a server."""

    logs: SentLogs
    server: Server
    random: random.Random
    senders: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    killed: int = 0

    def words(self, host: str, *options: str) -> list[str]:
        """The command line of a sender."""
        pattern = str(self.logs.logs / f"{host}-*.log")
        target = ["--into", f"hosts/{host}", "--sender", host, *self.server.options]
        return [*PROGRAM, "-q", "follow", pattern, *target, *options]

    def start(self, host: str) -> None:
        """Start a sender."""
        self.senders[host] = subprocess.Popen(self.words(host), text=True)

    def kill_some(self) -> None:
        """Kill a sender that is drawn, and start it again."""
        host = self.random.choice(list(self.senders))
        self.senders[host].kill()
        self.senders[host].wait()
        self.killed += 1
        self.start(host)

    def catch_up(self) -> None:
        """End the senders, and let each send the rest."""
        for process in self.senders.values():
            process.send_signal(signal.SIGTERM)
        for process in self.senders.values():
            assert process.wait(END_S) in (0, -signal.SIGTERM)
        self.once([*self.senders])

    def once(self, hosts: list[str]) -> None:
        """Let hosts send what is there now, at the same time, once the server answers."""
        assert eventually(self.server.answers)
        for process in [subprocess.Popen(self.words(host, "--once"), text=True) for host in hosts]:
            assert process.wait(END_S) == 0

    def end(self) -> None:
        """Kill what runs."""
        for process in self.senders.values():
            process.kill()
            process.wait()
        self.server.end()

    def wrong(self) -> list[str]:
        """The logs whose segments do not have each line once and in order; and gaps that were recorded."""
        with closing(open_store(self.server.store)) as store:
            found = [self._wrong(store, number) for number in range(self.logs.count)]
            gaps = [f"{state.segment}: {state.last_gap}" for state in states(store) if state.gaps]
        return [*filter(None, found), *gaps]

    def _wrong(self, store: Store, number: int) -> str:
        parts: list[bytes] = []
        name = f"hosts/{self.logs.host(number)}/{self.logs.name(number)}"
        try:
            cat(store, name, None, None, None, lambda data: parts.append(bytes(data)))
        except NotFound:
            return f"{name}: no segment"
        return self.logs.difference(number, b"".join(parts))


def run(
    root: Path,
    choice: random.Random,
    *,
    hosts: int,
    logs: int,
    bytes_per_s: int,
    every_s: float,
    kills: int,
    most_calls: int,
) -> SendersDrill:
    """Send logs that grow and are rotated, kill the server again and again, and some senders, and let all catch up."""
    written = SentLogs(root / "hosts", "create", hosts * logs, bytes_per_s, hosts=hosts)
    written.write(0)
    drill = SendersDrill(written, Server(root), choice)
    with ExitStack() as stack:
        stack.callback(drill.end)
        drill.server.start()
        names = [written.host(number) for number in range(hosts)]
        drill.once(names)  # files that were rotated before the first run are not read
        drill.server.end()
        for host in names:
            drill.start(host)
        with written.running(every_s):
            for _ in range(kills):
                drill.server.start(choice.randrange(1, most_calls))
                drill.server.wait_killed()
                if choice.randrange(2):
                    drill.kill_some()
            drill.server.start()
        for file in written.files:
            file.close()
        drill.catch_up()
    return drill


@dataclass(frozen=True)
class Measured:
    """The figures of one follower."""

    bytes_per_s: float
    median_s: float
    longest_s: float

    def text(self) -> str:
        """The figures in words."""
        rate = f"{self.bytes_per_s / 1e6:.0f} MB/s"
        return f"{rate}; a line is in the store after {self.median_s:.2f} s (median), {self.longest_s:.2f} s (longest)"


def measure(root: Path, *, is_sent: bool) -> Measured:
    """Follow one log of many lines, once; then one that gets single lines. The server, if any, is on this machine."""
    logs = root / "logs"
    logs.mkdir(parents=True)
    server = Server(root)
    target = server.options if is_sent else ["--store", str(server.store)]
    words = [*PROGRAM, "-q", "follow", str(logs / "*.log"), "--into", "in", *target]
    log = logs / "a.log"
    line = b"x" * 99 + b"\n"
    log.write_bytes(line)
    with ExitStack() as stack:
        stack.callback(server.end)
        if is_sent:
            server.start()
            assert eventually(server.answers)
        empty_s = min(timed(words) for _ in range(MEASURED_TIMES))
        full: list[float] = []
        for _ in range(MEASURED_TIMES):
            with log.open("ab") as file:
                file.write(line * (MEASURED_BYTES // len(line)))
            full.append(timed(words))
        full_s = min(full)
        follower = stack.enter_context(subprocess.Popen(words))
        stack.callback(follower.kill)
        with closing(open_store(server.store)) as store:
            waits = [waited(store, log) for _ in range(MEASURED_LINES)]
    return Measured(MEASURED_BYTES / (full_s - empty_s), statistics.median(waits), max(waits))


def timed(words: list[str]) -> float:
    """Seconds that a follower takes for what is there now."""
    begun_s = time.monotonic()
    subprocess.run([*words, "--once"], check=True)
    return time.monotonic() - begun_s


def waited(store: Store, log: Path) -> float:
    """Write a line after a pause; return the seconds after which its log is in the store as far as it was written."""
    time.sleep(LINE_PAUSE_S)
    with log.open("ab", buffering=0) as file:
        file.write(b"one line\n")
        size, begun_s = file.tell(), time.monotonic()
    while length(store) < size:
        time.sleep(PROBE_S)
    return time.monotonic() - begun_s


def length(store: Store) -> int:
    """The length of the segment."""
    with store.metadata.read() as txn:
        return directories.segment_by_name(txn, "in/a.log").length
