"""Reads by URL, through fsspec: local bytes against a plain file, cold ones against what else reads S3 in Python."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import fsspec
from pyarrow.fs import S3FileSystem

from tests import verbs
from tests.benchmarks.measuring import compared, heat, seconds
from tests.servers.endpoint import ACCESS_KEY, REGION, SECRET_KEY
from tests.servers.rgw import RgwServer
from tests.verbs import fill, random_blocks
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.words.types import MIB
from tierfs.faces.fsspec import TierfsFileSystem

KIB = 1024
SIZE_BYTES = 512 * MIB
RANDOM_READS = 2000
COLD_READS = 300
BLOCK = os.urandom(4 * MIB)

Open = Callable[[], IO[bytes]]


def bench_by_url(directory: Path, repetitions: int) -> str:
    """Bytes in the page cache: what a call costs."""
    path, plain = directory / "url", directory / "plain"
    init_store(path, None)
    with app.open_store(path) as store:
        fill(store.engine, "s", random_blocks(SIZE_BYTES))
    plain.write_bytes(BLOCK * (SIZE_BYTES // len(BLOCK)))
    local = fsspec.filesystem("file")
    subjects: dict[str, Open] = {
        "`open`": lambda: plain.open("rb"),
        "fsspec, a local file": lambda: local.open(str(plain)),
        "fsspec, a segment": _tierfs(path),
    }
    tables = [_sequential("local tier", subjects, size, repetitions) for size in (4 * MIB, 64 * KIB)]
    tables += [_random("local tier", subjects, size, RANDOM_READS, repetitions) for size in (128 * KIB, 4 * KIB)]
    return "\n".join(tables)


def bench_by_url_s3(path: Path, server: RgwServer, bucket: str, repetitions: int) -> str:
    """Bytes in S3 alone; a plain object beside them for the others. s3fs takes part where it is installed."""
    with app.open_store(path) as store:
        fill(store.engine, "url", random_blocks(SIZE_BYTES))
        verbs.offload(store, "url")
        verbs.evict(store, "url", force=True)
    endpoint = server.endpoint_url.partition("://")[2]
    arrow = S3FileSystem(
        access_key=ACCESS_KEY, secret_key=SECRET_KEY, region=REGION, endpoint_override=endpoint, scheme="http"
    )
    source = path.parent / "plain"
    source.write_bytes(BLOCK * (SIZE_BYTES // len(BLOCK)))
    server.endpoint.client().upload_file(str(source), bucket, "plain")
    subjects: dict[str, Open] = {"pyarrow's S3FileSystem": lambda: arrow.open_input_file(f"{bucket}/plain")}
    if find_spec("s3fs"):
        options = {"key": ACCESS_KEY, "secret": SECRET_KEY, "endpoint_url": server.endpoint_url}
        other = fsspec.filesystem("s3", **options, client_kwargs={"region_name": REGION})
        subjects["s3fs"] = lambda: other.open(f"{bucket}/plain")
    subjects["fsspec, a segment"] = _tierfs(path, "url")
    tables = [_sequential("cold tier (Ceph RGW)", subjects, 4 * MIB, repetitions)]
    tables += [_random("cold tier (Ceph RGW)", subjects, size, COLD_READS, repetitions) for size in (128 * KIB,)]
    return "\n".join(tables)


def _tierfs(path: Path, name: str = "s") -> Open:
    """Opens with nothing remembered: no thread, no block in memory, no checked chunk."""

    def opened() -> Any:
        return TierfsFileSystem(store=path, skip_instance_cache=True).open(name)

    return opened


def _sequential(where: str, subjects: dict[str, Open], size_bytes: int, repetitions: int) -> str:
    def measured(opened: Open) -> Callable[[], float]:
        def read() -> None:
            with closing(opened()) as file:
                while file.read(size_bytes):
                    pass

        return lambda: (heat(SIZE_BYTES), seconds(read))[1]

    title = f"By URL: {where}, {SIZE_BYTES // MIB} MiB in sequential reads of {size_bytes // KIB} KiB"
    return _table(title, SIZE_BYTES, subjects, measured, repetitions)


def _random(where: str, subjects: dict[str, Open], size_bytes: int, reads: int, repetitions: int) -> str:
    chosen = random.Random(5)
    places = [chosen.randrange(SIZE_BYTES - size_bytes) for _ in range(reads)]

    def measured(opened: Open) -> Callable[[], float]:
        def read() -> None:
            with closing(opened()) as file:
                for place in places:
                    file.seek(place)
                    file.read(size_bytes)

        return lambda: seconds(read)

    title = f"By URL: {where}, {reads} random reads of {size_bytes // KIB} KiB"
    return _table(title, reads * size_bytes, subjects, measured, repetitions)


def _table(
    title: str,
    size_bytes: int,
    subjects: dict[str, Open],
    measured: Callable[[Open], Callable[[], float]],
    repetitions: int,
) -> str:
    return compared(title, size_bytes, repetitions, {name: measured(opened) for name, opened in subjects.items()})
