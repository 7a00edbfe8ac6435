"""Plans the steps of a stream: from an offset to the next one, and the stretches between two offsets. Pure.

An offset is a watermark and a position in each segment that is still open: segments that appeared up to `done` and are
not in `open` are finished, so an offset is as large as there are open segments. It names them by their births: one that
is loaded from a dump has its id again, and other bytes. A position is a byte offset, or, of
entries, the id of the next one, as entries may be empty. The same two offsets give the same bytes at each call, unless
bytes are lost: a segment was deleted, cut, recovered shorter or unsealed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from tierfs.base.bytes import ranges, recoveries
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.bytes.joins import Join
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import ByteRange, SegmentId

VERSION = 1
NEW_CHECKPOINT = "use a new checkpoint location"


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The progress of a stream."""

    store: str
    """Id of the store."""
    read: str
    """The read according to the options; positions are meaningless to another read."""
    done: int = 0
    """Birth of the last segment begun; see SegmentRecord.birth."""
    open: Mapping[int, int] = field(default_factory=dict)
    """Positions by births."""
    bytes: int = 0
    """Bytes read since the stream began: shows whether a batch that is read again has lost some."""
    unsealed: int = 0
    """Greatest SegmentRecord.unsealed_id of the finished segments: a greater one was unsealed since, by any clock."""
    recovered: int = 0
    """Greatest number of a recovery in the segments that were listed: bytes that a later one did not find are lost."""

    def as_json(self) -> dict[str, Any]:
        """Return the offset as Spark keeps it. Keys are sorted: Spark compares offsets as text."""
        saved = {
            "bytes": self.bytes,
            "done": self.done,
            "open": {text: self.open[int(text)] for text in sorted(map(str, self.open))},
            "read": self.read,
            "recovered": self.recovered,
            "store": self.store,
            "unsealed": self.unsealed,
            "v": VERSION,
        }
        if not self.recovered:
            del saved["recovered"]  # so that offsets of earlier versions have the same text
        return saved

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> StreamOffset:
        """Return the offset in a checkpoint. Raises InvalidRequest for one that this tierfs cannot read."""
        version = saved.get("v")
        if isinstance(version, int) and version > VERSION:
            raise InvalidRequest(
                f"the checkpoint has offsets of version {version}, but this tierfs supports only {VERSION}",
                remedy="upgrade tierfs",
            )
        try:
            return cls(
                store=str(saved["store"]),
                read=str(saved["read"]),
                done=_count(saved["done"]),
                open={int(birth): _count(position) for birth, position in saved["open"].items()},
                bytes=_count(saved["bytes"]),
                unsealed=_count(saved["unsealed"]),
                recovered=_count(saved.get("recovered", 0)),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise InvalidRequest("the checkpoint has no tierfs offset", remedy=NEW_CHECKPOINT) from exc

    def require_read(self, read: str) -> None:
        """Raise InvalidRequest if the checkpoint is of another read."""
        if self.read != read:
            raise InvalidRequest(
                f"the checkpoint belongs to a stream that reads {self.read}, but this stream reads {read}",
                remedy=f"use the previous paths and options, or {NEW_CHECKPOINT}",
            )


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"not a count: {value!r}")
    return value


@dataclass(frozen=True, slots=True)
class ListedSegment:
    """A segment of the selection as it is now; positions are of bytes or of entries."""

    segment_id: SegmentId
    birth: int
    path: str
    sealed: bool
    start: int
    end: int
    """The end of the readable bytes or entries."""
    length: int
    """The end of all bytes or entries."""
    joins: tuple[Join, ...] = ()
    """Bytes that were other segments of the selection, or may have been."""
    unsealed_id: int = 0
    """Number from the commit that unsealed it last."""
    recoveries: tuple[int, ...] = ()
    """See tierfs.base.bytes.recoveries; ends are positions."""
    sequence: str = ""
    """Names the segments of which one continues the other: members of a stream, ledgers of a managed ledger."""
    place: int = 0
    """Increases along its sequence."""
    began_ms: int = 0
    """Time of its first byte."""
    ended_ms: int = 0
    """Time of its last append."""

    @property
    def complete(self) -> bool:
        """Return whether nothing follows its end."""
        return self.sealed and self.end >= self.length


@dataclass(frozen=True, slots=True)
class Cut:
    """The end of a step through one segment."""

    end: int
    size_bytes: int = 0
    all: bool = True
    """Whether nothing is left for the next step; a half-written record counts as nothing."""


class Cutter(Protocol):
    """Finds the ends of records."""

    def cut(self, listed: ListedSegment, position: int, budget_bytes: int | None, *, crossing: bool) -> Cut:
        """Return a step from `position`, where a record begins, through at most the budget, if given.

        `crossing`: through every record that begins within the budget, so through one at least, if there is one.
        """
        ...

    def size_bytes(self, listed: ListedSegment, start: int, end: int) -> int:
        """Return the bytes between two positions."""
        ...

    def ends_at(self, listed: ListedSegment, position: int) -> bool:
        """Return whether a record ends at a position, whatever follows."""
        ...

    def first_from(self, listed: ListedSegment, offset: int) -> int:
        """Return the position of the first record that begins at a byte offset or after it; the end if none does.

        A record that is only half written, and begins before, is returned: where the next one begins is not known yet.
        """
        ...


def advance(start: StreamOffset, listed: Sequence[ListedSegment], cutter: Cutter) -> StreamOffset:
    """Return the offset after all that exists; `start` itself if there is nothing to read and nothing ended.

    With a limit a batch is planned by `stream_shares.advance_fairly`.
    """
    step = StreamStep(start)
    for segment in sorted(unfinished(start, listed), key=lambda segment: segment.birth):
        position = start.open.get(segment.birth, segment.start)
        cut = Cut(position)
        if segment.end > position:
            cut = cut_around(start, segment, position, cutter, None, crossing=True)
        step.take(segment, position, cut)
    return step.offset(listed)


def read_before(start: StreamOffset, segment: ListedSegment, position: int) -> list[ByteRange]:
    """Return the ranges from a position on that were read in the segments that they come from.

    Raises DataLoss if that is not known.
    """
    read: list[ByteRange] = []
    for join in segment.joins:
        if join.end <= position or (join.birth > start.done and join.birth not in start.open):
            continue
        # The head of the source may have been cut off behind what was read of it.
        till = max(join.source_start, start.open.get(join.birth, join.source_end))
        if join.is_of_several and till > join.source_start:
            raise DataLoss(
                f"segment {printable(segment.path)}: many segments were concatenated to it since it was read up to "
                f"{position}, and which of their rows were read before is unknown",
                remedy=NEW_CHECKPOINT,
            )
        read.append(ByteRange(max(position, join.start), max(position, join.start + till - join.source_start)))
    return ranges.union(filter(None, read))


def cut_around(
    start: StreamOffset, segment: ListedSegment, position: int, cutter: Cutter, budget: int | None, *, crossing: bool
) -> Cut:
    """Return a step through one segment without the ranges that were read in others before; `crossing`: see Cutter.cut.

    Raises DataLoss where a record crosses the edge of such a range.
    """
    size_bytes = 0
    for skipped in read_before(start, segment, position):
        left = None if budget is None else budget - size_bytes
        if left is not None and left <= 0:
            return Cut(position, size_bytes, all=False)
        if skipped.start > position:
            part = replace(segment, end=min(segment.end, skipped.start), length=max(segment.length, skipped.start + 1))
            cut = cutter.cut(part, position, left, crossing=crossing)
            position, size_bytes = cut.end, size_bytes + cut.size_bytes
            if position < skipped.start and not cut.all:
                return Cut(position, size_bytes, all=False)
        if position < skipped.start or not cutter.ends_at(segment, skipped.end):
            raise DataLoss(
                f"segment {printable(segment.path)}: its bytes {skipped.start} to {skipped.end} were read before "
                "they were concatenated to it, and a line crosses their start or end",
                remedy=f"end segments with a line end before a concat; now {NEW_CHECKPOINT}",
            )
        position = skipped.end
    left = None if budget is None else budget - size_bytes
    if segment.end <= position:
        return Cut(position, size_bytes)
    if left is not None and left <= 0:
        return Cut(position, size_bytes, all=False)
    cut = cutter.cut(segment, position, left, crossing=crossing)
    return Cut(cut.end, size_bytes + cut.size_bytes, cut.all)


@dataclass(frozen=True, slots=True)
class StartPlace:
    """The place in a segment where a stream starts: a byte offset, or, if records are entries, the id of one."""

    number: int
    is_entry: bool = False


def beginning_at(
    start: StreamOffset,
    listed: Sequence[ListedSegment],
    cutter: Cutter,
    place_of: Callable[[ListedSegment], StartPlace],
) -> StreamOffset:
    """Return the offset before the first records at places in segments of which nothing was read."""
    step = StreamStep(start)
    for segment in listed:
        place = place_of(segment)
        position = place.number if place.is_entry else cutter.first_from(segment, place.number)
        step.take(segment, segment.start, Cut(position))
    return step.offset(listed)


def recovered_in(start: StreamOffset, listed: Iterable[ListedSegment]) -> int:
    """Return the greatest number of a recovery that is known at an offset after `start`."""
    last = start.recovered
    for segment in listed:
        joined = (recoveries.last(join.recoveries) for join in segment.joins)
        last = max(last, recoveries.last(segment.recoveries), *joined)
    return last


def unfinished(start: StreamOffset, listed: Iterable[ListedSegment]) -> Iterator[ListedSegment]:
    """Return the segments of which something may still have to be read."""
    return (segment for segment in listed if segment.birth in start.open or segment.birth > start.done)


def passed(offset: StreamOffset, segment: ListedSegment) -> int:
    """Return the position of an offset in a segment."""
    return offset.open.get(segment.birth, segment.length if segment.birth <= offset.done else 0)


class StreamStep:
    """A step while it is built."""

    def __init__(self, start: StreamOffset) -> None:
        self.start = start
        self._open = dict(start.open)
        self._done = start.done
        self._unsealed = start.unsealed
        self._taken = set[int]()
        self.size_bytes = 0
        self._changed = False
        """Whether something was read, or ended: empty segments alone are no reason for a batch."""

    def take(self, segment: ListedSegment, position: int, cut: Cut) -> None:
        """Advance through a segment up to a cut."""
        self.size_bytes += cut.size_bytes
        self._taken.add(segment.birth)
        self._done = max(self._done, segment.birth)
        self._changed = self._changed or cut.end > position or segment.complete
        if segment.complete and cut.end >= segment.length:
            self._open.pop(segment.birth, None)
            self._unsealed = max(self._unsealed, segment.unsealed_id)
        else:
            self._open[segment.birth] = cut.end

    def pass_by(self, waiting: Sequence[tuple[ListedSegment, int]], *, all_of_them: bool) -> None:
        """Keep the positions of segments that were not taken, since `done` passes their births; end those that ended.

        `all_of_them`: also those that appeared after all that were taken.
        """
        waiting = [(segment, position) for segment, position in waiting if segment.birth not in self._taken]
        for segment, position in waiting:
            if segment.end <= position and (all_of_them or segment.birth <= self._done):
                self.take(segment, position, Cut(position))
        for segment, position in waiting:
            if segment.birth not in self._taken and segment.birth <= self._done:
                self._open[segment.birth] = position

    def offset(self, listed: Sequence[ListedSegment]) -> StreamOffset:
        """Return the offset at the end of the step; the start itself if nothing happened."""
        if not self._changed:
            return self.start
        for segment in listed:
            self._remember(segment)
        bytes_read = self.start.bytes + self.size_bytes
        done, read = self._done, self.start.read
        return StreamOffset(
            self.start.store, read, done, self._open, bytes_read, self._unsealed, recovered_in(self.start, listed)
        )

    def _remember(self, segment: ListedSegment) -> None:
        """Keep positions in joined segments until the bytes that were theirs are passed; then drop them.

        One that was not begun yet would count as finished, since `done` passes its birth.
        """
        position = self._open.get(segment.birth, segment.start if segment.birth > self._done else segment.length)
        for join in segment.joins:
            if position >= join.end:
                self._open.pop(join.birth, None)
            elif join.birth not in self._open and join.birth > self.start.done:
                self._open[join.birth] = join.source_start
