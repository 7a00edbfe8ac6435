"""Follow the journal of systemd: an entry is a line of JSON, as journalctl writes it. Part of the composition root.

The cursor of the last entry is recorded in the commit that appends it. journalctl itself is run, as it alone reads
every version and compression of the files; where this process is killed, it ends with its next line.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tierfs.app.follow.follower import PIECE_BYTES
from tierfs.app.follow.summary import FollowSummary
from tierfs.app.follow.target import AppendTarget, LogAppend
from tierfs.app.room import Tells
from tierfs.base.system import osio, processes
from tierfs.base.system.processes import Process, TimeoutExpired
from tierfs.base.words import names
from tierfs.base.words.errors import NotFound, TierfsError, Unavailable
from tierfs.base.words.types import MIB
from tierfs.engine.metadata import followed
from tierfs.engine.metadata.followed_range import FollowedRange

log = logging.getLogger(__name__)

# Entries that arrive within it share a commit, as lines of files do.
_PAUSE_S = 0.2

# After journalctl ended, as while journald is restarted; and after an append failed.
_RETRY_S = 5.0

# At the end of a segment: an entry is shorter, but for core dumps in it.
_LAST_BYTES = MIB

# For a process whose output has ended.
_END_S = 1.0

_READ_BYTES = 64 * 1024
_CURSOR = "__CURSOR"


class JournalFollower:
    """Follows the journal of this host, or one unit's entries, into one segment. Use it in one thread."""

    def __init__(self, target: AppendTarget, unit: str, into: str, tells: Tells, *, directory: str = "") -> None:
        """Raises NotFound without journalctl, InvalidRequest for a bad name of the segment. Close the target yourself.

        `unit` may be empty, for all entries. `directory` has the files, if they are not those of the running journald.
        """
        program = shutil.which("journalctl")
        if program is None:
            raise NotFound("journalctl is not installed", remedy="install systemd, or follow files: tierfs follow PATH")
        self.segment = names.join(names.split(f"{into}/{unit or 'journal'}"))
        self.summary = FollowSummary(logs=1)
        self._target = target
        self._tells = tells
        self._path = f"journal:{directory}:{unit}".encode()
        self._words = [program, "--quiet", "--no-pager", "--all", "--output=json"]
        self._words += [f"--unit={unit}"] if unit else []
        self._words += [f"--directory={directory}"] if directory else []
        self._stop = target.stop
        self._error = ""
        self._cursor = ""
        self._length = self._read_bytes = 0
        self._lead = b""

    def stop(self) -> None:
        """Let `run` return soon. May be called in another thread, or by the handler of a signal."""
        self._stop.set()

    def run(self) -> None:
        """Follow until `stop`. After an error, and after journalctl ended, it is started again."""
        while not self._stop.is_set():
            try:
                self._follow(["--follow", "--no-tail"])
            except TierfsError as exc:
                self._failed(exc)
            else:
                self._error = ""
            self._stop.wait(_RETRY_S)

    def run_once(self) -> None:
        """Append the entries that are there now. Raises the error of journalctl or of an append."""
        self._follow([])

    def _failed(self, exc: TierfsError) -> None:
        if self._error != str(exc):
            self._tells.warn(f"{names.printable(self.segment)} waits: {exc}")
        self._error = str(exc)

    def _follow(self, options: Sequence[str]) -> None:
        """Append what journalctl writes, from the last entry of the segment on, until it ends or `stop`."""
        self._take_place()
        words = [*self._words, *options, *([f"--cursor={self._cursor}"] if self._cursor else [])]
        with _running(words) as process:
            is_first = bool(self._cursor)
            for lines in self._batches(process):
                gap = ""
                if is_first:
                    is_first = False
                    if _cursor_of(lines[0]) == self._cursor:
                        del lines[0]
                    else:  # journalctl begins with the entry after the one that is gone
                        gap = f"the journal has no entry {self._cursor} any more"
                if lines:
                    self._append(lines, gap)
        self._target.let_go(0.0)

    def _batches(self, process: Process) -> Iterator[list[bytes]]:
        """Yield whole lines, those together that arrive together, until journalctl ends or `stop`."""
        assert process.stdout is not None
        fd, rest = process.stdout.fileno(), bytearray()
        while not self._stop.is_set():
            ended = self._fill(fd, rest)
            end = rest.rfind(b"\n") + 1
            if end:
                lines = bytes(rest[:end]).splitlines(keepends=True)
                del rest[:end]
                yield lines
            if ended:
                return

    def _fill(self, fd: int, buffer: bytearray) -> bool:
        """Add what arrives within the pause; return whether it has ended."""
        until_s = time.monotonic() + _PAUSE_S
        while len(buffer) < PIECE_BYTES and (left_s := until_s - time.monotonic()) > 0:
            if osio.readable(fd, left_s):
                data = os.read(fd, _READ_BYTES)
                if not data:
                    return True
                buffer += data
        return False

    def _append(self, lines: Sequence[bytes], gap: str) -> None:
        data, cursor = b"".join(lines), _cursor_of(lines[-1])
        end = self._read_bytes + len(data)
        new = FollowedRange(
            path=self._path,
            file_start=self._read_bytes,
            file_end=end,
            cursor=cursor,
            gap=gap,
            sender=self._target.sender,
        )
        [added] = self._target.append([LogAppend(self.segment, self._lead + data, self._length, new)])
        if isinstance(added, TierfsError):
            raise added
        self._length, self._read_bytes, self._cursor, self._lead = added.end, end, cursor, b""
        self.summary.bytes += len(data)
        self.summary.appends += 1
        if gap:
            self.summary.gaps += 1
            self._tells.warn(
                f"{names.printable(self.segment)}: entries may be missing before offset {added.start}: {gap}"
            )

    def _take_place(self) -> None:
        """Take the place in the journal from the store: the record, or else the last whole entry of the segment."""
        place = self._target.places([self.segment])[self.segment]
        if isinstance(place, TierfsError):
            raise place
        self._length = place.length
        self._lead = b""
        kept = followed.held([each for each in place.ranges if each.path == self._path], self._length)
        self._read_bytes = kept[-1].file_end if kept else 0
        self._cursor = kept[-1].cursor if kept else ""
        if place.length > place.start_offset and not self._cursor:
            self._take_last_entry()

    def _take_last_entry(self) -> None:
        """Take the place from the bytes of a segment that was recovered, or has lost its end."""
        data = self._target.last_bytes(self.segment, _LAST_BYTES)
        whole = data.rfind(b"\n") + 1
        self._lead = b"\n" if whole < len(data) else b""
        self._cursor = next(filter(None, map(_cursor_of, reversed(data[:whole].splitlines()))), "")


def _cursor_of(line: bytes) -> str:
    """Return the cursor of an entry; "" for a line that is not one."""
    try:
        entry = json.loads(line)
    except ValueError:
        return ""
    return str(entry.get(_CURSOR, "")) if isinstance(entry, dict) else ""


@contextmanager
def _running(words: Sequence[str]) -> Iterator[Process]:
    """Run journalctl as long as the block lasts. Raises Unavailable if it ends by itself with an error."""
    with tempfile.TemporaryFile() as said:
        process = processes.begin(words, said)
        try:
            yield process
            code = _code_at_end(process)
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if code:
            said.seek(0)
            text = said.read().decode(errors="replace").strip()
            raise Unavailable(f"journalctl ended with {code}: {names.printable(text)}")


def _code_at_end(process: Process) -> int:
    """Return the exit code of a process whose output has ended; 0 of one that still runs."""
    try:
        return process.wait(timeout=_END_S)
    except TimeoutExpired:
        return 0
