"""A transcript: what a user types, and beneath it what is printed, byte by byte but for what varies.

    # A comment, for readers.
    $ printf abc | tierfs append s
    s 0 3
    $ tierfs info no
    ! tierfs: segment no does not exist (NotFound, exit 3)
    [3]

bash runs each command in one empty directory of the transcript, whose `store` is the store; lines behind `> ` continue
a command, as a here-document does. Lines of standard error are behind `! `, an exit code that is not 0 stands below in
brackets, and `(no-eol)` ends output without a line feed. Ids, times, sizes of the disk and the like are masked.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.commands import run
from tests.docs.blocks import Block, prompted
from tests.faces.cli.transcripts import shell
from tierfs import __version__
from tierfs.base.system.places import mounts
from tierfs.upkeep.holder import lock

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))

_PLAIN = re.compile(r"(?:printf ('[^'%\\]*'|\w+) \| )?(tierfs (?:[\w ./:=,@%+-]|'[^'\n]*')+)\n")
"""A command that needs no shell, and its input."""

_GAP = re.compile(r"(?:^|(?<=\n))(?:\n|# [^\n]*\n)*\Z")
"""Blank lines and comments between the output of a command and the next command."""

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")

_MASKS = [
    (r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"\b1[6-9]\d{17}\b", "NANOSECONDS"),
    (r"\b1[6-9]\d{11}\b", "MILLISECONDS"),
    (r"\b[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}\b", "UUID"),
    (r"(-e\d+-[0-9a-f]{32})-c[0-9a-f]{8}\b", r"\1-CRC"),
    (r"\b([0-9a-f]{32}|[0-9a-f]{16})\b", "ID"),
    (r"\b(process |pid\"?: )\d+", r"\1PID"),
    (r"(local_free_bytes\": )\d+", r"\1FREE"),
    (r"\b\d+\.\d (m?s)\b", r"N \1"),
    (r"\b\d+ s behind", "N s behind"),
    (r"watermark [\d,]+ MiB", "watermark SIZE"),
    (r"\b[\d.]+ [KMGT]?i?B (free|available)", r"SIZE \1"),
    (rf"(?<![\w-]){re.escape(socket.gethostname())}\b", "HOST"),
    (rf"\b{re.escape(__version__)}\b", "VERSION"),
    (rf"\buser {re.escape(pwd.getpwuid(os.geteuid()).pw_name)}\b", "user USER"),
]


def play(text: str, directory: Path) -> str:
    """Return the transcript with what its commands print now."""
    directory = directory.resolve()
    env = {key: value for key, value in os.environ.items() if not key.startswith(("TIERFS_", "COLUMNS", "LC_"))}
    env |= {"TIERFS_STORE": f"{directory}/store", "HOME": str(directory), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    head, dollar, rest = text.partition("$ ")
    played = [head]
    try:
        for typed in prompted(Block("console", dollar + rest, 1)):
            gap = _GAP.search(typed.prints)
            assert gap is not None
            lines = typed.text.replace("\n", "\n> ").removesuffix("> ")
            played += [f"$ {lines}", _run(typed.text, directory, env), gap[0]]
    finally:
        _end_all(directory)
    return "".join(played)


def _end_all(directory: Path) -> None:
    """End the mounts and daemons that a transcript left, as one may that is no longer right."""
    for mount in mounts():
        if mount.mountpoint.is_relative_to(directory):
            subprocess.run(["fusermount3", "-uz", str(mount.mountpoint)], check=True)
    for holder in filter(None, map(lock.current, directory.glob("*/locks/holder"))):
        os.kill(holder.pid, signal.SIGTERM)


def _run(command: str, directory: Path, env: Mapping[str, str]) -> str:
    """Run a command; return what it prints, in the form of a transcript."""
    if plain := _PLAIN.fullmatch(command):
        with contextlib.chdir(directory):
            printed = (plain[1] or "").strip("'").encode()
            code, out, err = run(shlex.split(plain[2])[1:], env, printed)
    else:
        done = shell.run(command, directory, env)
        code, out, err = done.returncode, done.stdout, done.stderr
    errors = "".join(f"! {line}".rstrip() + "\n" for line in _shown(err, directory).splitlines())
    return _shown(out, directory) + errors + (f"[{code}]\n" if code else "")


def _shown(data: bytes, directory: Path) -> str:
    text = _CONTROL.sub(lambda match: repr(match[0])[1:-1], data.decode(errors="backslashreplace")).rstrip("\n")
    if not data:
        return ""
    for pattern, mask in _MASKS:
        text = re.sub(pattern, mask, text)
    # What follows a path in a table is aligned by the length of the path here.
    lines = [re.sub("  +", "  ", line) if str(directory) in line else line for line in text.splitlines()]
    return "\n".join(lines).replace(str(directory), "/TMP") + ("\n" if data.endswith(b"\n") else " (no-eol)\n")
