"""Make manual pages: of the `--help` texts, and of the programs of mount(8) and umount(8).

`python -m tierfs.faces.cli.commands.man DIRECTORY` writes a page for each, in the directory of its section.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from tierfs.faces.cli import helper_pages
from tierfs.faces.cli.command_table import SECTIONS
from tierfs.faces.cli.examples import EXAMPLES
from tierfs.faces.cli.main import cli
from tierfs.faces.cli.session import Session
from tierfs.faces.cli.troff import escaped, items, paragraphs, title

_PROGRAM = "tierfs"
_SHORT = 200
_LINES = {name: entry.line for section in SECTIONS.values() for name, entry in section.items()}


def pages() -> Iterator[tuple[str, str]]:
    """Yield the file name and text of each page: of commands, with those of nested groups, and of mount's programs."""
    yield from _pages(_context(cli, _PROGRAM, None))
    yield from helper_pages.pages()


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
    yield title(name, 1)
    yield from (".SH NAME", f"{escaped(name)} \\- {escaped(_line(ctx).rstrip('.'))}")
    usage = " ".join(ctx.command.collect_usage_pieces(ctx))
    yield from (".SH SYNOPSIS", f".B {escaped(ctx.command_path)}", escaped(usage), ".SH DESCRIPTION")
    yield from paragraphs(ctx.command.help or "")
    if inner:
        yield from (".SH COMMANDS", *items((_page_name(child) + "(1)", _line(child)) for child in inner))
    options = [param for param in ctx.command.get_params(ctx) if isinstance(param, click.Option)]
    records = [option.get_help_record(ctx) for option in options]
    yield from (".SH OPTIONS", *items(record for record in records if record is not None))
    if shown := EXAMPLES.get(ctx.command_path.partition(" ")[2]):
        yield from (".SH EXAMPLES", ".nf", *map(escaped, shown.strip().splitlines()), ".fi")
    if ctx.command.epilog:
        yield from (".SH NOTES", *paragraphs(ctx.command.epilog))
    if ctx.parent is not None:
        yield from (".SH SEE ALSO", f".BR {escaped(_page_name(ctx.parent))} (1)")


def _page_name(ctx: click.Context) -> str:
    return ctx.command_path.replace(" ", "-")


def _line(ctx: click.Context) -> str:
    """Return the command's line of `tierfs --help`, or the first sentence of its own help."""
    parent = ctx.parent
    own = ctx.command.get_short_help_str(_SHORT)
    return _LINES[str(ctx.info_name)] if parent is not None and parent.parent is None else own


def main() -> None:
    """Write all pages below the directory given as argument: man1/tierfs.1, man8/mount.tierfs.8."""
    for name, text in pages():
        directory = Path(sys.argv[1], f"man{name[-1]}")
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


if __name__ == "__main__":
    main()
