"""Scrubbing with Spark beside GETs of the same objects: how much of the server's speed checking keeps."""

from __future__ import annotations

import os
from itertools import repeat
from pathlib import Path

from tests import verbs
from tests.benchmarks.measuring import compared, heat, seconds
from tests.benchmarks.raw import presigned_get, read_objects
from tests.servers.rgw import RgwServer
from tests.verbs import fill
from tierfs.app import store as app
from tierfs.base.words.types import MIB, Tier
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.pipeline.spark.jobs.scrub import scrub
from tierfs.pipeline.spark.jobs.session import job_session

SIZE_BYTES = 6 * 1024 * MIB
RANGE_BYTES = 8 * MIB
THREADS = 8
"""As many GETs as two tasks have under way."""

_BLOCK_BYTES = 4 * MIB
_SEGMENTS = 8


def bench_spark_scrub(path: Path, server: RgwServer, bucket: str, repetitions: int) -> str:
    """A table. `path`: a store over this bucket."""
    with app.open_store(path) as store:
        _fill(store)
        objects = _objects(store)
        total_bytes = sum(length for _, length in objects)
        with job_session("scrub", "local[2]") as spark:

            def scrubbed() -> float:
                heat()
                found = []
                taken = seconds(lambda: found.append(scrub(spark, store, ["scrub"])))
                assert (found[0].rows, found[0].summary["cold_bytes"]) == ([], total_bytes)
                return taken

            scrubbed()  # starts the Python workers
            subjects = {
                f"GETs of 8 MiB, {THREADS} at a time": lambda: _read(server, bucket, objects),
                "pipeline scrub, local[2]": scrubbed,
            }
            title = f"Scrub of {total_bytes / 1e9:.1f} GB of cold objects"
            return compared(title, total_bytes, repetitions, subjects)


def _fill(store: app.Store) -> None:
    block = os.urandom(_BLOCK_BYTES)
    for number in range(_SEGMENTS):
        fill(store.engine, f"scrub/{number}", repeat(block, SIZE_BYTES // _SEGMENTS // _BLOCK_BYTES))
    verbs.offload(store, "scrub")
    verbs.evict(store, "scrub", force=True)


def _objects(store: app.Store) -> list[tuple[str, int]]:
    """Keys in the bucket, and lengths."""
    with store.metadata.read() as txn:
        return [(f"p/{one.name}", one.length) for _, one in txn.scan(OBJECTS) if one.tier is Tier.COLD]


def _read(server: RgwServer, bucket: str, objects: list[tuple[str, int]]) -> float:
    get = presigned_get(server.endpoint, bucket)
    heat()
    return seconds(lambda: read_objects(get, objects, RANGE_BYTES, THREADS))
