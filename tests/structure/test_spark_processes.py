"""Each Python process of Spark imports its own part of tierfs: a new one pays for it before its first byte.

Each process is a real one, which gets from the one before what Spark sends: pickles of the source, reader, partitions.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tierfs.app.store import open_store
from tierfs.bench.run import fill
from tierfs.setup.create import ColdChoice, init_store

TIMEOUT_S = 60

COLD_WORK = (
    "trio",
    "pyfuse3",
    "click",
    "rich",
    "pydantic",
    "botocore",
    "tierfs.fuse",
    "tierfs.holder",
    "tierfs.tiering",
)
"""The mount, the holder and the command line; of a provider only what is asked."""

ARROW = ("pyarrow", "numpy", "pandas")

START = """
import io, json, pickle, sys
from pathlib import Path
import pyspark.sql.datasource, pyspark.sql.types
from pyspark.cloudpickle import dumps
from pyspark.serializers import CPickleSerializer
given, out = Path(sys.argv[1]), Path(sys.argv[2])
before = set(sys.modules)
"""
END = "\nprint(json.dumps(sorted(set(sys.modules) - before)))"

SCHEMA = """
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark_tierfs import DefaultSource
source = DefaultSource(CaseInsensitiveDict(json.loads(given.read_text())))
out.write_bytes(dumps((source, source.schema())))
"""
PLAN = """
source, schema = pickle.loads(given.read_bytes())
reader = source.reader(schema)
out.write_bytes(dumps((source, reader, reader.partitions())))
"""
TASK = """
source, reader, partitions = pickle.loads(given.read_bytes())
rows = [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]
out.write_text(json.dumps(rows))
"""
STREAM = """
source, schema = pickle.loads(given.read_bytes())
reader = source.streamReader(schema)
start = reader.initialOffset()
partitions = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
out.write_bytes(dumps((source, reader, partitions)))
"""


def run(code: str, given: Path, out: Path) -> list[str]:
    """The modules that a process imports beside those of Spark."""
    words = [sys.executable, "-c", START + code + END, str(given), str(out)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


@pytest.fixture
def options(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    init_store(path, ColdChoice(none=True))
    with open_store(path) as store:
        fill(store.engine, "d/s", iter([b"one\ntwo\n"]))
    file = tmp_path / "options"
    file.write_text(json.dumps({"store": str(path), "path": "d"}))
    return file


def test_the_schema_needs_metadata_alone(options: Path) -> None:
    loaded = run(SCHEMA, options, options.parent / "source")
    assert named(loaded, (*COLD_WORK, *ARROW, "tierfs.recovery")) == []
    assert len(own(loaded)) < 95


@pytest.mark.parametrize("planned", [PLAN, STREAM], ids=["batch", "stream"])
def test_a_task_of_a_read_needs_partitions_and_the_scan_alone(options: Path, planned: str) -> None:
    at = options.parent
    run(SCHEMA, options, at / "source")
    plan = run(planned, at / "source", at / "planned")
    task = run(TASK, at / "planned", at / "rows")
    assert [row["value"] for row in json.loads((at / "rows").read_text())] == ["one", "two"]
    assert named(plan, (*COLD_WORK, "pandas", "tierfs.recovery")) == []
    assert named(task, (*COLD_WORK, "pandas", "tierfs.app", "tierfs.recovery", "tierfs.settings")) == []
    assert (len(own(plan)) < 105, len(own(task)) < 82) == (True, True), (len(own(plan)), len(own(task)))


def named(loaded: list[str], names: tuple[str, ...]) -> list[str]:
    return [name for name in loaded if any(f"{name}.".startswith(f"{one}.") for one in names)]


def own(loaded: list[str]) -> list[str]:
    return named(loaded, ("tierfs",))
