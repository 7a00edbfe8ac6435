"""The command `tierfs`."""

from __future__ import annotations

import click

from tierfs import __version__
from tierfs.cli import session
from tierfs.cli.group import SECTIONS, LazyGroup

_COMMANDS = {name: entry.target for section in SECTIONS.values() for name, entry in section.items()}
_LINES = {title: {name: entry.line for name, entry in section.items()} for title, section in SECTIONS.items()}

_EPILOG = """
\b
Exit codes:
   0  done                           8  another offset was expected
   1  declined, FAIL, or mended     11  not available now; try again
   2  the request is wrong          12  not the store's cold tier
   3  not found                     28  a disk is full
   4  permission denied             70  internal error
   5  conflict; look again          74  data is lost or damaged
   6  fenced by a newer owner      130  interrupted
   7  sealed                       141  the output's reader went away
"""


@click.group(cls=LazyGroup, lazy=_COMMANDS, lines=_LINES, epilog=_EPILOG)
@click.version_option(__version__, prog_name="tierfs")
def cli() -> None:
    """Tiered, append-only log storage: local chunks and S3 objects, as one directory of files.

    Where a command takes SEGMENT or PATH, a path under a mount of the store works too.
    """


def main() -> None:
    """Entry point of the console script."""
    session.complete()
    cli.main(prog_name="tierfs")
