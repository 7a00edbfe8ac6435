"""Each Python process of Spark imports its own part of tierfs: a new one pays for it before its first byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import spark_processes
from tests.verbs import fill
from tierfs.app.setup.create import init_store
from tierfs.app.store import open_store
from tierfs.pipeline.reader.selection import Selection, select

OTHERS = (
    "trio",
    "pyfuse3",
    "click",
    "rich",
    "pydantic",
    "botocore",
    "tierfs.mount",
    "tierfs.upkeep.holder",
    "tierfs.tiering",
)
"""The mount, the holder, the command line; of a provider only what is asked."""

ARROW = ("pyarrow", "numpy", "pandas")


@pytest.fixture
def options(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    init_store(path)
    with open_store(path) as store:
        fill(store.engine, "d/s", iter([b"one\ntwo\n"]))
    file = tmp_path / "options"
    file.write_text(json.dumps({"store": str(path), "path": "d"}))
    return file


def test_a_read_needs_metadata_to_plan_and_the_scan_alone_in_tasks(options: Path) -> None:
    at = options.parent
    schema = spark_processes.run("schema", options, at / "source")
    assert schema.of((*OTHERS, *ARROW, "tierfs.app.recovery")) == []
    assert len(schema.of(("tierfs",))) < 130
    for kind in ("plan", "stream"):
        plan = spark_processes.run(kind, at / "source", at / "planned")
        task = spark_processes.run("task", at / "planned", at / "rows")
        assert [row["value"] for row in json.loads((at / "rows").read_text())] == ["one", "two"]
        assert plan.of((*OTHERS, "pandas", "tierfs.app.recovery")) == []
        assert (
            task.of((*OTHERS, "pandas", "tierfs.app.store", "tierfs.app.recovery", "tierfs.base.options.settings"))
            == []
        )
        assert len(plan.of(("tierfs",))) < 149
        assert len(task.of(("tierfs",))) < 124


def test_a_task_of_a_write_needs_uploads_alone(options: Path) -> None:
    at = options.parent
    options.write_text(json.dumps({**json.loads(options.read_text()), "path": "out"}))
    spark_processes.run("write", options, at / "job")
    task = spark_processes.run("upload", at / "job", at / "uploaded")
    others = (
        "tierfs.upkeep.holder",
        "tierfs.tiering.garbage",
        "tierfs.engine.segments",
        "tierfs.app.recovery",
        "tierfs.app.batches.driver",
    )
    assert task.of((*OTHERS[:-2], *others)) == []
    assert len(task.of(("tierfs",))) < 150
    spark_processes.run("commit", at / "uploaded", at / "end")
    with open_store(at / "store") as store, store.metadata.read() as txn:
        assert [segment.length for _, segment in select(txn, Selection(("out",)))] == [len(b"one\ntwo\n")]
