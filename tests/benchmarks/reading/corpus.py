"""What the reading benchmark reads: the same bytes as segments of a store, as plain objects and in JuiceFS.

Every MiB of every file is one random MiB rotated by an amount of its own, so that any block's bytes are known
without keeping the file.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from boto3.s3.transfer import TransferConfig

from tests import verbs
from tests.benchmarks.reading.peers import Peer, Site
from tests.servers.endpoint import S3Endpoint
from tests.verbs import fill
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.place import Place, Server

PIECE_BYTES = MIB
PREFIX = "store"
WARM = "warm"
"""A small file that each mount of S3 reads first, so that its connections are open."""

_RANDOM = random.Random(7).randbytes(PIECE_BYTES)
_TWICE = _RANDOM * 2
_FILE_STEP, _PIECE_STEP = 611_953, 104_729
"""Odd, so that a file has a million pieces before one comes again."""
_APPEND_PIECES = 4
_PART_BYTES = 16 * MIB
_SMALL_SHARES = range(32, 65)
"""Small files are between 1/64 and 1/32 of a large one: 16 to 32 MiB of 1 GiB."""


@dataclass(frozen=True)
class File:
    """One file of known bytes; its size is a multiple of a piece."""

    name: str
    number: int
    size_bytes: int

    def expected(self, start: int, length_bytes: int) -> bytes:
        """Bytes [start, start + length) of it, which must lie in one piece."""
        piece, within = divmod(start, PIECE_BYTES)
        assert within + length_bytes <= PIECE_BYTES
        shift = (self.number * _FILE_STEP + piece * _PIECE_STEP) % PIECE_BYTES
        first = (shift + within) % PIECE_BYTES
        return _TWICE[first : first + length_bytes]

    def blocks(self) -> Iterator[bytes]:
        """All its bytes, a few pieces at a time."""
        step = _APPEND_PIECES * PIECE_BYTES
        for start in range(0, self.size_bytes, step):
            starts = range(start, min(start + step, self.size_bytes), PIECE_BYTES)
            yield b"".join(self.expected(at, PIECE_BYTES) for at in starts)


def large_files(size_bytes: int, count: int) -> list[File]:
    """Files of one size."""
    return [File(f"g{number}", number, size_bytes) for number in range(count)]


def small_files(large_bytes: int, count: int) -> list[File]:
    """Files of many sizes, in whole pieces."""
    chosen = random.Random(3)
    first = 100
    return [
        File(f"w{number:02d}", first + number, max(1, large_bytes // chosen.choice(_SMALL_SHARES) // PIECE_BYTES) * MIB)
        for number in range(count)
    ]


WARM_FILE = File(WARM, 99, PIECE_BYTES)


def fill_store(path: Path, files: Sequence[File]) -> None:
    """Sealed segments with the files' bytes."""
    with app.open_store(path) as store:
        for file in files:
            fill(store.engine, file.name, file.blocks())


def fill_cold(path: Path, files: Sequence[File]) -> None:
    """The same, wholly in the cold tier and nowhere else."""
    for file in files:
        fill_store(path, [file])
        with app.open_store(path) as store:
            verbs.offload(store, file.name)
            verbs.evict(store, file.name)


@dataclass(frozen=True)
class Corpus:
    """Files in S3: as cold segments of the store at `store`, and those of `plain` as objects of the bucket."""

    store: Path
    bucket: str
    endpoint: S3Endpoint
    large: tuple[File, ...]
    small: tuple[File, ...]

    @property
    def plain(self) -> tuple[File, ...]:
        """What peers and raw GETs find under its name in the bucket."""
        return (WARM_FILE, *self.large)

    def object_of(self, file: File) -> str:
        """The key of the only object of a segment that fits in one."""
        client = self.endpoint.client()
        try:
            found = client.list_objects_v2(Bucket=self.bucket, Prefix=f"{PREFIX}/segments/{file.name}/")["Contents"]
        finally:
            client.close()
        (item,) = found
        assert item["Size"] == file.size_bytes
        return item["Key"]


def build(corpus: Corpus, peers: Sequence[Peer], site: Site, mountpoint: Path) -> None:
    """Write everything; the local copies are gone afterwards."""
    place = Place.parsed(f"s3://{corpus.bucket}/{PREFIX}", Server(corpus.endpoint.endpoint_url))
    init_store(corpus.store, place)
    fill_cold(corpus.store, (WARM_FILE, *corpus.large, *corpus.small))
    source = site.scratch / "source"
    source.mkdir()
    paths = [_upload(corpus, file, source) for file in corpus.plain]
    for peer in peers:
        peer.prepare(site, paths, mountpoint)
    for path in paths:
        path.unlink()


def _upload(corpus: Corpus, file: File, directory: Path) -> Path:
    """Put a file into the bucket; returns the local copy it leaves."""
    path = directory / file.name
    with path.open("wb") as output:
        for block in file.blocks():
            output.write(block)
    client = corpus.endpoint.client()
    try:
        client.upload_file(str(path), corpus.bucket, file.name, Config=TransferConfig(multipart_chunksize=_PART_BYTES))
    finally:
        client.close()
    return path
