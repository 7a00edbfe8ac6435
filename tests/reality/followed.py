"""`tierfs follow` under the real logrotate: many logs that grow and are rotated, and a follower that is killed.

Each log's lines are numbers in order. At the end its segment has each of them once.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.reality.stopped import KILLED
from tests.verbs import cat
from tierfs.app.setup.create import init_store
from tierfs.app.store import Store, open_store
from tierfs.base.words.errors import NotFound

LOGROTATE = shutil.which("logrotate") or "/usr/sbin/logrotate"

MODES = {
    "create": "create",
    "copytruncate": "copytruncate",
    "dateext delaycompress": "create\n dateext\n dateformat -%Y%m%d-%s\n compress\n delaycompress",
    "compress": "create\n compress",
}

LOSING = ("copytruncate", "compress")
"""In these logrotate itself loses lines that are written while it copies or compresses a file."""

LINE_BYTES = 100
WRITE_S = 0.05
END_S = 120.0
_LEAST_ROTATIONS = 2
"""Longest time in which a follower catches up."""

Number = int


@dataclass
class Rotated:
    """Logs in a directory, their writer, and their rotation."""

    root: Path
    mode: str
    count: int
    bytes_per_s: int
    numbers: list[Number] = field(default_factory=list)
    rotations: int = 0
    files: list[IO[bytes]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while the writer writes, and where a line that is written during a rotation would be lost."""
    end: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.logs.mkdir(parents=True)
        self.numbers = [0] * self.count
        self._reopen()
        # A follower that falls behind by more rotations loses lines, and fails the drill. logrotate looks for each of
        # these names of each log: with more of them it takes longer than all the rest.
        options = f"rotate 60\n missingok\n su {os.getuid()} {os.getgid()}\n {MODES[self.mode]}\n"
        (self.root / "conf").write_text(f"{self.logs}/*.log {{\n {options}}}\n")

    @property
    def logs(self) -> Path:
        """The directory of the logs."""
        return self.root / "logs"

    def name(self, number: int) -> str:
        """The name of a log."""
        return f"{number:04d}.log"

    def _reopen(self) -> None:
        for file in self.files:
            file.close()
        self.files = [(self.logs / self.name(number)).open("ab", buffering=0) for number in range(self.count)]

    def write(self, size_bytes: int) -> None:
        """Append lines to each log, together of about this size."""
        lines = max(1, size_bytes // self.count // LINE_BYTES)
        for number, file in enumerate(self.files):
            first = self.numbers[number]
            file.write(b"".join(self.line(number, at) for at in range(first, first + lines)))
            self.numbers[number] = first + lines

    def line(self, number: int, at: int) -> bytes:
        """A line of a log."""
        return f"{number:04d} {at:>{LINE_BYTES - 6}}\n".encode()

    def difference(self, number: int, data: bytes) -> str:
        """The first difference of bytes from a log; empty if they have each of its lines once and in order."""
        expected = self.numbers[number]
        for at in range(max(expected, len(data) // LINE_BYTES)):
            seen = data[at * LINE_BYTES : (at + 1) * LINE_BYTES]
            if at >= expected or seen != self.line(number, at):
                return f"{number}: line {at} of {expected} is {seen!r}"
        return "" if len(data) == expected * LINE_BYTES else f"{number}: {len(data)} bytes"

    def write_on(self) -> None:
        """Write at the rate, until the end."""
        begun_s, written = time.monotonic(), 0
        while not self.end.wait(WRITE_S):
            due = int((time.monotonic() - begun_s) * self.bytes_per_s) - written
            if due > self.count * LINE_BYTES:
                with self.lock:
                    self.write(due)
                written += due

    def rotate(self) -> None:
        """Rotate all logs once."""
        words = [LOGROTATE, "-f", "-s", str(self.root / "state"), str(self.root / "conf")]
        if self.mode in LOSING:
            with self.lock:
                subprocess.run(words, check=True)
                self._reopen()
        else:
            subprocess.run(words, check=True)
            with self.lock:
                self._reopen()
        self.rotations += 1

    def rotate_on(self, every_s: float) -> None:
        """Rotate again and again, until the end."""
        while not self.end.wait(every_s):
            # logrotate skips a file whose new name exists.
            if "%s" in MODES[self.mode] and self.end.wait(1.01 - time.time() % 1):
                return
            self.rotate()

    @contextmanager
    def running(self, every_s: float) -> Iterator[None]:
        """Write and rotate in threads as long as the block lasts."""
        threads = [threading.Thread(target=self.write_on), threading.Thread(target=self.rotate_on, args=(every_s,))]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.end.set()
            for thread in threads:
                thread.join()


@dataclass
class FollowDrill:
    """Follows rotated logs into a store, by processes that are killed."""

    rotated: Rotated
    random: random.Random
    kills: int = 0
    gaps: str = ""

    @property
    def store(self) -> Path:
        """The store."""
        return self.rotated.root / "store"

    def make_store(self) -> None:
        """Make an empty store."""
        init_store(self.store)

    def follow(self, *options: str, call: int | None = None) -> subprocess.Popen[str]:
        """Start a follower, which is killed before its changing system call of a number."""
        words = [*self.words, "--store", str(self.store), "follow", str(self.rotated.logs), "--into", "in", *options]
        if call is not None:
            count = str(self.rotated.root / "count")
            words = [sys.executable, "-m", "tests.reality.stopped", count, str(call), *words[2:]]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @property
    def words(self) -> list[str]:
        """The words of the program."""
        return [sys.executable, "-m", "tierfs"]

    def kill_one(self, most_calls: int) -> None:
        """Run a follower until it is killed at a call that is drawn."""
        process = self.follow(call=self.random.randrange(1, most_calls))
        try:
            _, err = process.communicate(timeout=END_S)
        finally:
            process.kill()
            process.wait()
        if process.returncode not in (KILLED, -9):
            raise AssertionError(f"the follower was not killed: {process.returncode} {err}")
        self.kills += 1
        self._note(err)

    def catch_up(self) -> None:
        """Run a follower that appends everything."""
        process = self.follow("--once")
        try:
            _, err = process.communicate(timeout=END_S)
        finally:
            process.kill()
            process.wait()
        self._note(err)
        assert process.returncode == 0, err

    def _note(self, err: str) -> None:
        self.gaps += "".join(line for line in err.splitlines(keepends=True) if "missing" in line)

    def wrong(self) -> list[str]:
        """The logs whose segments do not have each line once and in order, with the first difference."""
        with closing(open_store(self.store)) as store:
            return list(filter(None, (self._wrong(store, number) for number in range(self.rotated.count))))

    def _wrong(self, store: Store, number: int) -> str:
        parts: list[bytes] = []
        try:
            cat(store, f"in/{self.rotated.name(number)}", None, None, None, lambda data: parts.append(bytes(data)))
        except NotFound:
            return f"{number}: no segment"
        return self.rotated.difference(number, b"".join(parts))


def run(
    root: Path,
    mode: str,
    choice: random.Random,
    *,
    count: int,
    bytes_per_s: int,
    every_s: float,
    kills: int,
    most_calls: int,
) -> FollowDrill:
    """Follow logs that grow and are rotated, kill the follower again and again, and let the last one catch up."""
    rotated = Rotated(root, mode, count, bytes_per_s)
    drill = FollowDrill(rotated, choice)
    drill.make_store()
    rotated.write(0)
    drill.catch_up()  # files that were rotated before the first run are not read
    with rotated.running(every_s):
        while drill.kills < kills or rotated.rotations < _LEAST_ROTATIONS:
            drill.kill_one(most_calls)
    for file in rotated.files:
        file.close()
    drill.catch_up()
    return drill
