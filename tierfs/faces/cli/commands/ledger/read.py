"""Define tierfs ledger read: print entries."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import ByteRange, EntryKind, ReadPriority, SegmentId, SegmentKind
from tierfs.engine.ledger.messages import decode
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.entries import PlacedEntry
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments import ledgers, positions
from tierfs.faces.cli.commands.ledger import log
from tierfs.faces.cli.commands.ledger.log import JsonLines, write
from tierfs.faces.cli.group import command
from tierfs.faces.cli.options import read_priority_option, since_option, until_option
from tierfs.faces.cli.paths import path_argument
from tierfs.faces.cli.session import Session
from tierfs.reading.entries import EntrySplitter, placed_entries
from tierfs.reading.stream import copy_segment
from tierfs.reading.times import entry_at, reading_segments

if TYPE_CHECKING:
    from tierfs.app.store import Store


@command("read")
@path_argument("path", metavar="SEGMENT|DIR")
@click.option("--from", "start", type=int, metavar="ID", help="Id of the first entry  [default: the ledger's first]")
@click.option("--to", "end", type=int, metavar="ID", help="Id after the last entry  [default: all]")
@since_option
@until_option
@click.option("--messages", is_flag=True, help="Decode messages of Pulsar or RocketMQ; print a JSON line per message.")
@read_priority_option
def read(
    session: Session,
    path: str,
    start: int | None,
    end: int | None,
    since: int | None,
    until: int | None,
    messages: bool,
    read_priority: ReadPriority | None,
) -> None:
    """Write a ledger's entries back to back; with --json a line per entry: its id, offset, length and SHA-256.

    A directory is a managed ledger: the entries of all its ledgers are read, or those between --since and --until.
    With --messages, an entry that cannot be decoded is printed as a line with its `error`, and the exit code is 74. A
    commit log of RocketMQ is read like a ledger: its entries are the messages, their ids the queue offsets.
    """
    if (since is not None and start is not None) or (until is not None and end is not None):
        raise click.UsageError("--since and --from are mutually exclusive, and so are --until and --to")
    with session.open_store() as store:
        name = store.segment_of_path(path)
        with store.metadata.read() as txn:
            topic = directories.must_find(txn, name, "ledger").kind is EntryKind.DIRECTORY
            record = None if topic else directories.segment_by_name(txn, name)
            members = _members(txn, name, record)
        if topic and (start is not None or end is not None):
            raise InvalidRequest(
                f"{printable(name)} is a managed ledger; --from and --to are ids of entries in a single ledger",
                remedy="specify the ledger, or use --since and --until",
            )
        if record is not None and record.kind is SegmentKind.BYTES:
            wrong = log.read(
                session, store, record, log.WantedMessages(start, end, since, until, read_priority), messages
            )
        elif record is not None:
            since_id, until_id = (_entry_at(store, members, time_ms, read_priority)[1] for time_ms in (since, until))
            start, end = since_id if start is None else start, until_id if end is None else end
            wrong = _read_ledger(session, store, name, start, end, messages, read_priority)
        else:
            wrong = 0
            for ledger, first, after in _from_to(store, members, since, until, read_priority):
                full_name = f"{name}/{ledger.name}"
                wrong += _read_ledger(session, store, full_name, first, after, messages, read_priority)
    if wrong:
        entries = "entry" if wrong == 1 else "entries"
        raise DataLoss(
            f"{wrong} {entries} of {printable(name)} could not be decoded",
            remedy="see the lines with an error; the stored bytes are unchanged",
        )


def _members(txn: ReadTransaction, name: str, record: SegmentRecord | None) -> list[SegmentRecord]:
    """Return the ledgers that have entries: of a managed ledger, or only `record`.

    Raises InvalidRequest for a directory without a ledger.
    """
    if record is not None:
        members = [positions.member(txn, record)] if record.kind is SegmentKind.LEDGER else []
    else:
        members = positions.members(txn, positions.directory_of(txn, name))
        if not members:
            raise InvalidRequest(f"{printable(name) or '/'} has no ledgers", remedy="specify a ledger or its directory")
    return [member.segment for member in members if member.entries]


def _from_to(
    store: Store, members: Sequence[SegmentRecord], since: int | None, until: int | None, priority: ReadPriority | None
) -> Iterator[tuple[SegmentRecord, int | None, int | None]]:
    """Yield the ledgers between two times, of which either may be missing, with the first id and the one after."""
    begin, start = _entry_at(store, members, since, priority)
    last, end = (len(members) - 1, None) if until is None else _entry_at(store, members, until, priority)
    for number in range(begin, min(last + 1, len(members))):
        yield members[number], start if number == begin else None, end if number == last else None


def _entry_at(
    store: Store, members: Sequence[SegmentRecord], time_ms: int | None, priority: ReadPriority | None
) -> tuple[int, int | None]:
    """Return the number of the ledger of the first entry of a time, and the entry's id; None without a time."""
    if time_ms is None or not members:
        return 0, None
    with reading_segments(store.reader, priority) as reading:
        number, place = entry_at(store.metadata, members, time_ms, reading)
    return number, place.entry_id


def _read_ledger(
    session: Session,
    store: Store,
    name: str,
    start: int | None,
    end: int | None,
    messages: bool,
    priority: ReadPriority | None,
) -> int:
    """Print entries of a ledger; return how many could not be decoded."""
    with store.metadata.read() as txn:
        record, ledger = ledgers.find(txn, name)
    start = 0 if start is None else start
    end = ledger.entries if end is None else max(start, end)
    if not 0 <= start <= end <= ledger.entries:
        raise InvalidRequest(f"{printable(name)} has entries 0 to {ledger.entries}, not {start} to {end}")
    wanted = _range_of(store.metadata, record.id, start, end)
    if not (session.json or messages):
        copy_segment(store.reader(), record, wanted.start, wanted.end, priority, write)
        sys.stdout.buffer.flush()
        return 0
    printer = _Messages(ledger.ledger_id) if messages else _Entries(ledger.ledger_id)
    splitter = EntrySplitter(placed_entries(store.metadata, record.id, start, end), printer.show)
    try:
        copy_segment(store.reader(), record, wanted.start, wanted.end, priority, splitter.write)
    finally:
        printer.end()
    return printer.wrong


def _range_of(metadata: MetadataStore, segment_id: SegmentId, start: int, end: int) -> ByteRange:
    """Return the bytes of entries [start, end), which must exist."""
    if start == end:
        return ByteRange(0, 0)
    first = next(placed_entries(metadata, segment_id, start, start + 1))
    last = next(placed_entries(metadata, segment_id, end - 1, end))
    return ByteRange(first.range.start, last.range.end)


class _Entries(JsonLines):
    """Prints a line of JSON per entry."""

    def __init__(self, ledger_id: int | None) -> None:
        super().__init__()
        self._ledger_id = ledger_id

    def show(self, entry: PlacedEntry, payload: bytes) -> None:
        """Print an entry."""
        sha256 = hashlib.sha256(payload).hexdigest()
        place = {"ledger_id": self._ledger_id, "entry_id": entry.entry_id, "offset": entry.range.start}
        self.add({**place, "length": len(payload), "sha256": sha256})


class _Messages(_Entries):
    """Prints a line per message."""

    def show(self, entry: PlacedEntry, payload: bytes) -> None:
        """Print the messages of an entry, or the error of its decoding."""
        place = {"ledger_id": self._ledger_id, "entry_id": entry.entry_id}
        try:
            decoded = decode(payload, ledger_id=self._ledger_id, entry_id=entry.entry_id)
        except DataLoss as exc:
            self.wrong += 1
            self.add({**place, "error": str(exc)})
            return
        if decoded.encryption_keys:
            self.add({**place, "encryption_keys": list(decoded.encryption_keys)})
        elif decoded.marker is not None:
            self.add({**place, "marker": decoded.marker})
        for message in decoded.messages:
            self.add(message.as_json())
