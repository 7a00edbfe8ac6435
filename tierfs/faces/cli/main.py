"""Define the command `tierfs` and its entry point."""

from __future__ import annotations

import click

from tierfs import __version__
from tierfs.faces.cli import standard_streams
from tierfs.faces.cli.command_table import SECTIONS
from tierfs.faces.cli.group import LazyGroup

_COMMANDS = {name: entry.target for section in SECTIONS.values() for name, entry in section.items()}
_LINES = {title: {name: entry.line for name, entry in section.items()} for title, section in SECTIONS.items()}

_EPILOG = """
\b
Exit codes:
   0  success                        8  offset mismatch
   1  declined, FAIL, or repaired   11  not available now; try later
   2  invalid request               12  not the store's cold tier
   3  not found                     13  archived; thaw it first
   4  permission denied             28  disk full
   5  conflict; check and retry     70  internal error
   6  fenced by a newer owner       74  data lost or damaged
   7  sealed                       130  interrupted
                                   141  output pipe closed by its reader
"""

# `--version` ends the program before a command is looked for.
_ALIASES = {"unmount": "umount", "dir": "ls", "version": "--version"}

# Of all commands; those that have another -h, as ls and du, keep it.
CONTEXT = {"help_option_names": ["-h", "--help"]}


@click.group(cls=LazyGroup, lazy=_COMMANDS, lines=_LINES, aliases=_ALIASES, epilog=_EPILOG, context_settings=CONTEXT)
@click.version_option(__version__, "-V", "--version", prog_name="tierfs")
def cli() -> None:
    """Tiered, append-only log storage: local chunks and S3 objects, as one directory of files.

    A SEGMENT or PATH may also be given as a path under a mount of the store.
    """


def main() -> None:
    """Run the console script."""
    standard_streams.complete()
    cli.main(prog_name="tierfs")
