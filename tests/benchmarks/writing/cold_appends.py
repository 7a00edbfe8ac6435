"""Appends that the cold tier acknowledges: pooled and one by one, beside boto3's PUT of as many bytes."""

from __future__ import annotations

import statistics
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

from tests.benchmarks.raw import boto3_client
from tests.servers.rgw import RgwServer
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.options.config import AckSettings
from tierfs.base.words.types import Ack
from tierfs.engine.chunkstore.place import Place, Server

THREADS = 64
APPEND_BYTES = 1024
MEASURED_S = 6.0
PUTS = 100
ONE_BY_ONE = AckSettings(pool_bytes=1, delay_s=0)


@dataclass(frozen=True)
class Figures:
    """The appends of one run."""

    rate: float
    p50_ms: float
    p99_ms: float
    pools: int
    entries: int


def bench_cold_appends(directory: Path, server: RgwServer, bucket: str, repetitions: int) -> str:
    """Return a table of appends per second, latencies, and requests to write for each pool and entry."""
    puts: list[float] = []
    pooled: list[Figures] = []
    alone: list[Figures] = []
    for turn in range(repetitions):
        puts.append(_put_ms(server, bucket))
        pooled.append(_run(directory / f"pooled{turn}", server, bucket, AckSettings()))
        alone.append(_run(directory / f"alone{turn}", server, bucket, ONE_BY_ONE))
    put_ms = statistics.median(puts)
    lines = [
        f"### Appends that the cold tier acknowledges: {THREADS} threads, {APPEND_BYTES} bytes each, Ceph RGW",
        "",
        f"boto3 PUT of {THREADS * APPEND_BYTES >> 10} KiB, one at a time: {put_ms:.1f} ms. "
        f"Limit of p50: {1000 * AckSettings().delay_s + 2 * put_ms:.0f} ms.",
        "",
        "| | appends/s | p50, p99 ms | appends per pool | PUTs per pool and entry |",
        "|---|---|---|---|---|",
    ]
    for name, runs in (("pooled", pooled), ("one by one", alone)):
        middle = sorted(runs, key=lambda each: each.rate)[len(runs) // 2]
        per_pool = middle.rate * MEASURED_S / middle.pools
        lines.append(
            f"| {name} | {middle.rate:,.0f} | {middle.p50_ms:.0f}, {middle.p99_ms:.0f} | {per_pool:.1f} | "
            f"{(middle.pools + middle.entries) / (2 * max(middle.pools, middle.entries)):.2f} |"
        )
    ratio = statistics.median(each.rate for each in pooled) / statistics.median(each.rate for each in alone)
    lines.append("")
    lines.append(f"Pooled / one by one: {ratio:.0f}")
    return "\n".join(lines) + "\n"


def _put_ms(server: RgwServer, bucket: str) -> float:
    client, data, taken = boto3_client(server.endpoint), bytes(THREADS * APPEND_BYTES), list[float]()
    for number in range(PUTS):
        begun_s = time.perf_counter()
        client.put_object(Bucket=bucket, Key=f"raw/{time.time_ns()}-{number}", Body=data)
        taken.append(1000 * (time.perf_counter() - begun_s))
    return statistics.median(taken)


def _run(path: Path, server: RgwServer, bucket: str, settings: AckSettings) -> Figures:
    init_store(path, Place.parsed(f"s3://{bucket}/{path.name}", Server(server.endpoint_url)))
    with app.open_store(path) as store:
        store.settings = replace(store.settings, ack=settings)
        writers = [store.engine.open_writer(f"d/s{number}", ack=Ack.COLD) for number in range(THREADS)]
        writers[0].append(b"the first one connects")
        delays: list[float] = []
        lock, until_s = threading.Lock(), time.monotonic() + MEASURED_S

        def append(number: int) -> None:
            own: list[float] = []
            while time.monotonic() < until_s:
                begun_s = time.perf_counter()
                writers[number].append(bytes(APPEND_BYTES))
                own.append(1000 * (time.perf_counter() - begun_s))
            with lock:
                delays.extend(own)

        threads = [threading.Thread(target=append, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        cuts = statistics.quantiles(delays, n=100)
        location = store.cold_location_id
        assert location is not None
        names = [item.name for item in store.storage_of(location).list("")]
        pools = sum(name.startswith("packs/") for name in names)
        entries = sum(name.startswith("journal/") for name in names)
        return Figures(len(delays) / MEASURED_S, cuts[49], cuts[98], pools, entries)
