"""Questions whose S3 traffic goes through a relay that counts it: what is fetched for what is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

from tests.benchmarks.mounts import Mount
from tests.benchmarks.raw import boto3_get, presigned_get
from tests.benchmarks.reading.corpus import File
from tests.benchmarks.reading.figures import FETCHED, KIB_FETCHED, Sample
from tests.benchmarks.reading.links import redirected
from tests.benchmarks.reading.local_questions import LocalQuestions
from tests.benchmarks.reading.random_questions import KIB, PRESIGNED, SMALL_BYTES, get_block
from tests.benchmarks.reading.s3_questions import RAW, RAW_RANGE_BYTES, S3Bench
from tests.benchmarks.reading.subjects import Question, Subject, Table, streamed
from tests.benchmarks.relay.process import RelayServer
from tests.benchmarks.workloads import Read, checked, dd, first_bytes, get_all, opened_randomly
from tests.servers.endpoint import S3Endpoint
from tierfs.base.options.config import ReadSettings

SEQUENTIAL = "One sequential `dd bs=1M`"
RANDOM_READS = 256
RANDOM = f"{RANDOM_READS} reads of 4 KiB at places of their own, one thread"
CACHED = "tierfs, disk cache"
LOCAL = "tierfs, local tier"
_CACHE_FIELD = "cache_bytes"
_CACHE_SETTING = "TIERFS_READ__CACHE_BYTES"


@dataclass(frozen=True)
class CountedQuestions:
    """Questions about what is fetched; all traffic of their mounts passes `relay`."""

    s3: S3Bench
    relay: RelayServer

    def fetched(self) -> Question:
        """How many bytes come from S3 for those that were read."""
        method = (
            "A relay between mount and server counts all bytes of the answers, headers included, from the start of the "
            f"reads until the mount is gone. Random: opened with `POSIX_FADV_RANDOM`; {PRESIGNED} fetch 128 KiB each."
        )
        parts = {SEQUENTIAL: self._sequential(), RANDOM: self._random()}
        return Question(9, "Bytes fetched from S3", method, parts)

    def disk_cache(self, local: LocalQuestions) -> Question:
        """How near the disk cache comes to local chunks."""
        title = "Sequential read from the disk cache"
        method = (
            "One `dd bs=1M` of a file of which an earlier mount left every byte in the disk cache, in a fresh mount; "
            f"the files of cache and local tier are in the page cache. `{FETCHED}`: what came from S3 all the same."
        )
        if _CACHE_FIELD not in {field.name for field in fields(ReadSettings)}:
            return Question(8, title, method, {}, f"left out: this tierfs has no setting read.{_CACHE_FIELD}")
        first_read = local.first_read().parts[""].runs
        table = Table(LOCAL, {LOCAL: first_read["tierfs"], CACHED: lambda _: self._from_cache()})
        return Question(8, title, method, {"": table})

    @property
    def _file(self) -> File:
        return self.s3.corpus.large[0]

    @property
    def _relayed(self) -> S3Endpoint:
        return replace(self.s3.corpus.endpoint, endpoint_url=self.relay.endpoint_url)

    def _subjects(self) -> list[Subject]:
        site = replace(self.s3.site, endpoint_url=self.relay.endpoint_url)
        return [self.s3.tierfs(), *self.s3.peer_subjects(site)]

    def _sequential(self) -> Table:
        file = self._file

        def raw(_: int) -> Sample:
            before = self.relay.received_bytes
            get = boto3_get(self._relayed, self.s3.corpus.bucket)
            get_all(get, [(file.name, file.size_bytes)], RAW_RANGE_BYTES, self.s3.link.raw_threads)
            return {FETCHED: (self.relay.received_bytes - before) / file.size_bytes}

        def mounted(subject: Subject, _: int) -> Sample:
            fetched = self._count(subject, lambda mount: dd([mount.root / file.name]))
            return {FETCHED: fetched / file.size_bytes}

        table = Table(RAW, {RAW: raw})
        table.runs.update({subject.label: partial(mounted, subject) for subject in self._subjects()})
        return table

    def _random(self) -> Table:
        file = self._file

        def raw(repetition: int) -> Sample:
            before = self.relay.received_bytes
            get = presigned_get(self._relayed, self.s3.corpus.bucket)
            _read_blocks(file, partial(get_block, get, file.name), repetition)
            return {KIB_FETCHED: (self.relay.received_bytes - before) / RANDOM_READS / KIB}

        def mounted(subject: Subject, repetition: int) -> Sample:
            fetched = self._count(subject, lambda mount: _read_file(file, mount.root / file.name, repetition))
            return {KIB_FETCHED: fetched / RANDOM_READS / KIB}

        table = Table(PRESIGNED, {PRESIGNED: raw})
        table.runs.update({subject.label: partial(mounted, subject) for subject in self._subjects()})
        return table

    def _count(self, subject: Subject, read: Callable[[Mount], object]) -> int:
        """Bytes that a fresh mount fetches for a read."""
        with redirected(self.s3.corpus.store, self.relay.endpoint_url):
            with self.s3.bench.cold(subject) as mount:
                before = self.relay.received_bytes
                read(mount)
            return self.relay.received_bytes - before

    def _from_cache(self) -> Sample:
        file = self._file
        subject = self.s3.tierfs(CACHED, **{_CACHE_SETTING: str(2 * file.size_bytes)})
        received = [0]

        def read(mount: Mount) -> Sample:
            before = self.relay.received_bytes
            sample, _ = streamed(mount, file.size_bytes, lambda: dd([mount.root / file.name]))
            received[0] = self.relay.received_bytes - before
            return sample

        with redirected(self.s3.corpus.store, self.relay.endpoint_url):
            with self.s3.bench.cold(subject) as mount:
                read(mount)
            sample = self.s3.bench.measure(subject, read)
        return sample | {FETCHED: received[0] / file.size_bytes}


def _read_blocks(file: File, read: Read, seed: int) -> None:
    first_bytes(checked(read, file.expected), file.size_bytes, SMALL_BYTES, RANDOM_READS, seed)


def _read_file(file: File, path: Path, seed: int) -> None:
    with opened_randomly(path) as read:
        _read_blocks(file, read, seed)
