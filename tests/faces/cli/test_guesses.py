"""Words and options of other tools: what is named instead exists, and switches off nothing that keeps bytes safe."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest

from tests.commands import tierfs
from tests.faces.cli.transcripts.transcript import FOLDER
from tierfs.base.options.config import Settings
from tierfs.faces.cli.command_table import SECTIONS
from tierfs.faces.cli.guesses import _MEANT, _OPTIONS
from tierfs.faces.cli.main import cli

UNSAFE = {
    "--accept-clock",
    "--allow-other-owner",
    "--force",
    "--from-objects",
    "--left-place",
    "--no-seal",
    "--now",
    "--take-over",
    "--trash",
    "--yes",
    "-f",
    "-y",
    "allow_other_control",
    "allow_other_owner",
}
"""Options that switch off a question, an owner's right, a fence, the trash, or a check; -f follows in `cat`."""
HINTS = [*_MEANT.values(), *_OPTIONS.values()]


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    with click.Context(group) as ctx:
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            assert command is not None
            yield f"{path}{name}", command
            if isinstance(command, click.Group):
                yield from commands(command, f"{path}{name} ")


COMMANDS = {"": cli, **dict(commands(cli))}


def options_of(command: click.Command) -> set[str]:
    return {
        word
        for param in command.params
        if isinstance(param, click.Option)
        for word in (*param.opts, *param.secondary_opts)
    }


@pytest.mark.parametrize("hint", sorted(set(HINTS)))
def test_what_a_hint_names_exists_and_is_safe(hint: str) -> None:
    assert UNSAFE.isdisjoint(re.findall(r"[\w-]+", hint.replace("cat -f", "cat").replace("except with -f", "")))
    for typed in re.findall(r"(?<!\.)tierfs ([a-z-][^,;|:]*)", hint):
        words = typed.split()
        if words[0].startswith("-"):
            assert words[0].replace("-vv", "-v") in options_of(cli)
            continue
        path = " ".join(words[:2]) if " ".join(words[:2]) in COMMANDS else words[0]
        assert path in COMMANDS, f"{hint}: no command {path}"
        for word in words[1:]:
            if word.startswith("-"):
                assert word in options_of(COMMANDS[path]) | options_of(cli), hint
            if path == "config" and "." in word and "=" in word:
                section, name = word.partition("=")[0].split(".")
                assert name in {field.name for field in fields(getattr(Settings(), section))}, hint
    for option in re.findall(r"(?:mean|without|with) (--?[a-z-]+)", hint):
        assert any(option in options_of(command) for command in COMMANDS.values()), hint


def test_the_words_are_of_no_command_and_the_options_of_none() -> None:
    names = {name for section in SECTIONS.values() for name in section}
    assert names.isdisjoint(_MEANT)
    assert names >= {command for command, _ in _OPTIONS if command}
    for command, option in _OPTIONS:
        assert option not in options_of(COMMANDS[command]) | options_of(cli), (command, option)


@pytest.mark.parametrize("path", sorted(COMMANDS))
def test_no_option_is_guessed_by_its_letters(path: str) -> None:
    """Each option without its last letter, and each beginning of one; those of all commands once for all."""
    known = options_of(COMMANDS[path]) | options_of(cli)
    asked = known if path == "ls" else known - options_of(cli)
    typed = {word[:-1] for word in asked if len(word) > 4} | {"-".join(word.split("-")[:-1]) for word in asked}
    for word in sorted(word for word in typed - known if word.startswith("--") and len(word) > 2):
        refused = tierfs(*path.split(), word, check=False)
        assert refused.code == 2
        first, *rest = refused.err.splitlines()
        assert first == f"tierfs: no such option '{word}' (UsageError, exit 2)"
        assert UNSAFE.isdisjoint(re.findall(r"[\w-]+", " ".join(rest)))


def test_what_people_type_first(tmp_path: Path) -> None:
    tierfs("-q", "init", store=tmp_path / "store")
    for words, told in (
        (("mount", "--allow-other", "mnt"), "use: tierfs mount -o allow_other DIR"),
        (("ls", "--sort"), "use: tierfs ls -t by time, tierfs ls -S by size"),
        (("ledger", "store"), "see: tierfs ledger --help"),
        (("forget", "--keep-daily", "7"), "use: tierfs config PATH retention_age=TIME, or tierfs rm PATH"),
        (("rcat", "logs/x"), "use: tierfs append SEGMENT, which reads standard input"),
        (("--output", "json", "ls"), "use: tierfs --json COMMAND"),
        (("ls", "--format", "json"), "use: tierfs --json COMMAND"),
        (("pipeline", "ingest", "-r"), "see: tierfs pipeline ingest --help"),
        (("ledger", "append", "-f"), "see: tierfs ledger append --help"),
    ):
        refused = tierfs(*words, store=tmp_path / "store", check=False)
        assert (refused.code, refused.err.splitlines()[1:]) == (2, [f"  {told}"]), words


def test_every_first_guess_works_or_is_answered_by_a_line_of_its_own() -> None:
    """The transcript has each guess of a review, and what is printed."""
    shown = (FOLDER / "first_guesses.txt").read_text()
    assert shown.count("\n$ tierfs ") > 90
    assert "see: tierfs" not in shown
    assert "missing option" not in shown
