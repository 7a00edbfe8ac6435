"""Predict the next reads of sequential readers: several sessions per segment, each with a window that doubles. Pure.

A read that continues a session belongs to it, from any handle: processes share descriptors, and readers of one file
share fetched bytes. A session begins with the requested blocks, or with 1 MiB at the beginning of the file; reading on
for more than 1 MiB proves it and opens the window. Random reads never prove a session and fetch only the requested
blocks: the kernel cuts one large read into neighbouring requests, so that two of them prove nothing. Far from the
server they do: a 1 MiB fetched in vain costs less than the four answers to wait for until that much was read.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Iterator

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ByteRange
from tierfs.engine.chunkstore.link import LEAST_STREAMS, RANGE_BYTES, Links

FIRST_WINDOW_BYTES = MIB
_MIN_WINDOW_BYTES = 2 * MIB
# The kernel sends the requests of one reader out of order, up to its own read-ahead apart.
_SLACK_BYTES = MIB

# A request of 1 MiB that arrives after its successor begins so far before the end of that one.
_BEHIND_BYTES = 2 * MIB

# Half of the memory is for bytes ahead of readers: held and passed bytes need some, and fresh memory is expensive
# (docs/design/0007-reading.md).
_AHEAD_SHARE = 2

_MAX_RANGE_BYTES = 16 * MIB
# Near the server 64 MiB gain nothing and take as much more memory, whose first touch is expensive (measured).
_NEAR_WINDOW_BYTES = 32 * MIB

# A window doubles when a quarter of it was read: a read of 1 MiB does not justify fetching 32.
_GROWS_AFTER = 4

_NEAR_GROWTH = 2
# The growth of windows far from the server, at once: each size is paid for with a wait for its first byte.
_FAR_GROWTH = 16

# Ranges for each stream of a far link, so that one waits when another ends.
_FAR_RANGES = 1.5

# Ranges of compressed objects are longer by so much: a stream carries more plain bytes in its time, and a range of few
# stored ones is mostly the wait for the first.
_MOST_LONGER = 2

# Reading on for more than this proves a session far from the server: the kernel's second request, at the latest.
_FAR_PROVEN_BYTES = CRC_BLOCK_BYTES

# Spans ahead of one reader. Each takes a buffer, however few bytes it holds: a window of tiny chunks took all memory,
# and each read looked through thousands of spans for one that could go. Ordinary windows have some 100.
MOST_SPANS_AHEAD = 256

_PROVEN_SESSIONS = 64
# Sessions kept per segment; a random read leaves an unproven one.
_UNPROVEN_SESSIONS = 16

# A session not read for so long gives its share of the memory to others (a guess).
_ACTIVE_S = 10.0


@dataclass(frozen=True, slots=True)
class Share:
    """One session's share of memory and streams."""

    window_bytes: int
    ranges_per_window: int
    growth: int = _NEAR_GROWTH
    most_range_bytes: int = _MAX_RANGE_BYTES
    grows_at_once: bool = False
    """Before the next bytes are requested, and not for the request after them."""


class FairShare:
    """Divides the memory and the link's streams among the proven sessions that are being read."""

    def __init__(self, budget_bytes: int, max_window_bytes: int, links: Links) -> None:
        self._budget_bytes = budget_bytes
        self._max_window_bytes = max_window_bytes
        self._links = links
        self._last_read_s: OrderedDict[int, float] = OrderedDict()
        self._most_range_bytes = _MAX_RANGE_BYTES
        self._useful_bytes: int | None = None

    def limit(self, limits: tuple[int, int | None] | None) -> None:
        """Bound ranges and windows by these; None: by memory and the link alone."""
        range_bytes, self._useful_bytes = (None, None) if limits is None else limits
        self._most_range_bytes = _MAX_RANGE_BYTES if range_bytes is None else min(_MAX_RANGE_BYTES, range_bytes)

    @property
    def sessions(self) -> int:
        """Sessions that count."""
        return len(self._last_read_s)

    @property
    def proven_bytes(self) -> int:
        """A reader of more than so much in sequence is expected to continue."""
        return FIRST_WINDOW_BYTES if self._links.streams <= LEAST_STREAMS else _FAR_PROVEN_BYTES

    def of(self, session: ReadSession, now_s: float, shrink: float = 1.0) -> Share:
        """Return the share of a session that is being read now, of an object that was compressed to 1 / `shrink`."""
        last_read_s = self._last_read_s
        last_read_s[id(session)] = now_s
        last_read_s.move_to_end(id(session))
        while next(iter(last_read_s.values())) < now_s - _ACTIVE_S:
            last_read_s.popitem(last=False)
        streams = self._links.streams
        of_one = max(1, streams // len(last_read_s))
        if streams <= LEAST_STREAMS:
            return Share(self._window_bytes(_NEAR_WINDOW_BYTES), of_one, _NEAR_GROWTH, self._most_range_bytes)
        of_one = min(of_one, max(LEAST_STREAMS, math.ceil(of_one / shrink)))
        range_bytes = int(RANGE_BYTES * min(_MOST_LONGER, shrink))
        ranges = math.ceil(_FAR_RANGES * of_one)
        window_bytes = self._window_bytes(max(_NEAR_WINDOW_BYTES, ranges * range_bytes))
        # With less memory rather one range for each stream than smaller ones.
        per_window = max(of_one, min(ranges, window_bytes // range_bytes))
        growth = int(_FAR_GROWTH * shrink)  # a window is bet on with as many stored bytes as without compression
        return Share(window_bytes, per_window, growth, self._most_range_bytes, grows_at_once=True)

    def _window_bytes(self, useful_bytes: int) -> int:
        """Return the window that a session gets of what is useful."""
        fair = self._budget_bytes // _AHEAD_SHARE // len(self._last_read_s)
        if self._useful_bytes is not None:
            useful_bytes = min(useful_bytes, self._useful_bytes)
        return max(_MIN_WINDOW_BYTES, min(self._max_window_bytes, useful_bytes, fair))

    def leave(self, session: ReadSession) -> None:
        """End a session's share."""
        self._last_read_s.pop(id(session), None)


@dataclass(slots=True, eq=False)
class ReadSession:
    """The position of one reader, and the end of the bytes requested ahead of it. Offsets are the segment's."""

    start: int
    position: int
    ahead: int
    window_bytes: int = 0
    """0 until the session is proven: only the requested bytes."""
    range_bytes: int = MIB
    grown_at: int = 0
    """Position when its window last grew."""
    ends_ahead: deque[int] = field(default_factory=deque)
    """Ends of the spans requested ahead that were not passed yet, ascending."""

    @property
    def proven(self) -> bool:
        """Whether it has proved to be sequential."""
        return self.window_bytes > 0

    def continues(self, wanted: ByteRange) -> bool:
        """Return whether a read is this session's next one, or near it; exactly the next one while unproven."""
        if not self.window_bytes:
            return self.position - CRC_BLOCK_BYTES <= wanted.start <= self.position
        return self.position - _BEHIND_BYTES <= wanted.start <= self.ahead + _SLACK_BYTES

    def note(self, wanted: ByteRange) -> None:
        """Note a read of an unproven session, which requests only its own bytes."""
        self.position = max(self.position, wanted.end)
        self.ahead = max(self.ahead, wanted.end)

    def passed(self, at: int) -> None:
        """Forget the spans ahead that end at or before an offset: its reader is there now."""
        while self.ends_ahead and self.ends_ahead[0] <= at:
            self.ends_ahead.popleft()

    def plan(self, wanted: ByteRange, share: Share, length_bytes: int) -> ByteRange | None:
        """Note a read of a proven session.

        Returns the bytes to request now in ranges of `range_bytes`, None when enough is on its way.
        """
        self.position = max(self.position, wanted.end)
        if len(self.ends_ahead) > MOST_SPANS_AHEAD // 2:
            return None  # many are requested at once rather than each after the read that passed one
        if share.grows_at_once:
            self._grow(share)
        window_bytes = min(self.window_bytes, share.window_bytes)
        range_bytes = self.range_bytes = _range_bytes(window_bytes, share)
        target = min(length_bytes, max(wanted.end, wanted.start + window_bytes))
        missing = target - self.ahead
        if missing <= 0:
            return None
        waits = self.ahead < wanted.end
        if not waits and target < length_bytes and missing < min(range_bytes, window_bytes // 2):
            return None
        # Whole ranges: half a range more than the window is cheaper than a small one.
        ranges = max(1, (missing + range_bytes // 2) // range_bytes)
        self._grow(share)
        return self._up_to(min(length_bytes, max(wanted.end, self.ahead + ranges * range_bytes)))

    def _grow(self, share: Share) -> None:
        """Enlarge the window if enough of it was read, within the share."""
        window_bytes = min(self.window_bytes, share.window_bytes)
        if self.position - self.grown_at >= window_bytes // _GROWS_AFTER:
            self.grown_at = self.position
            window_bytes *= share.growth
        self.window_bytes = min(share.window_bytes, window_bytes)

    def prove(self) -> None:
        """Prove the session sequential, and open its window."""
        self.window_bytes = FIRST_WINDOW_BYTES
        self.grown_at = self.position  # what proves it does not count again: one large read may be all there is

    def _up_to(self, end: int) -> ByteRange | None:
        if end <= self.ahead:
            return None
        plan = ByteRange(self.ahead, end)
        self.ahead = end
        return plan


def _range_bytes(window_bytes: int, share: Share) -> int:
    """Return a size large enough to be cheap, small enough for parallel ranges; a power of two, as buffers are."""
    if window_bytes <= _MIN_WINDOW_BYTES and window_bytes <= share.most_range_bytes:
        return window_bytes
    wanted = min(share.most_range_bytes, max(MIB, window_bytes // share.ranges_per_window))
    return 1 << (wanted.bit_length() - 1)


class Sessions:
    """The sessions of one segment, those read last first."""

    def __init__(self, shares: FairShare, most_proven_bytes: int = FIRST_WINDOW_BYTES) -> None:
        """A reader of more than `most_proven_bytes` in sequence is always expected to continue."""
        self._shares = shares
        self._most_proven_bytes = most_proven_bytes
        self._proven: list[ReadSession] = []
        self._unproven: list[ReadSession] = []

    def of(self, wanted: ByteRange, first_offset: int) -> ReadSession:
        """Return the session that a read belongs to; a new one if it continues none."""
        nearest = self._nearest(wanted)
        if nearest is not None:
            return self._continued(*nearest, wanted)
        start = wanted.start - wanted.start % CRC_BLOCK_BYTES
        session = ReadSession(start=wanted.start, position=wanted.start, ahead=max(start, first_offset))
        if wanted.start == first_offset:
            session.prove()
        self._insert(session)
        return session

    def __iter__(self) -> Iterator[ReadSession]:
        """Return an iterator over the proven sessions."""
        return iter(self._proven)

    def close(self) -> None:
        """End all sessions: the segment has no readers left."""
        for session in self._proven:
            self._shares.leave(session)
        self._proven.clear()
        self._unproven.clear()

    def _nearest(self, wanted: ByteRange) -> tuple[list[ReadSession], int] | None:
        """Return the session whose reader is nearest: windows of others may reach beyond it."""
        nearest, least_bytes = None, 0
        for sessions in (self._proven, self._unproven):
            for index, session in enumerate(sessions):
                if session.continues(wanted):
                    distance_bytes = abs(wanted.start - session.position)
                    if nearest is None or distance_bytes < least_bytes:
                        nearest, least_bytes = (sessions, index), distance_bytes
                    if distance_bytes == 0:
                        return nearest
        return nearest

    def _continued(self, sessions: list[ReadSession], index: int, wanted: ByteRange) -> ReadSession:
        session = sessions[index]
        proven = session.proven
        enough_bytes = min(self._most_proven_bytes, self._shares.proven_bytes)
        if not proven and wanted.end - session.start > enough_bytes:
            session.prove()
        if index or session.proven != proven:
            sessions.pop(index)
            self._insert(session)
        return session

    def _insert(self, session: ReadSession) -> None:
        sessions, limit = (self._proven, _PROVEN_SESSIONS) if session.proven else (self._unproven, _UNPROVEN_SESSIONS)
        sessions.insert(0, session)
        for dropped in sessions[limit:]:
            self._shares.leave(dropped)
        del sessions[limit:]
