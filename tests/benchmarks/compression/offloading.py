"""A question about offload: how fast it is, what it takes of CPU and memory, and what it stores."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from boto3.s3.transfer import TransferConfig

from tests.benchmarks.compression.material import OFF, Made, TextFile, segment_objects
from tests.benchmarks.compression.site import STORED, TIERFS
from tests.benchmarks.measuring import GIB, heat, seconds
from tests.benchmarks.raw import boto3_client
from tests.benchmarks.reading.figures import CPU, RATE, RSS, Sample
from tests.benchmarks.reading.links import Link
from tests.benchmarks.reading.subjects import Question, Table
from tests.servers.endpoint import S3Endpoint
from tierfs.base.words.types import MIB

OFFLOAD = 3
"""Number of the question."""
RAW = "boto3 multipart upload"
_OFFLOAD = """
import json, os, sys, time
from pathlib import Path
from tests import verbs
from tests.benchmarks.measuring import peak_rss_bytes
from tierfs.app import store as app

path, name = sys.argv[1:]
with app.open_store(Path(path)) as store:
    before_s, before_cpu_s = time.perf_counter(), time.process_time()
    verbs.offload(store, name)
    taken_s, cpu_s = time.perf_counter() - before_s, time.process_time() - before_cpu_s
print(json.dumps({"s": taken_s, "cpu_s": cpu_s, "rss_bytes": peak_rss_bytes(os.getpid())}))
"""
"""By names that another version has, too."""
_PART_BYTES = 8 * MIB
_THREADS = 8


def uploads_too(link: Link) -> Link:
    """The same link, as slow for uploads as for answers."""
    slowness = link.slowness
    if slowness is None:
        return link
    return replace(link, slowness=replace(slowness, upload_bytes_s=slowness.rate_bytes_s))


@dataclass(frozen=True)
class CompressedOffload:
    """Stores by policy, all as they are reached on one link."""

    endpoint: S3Endpoint
    bucket: str
    files: Sequence[TextFile]
    stores: dict[str, Made]
    hot_bytes: int

    def offloaded(self) -> Question:
        """Each kind of bytes, by each policy that a store has."""
        method = (
            "A new sealed segment each time, offloaded by a process of its own; the start of Python is not counted. "
            f"{RAW}: {_THREADS} threads, parts of {_PART_BYTES // MIB} MiB."
        )
        return Question(OFFLOAD, "Offload", method, {file.kind: self._table(file) for file in self.files})

    def _table(self, file: TextFile) -> Table:
        table = Table(TIERFS[OFF], {RAW: partial(self._raw, file)})
        table.runs.update({TIERFS[name]: partial(self._offload, made, file) for name, made in self.stores.items()})
        return table

    def _raw(self, file: TextFile, _: int) -> Sample:
        transfer = TransferConfig(multipart_chunksize=_PART_BYTES, max_concurrency=_THREADS)
        client = boto3_client(self.endpoint)
        heat(self.hot_bytes)
        try:
            taken = seconds(lambda: client.upload_file(str(file.path), self.bucket, "raw", Config=transfer))
            client.delete_object(Bucket=self.bucket, Key="raw")
        finally:
            client.close()
        return {RATE: file.size_bytes / taken / 1e6}

    def _offload(self, made: Made, file: TextFile, _: int) -> Sample:
        name = f"{file.name}{os.urandom(4).hex()}"
        made.fill(name, file.path)
        heat(self.hot_bytes)
        command = [str(made.version.python), "-c", _OFFLOAD, str(made.path), name]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=made.version.checkout)
        found = json.loads(done.stdout)
        stored_bytes = made.cold_bytes(segment_objects(name))
        made.remove(name)
        return {
            RATE: file.size_bytes / found["s"] / 1e6,
            CPU: found["cpu_s"] / (file.size_bytes / GIB),
            RSS: found["rss_bytes"] / MIB,
            STORED: stored_bytes / file.size_bytes,
        }
