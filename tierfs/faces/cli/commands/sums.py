"""Define tierfs sha256sum and md5sum: checksums of segments, as coreutils print and check them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING

import click

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.names import printable
from tierfs.engine.metadata import directories
from tierfs.faces.cli import errors
from tierfs.faces.cli.group import Command
from tierfs.faces.cli.options import read_priority_option
from tierfs.faces.cli.paths import each_name, names_of, paths_argument
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import QUIET, Session

if TYPE_CHECKING:
    from tierfs.app.store import Store
    from tierfs.base.words.types import ReadPriority

_HELP = """
    Print the {name} checksum of the bytes of segments, as {command} prints those of files.

    Every byte is read, and verified by its CRC32C. A trimmed segment has the checksum of its remaining bytes.

    With --check the arguments are files with such lines (- is standard input); their names are those of segments. Each
    segment is reported as OK or FAILED (-q: only those that failed); the exit code is 1 if one failed.
"""

_EXIT_FAILED = 1

# A line as coreutils write it: a backslash in front where the name has escapes, the sum, and the name.
_LINE = re.compile(r"(?P<escaped>\\?)(?P<sum>[0-9a-fA-F]{32,64}) [ *](?P<name>.+)\n?")

_ESCAPES = {"\\\\": "\\", "\\n": "\n", "\\r": "\r"}


def _command(algorithm: str) -> click.Command:
    def call(session: Session, segments: tuple[str, ...], check: bool, read_priority: ReadPriority | None) -> None:
        with session.open_store(looks=True) as store:
            work = _Work(session, store, algorithm, read_priority)
            if check:
                work.check(segments)
            else:
                work.print(segments)

    name = f"{algorithm}sum"
    call.__doc__ = _HELP.format(name=algorithm.upper(), command=f"{name}(1)")
    option = click.option(
        "-c", "--check", is_flag=True, help="Compare with the sums in files, and report each segment."
    )
    argument = paths_argument("segments", metavar="SEGMENT...")
    return click.command(name, cls=Command)(click.pass_obj(argument(option(read_priority_option(call)))))


class _Work:
    """The checksums of one command."""

    def __init__(self, session: Session, store: Store, algorithm: str, priority: ReadPriority | None) -> None:
        self._session = session
        self._store = store
        self._algorithm = algorithm
        self._priority = priority

    def print(self, typed: tuple[str, ...]) -> None:
        """Print a line for each segment."""

        def work(name: str) -> None:
            checksum, size_bytes = self._sum(name)
            escaped = name.replace("\\", "\\\\")
            line = f"{checksum}  {name}" if escaped == name else f"\\{checksum}  {escaped}"
            self._session.result({"segment": name, self._algorithm: checksum, "bytes": size_bytes}, line)

        each_name(self._session, *names_of(self._session, self._store, typed), work)

    def check(self, files: tuple[str, ...]) -> None:
        """Compare segments with the lines of files; exit with 1 if one differs, is missing or cannot be read."""
        failed = total = 0
        for expected, name in _lines(files, hashlib.new(self._algorithm, usedforsecurity=False).digest_size):
            total += 1
            try:
                result = "OK" if self._sum(name)[0] == expected else "FAILED"
            except TierfsError as exc:
                errors.report(exc, self._session)
                result = "FAILED open or read"
            failed += result != "OK"
            if result != "OK" or self._session.json or self._session.verbosity > QUIET:
                self._session.result({"segment": name, "ok": result == "OK"}, f"{printable(name)}: {result}")
        if not total:
            raise click.UsageError(f"no line has a checksum of {self._algorithm}")
        if failed:
            self._session.warn(f"{failed} of {total} checksums did not match")
            raise click.exceptions.Exit(_EXIT_FAILED)

    def _sum(self, name: str) -> tuple[str, int]:
        from tierfs.reading.stream import copy_segment

        with self._store.metadata.read() as txn:
            record = directories.segment_by_name(txn, name)
        checksum = hashlib.new(self._algorithm, usedforsecurity=False)
        with progress_line(self._session) as show:
            meter = Meter(show, record.range.length_bytes)
            meter(0, name)
            done = copy_segment(
                self._store.reader(), record, None, None, self._priority, _adding(checksum.update, meter, name)
            )
            meter(0, name, 1)
        return checksum.hexdigest(), done


def _adding(update: Callable[[Buffer], None], meter: Meter, name: str) -> Callable[[Buffer], None]:
    def add(data: Buffer) -> None:
        update(data)
        meter(len(data), name)

    return add


def _lines(files: tuple[str, ...], digest_bytes: int) -> Iterator[tuple[str, str]]:
    """Yield the sums and names of files; other lines are passed over, as by coreutils."""
    for file in files:
        with click.open_file(file, encoding="utf-8", errors="surrogateescape") as lines:
            yield from _parsed(lines, digest_bytes)


def _parsed(lines: IO[str], digest_bytes: int) -> Iterator[tuple[str, str]]:
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None or len(match["sum"]) != 2 * digest_bytes:
            continue
        name = match["name"]
        if match["escaped"]:
            name = re.sub(r"\\[\\nr]", lambda escape: _ESCAPES[escape[0]], name)
        yield match["sum"].lower(), name


sha256sum = _command("sha256")
md5sum = _command("md5")
