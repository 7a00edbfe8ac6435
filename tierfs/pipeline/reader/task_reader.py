"""The reader of one task: of one place, with the positions of bytes that the task brought along."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from tierfs.base.words.errors import Unavailable
from tierfs.base.words.types import CRC_BLOCK_BYTES, ObjectId, Tier
from tierfs.engine.frames.frame_map import FrameMap
from tierfs.engine.metadata.ledger_records import EntryRun
from tierfs.engine.metadata.placements import HeldObject
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.pipeline.reader.extents import PlaceConnections, ScannedStore
from tierfs.pipeline.reader.task_patience import TaskPatience
from tierfs.reading.plain_bytes import FindRows, PlainBytes
from tierfs.reading.verified import VerifiedReader


def run_holding(runs: Sequence[EntryRun], offset: int) -> EntryRun | None:
    """Return the run, of several in order, that holds a payload byte of a ledger."""
    index = bisect_right(runs, offset, key=lambda run: run.payload_start) - 1
    return runs[index] if index >= 0 and offset < runs[index].payload_end else None


class TaskRows:
    """The rows that a task brought along. Thread-safe."""

    def __init__(self, find_run: Callable[[ObjectRecord, int], EntryRun | None]) -> None:
        self._find_run = find_run
        self._frames: dict[tuple[ObjectId, int], FrameMap] = {}
        """By object and number of a block: frames that hold all of it."""

    def add(self, stored: HeldObject | ObjectRecord, frames: Iterable[FrameMap]) -> None:
        """Note frames of an object, for all reads from now on."""
        for each in frames:
            plain = each.plain
            # The last block of an object is shorter; a part of another one is in other frames, too.
            end = plain.end + CRC_BLOCK_BYTES - 1 if plain.end == stored.length else plain.end
            for block in range(-(-plain.start // CRC_BLOCK_BYTES), end // CRC_BLOCK_BYTES):
                self._frames[stored.id, block] = each

    def entries(self, record: ObjectRecord, offset: int) -> EntryRun | None:
        """See FindRows."""
        return self._find_run(record, offset)

    def frames(self, record: ObjectRecord, offset: int) -> FrameMap | None:
        """See FindRows."""
        return self._frames.get((record.id, offset // CRC_BLOCK_BYTES))


class TaskReader(VerifiedReader):
    """Reads and proves for one task. Thread-safe."""

    def __init__(self, place: ScannedStore, connections: PlaceConnections, rows: FindRows) -> None:
        storage_of, files = partial(connections.storage, place), partial(connections.files, place)
        super().__init__(None, storage_of, files, connections.etags(place), PlainBytes(rows))
        self.in_flight = connections.in_flight(place)
        self.patience = TaskPatience()

    def fill(self, record: ObjectRecord, offset: int, view: memoryview) -> str | None:
        etag = super().fill(record, offset, view)
        if record.tier is Tier.COLD:
            self.patience.answered()
        return etag

    def may_answer(self, record: ObjectRecord) -> bool:
        """Return whether a server that does not answer did so before."""
        return record.tier is Tier.COLD and self.in_flight.answered(record.location_id)


class WaitingReader(TaskReader):
    """Waits for a server that answered before at each read, because no other copy can take its place."""

    def fill(self, record: ObjectRecord, offset: int, view: memoryview) -> str | None:
        while True:
            try:
                return super().fill(record, offset, view)
            except Unavailable as exc:
                if not self.may_answer(record) or not self.patience.pause(exc):
                    raise
