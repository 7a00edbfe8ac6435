"""tierfs ledger read: entries out."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping

import click

from tierfs.checksum import Buffer
from tierfs.cli.lazy import command
from tierfs.cli.parameters import read_priority_option
from tierfs.cli.session import Session
from tierfs.errors import DataLoss, InvalidRequest
from tierfs.ledger.messages import decode
from tierfs.metadata.entries import PlacedEntry
from tierfs.metadata.store import MetadataStore
from tierfs.names import printable
from tierfs.reading.copy import copy_segment
from tierfs.reading.entries import EntrySplitter, placed_entries
from tierfs.segments import ledgers
from tierfs.segments.ledgers import Ledger
from tierfs.types import ByteRange, ReadPriority, SegmentId

_LINES_TOGETHER = 500
"""Lines that are printed by one call."""


@command("read")
@click.argument("segment")
@click.option("--from", "start", type=int, metavar="ID", default=0, help="First entry  [default: 0]")
@click.option("--to", "end", type=int, metavar="ID", help="Id behind the last entry  [default: the number of entries]")
@click.option("--messages", is_flag=True, help="Decode what Pulsar puts into entries: a JSON line per message.")
@read_priority_option
def read(
    session: Session,
    segment: str,
    start: int,
    end: int | None,
    messages: bool,
    read_priority: ReadPriority | None,
) -> None:
    """Write a ledger's entries back to back. With --json a line per entry: its id, offset, length and SHA-256.

    With --messages an entry that cannot be decoded is a line with its `error`, and the exit code is 74.
    """
    with session.open_store() as store:
        name = store.segment_of_path(segment)
        with store.metadata.read() as txn:
            record, found = ledgers.find(txn, name)
        end = found.entries if end is None else end
        if not 0 <= start <= end <= found.entries:
            raise InvalidRequest(f"{printable(name)} has entries 0 to {found.entries}, not {start} to {end}")
        span = _span(store.metadata, record.id, start, end)
        if not (session.json or messages):
            copy_segment(store.reader(), record, span.start, span.end, read_priority, _write)
            sys.stdout.buffer.flush()
            return
        printer = _Messages(found) if messages else _Entries()
        splitter = EntrySplitter(placed_entries(store.metadata, record.id, start, end), printer.show)
        try:
            copy_segment(store.reader(), record, span.start, span.end, read_priority, splitter.write)
        finally:
            printer.lines.end()
    printer.require_right()


def _span(metadata: MetadataStore, segment_id: SegmentId, start: int, end: int) -> ByteRange:
    """The bytes of entries [start, end), which there are."""
    if start == end:
        return ByteRange(0, 0)
    first = next(placed_entries(metadata, segment_id, start, start + 1))
    last = next(placed_entries(metadata, segment_id, end - 1, end))
    return ByteRange(first.range.start, last.range.end)


def _write(data: Buffer) -> None:
    sys.stdout.buffer.write(data)


class _Lines:
    """Lines of JSON, written many at once: standard output has no buffer of its own."""

    def __init__(self) -> None:
        self._held: list[str] = []

    def add(self, line: Mapping[str, object]) -> None:
        """Print a line, soon."""
        self._held.append(json.dumps(line))
        if len(self._held) >= _LINES_TOGETHER:
            self.end()

    def end(self) -> None:
        """Print what is held back."""
        _write("".join(f"{line}\n" for line in self._held).encode())
        self._held.clear()


class _Entries:
    """A line per entry."""

    def __init__(self) -> None:
        self.lines = _Lines()

    def show(self, entry: PlacedEntry, payload: bytes) -> None:
        """Print it."""
        sha256 = hashlib.sha256(payload).hexdigest()
        line = {"entry_id": entry.entry_id, "offset": entry.range.start, "length": len(payload), "sha256": sha256}
        self.lines.add(line)

    def require_right(self) -> None:
        """Nothing can be wrong: reading proves the bytes."""


class _Messages:
    """A line per message."""

    def __init__(self, ledger: Ledger) -> None:
        self.lines = _Lines()
        self._ledger = ledger
        self._wrong = 0

    def show(self, entry: PlacedEntry, payload: bytes) -> None:
        """Print what the entry holds, or why that is not known."""
        place = {"ledger_id": self._ledger.ledger_id, "entry_id": entry.entry_id}
        try:
            decoded = decode(payload, ledger_id=self._ledger.ledger_id, entry_id=entry.entry_id)
        except DataLoss as exc:
            self._wrong += 1
            self.lines.add({**place, "error": str(exc)})
            return
        if decoded.encryption_keys:
            self.lines.add({**place, "encryption_keys": list(decoded.encryption_keys)})
        elif decoded.marker is not None:
            self.lines.add({**place, "marker": decoded.marker})
        for message in decoded.messages:
            self.lines.add(message.as_json())

    def require_right(self) -> None:
        """Raise DataLoss if any entry could not be decoded."""
        if self._wrong:
            noun = "entry" if self._wrong == 1 else "entries"
            raise DataLoss(
                f"{self._wrong} {noun} of {printable(self._ledger.segment)} could not be decoded",
                remedy="see the lines with an error; the bytes are as they were appended",
            )
