"""What is measured: mounts of every kind, each fresh for every run, with memory hot and caches cold."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.measuring import GIB, heat
from tests.benchmarks.mounts import Mount, MountCommand, mounted
from tests.benchmarks.reading.corpus import WARM_FILE
from tests.benchmarks.reading.figures import CPU, RATE, RSS, Sample
from tests.benchmarks.reading.peers import ENVIRONMENT, Peer, Site
from tests.benchmarks.workloads import Pace, verify
from tierfs.base.words.types import MIB

Work = Callable[[Mount], Sample]
"""Reads through a mount and says what it found."""


@dataclass(frozen=True)
class Subject:
    """Something that can be mounted: how, and whether it serves the small file that is read first."""

    label: str
    command: Callable[[Path], MountCommand]
    warm: bool = True


@dataclass(frozen=True)
class Bench:
    """What all runs share."""

    mountpoint: Path
    hot_bytes: int

    @contextmanager
    def cold(self, subject: Subject) -> Iterator[Mount]:
        """A fresh mount, its connections open, and memory hot."""
        with mounted(subject.command(self.mountpoint), self.mountpoint) as mount:
            if subject.warm:
                verify(mount.root / WARM_FILE.name, WARM_FILE)
            heat(self.hot_bytes)
            yield mount

    def measure(self, subject: Subject, work: Work) -> Sample:
        """One run, with the peak memory of the mount's processes added."""
        with self.cold(subject) as mount:
            found = work(mount)
            return {**found, RSS: mount.peak_rss_bytes() / MIB}


def streamed(mount: Mount, size_bytes: int, read: Callable[[], Pace]) -> tuple[Sample, Pace]:
    """Rate of a read, and what it took of the mount's CPU time."""
    before = mount.cpu_s()
    pace = read()
    used = mount.cpu_s() - before
    return {RATE: size_bytes / pace.seconds / 1e6, CPU: used / (size_bytes / GIB)}, pace


def streamed_raw(size_bytes: int, read: Callable[[], Pace]) -> tuple[Sample, Pace]:
    """The same of a read in this process."""
    before = time.process_time()
    pace = read()
    used = time.process_time() - before
    return {RATE: size_bytes / pace.seconds / 1e6, CPU: used / (size_bytes / GIB)}, pace


@dataclass(frozen=True)
class TierfsSubjects:
    """Mounts of stores."""

    log: Path

    def of(self, label: str, store: Path, options: str = "", *, warm: bool = True, **settings: str) -> Subject:
        """A mount of a store; `settings` are environment variables."""
        return Subject(label, lambda mountpoint: self._command(store, mountpoint, options, settings), warm)

    def _command(self, store: Path, mountpoint: Path, options: str, settings: Mapping[str, str]) -> MountCommand:
        module = ("-m", "tests.mount.runner", str(store), str(mountpoint), options)
        return MountCommand((sys.executable, *module), self.log, {**ENVIRONMENT, **settings})


def peer_subject(peer: Peer, site: Site) -> Subject:
    """A peer's mount of the plain objects."""
    return Subject(peer.label, lambda mountpoint: peer.command(site, mountpoint))


def null_subject(log: Path, size_bytes: int, *, keep_cache: bool = False) -> Subject:
    """The null filesystem with one file, `null`."""
    more = ("keep_cache",) if keep_cache else ()

    def command(mountpoint: Path) -> MountCommand:
        module = ("-m", "tests.benchmarks.null", str(mountpoint), str(size_bytes), *more)
        return MountCommand((sys.executable, *module), log)

    return Subject("null pyfuse3 filesystem", command, warm=False)


Run = Callable[[int], Sample]
"""One measurement, in a given repetition."""


@dataclass(frozen=True)
class Table:
    """One part of a question: its runs by subject, of which `limit` is what the others are compared with."""

    limit: str
    runs: dict[str, Run] = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """What is asked, and the tables that answer it, by title."""

    number: int
    title: str
    method: str
    parts: Mapping[str, Table]
    left_out: str = ""
    """Why it cannot be asked here."""
