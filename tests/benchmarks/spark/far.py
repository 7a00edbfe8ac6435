"""Spark counts lines far from the server: by name, by a mount's path and by s3a, over a relay that is late and slow."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from tests import verbs
from tests.benchmarks.reading.figures import FAR, FARTHER
from tests.benchmarks.reading.links import BY_NAME, Link, reached, redirected
from tests.benchmarks.spark.reading import NAME, cold_tier, s3a_jars, s3a_settings, upload, write_lines
from tests.benchmarks.spark.session import session
from tests.servers.rgw import RgwServer
from tests.verbs import fill
from tierfs.app import store as app

_LINKS = (BY_NAME[FAR], replace(BY_NAME[FARTHER], title="40 ms, 40 MB/s", tls=False))
"""Without encryption: Java would need a store of certificates of its own."""

_EACH_SESSION = {"spark.hadoop.fs.s3a.impl.disable.cache": "true"}
"""A filesystem of s3a would outlive its session, with the address of the link before."""


def bench_spark_far(path: Path, server: RgwServer, bucket: str, repetitions: int) -> str:
    """A table for each link. `path`: a store over this bucket."""
    directory = path.parent
    source = directory / "web.log"
    count = write_lines(source)
    with app.open_store(path) as store:
        with source.open("rb") as file:
            fill(store.engine, NAME, iter(partial(file.read, 4 << 20), b""))
        verbs.offload(store, NAME)
        verbs.evict(store, NAME, force=True)
    upload(server, bucket, source)
    jars = s3a_jars(directory)

    def table(link: Link) -> str:
        title = f"Spark counts lines, S3 tier, 1.1 GB; {link.title}"
        with (
            reached(link, server) as (endpoint, _),
            redirected(path, endpoint.endpoint_url),
            session(directory, s3a_settings(endpoint.endpoint_url, jars) | _EACH_SESSION) as spark,
        ):
            return cold_tier(title, spark, path, bucket, count, repetitions)

    return "\n".join(map(table, _LINKS))
