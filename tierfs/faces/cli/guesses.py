"""Words of other tools that are no commands here, and the command that does what is meant."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path

import click

from tierfs.base.system.store_paths import StorePaths

_MEANT: Mapping[str, str] = {
    "about": "tierfs status",
    "bandwidth": "tierfs config offload.bandwidth=RATE, or read.bandwidth=RATE",
    "bench": "tierfs doctor --bench MOUNT",
    "clean": "tierfs gc",
    "cmp": "tierfs diff SEGMENT OTHER",
    "consume": "tierfs cat -f SEGMENT",
    "copy": "tierfs ingest PATH..., or tierfs clone SEGMENT NEW",
    "cost": "tierfs report --cost --prices FILE",
    "costs": "tierfs report --cost --prices FILE",
    "cp": "tierfs ingest PATH..., tierfs clone SEGMENT NEW, or cp from a mount",
    "create": "tierfs append SEGMENT, or tierfs init for a store",
    "debug": "tierfs doctor",
    "del": "tierfs rm PATH",
    "delete": "tierfs rm PATH",
    "describe": "tierfs info SEGMENT, or tierfs status for the store",
    "destroy": "segments: tierfs rm -r PATH; a store is its directory and its cold tier",
    "df": "tierfs status, or tierfs du",
    "download": "tierfs cat SEGMENT",
    "dump": "tierfs backup FILE, or tierfs backup --to-bucket SEGMENT",
    "enable": "tierfs mount DIR, or tierfs daemon; units for systemd are in mount_helpers/",
    "events": "logs are in the directory log/ of the store",
    "exec": "programs read segments as files in a mount: tierfs mount DIR",
    "export": "tierfs pipeline export, or tierfs ledger export",
    "find": "tierfs ls -R, or find in a mount",
    "forget": "tierfs config PATH retention_age=TIME, or tierfs rm PATH",
    "format": "tierfs init",
    "fsck": "tierfs check, or tierfs check --read to read every byte",
    "gateway": "tierfs admin, an HTTP API",
    "get": "tierfs cat SEGMENT",
    "grep": "grep in a mount: tierfs mount DIR",
    "hashsum": "tierfs sha256sum SEGMENT, or tierfs md5sum SEGMENT",
    "head": "tierfs cat --to N SEGMENT",
    "import": "tierfs ingest PATH...",
    "key": "no keys are stored: see docs/security.md",
    "list": "tierfs ls",
    "list-mounts": "findmnt -t fuse.tierfs",
    "ll": "tierfs ls -l",
    "ln": "a store has no links",
    "load": "tierfs restore FILE, or tierfs restore SEGMENT",
    "log": "logs are in the directory log/ of the store",
    "logs": "logs are in the directory log/ of the store",
    "lsl": "tierfs ls -l -R",
    "map": "tierfs info --map SEGMENT",
    "mirror": "tierfs replica",
    "mkfs": "tierfs init",
    "mounts": "findmnt -t fuse.tierfs",
    "ncdu": "tierfs du --sort",
    "policy": "tierfs config PATH [NAME=VALUE]; / is the whole store",
    "produce": "tierfs append SEGMENT, which reads standard input",
    "profile": "tierfs top MOUNT",
    "prune": "tierfs gc --delete",
    "ps": "tierfs status",
    "purge": "tierfs rm -r PATH",
    "put": "tierfs append SEGMENT FILE",
    "quota": "quota of the cold tier: tierfs config cold.quota_bytes=SIZE",
    "rcat": "tierfs append SEGMENT, which reads standard input",
    "remove": "tierfs rm PATH",
    "rename": "tierfs mv SOURCE TARGET",
    "repair": "tierfs check --repair",
    "restart": "tierfs umount DIR, then: tierfs mount DIR; SIGHUP reloads settings",
    "rmdir": "tierfs rm -r PATH",
    "rmr": "tierfs rm -r PATH",
    "run": "tierfs mount DIR, or tierfs daemon",
    "scrub": "tierfs check /, or tierfs pipeline scrub with Spark",
    "serve": "tierfs admin, an HTTP API; or tierfs mount DIR",
    "set": "tierfs config [PATH] NAME=VALUE",
    "show": "tierfs info SEGMENT, or tierfs status for the store",
    "size": "tierfs du PATH",
    "snapshots": "tierfs ls --removed, for what can be restored",
    "start": "tierfs mount DIR, or tierfs daemon",
    "stat": "tierfs info SEGMENT",
    "stats": "tierfs status, or tierfs top for a mount",
    "stop": "tierfs umount; SIGTERM stops a daemon",
    "summary": "tierfs du -s",
    "sync": "tierfs offload, which copies bytes to the cold tier, or tierfs ingest PATH..., which copies files in",
    "system": "tierfs gc for garbage, or tierfs doctor for the machine",
    "tag": "tags of cold objects: tierfs config cold.tags=NAME=VALUE",
    "tail": "tierfs cat --tail N SEGMENT; to follow it: tierfs cat -f SEGMENT",
    "tierfs": "omit the second tierfs",
    "topics": "tierfs ls",
    "touch": "tierfs append SEGMENT </dev/null",
    "trash": "tierfs ls --removed",
    "truncate": "to drop the head: tierfs trim SEGMENT --before OFFSET",
    "undelete": "tierfs restore NAME",
    "unlock": "a lock ends with its process: tierfs status shows the holder",
    "upload": "tierfs offload",
    "usage": "tierfs du",
    "verify": "tierfs check PATH; / is the whole store",
    "wc": "tierfs info SEGMENT, which shows the bytes; lines: wc in a mount",
    "write": "tierfs append SEGMENT",
}

_WHOLE = "not needed: the default is the whole store"
_COPIED_WHOLE = "not needed: directories are copied with all files below them"
_IN_BACKGROUND = "not needed: it runs in the background, except with -f"

# By the command, empty before it, and the option.
_OPTIONS: Mapping[tuple[str, str], str] = {
    ("", "--color"): "not needed: the output has no colours",
    ("", "--config"): "settings are in the store: tierfs config",
    ("", "--format"): "tierfs --json COMMAND",
    ("", "--output"): "tierfs --json COMMAND",
    ("", "--progress"): "not needed: a terminal shows the progress",
    ("", "-o"): "tierfs --json COMMAND",
    ("append", "--file"): "write files after the segment: tierfs append SEGMENT FILE...",
    ("append", "--offset"): "tierfs append --expect-offset N, for a segment of that length",
    ("append", "-a"): "not needed: this command always appends",
    ("append", "-f"): "write files after the segment: tierfs append SEGMENT FILE...",
    ("cat", "--bytes"): "tierfs cat --from N --to N",
    ("cat", "--count"): "tierfs cat --from N --to N",
    ("cat", "--lines"): "last lines: tierfs cat --tail N SEGMENT; first lines: tierfs cat SEGMENT | head -n N",
    ("cat", "--offset"): "did you mean --from?",
    ("cat", "--start"): "did you mean --from?",
    ("cat", "-c"): "tierfs cat --from N --to N",
    ("cat", "-n"): "last lines: tierfs cat --tail N SEGMENT; line numbers: tierfs cat SEGMENT | cat -n",
    ("check", "--deep"): "did you mean --read?",
    ("check", "--fix"): "did you mean --repair?",
    ("check", "--read-data"): "did you mean --read?",
    ("du", "-a"): "tierfs ls -l -R",
    ("evict", "--all"): _WHOLE,
    ("ingest", "--follow"): "tierfs follow PATH... --into DIR",
    ("ingest", "--recursive"): _COPIED_WHOLE,
    ("ingest", "-R"): _COPIED_WHOLE,
    ("ingest", "-f"): "tierfs follow PATH... --into DIR",
    ("ingest", "-r"): _COPIED_WHOLE,
    ("ls", "--sort"): "tierfs ls -t by time, tierfs ls -S by size",
    ("ls", "-d"): "tierfs info SEGMENT",
    ("mount", "--allow-other"): "tierfs mount -o allow_other DIR",
    ("mount", "--background"): _IN_BACKGROUND,
    ("mount", "--cache-dir"): "tierfs config read.cache_directory=DIR",
    ("mount", "--cache-size"): "tierfs config read.cache_bytes=SIZE",
    ("mount", "--daemon"): _IN_BACKGROUND,
    ("mount", "--log"): "the log is in the directory log/ of the store",
    ("mount", "--read-only"): "a mount is always read-only",
    ("mount", "--vfs-cache-mode"): "tierfs config read.cache_bytes=SIZE",
    ("mount", "-d"): _IN_BACKGROUND,
    ("mount", "-r"): "a mount is always read-only",
    ("offload", "--all"): _WHOLE,
    ("offload", "--recursive"): "not needed: a directory is offloaded with all segments below it",
    ("offload", "-r"): "not needed: a directory is offloaded with all segments below it",
    ("umount", "--all"): "one mount point at a time; see findmnt -t fuse.tierfs",
}

# Least likeness, as `difflib` counts it, of a word with a slip in it.
_ALIKE = 0.75


def option_meant(option: str, ctx: click.Context | None) -> str | None:
    """Return what an option of another tool may mean, as a line; None if that is not known.

    Never the option that is written most alike: it may switch off what keeps bytes safe.
    """
    if ctx is None:
        return None
    command = ctx.command_path.partition(" ")[2]
    known = _OPTIONS.get((command, option)) or _OPTIONS.get(("", option))
    return _line(known) if known is not None else None


def meant(word: str, commands: Collection[str], others: Mapping[str, str] | None = None) -> str | None:
    """Return what a word that is no command may mean, as the rest of a line; None if nothing is like it.

    `others` are the words of a group; without them, those of tierfs.
    """
    known = (_MEANT if others is None else others).get(word.lower())
    if known is not None:
        return _line(known)
    if others is None and StorePaths(Path(word)).settings.is_file():
        return f"use: tierfs --store {shlex.quote(word)} COMMAND"
    close = difflib.get_close_matches(word.lower(), commands, 1, _ALIKE)
    return f"did you mean {close[0]}?" if close else None


def _line(known: str) -> str:
    return f"use: {known}" if known.startswith("tierfs ") else known
