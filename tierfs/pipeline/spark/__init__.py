"""Spark: reads, streams and writes of a store by name, `format("tierfs")`, and the jobs that run on it.

The only folder that imports pyspark. It plans with `reader` and turns records into Arrow batches; it holds no policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierfs.base.system import extras

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Register the format with a session, and with this thread, if Spark does not find it by itself."""
    with extras.needed_by("format('tierfs')", "spark"):
        from tierfs.pipeline.spark.errors import explained, require_sources

        with explained():
            require_sources("format('tierfs')")
        from tierfs.pipeline.spark.source import TierfsDataSource  # options and plans are used without Spark, too

    spark.dataSource.register(TierfsDataSource)
    # Spark looks for a format that is written to in the session of the thread, which this sets.
    spark.createDataFrame([], "value string")
