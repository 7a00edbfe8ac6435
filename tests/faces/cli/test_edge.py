"""Error reporting: every kind of exception becomes one line, or one JSON object, and an exit code."""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tierfs.base.words import errors
from tierfs.faces.cli import errors as edge
from tierfs.faces.cli.commands.seal import seal as seal_command
from tierfs.faces.cli.errors import Partial
from tierfs.faces.cli.main import cli
from tierfs.faces.cli.session import Session


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (errors.NotFound("s is\ngone", remedy="look\ntwice"), "s is\\ngone (NotFound, exit 3)\n  look\\ntwice", 3),
        (errors.DataLoss("bytes lost"), "bytes lost (DataLoss, exit 74)", 74),
        (PermissionError(errno.EACCES, "Permission denied", "f"), "f: Permission denied (PermissionDenied, exit 4)", 4),
        (OSError(errno.ENOSPC, "No space left"), "No space left (StorageFull, exit 28)", 28),
        (OSError(errno.EIO, "I/O error", b"f"), "f: I/O error (Unavailable, exit 11)", 11),
        (ExceptionGroup("trio", [ExceptionGroup("", [errors.Closed("ended")])]), "ended (Closed, exit 70)", 70),
        (click.UsageError("No such thing."), "No such thing (UsageError, exit 2)", 2),
        (click.BadParameter("Is bad."), "invalid value: Is bad (UsageError, exit 2)", 2),
        (KeyboardInterrupt(), "interrupted (Interrupted, exit 130)", 130),
        (errors.NotFound("evil \x1b[31m\nname"), "evil \\x1b[31m\\nname (NotFound, exit 3)", 3),
        (Partial(errors.Sealed("sealed"), "9 done", remedy="go on"), "sealed; 9 done (Sealed, exit 7)\n  go on", 7),
    ],
)
def test_errors_as_text(capsys: pytest.CaptureFixture[str], error: BaseException, line: str, code: int) -> None:
    assert edge.report(error, Session()) == code
    assert capsys.readouterr().err == f"tierfs: {line}\n"


def test_every_exit_code_is_in_the_help_and_on_the_page_of_errors() -> None:
    raised = {one.exit_code for one in vars(errors).values() if isinstance(one, type) and hasattr(one, "exit_code")}
    codes = {0, 1, edge.EXIT_INTERRUPTED, edge.EXIT_PIPE_CLOSED, *raised}
    listed = run("--help").output.partition("Exit codes:")[2]
    assert {int(code) for code in re.findall(r"\b(\d+)  ", listed)} == codes
    table = (Path(__file__).parents[3] / "docs/errors.md").read_text().partition("| exit code | means |")[2]
    rows = re.findall(r"^\| ([\d, ]+) \|", table.partition("\n\n")[0], re.MULTILINE)
    assert {int(code) for row in rows for code in row.split(",")} == codes


def test_errors_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    error = Partial(errors.Sealed("sealed", remedy="stop"), "9 done", remedy="go on", acknowledged={"end": 9})
    edge.report(error, Session(json=True))
    assert json.loads(capsys.readouterr().err) == {
        "error": "sealed; 9 done",
        "kind": "Sealed",
        "exit": 7,
        "remedy": "stop\ngo on",
        "acknowledged": {"end": 9},
    }


def test_a_bug_shows_its_traceback_only_when_asked(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(seal_command, "callback", fail)
    result = run("--store", store, "seal", "s")
    assert (result.exit_code, result.stderr) == (
        70,
        "tierfs: internal error: ZeroDivisionError: oops (InternalError, exit 70)\n"
        "  this is a bug in tierfs; -v shows the traceback\n",
    )
    assert "Traceback" in run("--store", store, "seal", "s", "-v").stderr
