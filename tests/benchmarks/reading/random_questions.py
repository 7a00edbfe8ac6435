"""Questions about single blocks from S3: the first byte after an open, and reads at random."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from tests.benchmarks.measuring import heat
from tests.benchmarks.mounts import Mount
from tests.benchmarks.raw import Get, presigned_get
from tests.benchmarks.reading import chunky
from tests.benchmarks.reading.corpus import File
from tests.benchmarks.reading.figures import CPU_PER_READ, IOPS, P50, Sample
from tests.benchmarks.reading.s3_questions import TIERFS, S3Bench
from tests.benchmarks.reading.subjects import Question, Subject, Table, TierfsSubjects
from tests.benchmarks.workloads import (
    RandomReads,
    Read,
    checked,
    first_bytes,
    open_and_read,
    opened_randomly,
    random_reads,
)
from tierfs.base.words.types import CRC_BLOCK_BYTES

KIB = 1024
PRESIGNED = "presigned GETs"
SMALL_BYTES = 4 * KIB
LARGE_BYTES = 256 * KIB
MANY_THREADS = 16
RANDOM_S = 2.0
"""Hundreds of reads in one thread, thousands in several."""

PLACES = 64
FRESH_MOUNTS = 5
"""Only the first open in a mount finds nothing of a layout in memory, so that each takes a mount of its own."""

OPENS = f"{PLACES} opens of one file, each at another place"
CHUNKY_FIRST = f"Segment of {chunky.CHUNKS_COUNT:,} chunks: the first open in a mount"
CHUNKY_OPENS = f"Segment of {chunky.CHUNKS_COUNT:,} chunks: {PLACES} opens, each at another place"


@dataclass(frozen=True)
class Target:
    """What single blocks are read of."""

    name: str
    size_bytes: int
    expected: Read
    raw: Read
    """The same bytes without a filesystem."""


@dataclass(frozen=True)
class Scatter:
    """Reads at random."""

    target: Target
    block_bytes: int
    threads: int

    @property
    def title(self) -> str:
        """Of its table."""
        return scatter_title(self.block_bytes, self.threads)

    def read(self, read: Read, repetition: int) -> RandomReads:
        """Read for a while, comparing every block."""
        compared = checked(read, self.target.expected)
        return random_reads(compared, self.target.size_bytes, self.block_bytes, self.threads, RANDOM_S, repetition)

    def sample(self, found: RandomReads) -> Sample:
        """First what it is about: latency of one thread, throughput of several."""
        if self.threads > 1:
            return {IOPS: found.iops, P50: found.p50_ms}
        return {P50: found.p50_ms, IOPS: found.iops}


@dataclass(frozen=True)
class RandomQuestions:
    """Questions about latency."""

    s3: S3Bench

    def first_byte(self, chunky_store: Path | None = None) -> Question:
        """What the first block after an open costs; that store holds chunky.py's segment and the warm file."""
        method = (
            f"Open, read 4 KiB at a place not read before, close; every block compared; medians. {PRESIGNED}: one GET "
            "of 128 KiB each, over a connection that stays open."
        )
        parts = {OPENS: self._opens(self._large, [self.s3.tierfs(), *self.s3.peer_subjects()])}
        if chunky_store is not None:
            method += f" The first open in a mount: {FRESH_MOUNTS} mounts, one open each."
            many = TierfsSubjects(self.s3.site.scratch / "tierfs.log").of(TIERFS, chunky_store)
            parts[CHUNKY_FIRST] = self._first_opens(self._chunky, many)
            parts[CHUNKY_OPENS] = self._opens(self._chunky, [many])
        return Question(5, "First byte after an open, from S3", method, parts)

    def random_blocks(self, sizes_bytes: Sequence[int] = (SMALL_BYTES, LARGE_BYTES)) -> Question:
        """Latency of one reader and throughput of several, at random places, by blocks of each size."""
        method = (
            f"Aligned blocks at random places of one file for {RANDOM_S:g} s, none twice and no two within the same "
            "128 KiB, opened with `POSIX_FADV_RANDOM`; every block compared. "
            f"{PRESIGNED}: the same places, for 4 KiB the 128 KiB around it, over connections that stay open. "
            "s3fs copies what is around a place to a local file first: most of its reads are of that."
        )
        scatters = [
            Scatter(self._large, block_bytes, threads) for block_bytes in sizes_bytes for threads in (1, MANY_THREADS)
        ]
        return Question(6, "Random reads from S3", method, {one.title: self._scattered(one) for one in scatters})

    @cached_property
    def _get(self) -> Get:
        return presigned_get(self.s3.corpus.endpoint, self.s3.corpus.bucket)

    @property
    def _large(self) -> Target:
        file: File = self.s3.corpus.large[0]
        raw = partial(get_block, self._get, file.name)
        return Target(file.name, file.size_bytes, file.expected, raw)

    @property
    def _chunky(self) -> Target:
        def raw(start: int, length_bytes: int) -> bytes:
            return get_block(self._get, chunky.OBJECT_KEY, start % chunky.CHUNK_BYTES, length_bytes)

        return Target(chunky.NAME, chunky.SIZE_BYTES, chunky.expected, raw)

    def _opens(self, target: Target, subjects: Sequence[Subject]) -> Table:
        """PLACES opens in one mount."""

        def mounted(subject: Subject, repetition: int) -> Sample:
            return self.s3.bench.measure(subject, lambda mount: _opened(target, mount, PLACES, repetition))

        table = Table(PRESIGNED, {PRESIGNED: partial(self._raw_opens, target)})
        table.runs.update({subject.label: partial(mounted, subject) for subject in subjects})
        return table

    def _first_opens(self, target: Target, subject: Subject) -> Table:
        """One open in each of some mounts."""

        def mounted(repetition: int) -> Sample:
            seeds = range(repetition * FRESH_MOUNTS, (repetition + 1) * FRESH_MOUNTS)
            found = [self.s3.bench.measure(subject, partial(_opened, target, places=1, seed=seed)) for seed in seeds]
            return {metric: statistics.median(one[metric] for one in found) for metric in found[0]}

        return Table(PRESIGNED, {PRESIGNED: partial(self._raw_opens, target), subject.label: mounted})

    def _raw_opens(self, target: Target, repetition: int) -> Sample:
        heat(self.s3.bench.hot_bytes)
        return _first_sample(target, target.raw, PLACES, repetition)

    def _scattered(self, scatter: Scatter) -> Table:
        def raw(repetition: int) -> Sample:
            heat(self.s3.bench.hot_bytes)
            return scatter.sample(scatter.read(scatter.target.raw, repetition))

        def mounted(subject: Subject, repetition: int) -> Sample:
            return self.s3.bench.measure(subject, lambda mount: scattered(scatter, mount, repetition))

        table = Table(PRESIGNED, {PRESIGNED: raw})
        subjects = [self.s3.tierfs(), *self.s3.peer_subjects()]
        table.runs.update({subject.label: partial(mounted, subject) for subject in subjects})
        return table


def scatter_title(block_bytes: int, threads: int) -> str:
    """Of the table of such reads."""
    return f"{block_bytes // KIB} KiB, {threads} thread{'s' * (threads > 1)}"


def get_block(get: Get, key: str, start: int, length_bytes: int) -> bytes:
    """Bytes of an object, by a GET of at least what a checksum covers. A shorter read lies within that."""
    if length_bytes >= CRC_BLOCK_BYTES:
        return get(key, start, length_bytes)
    within = start % CRC_BLOCK_BYTES
    return get(key, start - within, CRC_BLOCK_BYTES)[within : within + length_bytes]


def _opened(target: Target, mount: Mount, places: int, seed: int) -> Sample:
    return _first_sample(target, open_and_read(mount.root / target.name), places, seed)


def _first_sample(target: Target, read: Read, places: int, seed: int) -> Sample:
    found = first_bytes(checked(read, target.expected), target.size_bytes, SMALL_BYTES, places, seed)
    return {P50: statistics.median(found) * 1e3}


def scattered(scatter: Scatter, mount: Mount, repetition: int) -> Sample:
    """Reads at random through a mount, with its CPU time."""
    before = mount.cpu_s()
    with opened_randomly(mount.root / scatter.target.name) as read:
        found = scatter.read(read, repetition)
    used_ms = (mount.cpu_s() - before) * 1e3
    return scatter.sample(found) | {CPU_PER_READ: used_ms / len(found.latencies_s)}
