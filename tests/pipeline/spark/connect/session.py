"""A process with a session of Spark Connect: reads, writes and runs jobs on a store."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.pipeline.spark.conftest import SETTINGS
from tierfs.app.store import open_store
from tierfs.base.words.errors import TierfsError
from tierfs.pipeline.spark.jobs.export import Exporting, export
from tierfs.pipeline.spark.jobs.ingest import Batch, ingest, ingest_files
from tierfs.pipeline.spark.jobs.rebuild import rebuild
from tierfs.pipeline.spark.jobs.report import report
from tierfs.pipeline.spark.jobs.scrub import scrub
from tierfs.pipeline.spark.row_types import RowType


def main(server: str, path: Path, files: Path) -> None:
    """Print what each step gave, as JSON."""
    builder: Any = SparkSession.builder.remote(server)
    builder.config(map={name: value for name, value in SETTINGS.items() if name.startswith("spark.sql.")})
    spark: Any = builder.getOrCreate()
    named = spark.read.format("tierfs").option("store", str(path))
    rows = spark.createDataFrame([("a", "one"), ("b", "two")], "key string, value string")
    with open_store(path) as store:
        steps: dict[str, Callable[[], Any]] = {
            "read": lambda: sorted(row[0] for row in named.load("d").select("value").collect()),
            "write": lambda: written(rows.select("value"), path, named),
            "stream": lambda: streamed(spark, path, named),
            "scrub": lambda: scrub(spark, store, ["d"]).summary["segments"],
            "report": lambda: report(store).data_frame(spark).count() > 0,
            "rebuild": lambda: rebuild(spark, store).summary,
            "ingest": lambda: ingest(rows, store, "keys", key="key", batch=Batch("n", 1)).summary["segments"],
            "ingest files": lambda: ingest_files(spark, store, [str(files)], "files").summary["segments"],
            "missing": lambda: ingest_files(spark, store, [str(files)], "files").rows,
            "export": lambda: export(
                spark, str(path), ["d"], str(path.parent / "table"), Exporting(RowType.LINES, unbatch=False)
            ),
        }
        print(json.dumps({name: outcome(step) for name, step in steps.items()}))
    spark.stop()


def outcome(step: Callable[[], Any]) -> Any:
    try:
        return step()
    except TierfsError as exc:
        return f"{type(exc).__name__}: {exc}"


def written(frame: Any, path: Path, named: Any) -> int:
    frame.write.format("tierfs").option("store", str(path)).mode("append").save("out")
    return int(named.load("out").count())


def streamed(spark: Any, path: Path, named: Any) -> int:
    lines = spark.readStream.format("tierfs").option("store", str(path)).load("d").select("value")
    query = (
        lines.writeStream.format("tierfs")
        .option("store", str(path))
        .option("checkpointLocation", str(path.parent / "checkpoint"))
        .trigger(availableNow=True)
        .start("copy")
    )
    query.awaitTermination()
    return int(named.load("copy").count())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
