"""The table of commands: the section and the line of each in `--help`, and its module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


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
        "init": Line("init:init", "Create a store in the directory given by --store."),
        "status": Line("status:status", "Show tiers, bytes not offloaded yet, and background work."),
        "report": Line("report:report", "Show what a month of the store takes, and costs."),
        "daemon": Line("daemon:daemon", "Run background work: offload, publish, evict, collect."),
        "admin": Line("admin:admin", "Serve the admin API over HTTP, on a socket of the store."),
        "config": Line("config:config", "Show or change settings, and policies of directories."),
        "completion": Line("completion:completion", "Print a shell script that completes commands and names."),
    },
    "Write": {
        "append": Line("append:append", "Append files or stdin to a segment; durable on return."),
        "ingest": Line("ingest:ingest", "Copy files and directories into segments named after them."),
        "follow": Line("follow:follow", "Append growing log files, line by line, across rotation."),
        "seal": Line("seal:seal", "Seal a segment: it accepts no more bytes."),
        "unseal": Line("seal:unseal", "Reopen a sealed segment for appends."),
        "concat": Line("concat:concat", "Append a sealed segment to another without copying."),
        "clone": Line("clone:clone", "Make a segment of another one's first bytes, without copying."),
        "trim": Line("trim:trim", "Drop the head of a segment or of a managed ledger."),
        "mkdir": Line("mkdir:mkdir", "Create empty directories."),
        "mv": Line("mv:mv", "Rename a segment or a directory, without copying."),
        "rm": Line("rm:rm", "Remove a segment, or with -r a directory."),
        "restore": Line("restore:restore", "Restore removed segments, or a store from its backup."),
        "ledger": Line("ledger.ledger:ledger", "Work with ledgers: segments made of entries."),
    },
    "Read": {
        "mount": Line("mount:mount", "Mount the store as a read-only directory."),
        "umount": Line("mount:umount", "Unmount a mounted store."),
        "ls": Line("ls:ls", "List the names in a directory."),
        "tree": Line("tree:tree", "Draw the names below a directory."),
        "info": Line("info:info", "Show a segment: its range and the location of its bytes."),
        "du": Line("du:du", "Sum up the bytes below a directory, by tier."),
        "cat": Line("cat:cat", "Write a segment's bytes to stdout, or follow it."),
        "diff": Line("diff:diff", "Compare the bytes of two segments."),
        "sha256sum": Line("sums:sha256sum", "Print or check SHA-256 checksums of segments."),
        "md5sum": Line("sums:md5sum", "Print or check MD5 checksums of segments."),
        "top": Line("top:top", "Watch a mount live: its reads and the tiers that serve them."),
    },
    "Tiers": {
        "offload": Line("offload:offload", "Copy all bytes below a path to the cold tier, verified."),
        "evict": Line("evict:evict", "Drop local copies of bytes that are safely cold."),
        "consolidate": Line("consolidate:consolidate", "Join small neighbouring cold objects."),
        "archive": Line("archive:archive", "Move cold objects to another storage class, or back."),
        "thaw": Line("thaw:thaw", "Request archived objects back, so that they can be read."),
        "warmup": Line("warmup:warmup", "Fill the disk cache with cold bytes before they are read."),
    },
    "Care": {
        "check": Line("check:check", "Check records, files and objects, or all bytes; repair."),
        "doctor": Line("doctor:doctor", "Check the machine and the cold tier; measure a mount."),
        "inspect": Line("inspect:inspect", "Show header, index and metadata of an object."),
        "gc": Line("gc:gc", "List garbage and orphans; delete those that are due."),
        "pipeline": Line(
            "tierfs.pipeline.commands.pipeline:pipeline", "Run Spark jobs on the store: scrub, report, export…"
        ),
    },
    "Move": {
        "move": Line("move:move", "Copy the cold tier to another place, and switch to it."),
        "adopt": Line("adopt:adopt", "Make segments of other programs' objects, in place."),
        "backup": Line("backup:backup", "Write all metadata to a file, or a segment's to the bucket."),
        "recover": Line("recover:recover", "Rebuild a lost store from its bucket."),
        "replica": Line("replica:replica", "Create a read-only store that follows another's bucket."),
        "standby": Line("standby:standby", "Show, pause or start the takeover by a standby."),
    },
}
