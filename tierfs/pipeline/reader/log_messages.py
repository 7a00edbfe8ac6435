"""Messages of commit logs of RocketMQ: where a stream's steps through them end, and the messages of a partition."""

from __future__ import annotations

from collections.abc import Iterator

from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import MIB, ByteRange
from tierfs.engine.ledger.commit_log import (
    HEAD_BYTES,
    MAX_MESSAGE_BYTES,
    LogHead,
    LogMessage,
    decode,
    first_head,
    head_of,
)
from tierfs.pipeline.reader.extents import clip
from tierfs.pipeline.reader.fetching import ScanFetcher, WantedRequest
from tierfs.pipeline.reader.planning import Part, Partition
from tierfs.pipeline.reader.record_ends import ByteEnds, ReadBytes
from tierfs.pipeline.reader.stream_plan import Cut, ListedSegment

# First search for a message, backwards or forwards; each further one is four times as long. Most messages are shorter.
FIRST_BYTES = MIB

PlacedMessage = tuple[int, LogMessage]
"""With the offset of its first byte."""


class LogEnds(ByteEnds):
    """Cutter of messages: each has its size in front. They are found backwards from the end, as lines are."""

    def __init__(self, read: ReadBytes) -> None:
        self._read = read

    def cut(self, listed: ListedSegment, position: int, budget_bytes: int | None, *, crossing: bool) -> Cut:
        """See Cutter.cut. Raises InvalidRequest for a segment that is no commit log, and what reading raises."""
        stop = listed.end if budget_bytes is None else min(listed.end, position + budget_bytes)
        if stop == listed.end and listed.complete:
            return Cut(stop, stop - position)
        end = self._last(listed, position, stop)
        if end < stop < listed.end and crossing:
            head = self._head(listed, end)
            end = end if head is None or end + head.size > listed.end else end + head.size
        return Cut(end, end - position, all=stop == listed.end or end == listed.end)

    def first_from(self, listed: ListedSegment, offset: int) -> int:
        """See Cutter.first_from. Raises as `cut`."""
        if offset <= listed.start or offset >= listed.end:
            return offset
        size_bytes = FIRST_BYTES
        while True:
            window = ByteRange(offset, min(listed.end, offset + size_bytes))
            first = first_head(memoryview(self._read(listed, window)), offset, listed.end)
            if first is not None or window.end == listed.end:
                return listed.end if first is None else first[0]
            size_bytes *= 4

    def _last(self, listed: ListedSegment, position: int, stop: int) -> int:
        """Return the end of the last whole message in [position, stop]; `position` if there is none."""
        size_bytes = FIRST_BYTES
        while True:
            window = ByteRange(max(position, stop - size_bytes), stop)
            data = memoryview(self._read(listed, window))
            first = _first(data, window.start, listed.end, is_begin=window.start == position)
            if first is not None:
                end = window.start + _whole(data, first - window.start)
                if end > first or window.start == position:
                    return end
            elif window.start == position:
                _require_begun(listed.path, data, position)
                return position
            size_bytes *= 4

    def _head(self, listed: ListedSegment, offset: int) -> LogHead | None:
        return head_of(memoryview(self._read(listed, ByteRange(offset, min(listed.end, offset + HEAD_BYTES)))))


def read_messages(fetcher: ScanFetcher, partition: Partition) -> Iterator[tuple[int, list[PlacedMessage]]]:
    """Yield the messages of a partition in batches, each with the number of its part; one that is cut off is none.

    Raises InvalidRequest for a segment that is no commit log, and DataLoss for damage.
    """
    for number, part in enumerate(partition.parts):
        pieces = fetcher.pieces(WantedRequest(number, extent) for extent in clip(part.extents, part.owned))
        begun, at, is_found = bytearray(), part.owned.start, False
        for piece in pieces:
            begun += piece.view
            is_last = at + len(begun) == part.owned.end
            if len(begun) < FIRST_BYTES and not is_last:
                continue
            data = memoryview(bytes(begun))
            first = at if is_found else _first(data, at, part.pinned.end, is_begin=True)
            if first is None:
                _require_begun(part.source.name, data, at)
                continue
            messages, end = _messages(part, data, at, first - at)
            if messages:
                yield number, messages
            is_found = True
            del begun[:end]
            at += end


def _messages(part: Part, data: memoryview, offset: int, at: int) -> tuple[list[PlacedMessage], int]:
    """Return the whole messages from `at` on, and where they end. `offset`: of the data in the segment."""
    messages = []
    while (head := head_of(data[at:])) is not None and at + head.size <= len(data):
        if not head.is_coda:
            where = f"the message at byte {offset + at} of {printable(part.source.name)}"
            messages.append((offset + at, decode(data[at : at + head.size], where)))
        at += head.size
    if head is None and len(data) - at >= HEAD_BYTES:
        raise DataLoss(f"{printable(part.source.name)}: no message of RocketMQ starts at byte {offset + at}")
    return messages, at


def _first(data: memoryview, offset: int, end: int, *, is_begin: bool) -> int | None:
    """Return the offset of the first message; `is_begin`: one is at the front, unless the head was truncated."""
    if is_begin and head_of(data) is not None:
        return offset
    first = first_head(data, offset, end)
    return None if first is None else first[0]


def _whole(data: memoryview, at: int) -> int:
    """Return where the whole messages end that begin at `at`."""
    while (head := head_of(data[at:])) is not None and at + head.size <= len(data):
        at += head.size
    return at


def _require_begun(name: str, data: memoryview, offset: int) -> None:
    """Raise InvalidRequest for bytes that are neither the begin of a message nor the rest of a truncated one."""
    if len(data) > (MAX_MESSAGE_BYTES if offset else HEAD_BYTES):
        raise InvalidRequest(
            f"segment {printable(name)} is not a commit log of RocketMQ: no message is at byte {offset}",
            remedy="specify only commit logs, also by a glob",
        )
