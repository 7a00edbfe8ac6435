"""Make manual pages of the `--help` texts.

`python -m tierfs.faces.cli.commands.man DIRECTORY` writes a page for each command.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from inspect import cleandoc
from pathlib import Path

import click

from tierfs import __version__
from tierfs.faces.cli.command_table import SECTIONS
from tierfs.faces.cli.examples import EXAMPLES
from tierfs.faces.cli.main import cli
from tierfs.faces.cli.session import Session

# click's mark of a paragraph that is not rewrapped.
_AS_IT_IS = "\b"

_PROGRAM = "tierfs"
_SHORT = 200
_LINES = {name: entry.line for section in SECTIONS.values() for name, entry in section.items()}


def pages() -> Iterator[tuple[str, str]]:
    """Yield the file name and text of each command's page, including commands of nested groups."""
    yield from _pages(_context(cli, _PROGRAM, None))


def _pages(ctx: click.Context) -> Iterator[tuple[str, str]]:
    inner = []
    if isinstance(ctx.command, click.Group):
        for name in ctx.command.list_commands(ctx):
            command = ctx.command.get_command(ctx, name)
            assert command is not None, name
            inner.append(_context(command, name, ctx))
    yield f"{_page_name(ctx)}.1", "\n".join(_page(ctx, inner)) + "\n"
    for child in inner:
        yield from _pages(child)


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    settings = command.context_settings
    return click.Context(command, info_name=name, parent=parent, obj=Session(), max_content_width=_SHORT, **settings)


def _page(ctx: click.Context, inner: Sequence[click.Context]) -> Iterator[str]:
    name = _page_name(ctx)
    yield f'.TH "{_escaped(name.upper())}" 1 "" "{_PROGRAM} {__version__}" "{_PROGRAM}"'
    yield from (".SH NAME", f"{_escaped(name)} \\- {_escaped(_line(ctx).rstrip('.'))}")
    usage = " ".join(ctx.command.collect_usage_pieces(ctx))
    yield from (".SH SYNOPSIS", f".B {_escaped(ctx.command_path)}", _escaped(usage), ".SH DESCRIPTION")
    yield from _paragraphs(ctx.command.help or "")
    if inner:
        yield from (".SH COMMANDS", *_items((_page_name(child) + "(1)", _line(child)) for child in inner))
    options = [param for param in ctx.command.get_params(ctx) if isinstance(param, click.Option)]
    records = [option.get_help_record(ctx) for option in options]
    yield from (".SH OPTIONS", *_items(record for record in records if record is not None))
    if shown := EXAMPLES.get(ctx.command_path.partition(" ")[2]):
        yield from (".SH EXAMPLES", ".nf", *map(_escaped, shown.strip().splitlines()), ".fi")
    if ctx.command.epilog:
        yield from (".SH NOTES", *_paragraphs(ctx.command.epilog))
    if ctx.parent is not None:
        yield from (".SH SEE ALSO", f".BR {_escaped(_page_name(ctx.parent))} (1)")


def _page_name(ctx: click.Context) -> str:
    return ctx.command_path.replace(" ", "-")


def _line(ctx: click.Context) -> str:
    """Return the command's line of `tierfs --help`, or the first sentence of its own help."""
    parent = ctx.parent
    own = ctx.command.get_short_help_str(_SHORT)
    return _LINES[str(ctx.info_name)] if parent is not None and parent.parent is None else own


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", cleandoc(text)):
        lines = [_escaped(line) for line in paragraph.splitlines()]
        yield ".PP"
        yield from (".nf", *lines[1:], ".fi") if paragraph.startswith(_AS_IT_IS) else lines


def _items(items: Iterator[tuple[str, str]]) -> Iterator[str]:
    for term, text in items:
        yield from (".TP", f".B {_escaped(term)}", _escaped(" ".join(text.split())))


def _escaped(text: str) -> str:
    """Escape text for troff."""
    shown = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{shown}" if shown.startswith((".", "'")) else shown


def main() -> None:
    """Write all pages into the directory given as argument."""
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (directory / name).write_text(text)


if __name__ == "__main__":
    main()
