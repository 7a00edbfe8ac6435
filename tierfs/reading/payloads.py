"""Payloads of a ledger's cold object, taken out from between frames and padding. The rows of `entries` locate each."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import ByteRange
from tierfs.engine.metadata.ledger_records import EntryRun
from tierfs.reading.scratch import Scratch


@dataclass(frozen=True, slots=True)
class PayloadRun:
    """A run of entries in the form for reads."""

    first_entry_id: int
    end_entry_id: int
    payload_start: int
    """In the segment."""
    stored_offset: int
    lengths: tuple[int, ...]
    starts: array[int]
    """The start of each payload, from the run's first; the last element is the end of the last payload."""

    @classmethod
    def of(cls, run: EntryRun) -> PayloadRun:
        starts = array("Q", accumulate(run.lengths, initial=0))
        return cls(run.first_entry_id, run.end_entry_id, run.payload_start, run.stored_offset, run.lengths, starts)

    @property
    def payload_end(self) -> int:
        return self.payload_start + self.starts[-1]


class PayloadShare:
    """The wanted payload bytes in one run, extracted as they arrive."""

    __slots__ = ("_at", "_end", "_frame_bytes", "_index", "_run", "begin", "finish", "length_bytes")

    frames = 0
    """Nothing is unpacked."""

    def __init__(self, run: PayloadRun, wanted: ByteRange, frame_bytes: int) -> None:
        """`wanted` is a range of the segment inside the run, not empty."""
        self._run = run
        self._frame_bytes = frame_bytes
        self._at, self._end = wanted.start - run.payload_start, wanted.end - run.payload_start
        self.length_bytes = wanted.length_bytes
        self._index = bisect_right(run.starts, self._at) - 1
        last = bisect_left(run.starts, self._end) - 1
        self.begin = self._stored(self._index, self._at)
        """Offset of the first byte in the stored object."""
        self.finish = self._stored(last, self._end)

    def _stored(self, index: int, offset: int) -> int:
        return self._run.stored_offset + self._frame_bytes * (index + 1) + offset

    def take(self, scratch: Scratch, arrived: int, view: memoryview, done: int) -> int:
        """Copy whole arrived entries to `view` from `done` on; return the filled length of `view`."""
        held, origin = scratch.view, scratch.origin
        end = origin + arrived
        done = self._take_one(held, origin, end, view, done)  # possibly only a part of the first entry
        starts, first = self._run.starts, self._index
        limit = bisect_right(starts, self._end) - 1
        if self._stored(limit - 1, starts[limit]) > end:
            limit = bisect_right(range(limit), end, lo=first, key=lambda index: self._stored(index, starts[index + 1]))
        if limit > first:
            position, frame_bytes = self._stored(first, self._at) - origin, self._frame_bytes
            # Measured: the fastest way in Python, half a microsecond for an entry of 1 KiB.
            for length in self._run.lengths[first:limit]:
                view[done : done + length] = held[position : position + length]
                done += length
                position += length + frame_bytes
            self._index, self._at = limit, starts[limit]
        return self._take_one(held, origin, end, view, done)

    def _take_one(self, held: memoryview, origin: int, end: int, view: memoryview, done: int) -> int:
        """Copy the next entry, or the wanted part of it, if it has arrived; return the filled length of `view`."""
        if self._at >= self._end:
            return done
        stop = min(self._run.starts[self._index + 1], self._end)
        start, size = self._stored(self._index, self._at), stop - self._at
        if start + size > end:
            return done
        view[done : done + size] = held[start - origin : start - origin + size]
        if stop == self._run.starts[self._index + 1]:
            self._index += 1
        self._at = stop
        return done + size

    @property
    def taken(self) -> bool:
        """Whether all of it was copied."""
        return self._at >= self._end
