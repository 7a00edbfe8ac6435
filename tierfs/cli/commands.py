"""The commands of `tierfs` by what they are for: where each one is, and the line that tells of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Entry(NamedTuple):
    """One command. `--help` shows the line without an import of the command: all of them would take a second."""

    target: str
    """`module:attribute`."""
    line: str
    """At most 62 characters, so that 80 columns show it whole."""


SECTIONS: Mapping[str, Mapping[str, Entry]] = {
    "Store": {
        "init": Entry("tierfs.cli.store:init", "Make a store in the directory that --store names."),
        "status": Entry("tierfs.cli.store:status", "Show its tiers, what is not offloaded yet, and its holder."),
        "daemon": Entry("tierfs.cli.daemon:daemon", "Hold it: offload, publish, evict and collect by policy."),
        "policy": Entry("tierfs.cli.policy:policy", "Show and change policies of directories and segments."),
        "config": Entry("tierfs.cli.config:config", "Show settings, and where each comes from."),
    },
    "Write": {
        "append": Entry("tierfs.cli.append:append", "Append files, or stdin, to a segment; durable at the end."),
        "ingest": Entry("tierfs.cli.ingest:ingest", "Copy files and directories into segments of their names."),
        "seal": Entry("tierfs.cli.change:seal", "End a segment: it takes no more bytes."),
        "unseal": Entry("tierfs.cli.unseal:unseal", "Open a sealed segment again."),
        "concat": Entry("tierfs.cli.concat:concat", "Append a sealed segment to another one, without a copy."),
        "truncate": Entry("tierfs.cli.truncate:truncate", "Drop the bytes of a segment below an offset."),
        "rm": Entry("tierfs.cli.change:rm", "Remove a segment, or with -r a directory."),
        "ledger": Entry("tierfs.cli.ledger:ledger", "Work with ledgers: segments that are made of entries."),
    },
    "Read": {
        "mount": Entry("tierfs.cli.mounting:mount", "Mount the store as a read-only directory."),
        "umount": Entry("tierfs.cli.mounting:umount", "Take a mount down."),
        "ls": Entry("tierfs.cli.look:ls", "List the names in a directory."),
        "info": Entry("tierfs.cli.look:info", "Show a segment: its range, and where its bytes are."),
        "map": Entry("tierfs.cli.map:map_", "Draw which bytes of a segment are in which tier."),
        "du": Entry("tierfs.cli.du:du", "Sum up the bytes below a directory, by tier."),
        "cat": Entry("tierfs.cli.cat:cat", "Write a segment's bytes to stdout, or follow it."),
        "top": Entry("tierfs.cli.top:top", "Watch a mount: what is read, and from which tier."),
    },
    "Tiers": {
        "offload": Entry("tierfs.cli.tiers:offload", "Make everything below a path cold, verified and published."),
        "evict": Entry("tierfs.cli.tiers:evict", "Drop local bytes that are safely cold."),
        "consolidate": Entry("tierfs.cli.consolidate:consolidate", "Join small neighbouring cold objects."),
        "warmup": Entry("tierfs.cli.warmup:warmup", "Fill the disk cache with cold bytes ahead of reads."),
    },
    "Care": {
        "doctor": Entry("tierfs.cli.doctor:doctor", "Check the machine, the store and its cold tier."),
        "verify": Entry("tierfs.cli.verify:verify", "Read every byte from every tier that holds it."),
        "fsck": Entry("tierfs.cli.fsck:fsck", "Check the store's records, files and objects; mend them."),
        "gc": Entry("tierfs.cli.gc:gc", "List garbage and orphans; delete what is due."),
        "bench": Entry("tierfs.cli.bench:bench", "Measure reading through a mount, against its limits."),
        "pipeline": Entry("tierfs.cli.pipeline:pipeline", "Run heavy work as Spark jobs: scrub, report, export…"),
    },
    "Move": {
        "adopt": Entry("tierfs.cli.adopt:adopt", "Make segments of objects that others wrote, where they lie."),
        "replica": Entry("tierfs.cli.replica:replica", "Make a read-only store that follows another one's bucket."),
        "recover": Entry("tierfs.cli.recover:recover", "Rebuild a lost store from its bucket."),
        "dump": Entry("tierfs.cli.dump:dump", "Write all metadata to a file, or a segment's to the bucket."),
        "load": Entry("tierfs.cli.dump:load", "Make a store of a dump, or bring a segment back."),
    },
}
"""In the order in which `--help` shows them."""
