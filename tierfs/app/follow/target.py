"""The store that lines go to, as followers see it: the one of this host, or that of another host."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from tierfs.app.follow.sources import Log, LogSource
from tierfs.base.bytes.checksum import Buffer
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.clock import Clock
from tierfs.base.words import names
from tierfs.base.words.errors import Conflict, TierfsError, Unavailable
from tierfs.base.words.types import ByteRange
from tierfs.engine.metadata.followed_range import FollowedRange


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The bytes that a store has of a log."""

    ranges: tuple[FollowedRange, ...] = ()
    """Of its stream, in order."""
    length: int = 0
    start_offset: int = 0


@dataclass(frozen=True, slots=True)
class LogAppend:
    """Lines of a log for its segment."""

    segment: str
    data: Buffer
    expected_offset: int
    followed: FollowedRange
    """The place of the lines in their file, recorded in the commit that appends them."""


class TargetUnavailable(Unavailable):
    """The store takes nothing now, whatever the log is."""

    def __init__(self, message: str, *, remedy: str | None = None, is_reached: bool = False) -> None:
        """`is_reached`: the store answers, and takes no lines."""
        super().__init__(message, remedy=remedy)
        self.is_reached = is_reached


class AppendTarget(Protocol):
    """A store that takes the lines of files. Used in one thread; only `stop` may be set in another."""

    clock: Clock
    sender: str
    """The name of this host in the records of its files; empty in its own store."""
    stop: threading.Event
    """Ends waits, such as that for room on a full disk."""

    def places(self, segments: Sequence[str]) -> dict[str, LogPlace | TierfsError]:
        """Return what the store has of each log, as of one moment; of a log of another host Conflict."""

    def last_bytes(self, segment: str, most_bytes: int) -> bytes:
        """Return the last bytes of a segment. Raises the errors of the store."""

    def append(self, appends: Sequence[LogAppend]) -> list[ByteRange | TierfsError]:
        """Append to different segments, in as few commits as possible; return the range of each, or its error.

        After an error the lines may be in the segment all the same: look at its place before the next attempt.
        """

    def let_go(self, idle_s: float) -> None:
        """Release the segments that got nothing for so long, so that others may seal them."""

    def reload(self) -> None:
        """Read settings, credentials and certificates again. Raises what is wrong with them, with nothing changed."""

    def close(self) -> None:
        """Release everything. Idempotent."""


class FollowTarget(AppendTarget, Protocol):
    """A store that has the logs of a host below one directory."""

    into: str

    def begin(self, sources: Sequence[LogSource], logs: Sequence[Log], at_ms: int) -> int | None:
        """Record that following sources begins with these logs, which were listed after `at_ms`.

        Return the time at which it began, which is an earlier one where it is recorded already; None, with nothing
        recorded, if there never were any logs. Raises Conflict for a source that another host follows there.
        """

    def is_known(self, segment: str) -> bool:
        """Return whether a segment follows a log."""

    def recent(self, since_ms: int) -> list[str]:
        """Return the segments whose logs had lines since a time."""


def of_other(segment: str, ranges: Sequence[FollowedRange], sender: str) -> Conflict | None:
    """Return the error of a log that another host follows; None for one of ours, and for a new one."""
    owner = ranges[-1].sender if ranges else sender
    return None if owner == sender else other_host(segment, owner, sender)


def other_host(what: str, owner: str, sender: str) -> Conflict:
    """Return the error of something that another host follows; an empty name is that of the host of the store."""
    shown = names.printable(owner)
    if not owner:
        return Conflict(
            f"{names.printable(what)} is followed by the host of the store", remedy="use another directory for --into"
        )
    remedy = "give each host its own --into"
    if sender:
        remedy += f"; if this host replaces that one, use --sender {shown}"
    return Conflict(f"{names.printable(what)} is followed by another host, {shown}", remedy=remedy)
