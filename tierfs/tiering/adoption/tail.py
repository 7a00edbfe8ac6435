"""Hold back the last bytes of a segment that is followed, until its system cannot change them any more.

What a foreign writer wrote last may be cut: Pravega's next owner begins its chunk at the acknowledged length, which may
be in the middle of the last one (WriteOperation, isFirstWriteAfterFailover); RocketMQ's S3 plugin writes its last chunk
again after an upload that failed (S3FileSegment.commit0 at the same position). A byte that readers were given never
changes, so the bytes of a last object wait for the next object, or until they have been listed for a while.
"""

from __future__ import annotations

from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass
from tierfs.engine.chunkstore.protocol import StoredObject
from tierfs.tiering.adoption.plan import SegmentPlan, extent_of

# Bytes that were listed so long ago, and are still there, are taken for final (a guess: Pravega's next owner writes
# after its flush threshold of 30 s, but what it writes is nearly always the same; see docs/adopt.md).
SETTLED_S = 10.0

# An object that was not written for so long is final at first sight; longer than clocks of servers differ (a guess).
IDLE_MS = 3_600_000

HELD_BACK = (
    "the last object of a segment, which its system may still truncate: adopted with the next object, "
    "or after some seconds"
)


@dataclass(frozen=True, slots=True)
class _Length:
    """A length of an object, and when it was listed first with it."""

    since_s: float
    length: int
    etag: str


class Tails:
    """The last objects of the segments of one place, as the adoptions of one process saw them. In one thread."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[_Length, ...]] = {}
        self._listed: dict[str, tuple[_Length, ...]] = {}

    def begin(self) -> None:
        """Begin another adoption."""
        self._listed = {}

    def end(self) -> None:
        """Forget objects that are not last ones any more."""
        self._seen = self._listed

    def settled(self, stored: StoredObject, now_s: float, now_ms: int) -> int:
        """Return how many bytes of a last object are taken for final.

        `now_s` never goes backwards; `now_ms` is compared with the server's time of the object.
        """
        if now_ms - stored.modified_ms >= IDLE_MS:
            return stored.length_bytes
        kept = self._seen.get(stored.name, ())
        newest = kept[-1] if kept else None
        if newest is not None and not _continues(newest, stored):
            kept, newest = (), None
        if newest is None or newest.length < stored.length_bytes:
            kept = (*kept, _Length(now_s, stored.length_bytes, stored.etag))
        final = [seen for seen in kept if now_s - seen.since_s >= SETTLED_S]
        # Of the final lengths only the last one matters.
        self._listed[stored.name] = kept[max(0, len(final) - 1) :]
        return final[-1].length if final else 0


def _continues(seen: _Length, stored: StoredObject) -> bool:
    """Return whether an object is what it was, or longer: a system that appends changes its etag."""
    return stored.length_bytes > seen.length or (stored.length_bytes, stored.etag) == (seen.length, seen.etag)


def cut_to(plan: SegmentPlan, length: int, settled: int) -> SegmentPlan:
    """Return a plan with only so many bytes of its last object as are `settled`.

    `length`: of the segment as it is, which stays.
    """
    last = plan.extents[-1]
    end = max(last.start_offset + settled, min(length, last.end_offset))
    if end >= last.end_offset:
        return plan
    kept = (extent_of(last.start_offset, last.object, end),) if end > last.start_offset else ()
    return replace(plan, extents=(*plan.extents[:-1], *kept))
