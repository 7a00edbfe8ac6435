"""`tierfs --help`: every command in a section, each in one whole line; and examples in the help of each."""

from __future__ import annotations

import re
import shlex
from importlib import import_module

import click
import pytest

from tests.commands import tierfs
from tests.faces.cli.progress.test_every_verb import leaves
from tests.structure.words import refused
from tierfs.faces.cli.command_table import SECTIONS, Line
from tierfs.faces.cli.examples import EXAMPLES
from tierfs.faces.cli.main import cli
from tierfs.faces.cli.session import Session

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


def test_every_command_has_examples() -> None:
    assert sorted(EXAMPLES) == sorted(leaves(cli))


@pytest.mark.parametrize("name", ["", *leaves(cli)])
def test_help_is_in_plain_english(name: str) -> None:
    assert list(refused(" ".join(tierfs(*name.split(), "--help").out.split()))) == []


@pytest.mark.parametrize("line", [line for text in EXAMPLES.values() for line in text.strip().splitlines()])
def test_an_example_is_what_the_command_takes(line: str) -> None:
    words = next(words for words, text in EXAMPLES.items() if line in text.splitlines())
    typed = re.search(r"\btierfs (.*?)(?=  +#| [|<]|\)\"|$)", line)
    assert typed is not None
    group, arguments, path = cli, shlex.split(typed[1]), []
    context = cli.make_context("tierfs", arguments, obj=Session())
    while isinstance(group, click.Group):
        name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
        path.append(str(name))
        assert command is not None
        context = command.make_context(str(name), rest, parent=context, obj=context.obj)
        group = command
    assert " ".join(path) == words


def test_the_options_of_all_commands_are_named_once() -> None:
    shown = tierfs("seal", "--help").out
    assert "--allow-other-owner" not in shown
    _, examples = shown.split("Examples:\n")
    assert all(line.startswith("  tierfs seal ") for line in examples.splitlines())
