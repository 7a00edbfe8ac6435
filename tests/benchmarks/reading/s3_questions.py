"""Questions about reading whole files from S3: one reader, several, and very many."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tests.benchmarks.measuring import heat
from tests.benchmarks.mounts import Mount
from tests.benchmarks.raw import Get, boto3_get
from tests.benchmarks.reading.corpus import Corpus, File
from tests.benchmarks.reading.figures import LOOPBACK, SPREAD, Sample
from tests.benchmarks.reading.links import LINKS, Link
from tests.benchmarks.reading.peers import Peer, Site
from tests.benchmarks.reading.subjects import (
    Bench,
    Question,
    Run,
    Subject,
    Table,
    TierfsSubjects,
    Work,
    peer_subject,
    streamed,
    streamed_raw,
)
from tests.benchmarks.workloads import Pace, dd, get_all, read_all
from tierfs.base.words.types import MIB

RAW = "boto3 GETs"
TIERFS = "tierfs"
DIRECT = "tierfs, direct_io"

RAW_RANGE_BYTES = 8 * MIB
"""What boto3 reads fastest with (measured)."""

MANY_BUDGET_BYTES = 256 * MIB
MANY_AT_ONCE = 4
"""GETs that raw readers have in flight together, and tierfs too on a link as near as this one."""

_BUDGET_SETTING = "TIERFS_READ__BUDGET_BYTES"


@dataclass(frozen=True)
class S3Bench:
    """What is read, and by whom."""

    bench: Bench
    corpus: Corpus
    site: Site
    peers: tuple[Peer, ...]
    link: Link = LINKS[0]

    def tierfs(self, label: str = TIERFS, options: str = "", **settings: str) -> Subject:
        """A mount of the store; `settings` are environment variables."""
        subjects = TierfsSubjects(self.site.scratch / "tierfs.log")
        return subjects.of(label, self.corpus.store, options, warm=True, **settings)

    def peer_subjects(self, site: Site | None = None) -> list[Subject]:
        """Mounts of every peer, of another site if given."""
        return [peer_subject(peer, site or self.site) for peer in self.peers]

    def run(self, subject: Subject, work: Work) -> Run:
        """A run that mounts the subject afresh."""
        return lambda _: self.bench.measure(subject, work)


@dataclass(frozen=True)
class SequentialQuestions:
    """Questions about throughput."""

    s3: S3Bench

    def one_reader(self) -> Question:
        """How near one reader comes to plain GETs, and what it costs."""
        method = (
            f"One `dd bs=1M` of one file, everything cold; {RAW}: {self.s3.link.raw_threads} threads, ranges of "
            f"{RAW_RANGE_BYTES // MIB} MiB. CPU time and peak RSS are the mount's (those of `{RAW}`: this process's)."
        )
        direct = [self.s3.tierfs(DIRECT, "direct_io")] if self.s3.link.name == LOOPBACK else []
        subjects = [self.s3.tierfs(), *direct, *self.s3.peer_subjects()]
        table = self._table(subjects, self.s3.corpus.large[:1])
        return Question(1, "Sequential read from S3, one reader", method, {"": table})

    def several_readers(self) -> Question:
        """Whether readers share what there is, and fairly."""
        files = self.s3.corpus.large
        method = (
            f"{len(files)} `dd bs=1M` of {len(files)} files at the same time, everything cold; {RAW}: "
            f"{self.s3.link.raw_threads} threads in all, ranges of {RAW_RANGE_BYTES // MIB} MiB. `{SPREAD}`: the "
            "slowest reader's speed over the fastest one's."
        )
        table = self._table([self.s3.tierfs(), *self.s3.peer_subjects()], files)
        return Question(2, f"Sequential read from S3, {len(files)} readers", method, {"": table})

    def many_readers(self) -> Question:
        """Whether very many readers stay within the budget, and how fast they are."""
        files = self.s3.corpus.small
        range_bytes, at_once = MANY_BUDGET_BYTES // len(files) // 2, MANY_AT_ONCE
        method = (
            f"{len(files)} files of different sizes, {sum(file.size_bytes for file in files) // MIB} MiB in all, each "
            f"read by a thread of its own at the same time; read budget {MANY_BUDGET_BYTES // MIB} MiB. {RAW}: as many "
            f"readers, {at_once} GETs at a time of {range_bytes / MIB:g} MiB (tierfs' "
            "ranges: half of a reader's share of the budget)."
        )
        subject = self.s3.tierfs(**{_BUDGET_SETTING: str(MANY_BUDGET_BYTES)})
        table = Table(RAW)
        table.runs[RAW] = lambda _: self._raw_many(range_bytes, at_once)
        table.runs[subject.label] = self.s3.run(subject, self._read_many)
        return Question(7, f"Sequential read from S3, {len(files)} readers within a budget", method, {"": table})

    @cached_property
    def _get(self) -> Get:
        return boto3_get(self.s3.corpus.endpoint, self.s3.corpus.bucket)

    @cached_property
    def _small_objects(self) -> list[tuple[str, int]]:
        return [(self.s3.corpus.object_of(file), file.size_bytes) for file in self.s3.corpus.small]

    def _table(self, subjects: Sequence[Subject], files: Sequence[File]) -> Table:
        table = Table(RAW)
        table.runs[RAW] = lambda _: self._raw(files)
        for subject in subjects:
            table.runs[subject.label] = self.s3.run(subject, lambda mount: _read(mount, files))
        return table

    def _raw(self, files: Sequence[File]) -> Sample:
        heat(self.s3.bench.hot_bytes)
        objects = [(file.name, file.size_bytes) for file in files]
        threads_each = self.s3.link.raw_threads // len(files)
        sample, pace = streamed_raw(
            _total_bytes(files), lambda: get_all(self._get, objects, RAW_RANGE_BYTES, threads_each)
        )
        return sample | _evenness(pace)

    def _raw_many(self, range_bytes: int, at_once: int) -> Sample:
        objects = self._small_objects
        get = _limited(self._get, at_once)
        heat(self.s3.bench.hot_bytes)
        return streamed_raw(
            _total_bytes(self.s3.corpus.small), lambda: get_all(get, objects, range_bytes, threads_each=1)
        )[0]

    def _read_many(self, mount: Mount) -> Sample:
        files = self.s3.corpus.small
        return streamed(mount, _total_bytes(files), lambda: read_all([mount.root / file.name for file in files]))[0]


def _read(mount: Mount, files: Sequence[File]) -> Sample:
    sample, pace = streamed(mount, _total_bytes(files), lambda: dd([mount.root / file.name for file in files]))
    return sample | _evenness(pace)


def _evenness(pace: Pace) -> dict[str, float]:
    return {SPREAD: pace.evenness} if len(pace.each_s) > 1 else {}


def _total_bytes(files: Sequence[File]) -> int:
    return sum(file.size_bytes for file in files)


def _limited(get: Get, at_once: int) -> Get:
    """The same, never more than so many at a time."""
    places = threading.BoundedSemaphore(at_once)

    def limited(key: str, start: int, length_bytes: int) -> bytes:
        with places:
            return get(key, start, length_bytes)

    return limited
