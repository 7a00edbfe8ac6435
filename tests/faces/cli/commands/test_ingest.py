"""tierfs ingest: files become segments, others are left out, and a repeated run continues."""

from __future__ import annotations

import os
import signal
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.commands import tierfs
from tierfs.app.inputs import BLOCK_BYTES
from tierfs.engine.segments.writer import SegmentWriter
from tierfs.faces.cli.commands.ingest import _Work
from tierfs.faces.cli.commands.ingest_batches import batches
from tierfs.faces.cli.commands.ingest_plan import Item, plan_ingest
from tierfs.faces.cli.main import cli

end = _Work._end


@pytest.fixture
def files(tmp_path: Path) -> Path:
    path = tmp_path / "files"
    path.mkdir()
    return path


@pytest.mark.parametrize("jobs", [1, 4, 64])
def test_the_batches_of_all_jobs_leave_half_of_the_usual_descriptors(jobs: int) -> None:
    small = [Item(f"f{number}", f"s{number}", 1) for number in range(1000)]
    found = list(batches(iter(small), jobs))
    assert jobs * max(map(len, found)) <= 512
    assert [item for batch in found for item in batch] == small


def test_ctrl_c_says_what_is_kept(store: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = os.urandom(5 * BLOCK_BYTES)
    (files / "a").write_bytes(data)
    append, seen = SegmentWriter.append, threading.Event()
    monkeypatch.setattr(_Work, "_end", lambda work, error: (end(work, error), seen.set()))

    def interrupt_the_third(self: SegmentWriter, *words: Any, **named: Any) -> Any:
        if self.length == 2 * BLOCK_BYTES:
            os.kill(os.getpid(), signal.SIGINT)
            assert seen.wait(30)
        return append(self, *words, **named)

    monkeypatch.setattr(SegmentWriter, "append", interrupt_the_third)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        words = ["--store", str(store), "ingest", str(files / "a"), "--into", "in"]
        result = CliRunner().invoke(cli, words)
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.exit_code == 130
    assert "ingested 12 MiB into 0 segments; 1 file incomplete: repeat the command to continue" in result.output
    monkeypatch.undo()
    assert tierfs("ingest", files / "a", "--into", "in", "--json", store=store).json["bytes"] == 2 * BLOCK_BYTES


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("x/logs", "y/logs"),
        ("x/logs/.", "y/logs/."),
        ("x/logs/a", "y/logs/a"),
        ("x/logs/.", "y/logs/a"),
        ("y/logs/a", "x/logs/."),
    ],
)
def test_two_files_of_one_name_are_refused_before_anything_is_done(
    store: Path, files: Path, first: str, second: str
) -> None:
    for name in ("x/logs/a", "y/logs/a", "x/logs/b"):
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        (files / name).write_text(name)
    refused = tierfs("ingest", f"{files}/{first}", f"{files}/{second}", "--into", "in", store=store, check=False)
    assert (refused.code, "would both become in/" in refused.err) == (2, True)
    assert tierfs("ls", store=store).out == ""
    assert tierfs("ingest", files / "x", files / "y", "--into", "in", store=store).code == 0


def test_no_list_of_all_files_is_kept(tmp_path: Path) -> None:
    def kept_bytes(directories: int) -> tuple[int, int]:
        root = tmp_path / str(directories)
        for number in range(directories):
            (root / str(number)).mkdir(parents=True)
            for name in range(200):
                (root / str(number) / f"a-file-with-a-long-name-{name}").touch()
        tracemalloc.start()
        try:
            plan = plan_ingest([str(root)], "in")
            count = sum(1 for _ in plan.items())
            return count, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = kept_bytes(2), kept_bytes(22)
    assert (few[0], many[0]) == (400, 4400)
    assert many[1] - few[1] < 4000 * 50
