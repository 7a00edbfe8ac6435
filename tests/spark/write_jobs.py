"""A driver of its own, to be killed: a stream whose tasks wait until they may go on.

    python -m tests.spark.write_jobs MASTER STORE WORK

writes the files in WORK/files as a stream, from where its checkpoint is.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.conftest import ON_A_CLUSTER, SETTINGS, open_session

GO_S = 90
_STEP_S = 0.02


class Gate:
    """Files in a directory: tasks tell where they are, and wait. Picklable."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)

    def arrive(self, name: str) -> None:
        """Tell that `name` is reached, or let those go that wait for it."""
        (self.directory / name).touch()

    def has(self, name: str) -> bool:
        """Whether something arrived there."""
        return (self.directory / name).exists()

    def wait(self, name: str) -> None:
        """Wait until `name` is reached."""
        end = time.monotonic() + GO_S
        while not self.has(name) and time.monotonic() < end:
            time.sleep(_STEP_S)


def main(master: str, store: str, work: Path) -> None:
    """Run the stream until everything that is there is written."""
    gate = Gate(work / "gate")

    def waiting(value: str) -> str:
        gate.arrive("waiting")
        gate.wait("go")
        return value

    with open_session(master, work / "spark", SETTINGS | ON_A_CLUSTER) as spark:
        run_stream(spark, store, work, F.udf(waiting, "string"))


def run_stream(spark: SparkSession, store: str, work: Path, through: object) -> None:
    """From files, through a function on executors, to a store."""
    table = spark.readStream.text(str(work / "files")).select(through("value").alias("value"))  # type: ignore[operator]
    sink = table.writeStream.format("tierfs").option("store", store)
    sink = sink.option("checkpointLocation", str(work / "checkpoint")).trigger(availableNow=True)
    sink.start("out").awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
