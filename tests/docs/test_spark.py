"""Every example of the pages of Spark and of docs/tutorial.md runs, on a real mount and with real Spark."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

import pyarrow
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.docs.blocks import ROOT, Reader
from tests.docs.machine import Machine
from tests.docs.shell import Ended, Shell
from tests.mount.conftest import append
from tests.pipeline.spark.conftest import kept_jvm, spark, store
from tests.pipeline.spark.written import read, segments
from tests.servers.iceberg_jar import DONE, JAR
from tierfs.app import store as app
from tierfs.pipeline.spark.jobs import session
from tierfs.pipeline.spark.tables.iceberg_table import coordinates

__all__ = ["kept_jvm", "spark", "store"]

pytestmark = [pytest.mark.mount, pytest.mark.spark, pytest.mark.timeout(420, method="thread")]


def parquet(first: int) -> bytes:
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"id": range(first, first + 10)}), sink)
    return sink.getvalue()


def orders() -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([("id", "amount", "note"), (1, 2.5, "first"), (2, 4.0, "second")])
    return text.getvalue().encode()


FILLED = ("logs", "tables", "events", "visits")


def fill(store: app.Store) -> None:
    """Fill the store with the segments that the examples name."""
    for name in ("web", "app", "2031-01-30", "2031-02-01", "old/2030"):
        append(store, f"logs/{name}", b"an INFO line\nan ERROR line\n" * 100, seal=name != "web")
    append(store, "tables/orders", orders(), seal=True)
    append(store, "tables/2031-01", parquet(0), seal=True)
    append(store, "tables/2031-02", parquet(10), seal=True)
    clicks = "".join(json.dumps({"at": "2031-01-30T12:00:00Z", "user": f"u{number}"}) + "\n" for number in range(10))
    append(store, "events/clicks", clicks.encode(), seal=True)
    append(store, "visits/day=1/clicks", clicks.encode(), seal=True)


def test_every_example_of_spark_runs(store: app.Store, spark: SparkSession, tmp_path: Path) -> None:
    fill(store)
    machine = Machine(tmp_path / "machine")
    machine.file("/var/log/incoming/a", "one\ntwo\n")
    machine.replace["/srv/store"] = str(store.path)
    try:
        for page in ("spark", "spark-streams", "spark-jobs"):
            machine.read(f"docs/{page}.md", {"TIERFS_STORE": str(store.path)})
    finally:
        machine.leave()
    of_page = {name: read(store, name) for name in segments(store) if name.split("/")[0] not in FILLED}
    found = {re.sub(r"part-0000[0-9]-[0-9a-f]{12}", "part", name): data for name, data in of_page.items()}
    web = b"an INFO line\nan ERROR line\n" * 100
    assert found == {
        "by-day/day=3/part": b"one\ntwo\n",
        "by-name/app/part": b"two\n",
        "by-name/web/part": b"one\n",
        "copies/sql/a": b"one\n",
        "copies/web/part": web,
        "incoming/part": b"one\ntwo\n",
        "named/app": b"two\n",
        "named/web": b"one\n",
        "nightly/2031-01-30/part": web,
        "orders/2031-01-30": b"first\n",
        "orders/2031-01-31": b"second\n",
    }


JOB = "pipeline"

_Reader = TypeVar("_Reader", bound=Reader)


class ReaderOnSession(Reader):
    """Runs jobs in this process, on a session that is there: a JVM for each takes 12 s of a processor."""

    session: SparkSession

    def do(self, command: str, shell: Shell) -> Ended:
        words = shlex.split(command)
        if JOB not in words:
            return super().do(command, shell)
        assert words[0] == "tierfs"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session, "job_session", lambda *given, **_: nullcontext(self._with(given[2])))
            code, out, error = commands.run_here(words[1:], os.environ, b"")
        return Ended(code, out.decode(), error.decode())

    def _with(self, settings: Mapping[str, str]) -> SparkSession:
        """Return the session with the settings of a job."""
        for name, value in settings.items():
            if name == "spark.jars":
                self.session.sql(f"ADD JAR {value}")
            else:
                self.session.conf.set(name, value)
        return self.session


def test_every_example_of_tables_runs(spark: SparkSession, tmp_path: Path) -> None:
    reader = reader_of_tables(ReaderOnSession, tmp_path)
    reader.session = spark
    assert reader.run() == 8


@pytest.mark.whole
def test_every_example_of_tables_runs_with_a_jvm_for_each_job(tmp_path: Path) -> None:
    """So does `pipeline scrub` in each run: tests/faces/cli/test_callers_directory.py."""
    assert reader_of_tables(Reader, tmp_path).run() == 8


def reader_of_tables(kind: type[_Reader], directory: Path) -> _Reader:
    if not DONE.exists():
        pytest.skip("the jar of Iceberg is not there: make test-deps")
    pytest.importorskip("deltalake", reason="the package deltalake is not there: make test-deps")
    jar = {f"spark.jars.packages={coordinates()}": f"spark.jars={JAR}"}
    return kind(ROOT / "docs/tables.md", directory, replace={"/srv/": f"{directory}/", **jar})


def test_every_example_of_the_tutorial_runs(spark: SparkSession, tmp_path: Path) -> None:
    reader = Reader(ROOT / "docs/tutorial.md", tmp_path, replace={"/srv/": f"{tmp_path}/"})
    assert reader.run() == 14
