"""Commands print what their transcripts show.

`python -m tests.faces.cli.transcripts --update` writes what they print now.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import FORKED_COMMANDS
from tests.faces.cli.transcripts.__main__ import difference
from tests.faces.cli.transcripts.transcript import NAMES, play


@pytest.mark.parametrize("name", NAMES)
def test_commands_print_what_is_written(tmp_path: Path, name: str) -> None:
    changed = difference(name, tmp_path, update=False)
    assert changed == "", f"\n{changed}\npython -m tests.faces.cli.transcripts --update {name}"


@pytest.mark.parametrize("name", ["append", pytest.param("settings_refused", marks=pytest.mark.whole)])
def test_processes_of_their_own_print_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(FORKED_COMMANDS, "yes")
    assert difference(name, tmp_path, update=False) == ""


def test_whatever_differs_is_seen(tmp_path: Path) -> None:
    wrong = "$ printf 'a\\nb'\na\n\n# next\n$ sh -c 'echo out; echo err >&2; exit 3'\n$ cat <<X\n> 1\n> X\n2\n"
    right = wrong.replace("a\n\n#", "a\nb (no-eol)\n\n#").replace("exit 3'\n", "exit 3'\nout\n! err\n[3]\n")
    right = right.replace("X\n2\n", "X\n1\n")
    assert play(wrong, tmp_path) == right
    assert play(right, tmp_path) == right
