"""The options of `readStream`: those of a read, and where and how fast a stream goes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tierfs.errors import InvalidRequest
from tierfs.scan.snapshot import Tail
from tierfs.scan.stream import Records, StreamRead
from tierfs.spark.options import Bounds, Given, ReadOptions, RowType

STREAM_OPTIONS = ("startingOffsets", "maxBytesPerTrigger", "failOnDataLoss")

_RECORDS = {
    RowType.LINES: Records.LINES,
    RowType.BYTES: Records.BYTES,
    RowType.ENTRIES: Records.ENTRIES,
    RowType.MESSAGES: Records.ENTRIES,
}

_SHOWN = 100
_DIGITS = 8


class Starting(StrEnum):
    """Where a stream without a checkpoint begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Pace:
    """The options that only a stream has."""

    starting: Starting
    max_bytes: int | None
    """Per trigger."""
    fail_on_data_loss: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Pace:
        """Those among the options of Spark. Raises InvalidRequest naming the wrong one."""
        given = Given(options, options)
        limit = given.text("maxBytesPerTrigger")
        return cls(
            starting=given.choice("startingOffsets", Starting, Starting.EARLIEST),
            max_bytes=None if limit is None else max(1, given.size("maxBytesPerTrigger", 1)),
            fail_on_data_loss=given.text("failOnDataLoss") is None or given.flag("failOnDataLoss"),
        )


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Everything that a stream may be told."""

    read: ReadOptions
    pace: Pace

    @classmethod
    def of(cls, options: Mapping[str, str]) -> StreamOptions:
        """The options of Spark. Raises InvalidRequest naming the wrong one."""
        read = ReadOptions.of(options, STREAM_OPTIONS)
        _require_endless(read)
        return cls(read, Pace.of(options))

    def stream_read(self) -> StreamRead:
        """What the driver makes of it."""
        read = self.read
        return StreamRead(
            name=_name(read),
            selection=read.selection,
            records=_RECORDS[read.row_type],
            lines=read.lines,
            cold_only=read.tail is not Tail.LOCAL,
            priority=read.priority,
            fail_on_data_loss=self.pace.fail_on_data_loss,
        )


def _require_endless(read: ReadOptions) -> None:
    """Raise InvalidRequest for what only a read with an end can do."""
    selection = read.selection
    if read.row_type is RowType.SEGMENTS:
        raise InvalidRequest("rows of type segments are no stream", remedy="read them with spark.read")
    if read.bounds != Bounds():
        raise InvalidRequest(
            "a stream has no startOffset, endOffset, startEntry and endEntry", remedy="set startingOffsets"
        )
    if selection.modified_after_ms is not None or selection.modified_before_ms is not None:
        raise InvalidRequest(
            "a stream cannot choose segments by modifiedAfter or modifiedBefore: it would pass those that change later",
            remedy="leave them out, and filter rows",
        )
    if read.tail is Tail.ERROR:
        raise InvalidRequest(
            "a stream cannot refuse bytes that are not cold yet", remedy="set tail to cold-only, offload or local"
        )


def _name(read: ReadOptions) -> str:
    """The kind of rows, the paths, and a mark of what else decides over positions."""
    selection, separator = read.selection, read.lines.separator.text
    paths = ", ".join(sorted(selection.paths))
    more = (paths, selection.recursive, selection.name_glob, separator if read.row_type is RowType.LINES else None)
    mark = hashlib.sha256(repr(more).encode()).hexdigest()[:_DIGITS]
    shown = paths if len(paths) <= _SHOWN else f"{paths[:_SHOWN]}…"
    return f"{_RECORDS[read.row_type]} of {shown or '/'} ({mark})"
