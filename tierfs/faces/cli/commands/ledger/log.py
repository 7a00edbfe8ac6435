"""Read a commit log of RocketMQ by messages, as `ledger read` reads a ledger by entries."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import ReadPriority
from tierfs.engine.ledger.commit_log import HEAD_BYTES, decode, head_of
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.faces.cli.session import Session
from tierfs.reading.stream import copy_segment
from tierfs.reading.times import CommitLogReader, reading_segments

if TYPE_CHECKING:
    from tierfs.app.store import Store

# JsonLines printed by one call.
_LINES_TOGETHER = 500


def write(data: Buffer) -> None:
    """Write bytes to standard output."""
    sys.stdout.buffer.write(data)


class JsonLines:
    """Prints lines of JSON, in batches, as standard output is unbuffered."""

    def __init__(self) -> None:
        self._held: list[str] = []
        self.wrong = 0
        """Entries that could not be decoded."""

    def add(self, line: Mapping[str, object]) -> None:
        """Print a line, perhaps later."""
        self._held.append(json.dumps(line))
        if len(self._held) >= _LINES_TOGETHER:
            self.end()

    def end(self) -> None:
        """Print the lines that are held."""
        write("".join(f"{line}\n" for line in self._held).encode())
        self._held.clear()


@dataclass(frozen=True, slots=True)
class WantedMessages:
    """The messages to read: from one to another, by queue offsets or by store times."""

    start: int | None
    end: int | None
    since_ms: int | None
    until_ms: int | None
    priority: ReadPriority | None


def read(session: Session, store: Store, record: SegmentRecord, wanted: WantedMessages, messages: bool) -> int:
    """Print messages; return how many could not be decoded. Raises InvalidRequest for another segment."""
    start, end = _bounds(store, record, wanted)
    if not (session.json or messages):
        copy_segment(store.reader(), record, start, end, wanted.priority, write)
        sys.stdout.buffer.flush()
        return 0
    splitter = _MessageSplitter(record.name, start, messages=messages)
    try:
        copy_segment(store.reader(), record, start, end, wanted.priority, splitter.write)
    finally:
        splitter.end()
    return splitter.wrong


def _bounds(store: Store, record: SegmentRecord, wanted: WantedMessages) -> tuple[int, int]:
    with reading_segments(store.reader, wanted.priority) as reading:
        log = CommitLogReader(record.name, record.range, reading(record))
        first = log.first() if record.range else None
        if first is None:
            name = printable(record.name)
            raise InvalidRequest(
                f"{name} is neither a ledger nor a commit log of RocketMQ",
                remedy=f"to read its bytes: tierfs cat {name}",
            )

        def offset_of(number: int | None, time_ms: int | None, otherwise: int) -> int:
            if number is None and time_ms is None:
                return otherwise
            late = log.first_that(
                lambda head: head.queue_offset >= number if number is not None else head.store_ms >= (time_ms or 0)
            )
            return record.length if late is None else late[0]

        start = offset_of(wanted.start, wanted.since_ms, first[0])
        return start, max(start, offset_of(wanted.end, wanted.until_ms, record.length))


class _MessageSplitter(JsonLines):
    """Cuts the bytes of a log into messages, and prints a line for each."""

    def __init__(self, name: str, offset: int, *, messages: bool) -> None:
        super().__init__()
        self._name = printable(name)
        self._offset = offset
        self._messages = messages
        self._begun = bytearray()

    def write(self, data: Buffer) -> None:
        """Take the next bytes; they are copied."""
        self._begun += data
        at = 0
        view = memoryview(bytes(self._begun))
        while (head := head_of(view[at:])) is not None and at + head.size <= len(view):
            if not head.is_coda:
                self._show(view[at : at + head.size])
            at += head.size
            self._offset += head.size
        if head is None and len(view) - at >= HEAD_BYTES:
            raise DataLoss(f"{self._name}: no RocketMQ message starts at byte {self._offset}")
        del self._begun[:at]

    def _show(self, data: memoryview) -> None:
        try:
            message = decode(data, f"the message at byte {self._offset} of {self._name}")
        except DataLoss as exc:
            self.wrong += 1
            self.add({"offset": self._offset, "length": len(data), "error": str(exc)})
            return
        if self._messages:
            self.add(message.as_json(self._offset))
            return
        whole = {"sha256": hashlib.sha256(data).hexdigest(), "store_time_ms": message.store_ms}
        properties = {"properties": dict(message.properties)} if message.properties else {}
        self.add({"entry_id": message.queue_offset, "offset": self._offset, "length": len(data), **whole, **properties})
