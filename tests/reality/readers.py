"""Readers of every kind that are opened once and live through all that happens to their store.

Each has a thread that reads all the time, and answers when it is asked about the present; whatever it cannot read, or
reads wrong, fails the drill.
"""

from __future__ import annotations

import base64
import json
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from tests import forked
from tests.faces.admin.conftest import UnixConnection
from tests.mount.waiting import eventually
from tests.reality.expected import Expected
from tests.reality.reading import FRESH, WAYS, Answer
from tierfs.base.system.store_paths import StorePaths

ANSWER_S = 400.0
"""No answer takes as long, also while the cold tier moves on a busy machine."""

_DROPPED = ("Stale file handle", "are gone", "holds bytes")
"""What a reader says of a head that retention dropped while it was read: it reads the rest then."""

_PAUSE_S = {"spark": 10.0}
"""The longest between two reads, where it is not a second: what a read costs of the machine."""

_TRIES = 5


class Wrong(AssertionError):
    """A reader failed, or had other bytes."""


class Reader(Protocol):
    """One long-lived process that reads."""

    kind: str

    def read(self, names: Sequence[str], kept: Sequence[str]) -> list[Answer]:
        """Read whole segments; those of `kept` by handles that stay open as well. Raises Wrong."""
        ...

    def end(self) -> None:
        """End it."""
        ...


class Program:
    """A process of tests.reality.reading."""

    def __init__(self, kind: str, store: Path, mountpoint: Path) -> None:
        self.kind = kind
        self._process = forked.Talking("tests.reality.reading", kind, store, mountpoint, asks=True)
        try:
            self._answer()
        except BaseException:
            self.end()
            raise

    def read(self, names: Sequence[str], kept: Sequence[str]) -> list[Answer]:
        self._process.ask(json.dumps({"names": list(names), "kept": list(kept)}))
        return [(how, name, base64.b64decode(data)) for how, name, data in self._answer()]

    def let_go(self) -> None:
        """Close the handles that are kept: the mount that they belong to is gone."""
        self._process.ask("{}")
        self._answer()

    def end(self) -> None:
        """End it after its last answer, and then the JVM that it may have."""
        self._process.close_input()
        with suppress(TimeoutError):
            self._process.wait(ANSWER_S)
        self._process.end()

    def _answer(self) -> list[tuple[str, str, str]]:
        line = self._process.line(ANSWER_S)
        if not line:
            raise Wrong(f"{self.kind} ended: {self._process.end()[1]}")
        answer = json.loads(line)
        if isinstance(answer, str) and answer != "ready":
            raise Wrong(f"{self.kind}: {answer}")
        return answer  # type: ignore[no-any-return]


class Admin:
    """A server of the admin API, and a connection to it that is kept."""

    kind = "admin"

    def __init__(self, store: Path) -> None:
        self._process = forked.Talking("tierfs", "--store", store, "admin", "-f")
        self._connection = UnixConnection(StorePaths(store).admin_socket)
        assert eventually(self._listens, ANSWER_S), self._process.end()

    def read(self, names: Sequence[str], kept: Sequence[str]) -> list[Answer]:
        answers = []
        for name in names:
            self._connection.request("GET", f"/v1/bytes/{name}")
            with self._connection.getresponse() as response:
                data = response.read()
            if response.status != 200:
                raise Wrong(f"admin: {name}: {response.status} {data[:500]!r}")
            answers.append((FRESH, name, data))
        return answers

    def _listens(self) -> bool:
        try:
            self._connection.connect()
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True

    def end(self) -> None:
        self._connection.close()
        logged = self._process.end()[1]
        if "Traceback" in logged or " ERROR " in logged:
            raise Wrong(f"admin logged {logged}")


class Follower:
    """`cat -f` of one segment, from its beginning."""

    def __init__(self, store: Path, name: str, expected: Expected) -> None:
        self.name, self._expected, self._at = name, expected, 0
        reading, writing = os.pipe()
        self._error = os.memfd_create("errors")
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TIERFS_")}
        with open(os.devnull, "rb") as nothing:
            words = ["--store", str(store), "cat", "-f", name]
            self._child = forked.start("tierfs", words, environment, (nothing.fileno(), writing, self._error))
        os.close(writing)
        self._wrong: list[str] = []
        self._thread = threading.Thread(target=self._compare, args=(reading,))
        self._thread.start()

    def require(self, end: int) -> None:
        """Wait until it has written so many bytes, all of them right. Raises Wrong."""
        arrived = eventually(lambda: self._at >= end or not self._thread.is_alive(), ANSWER_S)
        if self._wrong or not arrived or self._at < end:
            raise Wrong(f"cat -f {self.name} is at {self._at}, not {end}: {self._wrong} {self._errors()}")

    def end(self) -> None:
        self._child.kill()
        self._child.wait(ANSWER_S)
        self._thread.join(ANSWER_S)
        os.close(self._error)
        if self._wrong:
            raise Wrong(str(self._wrong))

    def _compare(self, fd: int) -> None:
        with open(fd, "rb", buffering=0) as file:
            while data := file.read(1 << 16):
                try:
                    self._expected.require(self._at, data, "cat -f")
                except AssertionError as exc:
                    self._wrong.append(str(exc))
                    return
                self._at += len(data)

    def _errors(self) -> str:
        return os.pread(self._error, 1 << 16, 0).decode()


class Watch:
    """A reader that reads some names all the time, each time compared; and any names when it is asked to."""

    def __init__(self, reader: Reader, steady: Callable[[], Sequence[str]], compare: Compare, seed: str) -> None:
        """`steady`: names that are never removed."""
        self.reader, self._steady, self._compare = reader, steady, compare
        self._chosen = random.Random(f"{seed} {reader.kind}")
        self._wrong: list[Exception] = []
        self._ended = threading.Event()
        self.seen: Counter[str] = Counter()
        self.busy = threading.Lock()
        """Held during a read; who holds it may change what the reader reads from."""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def require(self, names: Sequence[str]) -> None:
        """Read these names as they are now. Raises Wrong, also for what went wrong meanwhile."""
        with self.busy:
            if self._wrong:
                raise self._wrong[0]
            self._read(names)

    def end(self) -> None:
        """Stop reading, and end the reader."""
        self._ended.set()
        self._thread.join(ANSWER_S)
        self.reader.end()
        if self._wrong:
            raise self._wrong[0]

    def _run(self) -> None:
        while not self._ended.wait(self._chosen.uniform(0, _PAUSE_S.get(self.reader.kind, 1.0))):
            with self.busy:
                try:
                    names = self._steady()
                    self._read(self._chosen.sample(names, min(len(names), 3)))
                except Exception as exc:
                    self._wrong.append(exc)
                    return

    def _read(self, names: Sequence[str]) -> None:
        ends = self._compare.ends(names)
        for _ in range(_TRIES):
            try:
                answers = self.reader.read(names, self._compare.kept(names))
                break
            except Wrong as exc:
                if not any(text in str(exc) for text in _DROPPED):
                    raise
                self.seen[f"{self.reader.kind} began again"] += 1
        else:
            raise Wrong(f"{self.reader.kind} cannot read {names}")
        missing = set(names) - {name for _, name, _ in answers}
        if missing:
            raise Wrong(f"{self.reader.kind} does not see {missing}")
        for how, name, data in answers:
            self._compare.require(name, data, ends[name] if how == FRESH else 0, f"{self.reader.kind}, {how}")
        self.seen[f"reads by {self.reader.kind}"] += len(answers)


class Compare(Protocol):
    """What readers must have."""

    def ends(self, names: Sequence[str]) -> Mapping[str, int]:
        """Return where acknowledged bytes end now."""
        ...

    def kept(self, names: Sequence[str]) -> Sequence[str]:
        """Return those that may be read by handles that stay open: they lose no bytes and are never removed."""
        ...

    def require(self, name: str, data: bytes, end: int, who: str) -> None:
        """Raise AssertionError unless these are the segment's bytes, at least up to `end`."""
        ...


def open_readers(store: Path, mountpoint: Path | None, *, spark: bool) -> list[Reader]:
    """Start one of each kind that can be there."""
    needs_mount = {"mount", "spark"}
    kinds = [kind for kind in WAYS if (mountpoint or kind not in needs_mount) and (spark or kind != "spark")]
    readers: list[Reader] = [Program(kind, store, mountpoint or store) for kind in kinds]
    return [*readers, Admin(store)]
