"""The Python processes of Spark, one after the other and without its JVM: each gets the pickles that Spark would send.

Spark has a process for the schema, one for the plan and one for each slot of its executors.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 60

_START = """
import io, json, pickle, sys, time
from pathlib import Path
import pyspark.sql.datasource, pyspark.sql.types
from pyspark.cloudpickle import dumps
from pyspark.serializers import CPickleSerializer
given, out = Path(sys.argv[1]), Path(sys.argv[2])
before, began_s = set(sys.modules), time.process_time()
"""
_END = "\nprint(json.dumps([sorted(set(sys.modules) - before), time.process_time() - began_s]))"

_OF_OPTIONS = """
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark_tierfs import DefaultSource
source = DefaultSource(CaseInsensitiveDict(json.loads(given.read_text())))
"""
_PLANNER, _WRITER = "pyspark.sql.worker.plan_data_source_read", "pyspark.sql.worker.write_into_data_source"

STEPS = {
    "schema": (
        "pyspark.sql.worker.create_data_source",
        f"{_OF_OPTIONS}out.write_bytes(dumps((source, source.schema())))",
    ),
    "plan": (
        _PLANNER,
        """
source, schema = pickle.loads(given.read_bytes())
reader = source.reader(schema)
out.write_bytes(dumps((source, reader, reader.partitions())))
""",
    ),
    "stream": (
        _PLANNER,
        """
source, schema = pickle.loads(given.read_bytes())
reader = source.streamReader(schema)
start = reader.initialOffset()
partitions = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
out.write_bytes(dumps((source, reader, partitions)))
""",
    ),
    "task": (
        f"pyspark.worker, {_PLANNER}",
        """
source, reader, partitions = pickle.loads(given.read_bytes())
rows = [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]
out.write_text(json.dumps(rows))
""",
    ),
    "write": (
        _WRITER,
        f"""{_OF_OPTIONS}
schema = pyspark.sql.types.StructType().add("value", "string")
out.write_bytes(dumps((source, source.writer(schema, overwrite=False))))
""",
    ),
    "upload": (
        f"pyspark.worker, {_WRITER}",
        """
import pyarrow
source, writer = pickle.loads(given.read_bytes())
out.write_bytes(dumps((writer, writer.write(iter([pyarrow.RecordBatch.from_pydict({"value": ["one", "two"]})])))))
""",
    ),
    "commit": (
        "pyspark.sql.worker.commit_data_source_write",
        """
writer, message = pickle.loads(given.read_bytes())
writer.commit([message])
""",
    ),
}
"""The module of Spark that each process would be, and its part of a read or a write."""


@dataclass(frozen=True)
class SparkProcess:
    """What a process took beside what Spark itself imports in it."""

    modules: list[str]
    cpu_s: float

    def of(self, names: tuple[str, ...]) -> list[str]:
        """Its modules in these packages."""
        return [name for name in self.modules if any(f"{name}.".startswith(f"{one}.") for one in names)]


def run(step: str, given: Path, out: Path) -> SparkProcess:
    """Run one of STEPS, from the file that the one before wrote to a file."""
    own, code = STEPS[step]
    words = [sys.executable, "-c", f"import {own}\n{_START}{code}{_END}", str(given), str(out)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return SparkProcess(*json.loads(done.stdout))
