"""The command `tierfs`."""

from __future__ import annotations

import click

from tierfs import __version__
from tierfs.cli import standard_streams
from tierfs.cli.lazy import LazyGroup

_COMMANDS = {
    "init": "tierfs.cli.store:init",
    "append": "tierfs.cli.append:append",
    "ingest": "tierfs.cli.ingest:ingest",
    "ls": "tierfs.cli.look:ls",
    "info": "tierfs.cli.look:info",
    "map": "tierfs.cli.map:map_",
    "du": "tierfs.cli.du:du",
    "cat": "tierfs.cli.cat:cat",
    "seal": "tierfs.cli.change:seal",
    "unseal": "tierfs.cli.unseal:unseal",
    "concat": "tierfs.cli.concat:concat",
    "truncate": "tierfs.cli.truncate:truncate",
    "rm": "tierfs.cli.change:rm",
    "ledger": "tierfs.cli.ledger:ledger",
    "offload": "tierfs.cli.tiers:offload",
    "evict": "tierfs.cli.tiers:evict",
    "consolidate": "tierfs.cli.consolidate:consolidate",
    "warmup": "tierfs.cli.warmup:warmup",
    "verify": "tierfs.cli.verify:verify",
    "fsck": "tierfs.cli.fsck:fsck",
    "gc": "tierfs.cli.gc:gc",
    "recover": "tierfs.cli.recover:recover",
    "adopt": "tierfs.cli.adopt:adopt",
    "mount": "tierfs.cli.mounting:mount",
    "umount": "tierfs.cli.mounting:umount",
    "daemon": "tierfs.cli.daemon:daemon",
    "top": "tierfs.cli.top:top",
    "status": "tierfs.cli.store:status",
    "doctor": "tierfs.cli.doctor:doctor",
    "bench": "tierfs.cli.bench:bench",
    "pipeline": "tierfs.cli.pipeline:pipeline",
    "dump": "tierfs.cli.dump:dump",
    "load": "tierfs.cli.dump:load",
    "replica": "tierfs.cli.replica:replica",
    "policy": "tierfs.cli.policy:policy",
    "config": "tierfs.cli.config:config",
}

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


@click.group(cls=LazyGroup, lazy=_COMMANDS, epilog=_EPILOG)
@click.version_option(__version__, prog_name="tierfs")
def cli() -> None:
    """Tiered, append-only log storage: local chunks and S3 objects, as one directory of files.

    Where a command takes SEGMENT or PATH, a path under a mount of the store works too.
    """


def main() -> None:
    """Entry point of the console script."""
    standard_streams.complete()
    cli.main(prog_name="tierfs")
