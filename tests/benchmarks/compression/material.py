"""Files of known bytes on this machine, and the stores and objects that are made of them."""

from __future__ import annotations

import mmap
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from boto3.s3.transfer import TransferConfig

from tests import verbs
from tests.benchmarks.compression import texts
from tests.benchmarks.raw import boto3_client
from tests.benchmarks.reading.corpus import WARM_FILE, fill_cold
from tests.servers.endpoint import S3Endpoint
from tests.verbs import fill
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.options import policy
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.place import Place, Server

OFF, ZSTD, AUTO = "off", "zstd", "auto"
"""Values of the policy."""

HAS_COMPRESSION = "compression" in policy.KEYS
"""Whether this tierfs has the policy; all stores are `off` without it."""

_APPEND_BYTES = 4 * MIB
_PART_BYTES = 16 * MIB
_SEED = 7


@dataclass(frozen=True)
class TextFile:
    """A file of one kind of bytes; what is read of it elsewhere is compared with it."""

    kind: str
    path: Path
    size_bytes: int

    @property
    def name(self) -> str:
        """Of its segment, object and file."""
        return self.kind

    def expected(self, start: int, length_bytes: int) -> bytes:
        """Bytes [start, start + length) of it."""
        return self._bytes[start : start + length_bytes]

    def blocks(self) -> Iterator[bytes]:
        """All its bytes, as they are appended."""
        for start in range(0, self.size_bytes, _APPEND_BYTES):
            yield self.expected(start, _APPEND_BYTES)

    @cached_property
    def _bytes(self) -> mmap.mmap:
        with self.path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def write_text(kind: str, directory: Path, size_bytes: int) -> TextFile:
    """Make a file of this kind of bytes; its last line may be cut."""
    path, left = directory / kind, size_bytes
    with path.open("wb") as file:
        for block in texts.KINDS[kind](_SEED):
            file.write(block[:left])
            left -= len(block)
            if left <= 0:
                break
    return TextFile(kind, path, size_bytes)


@dataclass(frozen=True)
class Made:
    """A store of a benchmark, over a prefix of its own in a bucket."""

    path: Path
    endpoint: S3Endpoint
    bucket: str

    @property
    def prefix(self) -> str:
        """Of its objects."""
        return self.path.name

    def run(self, *words: object) -> str:
        """Return the output of a command of tierfs on it."""
        command = [sys.executable, "-m", "tierfs", "-q", "--store", str(self.path), *map(str, words)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def cold_bytes(self, below: str) -> int:
        """Bytes of its objects whose names begin so."""
        client = self.endpoint.client()
        try:
            pages = client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=f"{self.prefix}/{below}"
            )
            return sum(item["Size"] for page in pages for item in page.get("Contents", ()))
        finally:
            client.close()

    def fill(self, name: str, file: TextFile) -> None:
        """Write a sealed segment with the file's bytes, in the local tier."""
        with app.open_store(self.path) as store:
            fill(store.engine, name, file.blocks())

    def remove(self, name: str) -> None:
        """Delete a segment, with its objects at once: the server of a benchmark is small."""
        with app.open_store(self.path) as store:
            location = store.cold_location_id
            assert location is not None
            verbs.delete(store, name, recursive=False)
            cold = store.storage_of(location)
            for found in list(cold.list(f"segments/{name}/")):
                cold.delete(found.name)


def make_store(path: Path, endpoint: S3Endpoint, bucket: str, compression: str) -> Made:
    """Make an empty store of this policy."""
    init_store(path, Place.parsed(f"s3://{bucket}/{path.name}", Server(endpoint.endpoint_url)))
    made = Made(path, endpoint, bucket)
    if HAS_COMPRESSION:
        made.run("config", "/", f"compression={compression}")
    return made


def make_cold(made: Made, files: Sequence[TextFile]) -> dict[str, float]:
    """Fill a store so that its bytes are cold and nowhere else; returns stored bytes per byte, by kind."""
    fill_cold(made.path, [WARM_FILE])
    for file in files:
        made.fill(file.name, file)
        with app.open_store(made.path) as store:
            verbs.offload(store, file.name)
            verbs.evict(store, file.name)
    return {file.kind: made.cold_bytes(segment_objects(file.name)) / file.size_bytes for file in files}


def segment_objects(name: str) -> str:
    """Return what the names of a segment's objects begin with."""
    return f"segments/{name}/"


def upload(file: TextFile, endpoint: S3Endpoint, bucket: str) -> None:
    """Put a file into the bucket under its own name."""
    client = boto3_client(endpoint)
    try:
        client.upload_file(str(file.path), bucket, file.name, Config=TransferConfig(multipart_chunksize=_PART_BYTES))
    finally:
        client.close()
