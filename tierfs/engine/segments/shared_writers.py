"""Share one writer of a segment among its users in one process, so that none of them closes another's."""

from __future__ import annotations

import threading

from tierfs.base.words import names
from tierfs.base.words.errors import Conflict
from tierfs.base.words.types import Ack
from tierfs.engine.segments.append import require_offset
from tierfs.engine.segments.engine import Engine
from tierfs.engine.segments.writer import SegmentWriter


class SharedWriters:
    """The writers that users of one engine share. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._uses: dict[SegmentWriter, int] = {}
        """Opens of each writer that are not closed yet."""

    def open(
        self, name: str, *, expected_offset: int | None = None, take_over: bool = False, ack: Ack | None = None
    ) -> SegmentWriter:
        """Return the writer of a segment that this process has already, or become its writer.

        Call `close` once for each call. `take_over` replaces the writer, also that of this process. Raises as
        Engine.open_writer, and Conflict where the writer of this process acknowledges appends in another way.
        """
        with self._lock:
            writer = None if take_over else self._engine.own_writer(name)
            if writer is None or writer not in self._uses:
                writer = self._engine.open_writer(name, expected_offset=expected_offset, take_over=take_over, ack=ack)
            elif not writer.acknowledges(ack):
                there = Ack.COLD if writer.acknowledges_cold else Ack.LOCAL
                raise Conflict(
                    f"segment {names.printable(name)} is being written in this process with ack={there}",
                    remedy="close that writer first, or append through it",
                )
            else:
                require_offset(name, expected_offset, writer.length)
            self._uses[writer] = self._uses.get(writer, 0) + 1
            return writer

    def close(self, writer: SegmentWriter) -> None:
        """End one use of a writer; the last one closes it. Raises Closed in a child of fork."""
        with self._lock:
            left = self._uses.pop(writer, 1) - 1
            if left:
                self._uses[writer] = left
                return
            # Under the lock: a thread that opens the segment meanwhile would be refused for a writer that is ending.
            self._engine.close_writer(writer)
