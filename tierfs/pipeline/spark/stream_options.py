"""The options of `readStream`: those of a read, and the beginning and pace of a stream."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import InvalidRequest
from tierfs.pipeline.reader.selection import Tail
from tierfs.pipeline.reader.stream import Records, StreamRead
from tierfs.pipeline.spark.named_positions import NamedNumbers
from tierfs.pipeline.spark.options import STREAM_OPTIONS, Bounds, Given, ReadOptions
from tierfs.pipeline.spark.row_types import RowType

_RECORDS = {
    RowType.LINES: Records.LINES,
    RowType.BYTES: Records.BYTES,
    RowType.ENTRIES: Records.ENTRIES,
    RowType.MESSAGES: Records.ENTRIES,
    RowType.ROCKETMQ: Records.LOG,
}

_SHOWN = 100
_DIGITS = 8


# As Spark's source of Kafka has it.
_MAX_DELAY_S = 15 * 60.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Options that only a stream has."""

    max_bytes: int | None
    """Per trigger."""
    max_segments: int | None
    min_bytes: int
    """Of a batch, unless the one before started `max_delay_s` ago."""
    max_delay_s: float

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Pace:
        """Parse those among the options of Spark. Raises InvalidRequest naming the wrong one."""
        given = Given(options, options)
        delay_s = given.duration_s("maxTriggerDelay")
        limit, segments = given.text("maxBytesPerTrigger"), given.text("maxFilesPerTrigger")
        pace = cls(
            max_bytes=None if limit is None else max(1, given.size("maxBytesPerTrigger", 1)),
            max_segments=None if segments is None else given.number("maxFilesPerTrigger", 1),
            min_bytes=given.size("minBytesPerTrigger", 0),
            max_delay_s=_MAX_DELAY_S if delay_s is None else delay_s,
        )
        if pace.max_bytes is not None and pace.min_bytes > pace.max_bytes:
            raise InvalidRequest(
                "minBytesPerTrigger is greater than maxBytesPerTrigger", remedy="set it to at most as much"
            )
        if delay_s is not None and not pace.min_bytes:
            raise InvalidRequest(
                "maxTriggerDelay has no effect without minBytesPerTrigger", remedy="set both, or neither"
            )
        return pace


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """All options of a stream."""

    read: ReadOptions
    pace: Pace

    @classmethod
    def of(cls, options: Mapping[str, str]) -> StreamOptions:
        """Parse the options of Spark. Raises InvalidRequest naming the wrong one."""
        read, pace = ReadOptions.of(options, STREAM_OPTIONS), Pace.of(options)
        _require_endless(read)
        return cls(read, pace)

    def stream_read(self) -> StreamRead:
        """Return the read that the driver makes of the options."""
        read = self.read
        return StreamRead(
            name=_name(read),
            selection=read.selection,
            records=_RECORDS[read.row_type],
            lines=read.lines,
            cold_only=read.tail is not Tail.LOCAL,
            priority=read.priority,
            fail_on_data_loss=not read.named.tolerant,
        )


def _require_endless(read: ReadOptions) -> None:
    """Raise InvalidRequest for options that need a read with an end."""
    selection = read.selection
    if read.row_type is RowType.SEGMENTS:
        raise InvalidRequest("rows of type segments cannot be streamed", remedy="read them with spark.read")
    ends = [name for name, given in (("endingTimestamp", read.bounds.end_ms), *_ends(read)) if given is not None]
    if ends:
        raise InvalidRequest(
            f"{ends[0]} is not supported for streams",
            remedy="read a batch with spark.read, or stop at the present end: trigger(availableNow=True)",
        )
    if replace(read.bounds, start_ms=None) != Bounds():
        raise InvalidRequest(
            "startOffset, startEntry and their ends are not supported for streams",
            remedy="set startingOffsets or startingTimestamp",
        )
    if selection.modified_after_ms is not None or selection.modified_before_ms is not None:
        raise InvalidRequest(
            "modifiedAfter and modifiedBefore are not supported for streams: later changes would be skipped",
            remedy="omit them, and filter rows",
        )
    if read.lines.whole:
        raise InvalidRequest(
            "wholetext is not supported for streams: segments grow", remedy="omit it, or read a batch with spark.read"
        )
    if read.tail is Tail.ERROR:
        raise InvalidRequest(
            "a stream cannot fail on bytes that are not cold yet", remedy="set tail to cold-only, offload or local"
        )


def _ends(read: ReadOptions) -> Iterator[tuple[str, NamedNumbers | None]]:
    yield "endingOffsets", read.named.end
    yield "endingOffsetsByTimestamp", read.named.end_ms


def _name(read: ReadOptions) -> str:
    """Return the kind of rows, the paths, and a mark of everything else that positions depend on."""
    selection, separator = read.selection, read.lines.separator.text
    paths = ", ".join(sorted(selection.paths))
    more: tuple[object, ...] = (paths, selection.recursive, selection.name_glob)
    more += (separator if read.row_type is RowType.LINES else None, selection.conditions, selection.skips_hidden)
    mark = hashlib.sha256(repr(more).encode()).hexdigest()[:_DIGITS]
    shown = paths if len(paths) <= _SHOWN else f"{paths[:_SHOWN]}…"
    return f"{_RECORDS[read.row_type]} of {shown or '/'} ({mark})"
