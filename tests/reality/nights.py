"""Nights on a bad disk: it is full, or the kernel takes no more changes, while everything runs.

A daemon, a mount, an admin server, programs and appenders live through it. What is there can be read, by each of them
and by commands that begin then; appends are refused, and go on when the disk takes them again. Nothing that was
acknowledged is missing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests import forked
from tests.commands import Done
from tests.disks import FailingDisk, fill
from tests.mount.waiting import eventually
from tests.reality.acks import APPENDING, Appending, Drill
from tests.reality.lives import Places
from tests.reality.readers import Watch, open_readers
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.types import Ack
from tierfs.upkeep.holder import lock

_APPENDING = (APPENDING[0], Appending(("l/s0", "l/s1"), Ack.LOCAL))
_LINES = 40
"""Acknowledgments of each appender in a day."""
_FILLINGS = 4
"""Times that a full disk is filled again: appends make room by evicting what is cold."""
_REFUSALS = ("StorageFull", "ReadOnlyDisk", "Unavailable", "Unconfirmed")
"""Of appends; the first one that fails may have the disk's own error."""
_LATE_SEAL = re.compile(r"\S+ cannot be made read-only; `tierfs check --repair` will do it: .* the disk is read-only\n")
"""Of an appender: the disk failed between the commit of its chunk and the mode of the file."""
_LOOKS = ("ls -R", "info l/s0", "du", "status", "check", "gc", "config", "ledger ls")
_END_S = 60.0


class Nights(Drill):
    """A store on a bad disk, with its cold tier elsewhere."""

    def __init__(self, disk: Path, places: Places, seed: str, mountpoint: Path) -> None:
        """`disk`: where the store is made."""
        super().__init__(disk, places, seed, _APPENDING)
        self.mountpoint = mountpoint
        self.watches: list[Watch] = []

    def full(self, nights: int) -> Counter[str]:
        """Fill the disk so many times, under the same processes."""
        with self._alive():
            for _ in range(nights):
                self._day()
                filling = self.root / "fill"
                for _ in range(_FILLINGS):
                    fill(filling)
                    self._listen_now()
                    self._read()
                filling.unlink()
                self._go_on()
        return self._ended()

    def read_only(self, disk: FailingDisk, nights: int) -> Counter[str]:
        """Let the disk fail so many times; the kernel wants it checked, and all to begin anew, before it is used."""
        for _ in range(nights):
            with self._alive():
                self._day()
                disk.fail()
                for number in range(len(self.appenders)):
                    while not self._refused_line(number):
                        continue
                self._read()
                self._refuse("append l/s0")
                self._refuse("offload")
            disk.repair()
            self._compare()
        with self._alive():
            self._day()
            self._go_on()
        return self._ended()

    @contextmanager
    def _alive(self) -> Iterator[None]:
        """Start everything, once there is something to read; each process ends as it is asked to."""
        with ExitStack() as stack:
            stack.callback(self._end)
            self._start_appenders()
            daemon = forked.Talking("tierfs", "--store", self.life.path, "daemon", "-f")
            stack.callback(self._end_well, daemon)
            assert eventually(lambda: self._holder() == daemon.pid)  # else the mount may hold the store
            mount = forked.Talking("tierfs", "--store", self.life.path, "mount", "-f", self.mountpoint)
            stack.callback(self._end_well, mount)
            assert eventually(self.mountpoint.is_mount)
            self._hear_each(1)
            names = sorted(self.acknowledged)
            self.watches.clear()
            for reader in open_readers(self.life.path, self.mountpoint, spark=False):
                watch = Watch(reader, lambda: names, self, self.seed)
                self.watches.append(watch)
                stack.callback(watch.end)
            yield
            for watch in self.watches:
                self.seen += watch.seen
                watch.seen.clear()

    def _holder(self) -> int:
        holder = lock.current(StorePaths(self.life.path).holder)
        return 0 if holder is None else holder.pid

    def _end_well(self, process: forked.Talking) -> None:
        process.terminate()
        code = process.wait(_END_S)
        logged = process.end()[1]
        assert code == 0, (code, logged)
        assert "Traceback" not in logged, logged

    def _day(self) -> None:
        self._hear_each(_LINES)
        for words in ("offload", "evict", "consolidate"):
            assert self._run(words).code == 0
        self._hear_each(_LINES)

    def _hear_each(self, lines: int) -> None:
        for appender in self.appenders.values():
            for _ in range(lines):
                self._hear(appender.line())

    def _hear(self, line: str) -> None:
        if line.startswith("refused"):
            assert line.split()[2] in _REFUSALS or "Input/output error" in line, line
            self.seen["appends refused"] += 1
        else:
            super()._hear(line)

    def require_silence(self, errors: str) -> None:
        super().require_silence(_LATE_SEAL.sub("", errors))

    def _refused_line(self, number: int) -> bool:
        line = self.appenders[number].line()
        self._hear(line)
        return line.startswith("refused")

    def _listen_now(self) -> None:
        """Hear what was acknowledged until now, and what was refused."""
        for appender in self.appenders.values():
            for line in appender.lines_now():
                self._hear(line)

    def _read(self) -> None:
        """Read everything by all that lives, and by commands that begin now."""
        for watch in self.watches:
            watch.require(sorted(self.acknowledged))
        for words in _LOOKS:
            done = self._run(words)
            assert done.code == 0, (words, done)
        with self.mountpoint.joinpath("l/s0").open("rb") as file:
            self.require("l/s0", file.read(), 0, "a file opened now")
        self.seen["looks"] += len(_LOOKS)

    def _go_on(self) -> None:
        """Each appender is acknowledged again, and all is there."""
        for number, appender in self.appenders.items():
            before = sum(self.acknowledged[name].number for name in self.appending[number].names)
            while sum(self.acknowledged[name].number for name in self.appending[number].names) < before + _LINES:
                self._hear(appender.line())
        self._read()
        self._compare()

    def _refuse(self, words: str) -> None:
        done = self._run(words)
        assert (done.code, "read-only" in done.err) == (4, True), done

    def _run(self, words: str) -> Done:
        return self.life.run(*words.split())

    def _ended(self) -> Counter[str]:
        self._compare()
        self.life.end()
        self.seen["records"] = sum(progress.number for progress in self.acknowledged.values())
        return self.seen

    # What readers must have

    def ends(self, names: Sequence[str]) -> Mapping[str, int]:
        """Return where acknowledged bytes end now."""
        return {name: self.acknowledged[name].end for name in names}

    def kept(self, names: Sequence[str]) -> Sequence[str]:
        """Return all: none is removed, or loses its head."""
        return names

    def require(self, name: str, data: bytes, end: int, who: str) -> None:
        """Raise AssertionError unless these are the segment's bytes, at least up to `end`."""
        assert len(data) >= end, f"{who}: {name} ends at {len(data)}, not {end}"
        self.expected[name].require(0, data, who)
