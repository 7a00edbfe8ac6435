"""Follow logs into segments: look, read, append, wait. Part of the composition root.

Looking is the truth: every file is looked at every few seconds, and each half second where inotify reports nothing.
The store has the only state, whether it is of this host or of another one (`target`): after any error a log continues
as after a restart of the process.
"""

from __future__ import annotations

import errno
import logging
import math
import os
from collections.abc import Sequence
from dataclasses import replace

from tierfs.app.follow import beginnings, sources
from tierfs.app.follow.earlier_files import EarlierFiles
from tierfs.app.follow.hints import Hints
from tierfs.app.follow.log_reader import LogReader, NewLines
from tierfs.app.follow.rotations import logs_of
from tierfs.app.follow.sources import Found, Log, LogSource
from tierfs.app.follow.summary import FollowSummary
from tierfs.app.follow.target import FollowTarget, LogAppend, LogPlace, TargetUnavailable
from tierfs.app.follow.tree import WatchedTree
from tierfs.app.room import Tells
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system import osio
from tierfs.base.system.os_errors import FEW_FILES, FEW_FILES_REMEDY, Meaning, meanings, ours
from tierfs.base.words import names
from tierfs.base.words.errors import NotFound, PermissionDenied, TierfsError, Unavailable
from tierfs.base.words.types import MIB, ByteRange
from tierfs.engine.metadata.followed_range import FollowedRange

log = logging.getLogger(__name__)

# Pause after each look: a line is in the store within some three of them. Fewer commits of more lines (a guess).
PAUSE_S = 0.2

# Between two looks at all files, whatever inotify says; and at those of directories about which it says nothing.
LOOK_S = 5.0
POLL_S = 0.5

# Bytes of one append, and of all appends of one commit: the memory that following takes.
PIECE_BYTES = MIB // 2
_ROUND_BYTES = 16 * MIB

# After an error of one log, and of the whole store: that costs one request then.
_RETRY_S = 5.0
_TARGET_RETRY_S = 1.0

# A segment that gets nothing for so long may be sealed or removed by others (a guess).
_IDLE_WRITER_S = 60.0

# A log without a file is looked for that long after its last lines (a guess).
_ABSENT_MS = 24 * 3600 * 1000

# Open files of all logs, at most; of one: the newest, and those that are being rotated away.
_OPEN_FILES = 16_384
_FILES_PER_LOG = 3

# Of the files that a process may open, a cache takes a part (osio.open_files_within_limit).
_CACHES_SHARE = 4

_FILES_OF_OTHERS = meanings(
    (Meaning(PermissionDenied, remedy="let the user of tierfs read it"), (errno.EACCES, errno.EPERM, errno.ELOOP)),
    (Meaning(Unavailable, "too many open files", FEW_FILES_REMEDY), tuple(FEW_FILES)),
)

_NS_PER_MS = 1_000_000
_MS_PER_S = 1000


@dataclass(slots=True)
class _Followed:
    """A log, and when to look at it."""

    reader: LogReader
    is_due: bool = True
    is_stale: bool = False
    """Whether its place has to be taken from the store again."""
    next_try_s: float = 0.0
    error: TierfsError | None = None
    active_s: float = 0.0


class LogFollower:
    """Follows sources into a directory of a store. Use it in one thread; close it."""

    def __init__(self, target: FollowTarget, followed_sources: Sequence[LogSource], tells: Tells) -> None:
        """Find the logs; the target is closed with the follower. Raises NotFound if there never were any.

        Raises Conflict for a source that another host follows, and what the target raises if it cannot be reached.
        """
        osio.allow_more_open_files(_CACHES_SHARE * _OPEN_FILES)
        self.summary = FollowSummary()
        self._target = target
        self._sources = followed_sources
        self._tells = tells
        self._tree = WatchedTree()
        self._earlier = EarlierFiles()
        self._hints = Hints()
        self._logs: dict[str, _Followed] = {}
        self._real: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._since_ns = 0
        self._looked_s = self._polled_s = -math.inf
        self._stop = target.stop
        self._is_once = False
        self._waits_for: TargetUnavailable | None = None
        self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End; idempotent. NewLines that were not appended are read by the next follower."""
        self._target.close()
        for each in self._logs.values():
            each.reader.close()
        self._logs.clear()
        self._hints.close()
        for fd in self._wake:
            if fd >= 0:
                os.close(fd)
        self._wake = (-1, -1)

    @property
    def paths(self) -> list[str]:
        """The logs that are followed now."""
        return list(self._logs)

    def stop(self) -> None:
        """Let `run` return soon. May be called in another thread, or by the handler of a signal."""
        self._stop.set()
        if self._wake[1] >= 0:
            os.write(self._wake[1], b"\0")

    def run(self) -> None:
        """Follow until `stop`. Raises Fenced and other errors of the store, not those of one log."""
        while not self._stop.is_set():
            self.look()
            self._hints.wait(self._pause_s(), self._wake[0])
            self._stop.wait(PAUSE_S)

    def run_once(self) -> None:
        """Append everything that is there now, but for the beginning of a last line that is still being written.

        Raises TargetUnavailable.
        """
        self._is_once = True
        self._due_all()
        while not self._stop.is_set():
            self._append_due(self._now_s())
            if self._waits_for is not None:
                raise self._waits_for
            waiting = [each for each in self._logs.values() if each.reader.is_lost]
            if not waiting:
                return
            for each in waiting:
                each.is_due = True
            self._stop.wait(PAUSE_S)

    def look(self) -> None:
        """Look at what may have changed, and append all of it."""
        now_s = self._now_s()
        changed = self._hints.reported()
        if changed is None or now_s - self._looked_s >= LOOK_S:
            self._looked_s = self._polled_s = now_s
            self._find()
            self._due_all()
        else:
            self._due(changed)
            if now_s - self._polled_s >= POLL_S:
                self._polled_s = now_s
                self._poll()
        self._append_due(now_s)
        self._target.let_go(_IDLE_WRITER_S)

    # What there is to follow.

    def _begin(self) -> None:
        """Find the logs, and record that following them begins, so that none of them is passed over after a crash."""
        at_ms = self._target.clock.now_ms()
        seen = self._look_for()
        begun_ms = self._target.begin(self._sources, [*seen.logs.values()], at_ms)
        if begun_ms is None:
            refused = next(iter(seen.refused.values()), "")
            typed = " ".join(names.printable(source.path) for source in self._sources)
            raise NotFound(
                f"nothing to follow matches {typed}" + (f": {refused}" if refused else ""),
                remedy="give files, directories or patterns of files that exist; quote a pattern",
            )
        self._since_ns = (begun_ms - _MS_PER_S) * _NS_PER_MS
        # Logs without a file, whose last lines may be in a rotated one.
        recent = self._target.recent(self._target.clock.now_ms() - _ABSENT_MS)
        for each in sources.absent(self._sources, self._target.into, recent):
            seen.logs.setdefault(each.path, each)
        self._follow(seen)

    def _look_for(self) -> Found:
        return sources.find(self._sources, self._target.into, self._tree, self._target.is_known)

    def _find(self) -> None:
        """Look for logs that appeared or vanished."""
        if self._tree.look(self._target.clock.now_ms() * _NS_PER_MS):
            self._follow(self._look_for())

    def _follow(self, seen: Found) -> None:
        for path, why in seen.refused.items():
            if self._refused.get(path) != why:
                self._tells.warn(f"{names.printable(path)} is not followed: {why}")
        self._refused = seen.refused
        long_ago_s = self._now_s() - _ABSENT_MS / _MS_PER_S
        for path in [path for path, each in self._logs.items() if each.active_s < long_ago_s]:
            if path not in seen.logs:
                self._logs.pop(path).reader.close()
        new = [each for path, each in seen.logs.items() if path not in self._logs]
        for each in new:
            reader = LogReader(each.path, each.segment, self._earlier, self._since_ns)
            self._logs[each.path] = _Followed(reader, active_s=self._now_s())
        self._reload([self._logs[each.path] for each in new])
        self._real = {}
        for path in self._logs:
            if os.path.islink(path):
                self._real[os.path.realpath(path)] = path
        self.summary.logs = len(self._logs)
        used = frozenset(map(os.path.dirname, (*self._logs, *self._real)))
        self._tree.settle(self._tree.directories)
        self._hints.watch(used | self._tree.directories)

    def _reload(self, logs: Sequence[_Followed]) -> None:
        """Take the places of logs from the store."""
        if not logs:
            return
        places = self._target.places([each.reader.segment for each in logs])
        for each in logs:
            each.is_due, each.is_stale = True, False
            place = places[each.reader.segment]
            if isinstance(place, TierfsError):
                self._failed(each, place)
                continue
            if self._waits_for is not None and not self._waits_for.is_reached:
                self._waits_no_more()
            try:
                each.reader.reset(place.ranges or self._continued(each.reader, place), place.length)
            except TierfsError as exc:
                self._failed(each, exc)

    def _continued(self, reader: LogReader, place: LogPlace) -> tuple[FollowedRange, ...]:
        """Return the place of a segment that has bytes and no record, as after a recovery of its store."""
        try:
            place_in_files = beginnings.continued(self._target, Log(reader.path, reader.segment), place, self._earlier)
        except OSError as exc:
            raise ours(exc, reader.path, _FILES_OF_OTHERS) from exc
        return () if place_in_files is None else (replace(place_in_files, sender=self._target.sender),)

    # When to look at which.

    def _now_s(self) -> float:
        return self._target.clock.monotonic_s()

    def _pause_s(self) -> float:
        if any(each.reader.is_waiting or each.is_due for each in self._logs.values()):
            return PAUSE_S
        is_polled = any(not self._hints.reports(directory) for directory in self._directories())
        return POLL_S if is_polled else max(0.0, self._looked_s + LOOK_S - self._now_s())

    def _directories(self) -> set[str]:
        return {os.path.dirname(path) for path in (*self._logs, *self._real)}

    def _due_all(self) -> None:
        for each in self._logs.values():
            each.is_due = True

    def _due(self, changed: set[str]) -> None:
        """Look at the logs that were reported, by their names or those of rotated files."""
        is_structure = False
        for path in changed:
            directory, name = os.path.split(path)
            logs = {path, *(os.path.join(directory, log) for log, _ in logs_of(name))}
            for log_path in (self._real.get(each, each) for each in logs):
                if log_path in self._logs:
                    self._logs[log_path].is_due = True
            is_structure |= path not in self._logs and path not in self._real
        if is_structure:
            self._find()
        for each in self._logs.values():
            each.is_due |= each.reader.is_waiting

    def _poll(self) -> None:
        silent = {directory for directory in self._tree.directories if not self._hints.reports(directory)}
        if silent:
            self._find()
        for path, each in self._logs.items():
            each.is_due |= os.path.dirname(self._path_of(path)) in silent

    def _path_of(self, path: str) -> str:
        return os.path.realpath(path) if path in self._real.values() else path

    # Reading and appending.

    def _append_due(self, now_s: float) -> None:
        """Append what the due logs have, until nothing is left."""
        due = [each for each in self._logs.values() if each.is_due and each.next_try_s <= now_s]
        # Those first that have waited longest: a process that is killed again and again reaches all of them.
        due.sort(key=lambda each: each.reader.committed_ms)
        while due and not self._stop.is_set():
            self._append_all(self._looked_at(due, now_s), now_s)
            due = [each for each in due if each.reader.is_behind and each.next_try_s <= now_s]
            for each in due:
                each.is_due = True

    def _append_all(self, due: list[_Followed], now_s: float) -> None:
        """Append what was seen of logs, in rounds of bounded memory."""
        while due and not self._stop.is_set():
            pieces: list[tuple[_Followed, NewLines]] = []
            size = 0
            for each in due:
                piece = self._next(each, now_s)
                if piece is None:
                    each.is_due = each.next_try_s > now_s
                    continue
                pieces.append((each, piece))
                size += len(piece.data)
                if size >= _ROUND_BYTES:
                    break
            self._append(pieces)
            rest = due[len(pieces) :] if size >= _ROUND_BYTES else []
            due = [each for each in (*rest, *due[: len(due) - len(rest)]) if each.is_due and each.next_try_s <= now_s]

    def _looked_at(self, due: Sequence[_Followed], now_s: float) -> list[_Followed]:
        """Look at the logs that are due, with one listing of their directory; return those that can be read."""
        self._earlier.renew()
        self._reload([each for each in due if each.is_stale])
        seen: list[_Followed] = []
        for each in due:
            if each.next_try_s > now_s:
                continue
            try:
                each.reader.look(now_s)
            except OSError as exc:
                self._unreadable(each, exc)
            else:
                seen.append(each)
        self._earlier.renew()  # each log's names are compared with those of a listing that is younger than its look
        return seen

    def _unreadable(self, each: _Followed, exc: OSError) -> None:
        self._failed(each, ours(exc, each.reader.path, _FILES_OF_OTHERS))

    def _next(self, each: _Followed, now_s: float) -> NewLines | None:
        try:
            piece = each.reader.next(PIECE_BYTES, now_s)
        except OSError as exc:
            self._unreadable(each, exc)
            return None
        if piece is None:
            if self._is_crowded:
                each.reader.close()
            return None
        return replace(piece, followed=replace(piece.followed, sender=self._target.sender))

    def _append(self, pieces: Sequence[tuple[_Followed, NewLines]]) -> None:
        """Append pieces of different logs together. An error of one log is reported, and its piece read again."""
        if not pieces:
            return
        results = self._target.append(
            [LogAppend(each.reader.segment, new.data, new.expected_offset, new.followed) for each, new in pieces]
        )
        for (each, piece), result in zip(pieces, results, strict=True):
            if isinstance(result, ByteRange):
                self._took(each, piece, result)
            else:
                self._failed(each, result)

    def _took(self, each: _Followed, piece: NewLines, added: ByteRange) -> None:
        each.reader.took(piece, added, self._target.clock.now_ms())
        each.active_s, each.error = self._now_s(), None
        self._waits_no_more()
        self.summary.bytes += len(piece.data)
        self.summary.appends += 1
        self.summary.failed.pop(each.reader.path, None)
        if piece.followed.gap:
            self.summary.gaps += 1
            shown = names.printable(each.reader.path)
            self._tells.warn(f"{shown}: lines may be missing before offset {added.start}: {piece.followed.gap}")

    def _waits_no_more(self) -> None:
        if self._waits_for is not None:
            self._tells.note("following continues")
        self._waits_for = None

    def _failed(self, each: _Followed, exc: TierfsError) -> None:
        """Report an error of a log once, and continue after a pause with what the store has of it."""
        path, retry_s = each.reader.path, _RETRY_S
        if isinstance(exc, TargetUnavailable):
            retry_s = _TARGET_RETRY_S
            if self._waits_for is None and not self._is_once:  # once for all logs
                self._tells.warn(f"waiting: {exc}")
            self._waits_for = exc
        elif str(each.error) != str(exc):
            self._tells.warn(f"{names.printable(path)} waits: {exc}")
        each.error = self.summary.failed[path] = exc
        each.next_try_s = self._now_s() + retry_s
        each.is_stale = True

    @property
    def _is_crowded(self) -> bool:
        """Whether there are too many logs to keep the files of all open: those that are idle are found by name."""
        return len(self._logs) * _FILES_PER_LOG > osio.open_files_within_limit(_OPEN_FILES)
