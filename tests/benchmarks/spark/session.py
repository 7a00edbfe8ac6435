"""A Spark session of two threads, as the benchmarks of reading and writing use it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from tierfs.pipeline.spark import register

_SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def session(directory: Path, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """One that keeps its files below `directory` and ends with the block."""
    work = directory / "spark"
    work.mkdir(exist_ok=True)
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1", SPARK_LOCAL_DIRS=str(work))
    builder = SparkSession.builder.master("local[2]").appName("tierfs")
    for name, value in {**_SETTINGS, "spark.sql.warehouse.dir": str(work / "warehouse"), **settings}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    try:
        yield spark
    finally:
        spark.stop()
