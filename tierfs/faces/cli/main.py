"""Define the command `tierfs`, its table of verbs and its entry point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import click

from tierfs import __version__
from tierfs.faces.cli import session
from tierfs.faces.cli.group import LazyGroup


class Line(NamedTuple):
    """One command. `--help` shows the line without importing the command: importing all takes a second."""

    place: str
    """`module:attribute` of a module of commands; whole for one of a wing above, which nothing here may import."""
    line: str
    """At most 62 characters, to fit whole into 80 columns."""

    @property
    def target(self) -> str:
        """The command as `module:attribute`."""
        return self.place if self.place.startswith("tierfs.") else f"tierfs.faces.cli.commands.{self.place}"


# In the order of `--help`.
SECTIONS: Mapping[str, Mapping[str, Line]] = {
    "Store": {
        "init": Line("init_status:init", "Create a store in the directory given by --store."),
        "status": Line("init_status:status", "Show tiers, what is not offloaded yet, and who is at work."),
        "daemon": Line("mount:daemon", "Hold the store: offload, publish, evict, collect by policy."),
        "admin": Line("mount:admin", "Serve the admin API over HTTP, on a socket of the store."),
        "config": Line("config:config", "Show or change settings, and policies of directories."),
        "completion": Line("man:completion", "Print what makes a shell complete commands and names."),
    },
    "Write": {
        "append": Line("append:append", "Append files or stdin to a segment; durable on return."),
        "ingest": Line("ingest:ingest", "Copy files and directories into segments named after them."),
        "seal": Line("seal_concat_trim:seal", "Seal a segment: it accepts no more bytes."),
        "unseal": Line("seal_concat_trim:unseal", "Reopen a sealed segment for appends."),
        "concat": Line("seal_concat_trim:concat", "Append a sealed segment to another without copying."),
        "trim": Line("seal_concat_trim:trim", "Drop the head of a segment or of a managed ledger."),
        "rm": Line("rm_restore:rm", "Remove a segment, or with -r a directory."),
        "restore": Line("rm_restore:restore", "Bring back what was removed, or the store of a backup."),
        "ledger": Line("ledger.ledger:ledger", "Work with ledgers: segments made of entries."),
    },
    "Read": {
        "mount": Line("mount:mount", "Mount the store as a read-only directory."),
        "umount": Line("mount:umount", "Unmount a mounted store."),
        "ls": Line("ls_info_du:ls", "List the names in a directory."),
        "info": Line("ls_info_du:info", "Show a segment: its range and the location of its bytes."),
        "du": Line("ls_info_du:du", "Sum up the bytes below a directory, by tier."),
        "cat": Line("cat:cat", "Write a segment's bytes to stdout, or follow it."),
        "top": Line("top:top", "Watch a mount live: its reads and the tiers that serve them."),
    },
    "Tiers": {
        "offload": Line("tiers:offload", "Copy all bytes below a path to the cold tier, verified."),
        "evict": Line("tiers:evict", "Drop local copies of bytes that are safely cold."),
        "consolidate": Line("tiers:consolidate", "Join small neighbouring cold objects."),
        "warmup": Line("tiers:warmup", "Fill the disk cache with cold bytes before they are read."),
    },
    "Care": {
        "check": Line("check_inspect:check", "Check records, files and objects, or all bytes; repair."),
        "doctor": Line("doctor:doctor", "Check the machine and the cold tier; measure a mount."),
        "inspect": Line("check_inspect:inspect", "Show what one object says of itself: header, metadata."),
        "gc": Line("gc:gc", "List garbage and orphans; delete what is due."),
        "pipeline": Line("tierfs.pipeline.commands:pipeline", "Run Spark jobs on the store: scrub, report, export…"),
    },
    "Move": {
        "move": Line("init_status:move", "Copy the cold tier to another place, and use that one."),
        "adopt": Line("adopt:adopt", "Make segments of existing foreign objects, in place."),
        "backup": Line("backup:backup", "Write all metadata to a file, or a segment's to the bucket."),
        "recover": Line("recover_replica:recover", "Rebuild a lost store from its bucket."),
        "replica": Line("recover_replica:replica", "Create a read-only store that follows another's bucket."),
    },
}

_COMMANDS = {name: entry.target for section in SECTIONS.values() for name, entry in section.items()}
_LINES = {title: {name: entry.line for name, entry in section.items()} for title, section in SECTIONS.items()}

_EPILOG = """
\b
Exit codes:
   0  success                        8  expected another offset
   1  declined, FAIL, or repaired   11  not available now; try again
   2  invalid request               12  not the store's cold tier
   3  not found                     28  disk full
   4  permission denied             70  internal error
   5  conflict; check and retry     74  data lost or damaged
   6  fenced by a newer owner      130  interrupted
   7  sealed                       141  output pipe closed by its reader
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
    session.complete()
    cli.main(prog_name="tierfs")
