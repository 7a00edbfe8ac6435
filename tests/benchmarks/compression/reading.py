"""Questions about reading compressed objects: from end to end, and single blocks at random."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

from tests.benchmarks.compression.material import OFF, TextFile
from tests.benchmarks.compression.site import TIERFS, Readers
from tests.benchmarks.compression.texts import LOGS
from tests.benchmarks.measuring import heat
from tests.benchmarks.mounts import Mount
from tests.benchmarks.raw import Get, boto3_get, presigned_get
from tests.benchmarks.reading.figures import KIB_FETCHED, Sample
from tests.benchmarks.reading.random_questions import (
    KIB,
    PRESIGNED,
    RANDOM_S,
    SMALL_BYTES,
    Scatter,
    Target,
    get_block,
    scattered,
)
from tests.benchmarks.reading.s3_questions import RAW, RAW_RANGE_BYTES
from tests.benchmarks.reading.subjects import Question, Subject, Table, peer_subject, streamed, streamed_raw
from tests.benchmarks.workloads import checked, dd, first_bytes, get_all, opened_randomly

READING, RANDOM_READS = 1, 2
"""Numbers of the questions."""

COUNTED_READS = 256


@dataclass(frozen=True)
class CompressedReading:
    """Questions on one link."""

    readers: Readers

    def one_reader(self) -> Question:
        """How one reader of the whole file compares with raw GETs of the uncompressed object, by kind of bytes."""
        method = (
            f"One `dd bs=1M` of a cold file, a fresh mount each time; {RAW}: the uncompressed object, "
            f"{self.readers.link.raw_threads} threads, ranges of {RAW_RANGE_BYTES >> 20} MiB."
        )
        parts = {file.kind: self._whole(file) for file in self.readers.files}
        return Question(READING, "Sequential read of compressed objects, one reader", method, parts)

    def random_blocks(self) -> Question:
        """What a block of 4 KiB costs at a random place, in time and in bytes."""
        method = (
            f"Aligned blocks of 4 KiB at random for {RANDOM_S:g} s, one thread, every block compared; {PRESIGNED}: the "
            f"128 KiB around each, of the uncompressed object. Fetched: {COUNTED_READS} reads, counted by a relay."
        )
        parts: dict[str, Table] = {}
        for file in self.readers.files:
            parts[file.kind] = self._scattered(file)
            parts[fetched_title(file.kind)] = self._fetched(file)
        return Question(RANDOM_READS, "Random reads of compressed objects", method, parts)

    def _whole(self, file: TextFile) -> Table:
        subjects = self.readers.subjects(file.kind)
        if file.kind == LOGS:
            subjects += [peer_subject(peer, self.readers.site) for peer in self.readers.peers]
        stored = self.readers.stored_samples(file.kind)
        table = Table(RAW, {RAW: lambda _: self._raw(file)})
        for subject in subjects:
            table.runs[subject.label] = partial(self._read, subject, file, stored.get(subject.label, {}))
        return table

    def _read(self, subject: Subject, file: TextFile, stored: Sample, _: int) -> Sample:
        def work(mount: Mount) -> Sample:
            return streamed(mount, file.size_bytes, lambda: dd([mount.root / file.name]))[0]

        return self.readers.bench.measure(subject, work) | stored

    def _raw(self, file: TextFile) -> Sample:
        heat(self.readers.bench.hot_bytes)
        objects = [(file.name, file.size_bytes)]
        threads = self.readers.link.raw_threads
        return streamed_raw(file.size_bytes, lambda: get_all(self._get, objects, RAW_RANGE_BYTES, threads))[0]

    def _scattered(self, file: TextFile) -> Table:
        target = Target(file.name, file.size_bytes, file.expected, partial(get_block, self._presigned, file.name))
        scatter = Scatter(target, SMALL_BYTES, threads=1)

        def raw(repetition: int) -> Sample:
            heat(self.readers.bench.hot_bytes)
            return scatter.sample(scatter.read(target.raw, repetition))

        def mounted(subject: Subject, repetition: int) -> Sample:
            return self.readers.bench.measure(subject, lambda mount: scattered(scatter, mount, repetition))

        table = Table(TIERFS[OFF], {PRESIGNED: raw})
        table.runs.update({one.label: partial(mounted, one) for one in self.readers.subjects(file.kind)})
        return table

    def _fetched(self, file: TextFile) -> Table:
        subjects = self.readers.subjects(file.kind)
        return Table(TIERFS[OFF], {one.label: partial(self._count, one, file) for one in subjects})

    def _count(self, subject: Subject, file: TextFile, repetition: int) -> Sample:
        with self.readers.counted():
            with self.readers.bench.cold(subject) as mount, opened_randomly(mount.root / file.name) as read:
                before = self.readers.relay.received_bytes
                compared = checked(read, file.expected)
                first_bytes(compared, file.size_bytes, SMALL_BYTES, COUNTED_READS, repetition)
            return {KIB_FETCHED: (self.readers.relay.received_bytes - before) / COUNTED_READS / KIB}

    @cached_property
    def _get(self) -> Get:
        return boto3_get(self.readers.endpoint, self.readers.bucket)

    @cached_property
    def _presigned(self) -> Get:
        return presigned_get(self.readers.endpoint, self.readers.bucket)


def fetched_title(kind: str) -> str:
    """Of the table of bytes that come from S3."""
    return f"{kind}, fetched"
