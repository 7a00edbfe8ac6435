"""Follow into the store of this host: its writers, opened and closed many in one commit, and room on its disk."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tierfs.app.follow import beginnings
from tierfs.app.follow.places import last_bytes, place_of
from tierfs.app.follow.target import LogAppend, LogPlace, of_other
from tierfs.app.room import Room, Tells
from tierfs.app.store import Store
from tierfs.base.words import names
from tierfs.base.words.errors import StorageFull, TierfsError
from tierfs.base.words.types import ByteRange
from tierfs.engine.metadata import followed
from tierfs.engine.segments.writer import PlannedAppend, SegmentWriter, append_all

if TYPE_CHECKING:
    from tierfs.app.follow.sources import Log, LogSource

log = logging.getLogger(__name__)


class LocalTarget:
    """A store that is open in this process, and a directory of it."""

    def __init__(
        self, store: Store, into: str, tells: Tells, *, waits: bool = True, stop: threading.Event | None = None
    ) -> None:
        """Raise InvalidRequest for a bad `into`.

        `waits`: for room on a full disk, until `stop`; else lines that find none are an error of their log.
        """
        self.into = names.join(names.split(into))
        self.clock = store.clock
        self.sender = ""
        self.stop = threading.Event() if stop is None else stop
        self._store = store
        self._tells = tells
        self._room_wait_s = math.inf if waits else 0.0
        self._writers: dict[str, tuple[SegmentWriter, float]] = {}
        """By segment, each with the time of its last append."""

    def begin(self, sources: Sequence[LogSource], logs: Sequence[Log], at_ms: int) -> int | None:
        """Record that following sources begins with these logs."""
        begun = beginnings.recorded(self._store, self.into, sources)
        if len(begun) < len(sources):
            if not logs and not begun:
                return None
            first = beginnings.first_ranges(self, logs)
            begun = beginnings.record(self._store, self.into, sources, first, at_ms)
        return min(row.begun_ms for row in begun)

    def is_known(self, segment: str) -> bool:
        """Return whether a segment follows a log."""
        with self._store.metadata.read() as txn:
            try:
                return bool(followed.of(txn, segment))
            except TierfsError:
                return False

    def recent(self, since_ms: int) -> list[str]:
        """Return the segments whose logs had lines since a time."""
        with self._store.metadata.read() as txn:
            rows = [(name, each[-1]) for name, each in followed.streams(txn)]
        return [name for name, row in rows if not row.cursor and row.committed_ms >= since_ms]

    def places(self, segments: Sequence[str]) -> dict[str, LogPlace | TierfsError]:
        """Return what the store has of each log."""
        places: dict[str, LogPlace | TierfsError] = {}
        with self._store.metadata.read() as txn:
            for segment in segments:
                try:
                    place = place_of(txn, segment)
                except TierfsError as exc:
                    places[segment] = exc
                else:
                    places[segment] = of_other(segment, place.ranges, self.sender) or place
        return places

    def last_bytes(self, segment: str, most_bytes: int) -> bytes:
        """Return the last bytes of a segment."""
        return last_bytes(self._store, segment, most_bytes)

    def append(self, appends: Sequence[LogAppend]) -> list[ByteRange | TierfsError]:
        """Append to different segments in one commit, and once more to each that found the disk full."""
        opened = self._open(appends)
        planned = {
            each.segment: PlannedAppend(writer, each.data, each.expected_offset, followed=each.followed)
            for each in appends
            if isinstance(writer := opened[each.segment], SegmentWriter)
        }
        made = dict(zip(planned, append_all([*planned.values()]), strict=True))
        results: list[ByteRange | TierfsError] = []
        for each in appends:
            writer = opened[each.segment]
            if isinstance(writer, TierfsError):
                results.append(writer)
                continue
            result = made[each.segment]
            if isinstance(result, StorageFull):
                result = self._with_room(planned[each.segment])
            if isinstance(result, TierfsError):
                self._store.engine.close_writer(self._writers.pop(each.segment)[0])
            else:
                self._writers[each.segment] = writer, self.clock.monotonic_s()
            results.append(result)
        return results

    def let_go(self, idle_s: float) -> None:
        """Close the writers of idle segments."""
        since_s = self.clock.monotonic_s() - idle_s
        self._close([segment for segment, (_, last_s) in self._writers.items() if last_s <= since_s])

    def reload(self) -> None:
        """Read the settings and credentials of the store again."""
        self._store.reload()

    def close(self) -> None:
        """Close all writers."""
        self._close([*self._writers])

    def _open(self, appends: Sequence[LogAppend]) -> dict[str, SegmentWriter | TierfsError]:
        """Become the writer of the segments; return each writer, or its error."""
        lengths = {each.segment: each.expected_offset for each in appends if self._is_closed(each.segment)}
        opened = self._opened(lengths)
        for segment, writer in opened.items():
            self._writers.pop(segment, None)
            if isinstance(writer, SegmentWriter):
                self._writers[segment] = writer, self.clock.monotonic_s()
        return opened | {each.segment: self._writers[each.segment][0] for each in appends if each.segment not in opened}

    def _is_closed(self, segment: str) -> bool:
        return segment not in self._writers or self._writers[segment][0].is_closed

    def _opened(self, lengths: Mapping[str, int]) -> dict[str, SegmentWriter | TierfsError]:
        if len(lengths) > 1:
            try:
                return dict(self._store.engine.open_writers(lengths))
            except TierfsError as exc:  # of one of them: alone, each has its own
                log.debug("writers are opened one by one: %s", exc)
        return {name: self._open_one(name, length) for name, length in lengths.items()}

    def _open_one(self, name: str, length: int) -> SegmentWriter | TierfsError:
        try:
            return self._room().make(
                name, lambda: self._store.engine.open_writer(name, expected_offset=length), self.stop
            )
        except TierfsError as exc:
            return exc

    def _with_room(self, append: PlannedAppend) -> ByteRange | TierfsError:
        """Make an append that found no room on the disk, once there is some; or return its error."""

        def again() -> ByteRange:
            result = append_all([append])[0]
            if isinstance(result, TierfsError):
                raise result
            return result

        try:
            return self._room().make(append.writer.name, again, self.stop)
        except TierfsError as exc:
            return exc

    def _room(self) -> Room:
        return Room(self._store, self._tells, wait_s=self._room_wait_s)  # which reports each full disk once

    def _close(self, segments: Sequence[str]) -> None:
        """Close writers. One commit marks all their chunks as whole, so that the next writers continue them."""
        writers = [self._writers.pop(segment)[0] for segment in segments]
        alive = [writer for writer in writers if not writer.is_closed]
        if len(alive) > 1:
            append_all([PlannedAppend(writer, b"", last=True) for writer in alive])
        for writer in writers:
            self._store.engine.close_writer(writer)
