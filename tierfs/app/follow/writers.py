"""The writers of followed logs, opened and closed many in one commit: there may be a thousand. And room on the disk."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence

from tierfs.app.room import Room, Tells
from tierfs.app.store import Store
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.types import ByteRange
from tierfs.engine.segments.writer import PlannedAppend, SegmentWriter, append_all

log = logging.getLogger(__name__)


class Writers:
    """Opens and closes the writers of one follower."""

    def __init__(self, store: Store, tells: Tells, room_wait_s: float, stop: threading.Event) -> None:
        """Wait for room on a full disk for `room_wait_s`, or until `stop`."""
        self._store = store
        self._tells = tells
        self._room_wait_s = room_wait_s
        self._stop = stop

    def open(self, lengths: Mapping[str, int]) -> dict[str, SegmentWriter | TierfsError]:
        """Become the writer of segments that have these lengths; return each, or its error."""
        if len(lengths) > 1:
            try:
                return dict(self._store.engine.open_writers(lengths))
            except TierfsError as exc:  # of one of them: alone, each has its own
                log.debug("writers are opened one by one: %s", exc)
        return {name: self._open_one(name, length) for name, length in lengths.items()}

    def _open_one(self, name: str, length: int) -> SegmentWriter | TierfsError:
        try:
            return self._room().make(
                name, lambda: self._store.engine.open_writer(name, expected_offset=length), self._stop
            )
        except TierfsError as exc:
            return exc

    def close(self, writers: Sequence[SegmentWriter]) -> None:
        """Close writers. One commit marks all their chunks as whole, so that the next writers continue them."""
        alive = [writer for writer in writers if not writer.is_closed]
        if len(alive) > 1:
            append_all([PlannedAppend(writer, b"", last=True) for writer in alive])
        for writer in writers:
            self._store.engine.close_writer(writer)

    def with_room(self, append: PlannedAppend) -> ByteRange | TierfsError:
        """Make an append that found no room on the disk, once there is some; or return its error."""

        def again() -> ByteRange:
            result = append_all([append])[0]
            if isinstance(result, TierfsError):
                raise result
            return result

        try:
            return self._room().make(append.writer.name, again, self._stop)
        except TierfsError as exc:
            return exc

    def _room(self) -> Room:
        return Room(self._store, self._tells, wait_s=self._room_wait_s)  # which reports each full disk once
