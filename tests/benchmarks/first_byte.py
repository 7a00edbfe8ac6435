"""The first bytes of a fresh mount, one open after the other, beside GETs on a connection that stays open."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests import verbs
from tests.benchmarks.children import store_mount
from tests.benchmarks.measuring import heat
from tests.benchmarks.raw import presigned_get
from tests.benchmarks.reading import chunky
from tests.benchmarks.reading.corpus import File, large_files
from tests.benchmarks.reading.random_questions import SMALL_BYTES, get_block
from tests.benchmarks.workloads import Read, checked, open_and_read
from tests.servers.endpoint import S3Endpoint
from tests.verbs import fill
from tierfs.app import store as app
from tierfs.app.setup.create import ColdChoice, init_store
from tierfs.base.words.types import MIB

FILES = 12
FILE_BYTES = 8 * MIB
"""Enough that files of random bytes get objects of their own."""

OPENS = 12
"""In each mount, of as many files or places."""

_GETS = 24
"""Between two mounts; their median is the limit."""

_PAUSES_S = {"at once": 0.0, "after 5 s": 5.0}
_PREFIX = "first"
_SHOWN = {"1st": slice(0, 1), "2nd": slice(1, 2), "3rd": slice(2, 3), "4th to last": slice(3, None)}


@dataclass
class _Found:
    """Milliseconds of the opens of every mount, in order, by subject."""

    opens: dict[str, list[list[float]]] = field(default_factory=dict)

    def add(self, subject: str, taken_s: Sequence[float]) -> None:
        self.opens.setdefault(subject, []).append([one * 1e3 for one in taken_s])

    def row(self, subject: str, limit_ms: float) -> str:
        """The medians over all mounts, and what they are of a GET."""
        cells = []
        for part in _SHOWN.values():
            values = [value for opens in self.opens[subject] for value in opens[part]]
            middle = statistics.median(values)
            cells.append(f"{middle:.1f} ({min(values):.1f} to {max(values):.1f}; {middle / limit_ms:.2f})")
        return f"| {subject} | {' | '.join(cells)} |"


def bench_first_byte(directory: Path, endpoint: S3Endpoint, mounts: int) -> str:
    """Medians over `mounts` fresh mounts of two stores at `endpoint`; the stores are built if they are missing."""
    files, chunks = directory / "files", directory / "chunky"
    bucket = _built(files, chunks, endpoint)
    get = presigned_get(endpoint, bucket)
    found, gets_ms = _Found(), list[float]()
    for number in range(mounts):
        for when, pause_s in _PAUSES_S.items():
            gets_ms += [taken * 1e3 for taken in _gets(get, number)]
            mounted = partial(_mounted, directory, pause_s, number)
            found.add(f"files, {when}", mounted(files, _of_files))
            found.add(f"one segment of {chunky.CHUNKS_COUNT:,} chunks, {when}", mounted(chunks, _of_chunks))
    limit_ms = statistics.median(gets_ms)
    lines = [f"### First bytes of {mounts} fresh mounts, ms; a GET of 128 KiB: {limit_ms:.2f}", ""]
    lines += [f"| open (min to max; of a GET) | {' | '.join(_SHOWN)} |", "|---" * (1 + len(_SHOWN)) + "|"]
    return "\n".join([*lines, *(found.row(subject, limit_ms) for subject in found.opens)]) + "\n"


def _built(files: Path, chunks: Path, endpoint: S3Endpoint) -> str:
    """Build the stores, once; return their bucket."""
    kept = files.parent / "bucket"
    if kept.exists():
        return kept.read_text()
    bucket = endpoint.create_bucket()
    init_store(files, ColdChoice(bucket_url=f"s3://{bucket}/{_PREFIX}", endpoint_url=endpoint.endpoint_url))
    with app.open_store(files) as store:
        for file in large_files(FILE_BYTES, FILES):
            fill(store.engine, file.name, file.blocks())
        verbs.offload(store)
        verbs.evict(store)
    chunky.build(chunks, endpoint, bucket)
    kept.write_text(bucket)
    return bucket


def _mounted(
    directory: Path, pause_s: float, seed: int, store: Path, places: Callable[[Path, int], list[Callable[[], bytes]]]
) -> list[float]:
    """Seconds of the opens in a mount of its own, as a user begins it: the command has returned."""
    heat(MIB << 9)
    mountpoint = directory / "mnt"
    mountpoint.mkdir(exist_ok=True)
    with store_mount(store, directory, mountpoint):
        time.sleep(pause_s)
        return [_seconds(one) for one in places(mountpoint, seed)]


def _of_files(mountpoint: Path, seed: int) -> list[Callable[[], bytes]]:
    chosen = random.Random(seed)
    files = large_files(FILE_BYTES, FILES)[:OPENS]
    chosen.shuffle(files)
    return [partial(_file(mountpoint, file), _place(chosen, FILE_BYTES), SMALL_BYTES) for file in files]


def _file(mountpoint: Path, file: File) -> Read:
    return checked(open_and_read(mountpoint / file.name), file.expected)


def _of_chunks(mountpoint: Path, seed: int) -> list[Callable[[], bytes]]:
    chosen = random.Random(seed)
    read = checked(open_and_read(mountpoint / chunky.NAME), chunky.expected)
    return [partial(read, _place(chosen, chunky.SIZE_BYTES), SMALL_BYTES) for _ in range(OPENS)]


def _place(chosen: random.Random, size_bytes: int) -> int:
    return chosen.randrange(size_bytes // SMALL_BYTES) * SMALL_BYTES


def _gets(get: Callable[[str, int, int], bytes], seed: int) -> list[float]:
    chosen = random.Random(seed)
    get_block(get, chunky.OBJECT_KEY, 0, SMALL_BYTES)
    starts = [_place(chosen, chunky.CHUNK_BYTES) for _ in range(_GETS)]
    return [_seconds(partial(get_block, get, chunky.OBJECT_KEY, start, SMALL_BYTES)) for start in starts]


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
