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
from tests.benchmarks.reading.corpus import WARM_FILE
from tests.benchmarks.versus import Version
from tests.servers.endpoint import S3Endpoint
from tierfs.app import store as app
from tierfs.base.options import policy
from tierfs.base.words.types import MIB

OFF, ZSTD, AUTO = "off", "zstd", "auto"
"""Values of the policy."""
BEFORE = "before"
"""In their place: a store of another version of tierfs, which needs none of them."""

HAS_COMPRESSION = "compression" in policy.KEYS
"""Whether this tierfs has the policy; all stores are `off` without it."""

_ROOT = Path(__file__).parents[3]
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
    version: Version

    @property
    def prefix(self) -> str:
        """Of its objects."""
        return self.path.name

    def run(self, *words: object) -> str:
        """Return the output of a command of tierfs on it."""
        command = self.version.command(self.path, *map(str, words))
        checkout = self.version.checkout
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=checkout).stdout

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

    def fill(self, name: str, path: Path) -> None:
        """Write a sealed segment with the file's bytes, in the local tier."""
        self.run("append", name, path, "--seal")

    def remove(self, name: str) -> None:
        """Delete a segment, with its objects at once: the server of a benchmark is small."""
        with app.open_store(self.path) as store:
            location = store.cold_location_id
            assert location is not None
            verbs.delete(store, name, recursive=False)
            cold = store.storage_of(location)
            for found in list(cold.list(f"segments/{name}/")):
                cold.delete(found.name)


def make_store(path: Path, endpoint: S3Endpoint, bucket: str, compression: str, other: Path | None = None) -> Made:
    """Make an empty store of this policy; one of `BEFORE` is made and used by the checkout `other`."""
    python = Path(sys.executable) if other is None else other / ".venv" / "bin" / "python"
    made = Made(path, endpoint, bucket, Version(python, other or _ROOT))
    made.run("init", "--bucket", f"s3://{bucket}/{path.name}", "--endpoint-url", endpoint.endpoint_url)
    if HAS_COMPRESSION and other is None:
        made.run("config", "/", f"compression={compression}")
    return made


def make_cold(made: Made, files: Sequence[TextFile]) -> dict[str, float]:
    """Fill a store so that its bytes are cold and nowhere else; returns stored bytes per byte, by kind."""
    warm = made.path.with_name(WARM_FILE.name)
    warm.write_bytes(b"".join(WARM_FILE.blocks()))
    for name, path in {WARM_FILE.name: warm, **{file.name: file.path for file in files}}.items():
        made.fill(name, path)
        made.run("offload", name)
        made.run("evict", name)
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
