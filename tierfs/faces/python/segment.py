"""Segment: one segment by its name; Writer appends to it, Reader is it as a file of Python, records are its facts."""

from __future__ import annotations

import io
import threading
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Self

from tierfs.app.open_segment import BUFFER_BYTES, RawSegment, SegmentHandle
from tierfs.app.room import HOLDER_WAIT_S, InLog, Room
from tierfs.base.bytes.checksum import Buffer
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names
from tierfs.base.words.errors import Closed, InvalidRequest
from tierfs.base.words.types import Ack, ByteRange, Compression, EntryKind, ReadPriority, SegmentKind, Tier
from tierfs.engine.metadata import directories
from tierfs.engine.segments import stat
from tierfs.engine.segments.stat import Listed, SegmentStat, modified_ns

if TYPE_CHECKING:
    from tierfs.app.connection import Connection
    from tierfs.engine.segments.clone import Clone
    from tierfs.engine.segments.concat import Concatenation
    from tierfs.engine.segments.truncate import Truncation
    from tierfs.engine.segments.writer import SegmentWriter
    from tierfs.reading.times import TimePlace

_MS_PER_S = 1000
_NS_PER_MS = 1_000_000


def time_of(time_ms: int) -> datetime | None:
    """Return a time in UTC; None for 0, which stands for never."""
    return datetime.fromtimestamp(time_ms / _MS_PER_S, UTC) if time_ms else None


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """The facts of one segment at one moment. Offsets and sizes are in bytes."""

    name: str
    start_offset: int
    """Its first readable byte; the bytes before were truncated."""
    length: int
    """The offset after its last byte, where the next append goes."""
    sealed: bool
    is_ledger: bool
    local_bytes: int
    cold_bytes: int
    cold_stored_bytes: int
    """Stored for the cold ones: fewer if they are compressed, and a part of an object that segments share."""
    crc32c: int | None
    """Of all readable bytes; None when a part is unknown."""
    compression: Compression
    """Of its next cold objects."""
    read_priority: ReadPriority
    created: datetime | None
    modified: datetime | None
    successor: str | None
    """The segment that it continues in, if policy sealed it."""
    lost: tuple[ByteRange, ...]
    """Bytes without any copy that passed its checks; reading them fails."""
    suspect: tuple[tuple[Tier, ByteRange], ...]
    """Copies that are missing or damaged; another tier may have the bytes."""

    @classmethod
    def of(cls, stat: SegmentStat) -> Self:
        """Return the facts in a description of the layers below."""
        record = stat.record
        return cls(
            name=stat.name,
            start_offset=record.start_offset,
            length=record.length,
            sealed=record.sealed,
            is_ledger=record.kind is SegmentKind.LEDGER,
            local_bytes=record.local.bytes,
            cold_bytes=record.cold.bytes,
            cold_stored_bytes=record.cold.bytes if stat.cold is None else stat.cold.stored_bytes,
            crc32c=stat.crc32c,
            compression=stat.compression.value,
            read_priority=stat.read_priority.value,
            created=time_of(record.created_ms),
            modified=time_of(modified_ns(record) // _NS_PER_MS),
            successor=stat.successor,
            lost=stat.lost,
            suspect=stat.suspect,
        )


@dataclass(frozen=True, slots=True)
class Name:
    """One name of a listing: a directory, or a segment with its sizes in bytes."""

    path: str
    """From the root of the store."""
    is_directory: bool
    start_offset: int = 0
    length: int = 0
    sealed: bool = False
    local_bytes: int = 0
    cold_bytes: int = 0
    modified: datetime | None = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @classmethod
    def of(cls, above: str, item: Listed) -> Self:
        """Return the name of an item in the listing of a directory; `above` is the directory's path."""
        path = f"{above}/{item.name}" if above else item.name
        record = item.segment
        if item.kind is EntryKind.DIRECTORY or record is None:
            modified = item.directory.modified_ms if item.directory is not None else 0
            return cls(path, is_directory=True, modified=time_of(modified))
        return cls(
            path,
            is_directory=False,
            start_offset=record.start_offset,
            length=record.length,
            sealed=record.sealed,
            local_bytes=record.local.bytes,
            cold_bytes=record.cold.bytes,
            modified=time_of(modified_ns(record) // _NS_PER_MS),
        )


class Segment:
    """A segment by its name. It may not exist yet: the first append makes it, with its directories."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self.name = names.join(names.split(name))

    def __repr__(self) -> str:
        return f"Segment({self.name!r})"

    def info(self) -> SegmentInfo:
        """Return the facts of it now. Raises NotFound, IsDirectory."""
        with self._connection.store.metadata.read() as txn:
            return SegmentInfo.of(stat.stat(txn, self.name))

    def exists(self) -> bool:
        """Return whether there is a segment of this name."""
        with self._connection.store.metadata.read() as txn:
            entry = directories.find(txn, self.name)
            return entry is not None and entry.kind is EntryKind.SEGMENT

    def append(self, data: Buffer, *, expected_offset: int | None = None, seal: bool = False) -> ByteRange:
        """Append bytes and return their range, once they are durable. For many appends keep a writer.

        Raises as `open_writer` and Writer.append, with nothing appended.
        """
        in_time = self._connection.store.engine.in_time(self.name)
        with in_time, self.open_writer(expected_offset=expected_offset) as writer:
            # The writer may be shared: others may append between its opening and here.
            return writer._append(data, expected_offset, last=True, seal=seal)

    def open_writer(
        self, *, expected_offset: int | None = None, take_over: bool = False, ack: Ack | str | None = None
    ) -> Writer:
        """Open the segment for appends, creating it and its directories when they are missing.

        One process is its writer at a time; the writers that it opens append in turn. `expected_offset` is the length
        that the segment must have. `take_over` fences the writer of another process, and replaces those of this one.
        `ack`, "local" or "cold", is stronger than the policy. Raises OffsetMismatch (its `actual_length` is the true
        one), Conflict naming a live writer, or for another `ack` than that of an open writer of this process, Sealed,
        IsDirectory, InvalidRequest for a ledger and for another word, StorageFull, NoColdTier.
        """
        if ack is not None and ack not in tuple(Ack):
            raise InvalidRequest(f"ack must be one of {', '.join(Ack)}, not {ack!r}")
        room = Room(self._connection.store, InLog(), holder_wait_s=HOLDER_WAIT_S)
        opened = partial(
            self._connection.writers.open,
            self.name,
            expected_offset=expected_offset,
            take_over=take_over,
            ack=None if ack is None else Ack(ack),
        )
        return Writer(self._connection, room, room.make(self.name, opened))

    def open(self, *, read_priority: ReadPriority | str | None = None) -> Reader:
        """Open it as a file for reading, as long as it is now. Raises NotFound, IsDirectory."""
        with self._connection.store.metadata.read() as txn:
            record = directories.segment_by_name(txn, self.name)
        priority = None if read_priority is None else _priority(read_priority)
        return Reader(SegmentHandle(self._connection, record, priority), record.start_offset)

    def read(
        self, offset: int | None = None, size: int | None = None, *, read_priority: ReadPriority | str | None = None
    ) -> bytes:
        """Return up to `size` bytes from an offset of the segment on; without them, from its start, to its end.

        Raises NotFound, InvalidRequest for an offset outside of it, Unavailable or DataLoss for bytes in no tier.
        """
        with closing(self.open(read_priority=read_priority)) as reader:
            return reader.read_at(reader.start_offset if offset is None else offset, size)

    def find_time(self, time: datetime, *, read_priority: ReadPriority | str | None = None) -> TimePlace:
        """Return where its bytes of a time or later begin: by the times in messages, else by those of its chunks.

        Raises NotFound, IsDirectory, InvalidRequest for a time without a zone, Unavailable or DataLoss for bytes in no
        tier.
        """
        from tierfs.reading.times import offset_at

        if time.tzinfo is None:
            raise InvalidRequest(f"the time {time} has no time zone", remedy="write datetime(..., tzinfo=UTC)")
        with self._connection.store.metadata.read() as txn:
            record = directories.segment_by_name(txn, self.name)
        priority = None if read_priority is None else _priority(read_priority)
        with closing(SegmentHandle(self._connection, record, priority)) as opened:

            def read(wanted: ByteRange) -> Buffer:
                start = record.start_offset
                return opened.read_ranges([ByteRange(wanted.start - start, wanted.end - start)])[0]

            time_ms = round(time.timestamp() * _MS_PER_S)
            return offset_at(self._connection.store.metadata, record, time_ms, read)

    def seal(self) -> None:
        """End it for good; repeating it succeeds. Raises NotFound, or Conflict naming a live writer."""
        self._connection.store.engine.seal(self.name)

    def unseal(self) -> None:
        """Open a sealed one again; repeating it succeeds. Raises NotFound, and Conflict for what cannot be reopened."""
        self._connection.store.engine.unseal(self.name)

    def truncate(self, before: int) -> Truncation:
        """Drop the bytes below an offset; the others keep theirs. Raises NotFound, InvalidRequest."""
        from tierfs.app import verbs

        done = verbs.truncate_head(self._connection.store, self.name, before)
        verbs.settle(self._connection.store)
        return done

    def concat(self, source: str) -> Concatenation:
        """Append all of the sealed segment `source`, and remove its name; no byte is copied or moved.

        Raises NotFound, InvalidRequest, Sealed, Conflict.
        """
        from tierfs.app import verbs

        done = self._connection.store.engine.concat(self.name, source)
        verbs.settle(self._connection.store)
        return done

    def clone(self, target: str, *, end: int | None = None) -> Clone:
        """Make an open segment of its bytes, or of those before the offset `end`; no byte is copied.

        With its own name in `target`, if that is a directory. Raises NotFound, AlreadyExists, NotDirectory,
        InvalidRequest.
        """
        from tierfs.app import verbs

        done = verbs.clone(self._connection.store, self.name, target, end=end)
        verbs.settle(self._connection.store)
        return done


class Writer:
    """Appends to a segment. Thread-safe; a context manager.

    When the last one of a process is closed, other processes may write at once.
    """

    def __init__(self, connection: Connection, room: Room, writer: SegmentWriter) -> None:
        self._connection = connection
        self._room = room
        self._writer = writer
        self._closing = threading.Lock()
        self._closed = False

    @property
    def name(self) -> str:
        """The segment's name; another one once policy has sealed it and it continues there."""
        return self._writer.name

    @property
    def length(self) -> int:
        """The offset of the next append."""
        return self._writer.length

    def append(self, data: Buffer, *, expected_offset: int | None = None) -> ByteRange:
        """Append all of `data` and return its range, once it is durable. Threads that append together share syncs.

        Raises OffsetMismatch, Sealed, Fenced, StorageFull, Unavailable or Closed, with nothing appended; with ack=cold
        Unconfirmed, if the bytes are in the segment and the journal is not known to name them: go on at its `end`.
        With ack=cold it ends within the setting `ack.deadline_s`, whatever it waits for.
        """
        return self._append(data, expected_offset)

    def _append(
        self, data: Buffer, expected_offset: int | None = None, *, last: bool = False, seal: bool = False
    ) -> ByteRange:
        if self._closed:  # the writer below may be open for others
            raise Closed(f"the writer of {names.printable(self.name)} is closed")
        work = partial(self._writer.append, data, expected_offset=expected_offset, last=last, seal=seal)
        return self._room.make(self.name, work)

    def seal(self) -> None:
        """End the segment, and each writer of it in this process. Raises as `append`."""
        self._append(b"", last=True, seal=True)
        self.close()

    def close(self) -> None:
        """End this writer; idempotent. Raises Closed in a child of fork."""
        with self._closing:
            closed, self._closed = self._closed, True
        if not closed:
            self._connection.writers.close(self._writer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Reader(io.BufferedReader):
    """A segment open for reading, as a binary file: `read`, `readline`, `seek`, iteration over lines.

    Its position 0 is the segment's start offset, as in a mount; `read_at` takes offsets of the segment. Each method
    raises the errors of tierfs.base.words.errors. It holds the bytes that the segment had when it was opened.
    """

    def __init__(self, opened: SegmentHandle, start_offset: int) -> None:
        super().__init__(RawSegment(opened), BUFFER_BYTES)
        self._opened = opened
        self.segment_id = opened.segment_id
        """Never that of another segment, also of the same name."""
        self.start_offset = start_offset
        """Of the segment when it was opened."""
        self.size = opened.size
        """Number of bytes."""

    @property
    def length(self) -> int:
        """The offset after the last byte."""
        return self.start_offset + self.size

    def read_at(self, offset: int, size: int | None = None) -> bytes:
        """Return up to `size` bytes from an offset of the segment on, without moving the position. Thread-safe.

        Raises InvalidRequest for an offset outside of it, Unavailable or DataLoss for bytes in no tier.
        """
        if not self.start_offset <= offset <= self.length or (size is not None and size < 0):
            shown = f"{self.start_offset} to {self.length}"
            raise InvalidRequest(f"the segment has bytes {shown}, not {size} bytes at {offset}")
        room = self.length - offset
        data = bytearray(room if size is None else min(size, room))
        self._opened.read_into(offset - self.start_offset, memoryview(data))
        return bytes(data)


def _priority(text: ReadPriority | str) -> ReadPriority:
    try:
        return ReadPriority(text)
    except ValueError as exc:
        raise InvalidRequest(f"read priority {text!r} is not one of {', '.join(ReadPriority)}") from exc
