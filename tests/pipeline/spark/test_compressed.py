"""Spark by name and by path, in batches and as a stream, on chains of compressed and plain objects, and on packs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.mount.conftest import Mount, append
from tests.pipeline.spark.reading import frame, make_cold, sums, sums_by_path, text, truth
from tests.pipeline.spark.test_streams import Stream, lines_of
from tests.pipeline.spark.test_write import BYTES, lines, segments, writer
from tierfs.app import store as app
from tierfs.base.words.types import ROOT_DIRECTORY, PayloadEncoding, Tier
from tierfs.engine.metadata import policies
from tierfs.engine.metadata.tables import OBJECTS

pytestmark = [pytest.mark.mount, pytest.mark.spark, pytest.mark.timeout(420, method="thread")]

CHUNK_BYTES = 300_000


def compress(store: app.Store, compression: str) -> None:
    """From now on."""
    with store.metadata.write() as txn:
        settings = {"chunk_bytes": str(CHUNK_BYTES), "object_bytes": str(4 * CHUNK_BYTES), "compression": compression}
        policies.put(txn, ROOT_DIRECTORY, settings)


def encodings(store: app.Store) -> set[PayloadEncoding]:
    with store.metadata.read() as txn:
        return {record.encoding for _, record in txn.scan(OBJECTS) if record.tier is Tier.COLD}


def fill(store: app.Store) -> dict[str, bytes]:
    """Chains of one form, a mixed one with a local tail, and packs of both forms."""
    data = {f"logs/{name}": text(number, 12_000) for number, name in enumerate(("plain", "zstd", "mixed"))}
    for form in ("off", "zstd"):
        compress(store, form)
        small = {f"logs/small-{form}-{number}": text(number, 1 + number) for number in range(60)}
        for name, content in small.items():
            append(store, name, content, seal=True)
        data |= small
    compress(store, "off")
    append(store, "logs/plain", data["logs/plain"], seal=True)
    make_cold(store, "logs/plain")
    for number, form in enumerate(("zstd", "off", "zstd")):
        compress(store, form)
        append(store, "logs/mixed", data["logs/mixed"][number * 200_000 : (number + 1) * 200_000])
        make_cold(store, "logs/mixed")
    append(store, "logs/zstd", data["logs/zstd"], seal=True)
    make_cold(store, "")
    append(store, "logs/mixed", data["logs/mixed"][600_000:])
    assert encodings(store) == {PayloadEncoding.RAW, PayloadEncoding.ZSTD_FRAMES}
    return data


def test_batches_by_name_and_by_path(spark: SparkSession, store: app.Store, mount: Mount) -> None:
    data = fill(store)
    expected = {name: truth(content) for name, content in data.items()}
    assert sums(frame(spark, store.path, "logs")) == expected
    mounted = mount().path
    assert sums_by_path(spark.read.text(str(mounted / "logs")), mounted) == expected


def test_a_stream_by_name(spark: SparkSession, store: app.Store, tmp_path: Path) -> None:
    data = fill(store)
    stream = Stream(spark, store.path, tmp_path / "checkpoint", "logs", maxBytesPerTrigger="700k")
    stream.run()
    assert stream.rows == sorted(row for name, content in data.items() for row in lines_of(name, content))
    append(store, "logs/mixed", b"one more\n")
    make_cold(store, "logs/mixed")
    assert [row[0] for row in stream.run()] == ["one more"]


def test_what_is_written_is_compressed_and_reads_back_equal(spark: SparkSession, store: app.Store) -> None:
    compress(store, "zstd")
    writer(lines(spark), store).save("out")
    assert encodings(store) == {PayloadEncoding.ZSTD_FRAMES}
    assert b"".join(segments(store).values()) == BYTES
    assert sums(frame(spark, store.path, "out")) == {name: truth(data) for name, data in segments(store).items()}
