"""`tierfs --help`: every command in a section, each in one whole line, and nothing imported for it."""

from __future__ import annotations

from importlib import import_module

import click
import pytest

from tests.commands import tierfs
from tierfs.cli.group import SECTIONS, Line

ENTRIES = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
COLUMNS = 80


def test_every_line_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    shown = tierfs("--help").out.splitlines()
    for name, entry in ENTRIES.items():
        assert [line for line in shown if line.split()[:1] == [name] and line.endswith(entry.line)], name
    assert max(map(len, shown)) < COLUMNS
    assert [line[:-1] for line in shown if line[:-1] in SECTIONS] == list(SECTIONS)


def test_no_command_is_in_two_sections() -> None:
    assert len(ENTRIES) == sum(map(len, SECTIONS.values()))


@pytest.mark.parametrize(("name", "entry"), ENTRIES.items(), ids=ENTRIES)
def test_a_command_is_where_the_table_says(name: str, entry: Line) -> None:
    module, _, attribute = entry.target.partition(":")
    command = getattr(import_module(module), attribute)
    assert isinstance(command, click.Command)
    assert command.name == name
