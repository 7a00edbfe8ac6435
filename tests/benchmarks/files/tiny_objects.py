"""A segment of ten thousand tiny objects, as appends with `ack=cold` leave it until they are joined: read whole."""

from __future__ import annotations

import resource
import statistics
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.benchmarks.measuring import seconds
from tests.benchmarks.raw import presigned_get
from tests.benchmarks.reading import chunky
from tests.benchmarks.versus import Cost, Version
from tests.servers.endpoint import S3Endpoint

OBJECTS = 10_000
OBJECT_BYTES = 1024
_GETS_AT_ONCE = 8

_CHECKOUT = Path(__file__).parents[3]


def bench_tiny(store: Path, endpoint: S3Endpoint, bucket: str, repetitions: int) -> str:
    """A table: `tierfs cat` of the segment beside as many GETs by threads of one process."""
    chunky.build(store, endpoint, bucket, chunks=OBJECTS, chunk_bytes=OBJECT_BYTES)
    version = Version(Path(sys.executable), _CHECKOUT)
    get = presigned_get(endpoint, bucket)

    def get_all() -> None:
        with ThreadPoolExecutor(_GETS_AT_ONCE) as threads:
            list(threads.map(lambda _: get(chunky.OBJECT_KEY, 0, OBJECT_BYTES), range(OBJECTS)))

    subjects: dict[str, Callable[[], Cost]] = {
        f"urllib3, {_GETS_AT_ONCE} threads": lambda: _of_this_process(get_all),
        "`tierfs cat`": lambda: version.run(store, "cat", chunky.NAME),
    }
    costs: dict[str, list[Cost]] = {name: [] for name in subjects}
    for _ in range(repetitions):
        for name, measure in subjects.items():
            costs[name].append(measure())
    lines = [
        f"### {OBJECTS:,} objects of {OBJECT_BYTES} bytes in one segment, Ceph RGW",
        "",
        "| | s | s of CPU |",
        "|---|---|---|",
    ]
    for name, found in costs.items():
        lines.append(
            f"| {name} | {statistics.median(s for s, _ in found):.1f} | {statistics.median(s for _, s in found):.1f} |"
        )
    return "\n".join(lines) + "\n"


def _of_this_process(work: Callable[[], None]) -> Cost:
    before = resource.getrusage(resource.RUSAGE_SELF)
    taken_s = seconds(work)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return taken_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
