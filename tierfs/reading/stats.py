"""What a reader is doing: counts kept per open segment, and a snapshot of them with memory and fetches."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tierfs.errors import NotFound
from tierfs.metadata import directories
from tierfs.metadata.transaction import ReadTransaction
from tierfs.metrics import MetricName, MetricSink
from tierfs.reading.patience import Waiting
from tierfs.types import SegmentId, Tier

if TYPE_CHECKING:
    from tierfs.reading.handle import ReadHandle
    from tierfs.reading.reader import Reader

SEGMENTS_SHOWN = 1000
"""Segments in a snapshot, those most was read of first: naming one takes about 10 microseconds, on the loop."""


@dataclass(frozen=True, slots=True)
class ReadingFigures:
    """A reader's memory, fetches and handles at one instant."""

    handles: int
    segments_open: int
    sessions: int
    """Readers with a read-ahead window."""
    budget_bytes: int
    used_bytes: int
    fetches_in_flight: int
    fetches_waiting: int
    waiting: Waiting


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """One segment that is open, over all its handles."""

    id: int
    name: str
    handles: int
    length: int
    sealed: bool
    offset: int
    """Where the newest read ended, in the segment."""
    window_bytes: int
    """How far is read ahead, summed over the readers of the segment."""
    served_from: str | None
    """Tier of the newest read: `local` or `cold`; None before there was one."""
    requests: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ReadingStats:
    """A reader at one instant."""

    figures: ReadingFigures
    segments: tuple[OpenSegment, ...]
    """By bytes read, the most first; `SEGMENTS_SHOWN` at most."""


@dataclass(slots=True, eq=False)
class _Tally:
    """Reads of one segment since it was opened first."""

    handles: set[ReadHandle] = field(default_factory=set)
    newest: ReadHandle | None = None
    offset: int = 0
    requests: int = 0
    bytes: int = 0


class OpenHandles:
    """The open handles of one reader, with what was read through them. Counts of a segment end with its last."""

    def __init__(self, metrics: MetricSink) -> None:
        self._counts = {
            tier: (
                metrics.counter(MetricName.READ_REQUESTS, tier=tier.name.lower()),
                metrics.counter(MetricName.READ_BYTES, tier=tier.name.lower()),
            )
            for tier in Tier
        }
        self._tallies: dict[SegmentId, _Tally] = {}

    def __len__(self) -> int:
        return sum(len(tally.handles) for tally in self._tallies.values())

    def add(self, handle: ReadHandle) -> None:
        """A handle was opened."""
        self._tallies.setdefault(handle.segment.id, _Tally()).handles.add(handle)

    def remove(self, handle: ReadHandle) -> None:
        """A handle was closed."""
        tally = self._tallies[handle.segment.id]
        tally.handles.remove(handle)
        if tally.newest is handle:
            tally.newest = None
        if not tally.handles:
            del self._tallies[handle.segment.id]

    def served(self, handle: ReadHandle, end_offset: int, length_bytes: int) -> None:
        """A read returned bytes that end at `end_offset` of the segment. A read at the end of file counts nowhere."""
        if not length_bytes or handle.served_from is None:
            return
        tally = self._tallies[handle.segment.id]
        tally.newest, tally.offset = handle, end_offset
        tally.requests += 1
        tally.bytes += length_bytes
        count_request, count_bytes = self._counts[handle.served_from]
        count_request(1)
        count_bytes(length_bytes)

    @property
    def segments(self) -> int:
        """How many segments are open."""
        return len(self._tallies)

    def most_read(self) -> list[_Tally]:
        """What a snapshot shows."""
        return heapq.nlargest(SEGMENTS_SHOWN, self._tallies.values(), key=lambda tally: tally.bytes)


def figures(reader: Reader) -> ReadingFigures:
    """The numbers alone. Cheap: about a microsecond per open handle."""
    return ReadingFigures(
        handles=len(reader.open_handles),
        segments_open=reader.open_handles.segments,
        sessions=reader.shares.sessions,
        budget_bytes=reader.spans.pool.budget_bytes,
        used_bytes=reader.spans.pool.used_bytes,
        fetches_in_flight=reader.fetcher.running,
        fetches_waiting=max(0, reader.spans.transfers - reader.fetcher.running),
        waiting=reader.waits.now,
    )


def snapshot(reader: Reader) -> ReadingStats:
    """Everything, as of now."""
    with reader.metadata.read() as txn:
        segments = tuple(_open_segment(txn, tally) for tally in reader.open_handles.most_read())
    return ReadingStats(figures(reader), segments)


def _open_segment(txn: ReadTransaction, tally: _Tally) -> OpenSegment:
    any_handle = next(iter(tally.handles))
    record = any_handle.segment
    try:
        name = directories.path_of(txn, record.parent_id, record.name)
    except NotFound:
        name = record.name  # its directory was deleted while it is open
    newest = tally.newest
    return OpenSegment(
        id=record.id,
        name=name,
        handles=len(tally.handles),
        length=record.length,
        sealed=record.sealed,
        offset=tally.offset,
        window_bytes=sum(session.window_bytes for session in any_handle.cold.sessions),
        served_from=None if newest is None or newest.served_from is None else newest.served_from.name.lower(),
        requests=tally.requests,
        bytes=tally.bytes,
    )
