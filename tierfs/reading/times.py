"""Find the first byte of a time: by the times in messages where a segment holds messages, else by those of its chunks.

    a ledger of Pulsar's entries       each entry's time as the broker records it, else as the producer sent it
    a commit log of RocketMQ           each message's store time
    anything else                      the time by which each chunk had been written

No index is kept. Messages are in the order of their times, as Pulsar and RocketMQ assume too where they seek by time:
both bisect, and so does this, with one small read a step (docs/design/0045 has the measurement). A time that is out of
order is met as by them: what is returned is a place where earlier messages end and later ones begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, NoReturn

from tierfs.base.bytes.byte_times import TimedBytes
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import CRC_BLOCK_BYTES, ByteRange, ReadPriority, SegmentId, SegmentKind, Tier
from tierfs.engine.ledger.commit_log import HEAD_BYTES, LogHead, first_head, head_of
from tierfs.engine.ledger.messages import entry_time_ms
from tierfs.engine.metadata import chains, chunk_times, entries
from tierfs.engine.metadata.records import ChunkRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.reading.entries import ReadRange, placed_entries

if TYPE_CHECKING:  # a plan of Spark needs neither, unless a time is given
    from tierfs.reading.handle import ReadHandle
    from tierfs.reading.reader import StoreReader

# Enough for the metadata of nearly every entry; larger ones are read once more, whole.
_ENTRY_HEAD_BYTES = 4096

# A verified read fetches a block anyway.
_WINDOW_BYTES = CRC_BLOCK_BYTES

# Limit of how far the clock that gave a message its time may be ahead of the one that saw it written (a guess).
_CLOCKS_DIFFER_MS = 24 * 3600 * 1000

# Chunks of a segment with joined bytes that are looked at for the end of a time (a guess: 0.1 s).
_MOST_JOINED = 4096


class TimesOf(StrEnum):
    """What a place was found by."""

    MESSAGES = "messages"
    CHUNKS = "chunks"


@dataclass(frozen=True, slots=True)
class TimePlace:
    """The place of a time in a segment."""

    offset: int
    """All bytes before it are of an earlier time; the segment's end if all are."""
    end_offset: int
    """All bytes from it on are of this time or later. By messages the same offset; by chunks the end of the chunk."""
    times_of: TimesOf
    time_ms: int | None = None
    """Of the message at the offset, or by which its chunk had been written; None at the end of the segment."""
    entry_id: int | None = None
    """Of a ledger: the entry at the offset, or the number of entries."""


def offset_at(metadata: MetadataStore, segment: SegmentRecord, time_ms: int, read: ReadRange) -> TimePlace:
    """Return the place of the first message, or chunk, of `time_ms` (milliseconds since the epoch) or later.

    `read` returns the bytes of a range of the segment; see `reading_segments`. Raises the errors of reads.
    """
    if 0 < segment.modified_ms < time_ms - _CLOCKS_DIFFER_MS:
        # Not one read: of a directory of cold segments, nearly all are older than the time.
        return _end_of(metadata, segment)
    place = None
    if segment.kind is SegmentKind.LEDGER:
        place = _in_ledger(metadata, segment, time_ms, read)
    elif segment.range:
        place = _in_log(segment, time_ms, read)
    if place is not None:
        return place
    with metadata.read() as txn:
        return _by_chunks(txn, segment, time_ms)


def _end_of(metadata: MetadataStore, segment: SegmentRecord) -> TimePlace:
    if segment.kind is not SegmentKind.LEDGER:
        return TimePlace(segment.length, segment.length, TimesOf.CHUNKS)
    with metadata.read() as txn:
        count = entries.count(txn, segment.id)
    return TimePlace(segment.length, segment.length, TimesOf.MESSAGES, entry_id=count)


@contextmanager
def reading_segments(
    make_reader: Callable[[], StoreReader], priority: ReadPriority | None
) -> Iterator[Callable[[SegmentRecord], ReadRange]]:
    """Yield what gives for a segment what reads ranges of it, for callers without a loop of their own."""
    from tierfs.reading.read_loop import ReadLoop

    loop = ReadLoop(make_reader)
    opened: dict[SegmentId, ReadHandle] = {}

    def reading(segment: SegmentRecord) -> ReadRange:
        def read(wanted: ByteRange) -> memoryview:
            handle = opened.get(segment.id)
            if handle is None:
                for other in opened.values():  # callers go from segment to segment
                    loop.release(other)
                opened.clear()
                handle = opened[segment.id] = loop.open(segment.id, priority)
            buffer = memoryview(bytearray(wanted.length_bytes))
            return buffer[: loop.read_into(handle, wanted.start, buffer)]

        return read

    try:
        yield reading
    finally:
        loop.close()


def place_of(
    metadata: MetadataStore,
    make_reader: Callable[[], StoreReader],
    segment: SegmentRecord,
    time_ms: int,
    priority: ReadPriority | None = None,
) -> TimePlace:
    """Do as `offset_at`, for callers without a loop of their own."""
    with reading_segments(make_reader, priority) as reading:
        return offset_at(metadata, segment, time_ms, reading(segment))


def entry_at(
    metadata: MetadataStore,
    ledgers: Sequence[SegmentRecord],
    time_ms: int,
    reading: Callable[[SegmentRecord], ReadRange],
) -> tuple[int, TimePlace]:
    """Return the first entry of a time or later in the ledgers of a topic: the number of its ledger, its place there.

    `ledgers`: in their order, each with an entry. The place is the end of the last one if all entries are earlier.
    Raises InvalidRequest for entries without times, and the errors of reads.
    """

    def place(number: int) -> TimePlace:
        ledger = ledgers[number]
        return _in_ledger(metadata, ledger, time_ms, reading(ledger)) or _require_times(ledger)

    def begins_early(number: int) -> bool:
        ledger = ledgers[number]
        try:
            return _time_of(metadata, ledger, 0, reading(ledger)) < time_ms
        except _NoMessagesError:
            return _require_times(ledger)

    after = _first(0, len(ledgers), begins_early)
    if after:
        last = place(after - 1)
        if after == len(ledgers) or last.time_ms is not None:
            return after - 1, last
    return after, place(after)


def _require_times(ledger: SegmentRecord) -> NoReturn:
    raise InvalidRequest(
        f"the entries of {printable(ledger.name)} are not Pulsar's, so they have no times",
        remedy="use their ids: --from, --to; for the times of chunks: tierfs cat",
    )


def _first(start: int, end: int, is_early: Callable[[int], bool]) -> int:
    """Return the first number of [start, end) that is not early, given that early ones are first; `end` without."""
    while start < end:
        middle = (start + end) // 2
        if is_early(middle):
            start = middle + 1
        else:
            end = middle
    return start


class _NoMessagesError(Exception):
    """An entry or a log has no times."""


def _in_ledger(metadata: MetadataStore, segment: SegmentRecord, time_ms: int, read: ReadRange) -> TimePlace | None:
    """Return the place in a ledger of Pulsar's entries; None for another one."""
    with metadata.read() as txn:
        count = entries.count(txn, segment.id)

    try:
        entry_id = _first(0, count, lambda number: _time_of(metadata, segment, number, read) < time_ms)
        if entry_id == count:
            return TimePlace(segment.length, segment.length, TimesOf.MESSAGES, entry_id=count)
        offset = next(placed_entries(metadata, segment.id, entry_id, entry_id + 1)).range.start
        known_ms = _time_of(metadata, segment, entry_id, read)
        return TimePlace(offset, offset, TimesOf.MESSAGES, known_ms, entry_id)
    except _NoMessagesError:
        return None


def _time_of(metadata: MetadataStore, segment: SegmentRecord, entry_id: int, read: ReadRange) -> int:
    """Return the time of an entry, which exists. Raises _NoMessagesError if it has none."""
    entry = next(placed_entries(metadata, segment.id, entry_id, entry_id + 1))
    for limit in (_ENTRY_HEAD_BYTES, entry.range.length_bytes):
        head = ByteRange(entry.range.start, min(entry.range.end, entry.range.start + limit))
        known_ms = entry_time_ms(memoryview(read(head))) if head else None
        if known_ms is not None:
            return known_ms
    raise _NoMessagesError


def _in_log(segment: SegmentRecord, time_ms: int, read: ReadRange) -> TimePlace | None:
    """Return the place in a commit log of RocketMQ's; None for another segment."""
    log = CommitLogReader(segment.name, segment.range, read)
    if log.first() is None:
        return None
    message = log.first_that(lambda head: head.store_ms >= time_ms)
    if message is None:
        return TimePlace(segment.length, segment.length, TimesOf.MESSAGES)
    return TimePlace(message[0], message[0], TimesOf.MESSAGES, message[1].store_ms)


class CommitLogReader:
    """Walks the messages of a commit log."""

    def __init__(self, name: str, bounds: ByteRange, read: ReadRange) -> None:
        """`name` is the segment's, for errors."""
        self._name = name
        self._bounds = bounds
        self._read = read

    def first(self) -> tuple[int, LogHead] | None:
        """Return the first message or coda with its offset; None for a segment that is no commit log.

        The head may have been truncated inside a message: then the next one is near, or it is no log.
        """
        return self.next_from(self._bounds.start, min(self._bounds.end, self._bounds.start + _WINDOW_BYTES))

    def first_that(self, is_late: Callable[[LogHead], bool]) -> tuple[int, LogHead] | None:
        """Return the first late message with its offset, given that those before it are not late; None without one."""
        first = self.first()
        start, end = (self._bounds.end if first is None else first[0]), self._bounds.end
        while end - start > _WINDOW_BYTES:
            middle = (start + end) // 2
            message = self.next_from(middle, end)
            while message is not None and message[1].is_coda:  # it has neither a number nor a time of its own
                message = self.next_from(message[0] + message[1].size, end)
            if message is None or is_late(message[1]):
                end = middle  # the bytes from there to the message are those of the one before it
            else:
                start = message[0] + message[1].size
        late = ((offset, head) for offset, head in self.heads(start) if not head.is_coda and is_late(head))
        return next(late, None)

    def next_from(self, start: int, end: int) -> tuple[int, LogHead] | None:
        """Return the first message or coda that begins in [start, end); None without one."""
        at = start
        while at < end:
            # So much more that the head of one that begins in the window, and of the one after it, is seen.
            window = ByteRange(at, min(self._bounds.end, at + _WINDOW_BYTES + HEAD_BYTES))
            message = first_head(memoryview(self._read(window)), at, self._bounds.end)
            if message is not None:
                return message if message[0] < end else None
            at += _WINDOW_BYTES
        return None

    def heads(self, start: int) -> Iterator[tuple[int, LogHead]]:
        """Yield each message and coda from `start`, which is one's offset, with its own offset.

        Raises DataLoss where none follows.
        """
        at, window, held = start, memoryview(b""), start
        while at < self._bounds.end:
            if at + HEAD_BYTES > held + len(window):
                held = at
                window = memoryview(self._read(ByteRange(at, min(self._bounds.end, at + _WINDOW_BYTES))))
            head = head_of(window[at - held :])
            if head is None or at + head.size > self._bounds.end:
                if head is not None or self._bounds.end - at < HEAD_BYTES:
                    return  # its last message is not complete yet
                raise DataLoss(f"{printable(self._name)}: no message of RocketMQ starts at byte {at}")
            yield at, head
            at += head.size


def _by_chunks(txn: ReadTransaction, segment: SegmentRecord, time_ms: int) -> TimePlace:
    """Return the place by the times by which chunks had been written, in whichever tier tells more."""
    if time_ms <= _begin_ms(txn, segment):
        return TimePlace(segment.start_offset, segment.start_offset, TimesOf.CHUNKS, segment.first_byte_ms)
    place = TimePlace(segment.start_offset, segment.length, TimesOf.CHUNKS)
    find = _by_joined if segment.joins.numbers else _by_tier
    for tier in Tier:
        known = find(txn, segment, tier, time_ms)
        if known is not None and (known.offset, -known.end_offset) > (place.offset, -place.end_offset):
            place = known
    return place


def _begin_ms(txn: ReadTransaction, segment: SegmentRecord) -> int:
    """Return a time before which no byte was written; 0 where none is known.

    Bytes that were joined, adopted, or brought back may be older than the segment says.
    """
    if segment.joins.numbers or segment.recovered_ms:
        return 0
    firsts = ((tier, next(chains.chunks(txn, segment.id, tier, segment.start_offset), None)) for tier in Tier)
    written = (_written_ms(txn, segment, tier, first) for tier, first in firsts if first is not None)
    return segment.first_byte_ms if all(by_ms >= segment.first_byte_ms for by_ms in written) else 0


def _by_joined(txn: ReadTransaction, segment: SegmentRecord, tier: Tier, time_ms: int) -> TimePlace | None:
    """Do as `_by_tier` where the times are in no order: by one stretch after another."""
    offset, written_ms, end = None, None, segment.start_offset
    at = segment.start_offset
    for number, chunk in enumerate(chains.chunks(txn, segment.id, tier, at)):
        if chunk.start_offset > at or (number >= _MOST_JOINED and offset is not None):
            break
        for held, times in _stretches(txn, segment, tier, chunk):
            if offset is None and times.written_ms >= time_ms:
                offset, written_ms = held.start, times.written_ms
            if not 0 < time_ms <= times.first_ms:
                end = held.end
        at = chunk.end_offset
    whole = at >= segment.length
    if offset is None:
        return TimePlace(at, at, TimesOf.CHUNKS) if whole else None
    return TimePlace(offset, max(offset, end) if whole else segment.length, TimesOf.CHUNKS, written_ms)


def _by_tier(txn: ReadTransaction, segment: SegmentRecord, tier: Tier, time_ms: int) -> TimePlace | None:
    """Return the first bytes of a tier that may be of the time or later, by bisection of the chain."""
    start, end = segment.start_offset, segment.length
    late: ChunkRecord | None = None
    while start < end:
        chunk = next(chains.chunks(txn, segment.id, tier, (start + end) // 2), None)
        if chunk is None or chunk.start_offset >= end:
            return None  # bytes that only the other tier has
        if _written_ms(txn, segment, tier, chunk) < time_ms:
            start = chunk.end_offset
        else:
            end, late = chunk.start_offset, chunk
    if start >= segment.length:
        return TimePlace(segment.length, segment.length, TimesOf.CHUNKS)
    if late is None or late.start_offset > start:
        return None
    stretches = _stretches(txn, segment, tier, late)
    number = next(number for number, (_, times) in enumerate(stretches) if times.written_ms >= time_ms)
    held, times = stretches[number]
    if 0 < time_ms <= times.first_ms:
        return TimePlace(held.start, held.start, TimesOf.CHUNKS, times.written_ms)
    after = _first_late(stretches[number + 1 :], time_ms)
    end = _end_of_early(txn, segment, tier, late, time_ms) if after is None else after
    return TimePlace(held.start, end, TimesOf.CHUNKS, times.written_ms)


def _end_of_early(txn: ReadTransaction, segment: SegmentRecord, tier: Tier, late: ChunkRecord, time_ms: int) -> int:
    """Return where the bytes after a chunk begin that are of the time or later, by bisection of the chain.

    In most chains the next chunk does; in a pack, bytes of other segments may let one seem older than it is.
    """
    start, end = min(late.end_offset, segment.length), segment.length
    at = start
    while start < end:
        chunk = next(chains.chunks(txn, segment.id, tier, at), None)
        if chunk is None or chunk.start_offset >= end:
            end = at  # the rest is in the other tier alone, or was looked at
        else:
            first = _first_late(_stretches(txn, segment, tier, chunk), time_ms)
            if first is None:
                start = chunk.end_offset
            elif first > chunk.start_offset:
                return first
            else:
                end = first
        at = (start + end) // 2
    return end


def _first_late(stretches: Sequence[tuple[ByteRange, TimedBytes]], time_ms: int) -> int | None:
    """Return where the first of these stretches begins that is of the time or later, given that one before it may be.

    One of an object without recorded times is: it was begun after all bytes before it had been written.
    """
    return next((held.start for held, times in stretches if time_ms <= times.first_ms or not times.first_ms), None)


def _stretches(
    txn: ReadTransaction, segment: SegmentRecord, tier: Tier, chunk: ChunkRecord
) -> list[tuple[ByteRange, TimedBytes]]:
    """Return the readable bytes of a chunk with their times."""
    readable = (
        (held.intersect(segment.range), times) for held, times in chunk_times.of_chunk(txn, segment, tier, chunk)
    )
    return [(held, times) for held, times in readable if held]


def _written_ms(txn: ReadTransaction, segment: SegmentRecord, tier: Tier, chunk: ChunkRecord) -> int:
    """Return a time by which every byte of a chunk had been written."""
    return max((times.written_ms for _, times in _stretches(txn, segment, tier, chunk)), default=0)
