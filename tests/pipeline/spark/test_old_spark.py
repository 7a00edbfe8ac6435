"""What an older Spark, and options that tierfs does not have, are answered. No session is needed."""

from __future__ import annotations

import pytest

from tierfs.base.words.errors import InvalidRequest
from tierfs.pipeline import spark as ours
from tierfs.pipeline.commands import job
from tierfs.pipeline.spark import errors, unknown_options
from tierfs.pipeline.spark.errors import TierfsException
from tierfs.pipeline.spark.options import ReadOptions
from tierfs.pipeline.spark.stream_options import StreamOptions
from tierfs.pipeline.spark.write_options import WriteOptions

PLACE = {"store": "/srv/store", "path": "logs"}


def test_a_spark_without_sources_in_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "SPARK", (3, 5))
    needs = r"needs PySpark 4\.0; installed is .*upgrade PySpark"
    with pytest.raises(TierfsException, match=needs):
        ours.register(None)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="tierfs pipeline needs PySpark 4"):
        job.check_output(None)


READS = {
    "maxOffsetsPerTrigger": "known: store",  # a batch has no trigger
    "charset": "use encoding",
    "numPartitions": "use minPartitions",
    "lineSeperator": "the nearest: lineSep; all options: docs/spark-options.md",
    "maxBytes": "the nearest: maxLineBytes; all options: docs/spark-options.md",
    "partition_filter": "use partitionFilter",
    "max-partition-bytes": "use maxPartitionBytes",
    "lineSepp": "use lineSep",
    "recursivefilelookups": "use recursiveFileLookup",
    "maxBytesPerTrigger": "it is for streams",
    "minbytespertrigger": "it is for streams",
    "header": "rows are lines: split them with from_csv or from_json",
    "kafka.bootstrap.servers": "use store",
    "kafka.group.id": "not needed: the checkpoint has the positions",
    "quux": "known: store",
}


STREAMS = {
    "maxOffsetsPerTrigger": "use maxBytesPerTrigger",
    "minOffsetsPerTrigger": "use minBytesPerTrigger",
    "startingVersion": "use startingOffsets",
}
"""Spark makes names lower case: the answer has them as their users write them."""


@pytest.mark.parametrize(("name", "remedy"), READS.items())
def test_an_unknown_option_of_a_batch(name: str, remedy: str) -> None:
    with pytest.raises(InvalidRequest, match=f"unknown option {name}") as caught:
        ReadOptions.of({**PLACE, name: "1"})
    assert (caught.value.remedy or "").startswith(remedy)


def test_an_unknown_option_of_a_stream_and_of_a_write() -> None:
    for name, remedy in STREAMS.items():
        with pytest.raises(InvalidRequest, match=f"unknown option {name}") as caught:
            StreamOptions.of({**PLACE, name.lower(): "10"})
        assert caught.value.remedy == remedy
    with pytest.raises(InvalidRequest, match="unknown option charset") as caught:
        WriteOptions.of({**PLACE, "charset": "latin-1"})
    assert (caught.value.remedy or "").startswith("known: "), "a write has no encoding"


def test_each_hint_names_an_option() -> None:
    known = {name.lower() for name in unknown_options._SAME.values()}
    everything = remedy = unknown_options.remedy_for("?", ["a", "b"], [])
    assert remedy == everything == "known: a, b"
    listed = ""
    for of in (StreamOptions.of, WriteOptions.of):
        with pytest.raises(InvalidRequest) as caught:
            of({**PLACE, "nothing like it": "1"})
        listed += (caught.value.remedy or "").lower()
    assert all(name in listed for name in known)
