"""Words of other tools that are no commands here, and the command that does what is meant."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping

import click

_MEANT: Mapping[str, str] = {
    "bench": "tierfs doctor --bench MOUNT",
    "clean": "tierfs gc",
    "copy": "tierfs ingest PATH...",
    "cp": "tierfs ingest PATH..., or cp from a mount",
    "create": "tierfs append SEGMENT, or tierfs init for a store",
    "del": "tierfs rm PATH",
    "delete": "tierfs rm PATH",
    "destroy": "tierfs rm -r PATH",
    "df": "tierfs status, or tierfs du",
    "download": "tierfs cat SEGMENT",
    "dump": "tierfs backup FILE, or tierfs backup --to-bucket SEGMENT",
    "export": "tierfs pipeline export, or tierfs ledger export",
    "find": "tierfs ls -R, or find in a mount",
    "follow": "tierfs cat -f SEGMENT",
    "forget": "tierfs rm PATH",
    "format": "tierfs init",
    "fsck": "tierfs check, or tierfs check --read to read every byte",
    "get": "tierfs cat SEGMENT",
    "grep": "grep in a mount: tierfs mount DIR",
    "head": "tierfs cat --to N SEGMENT",
    "import": "tierfs ingest PATH...",
    "list": "tierfs ls",
    "ll": "tierfs ls -l",
    "load": "tierfs restore FILE, or tierfs restore SEGMENT",
    "log": "logs are in the directory log/ of the store",
    "logs": "logs are in the directory log/ of the store",
    "map": "tierfs info --map SEGMENT",
    "mirror": "tierfs replica",
    "mkdir": "none is needed: a directory comes with its first segment, or with tierfs config PATH NAME=VALUE",
    "mkfs": "tierfs init",
    "mv": "tierfs rm OLD, then: tierfs restore OLD --as NEW",
    "policy": "tierfs config PATH [NAME=VALUE]; / is the whole store",
    "prune": "tierfs gc --delete",
    "put": "tierfs append SEGMENT FILE",
    "remove": "tierfs rm PATH",
    "rename": "tierfs rm OLD, then: tierfs restore OLD --as NEW",
    "repair": "tierfs check --repair",
    "scrub": "tierfs check /, or tierfs pipeline scrub with Spark",
    "set": "tierfs config [PATH] NAME=VALUE",
    "snapshots": "tierfs ls --removed, for what can be restored",
    "stat": "tierfs info SEGMENT",
    "stats": "tierfs status, or tierfs top for a mount",
    "stop": "tierfs umount; a daemon ends with SIGTERM",
    "summary": "tierfs du -s",
    "sync": "tierfs offload",
    "tail": "tierfs cat -f SEGMENT",
    "tierfs": "the same line with one tierfs",
    "trash": "tierfs ls --removed",
    "truncate": "tierfs trim SEGMENT --before OFFSET",
    "undelete": "tierfs restore NAME",
    "upload": "tierfs offload",
    "usage": "tierfs du",
    "verify": "tierfs check PATH; / is the whole store",
    "write": "tierfs append SEGMENT",
}

# By the command and the option.
_OPTIONS: Mapping[tuple[str, str], str] = {
    ("cat", "-n"): "number lines with: tierfs cat SEGMENT | cat -n",
    ("cat", "--offset"): "did you mean --from?",
    ("check", "--deep"): "did you mean --read?",
    ("check", "--fix"): "did you mean --repair?",
    ("check", "--read-data"): "did you mean --read?",
    ("gc", "--dry-run"): "nothing is deleted without --delete",
    ("gc", "-n"): "nothing is deleted without --delete",
    ("ls", "-1"): "a name is on a line of its own without it",
    ("ls", "-t"): "sort the names with: tierfs ls -l | sort -k5",
}

# Least likeness, as `difflib` counts it, of a word with a slip in it.
_ALIKE = 0.75


def option_meant(option: str, ctx: click.Context | None) -> str | None:
    """Return what an option of another tool may mean, as a line; None if that is not known."""
    return None if ctx is None else _OPTIONS.get((ctx.info_name or "", option))


def meant(word: str, commands: Collection[str], others: Mapping[str, str] | None = None) -> str | None:
    """Return what a word that is no command may mean, as the rest of a line; None if nothing is like it.

    `others` are the words of a group; without them, those of tierfs.
    """
    known = (_MEANT if others is None else others).get(word.lower())
    if known is not None:
        return f"use: {known}" if known.startswith("tierfs") else known
    close = difflib.get_close_matches(word.lower(), commands, 1, _ALIKE)
    return f"did you mean {close[0]}?" if close else None
