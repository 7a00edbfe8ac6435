"""tierfs ledger append and read: entries in and out."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from io import BufferedReader
from pathlib import Path

import click

from tierfs import interrupts, names
from tierfs.app import Store
from tierfs.checksum import Buffer
from tierfs.cli import source
from tierfs.cli.append import closing_writer
from tierfs.cli.edge import Partial
from tierfs.cli.lazy import command
from tierfs.cli.parameters import read_priority_option
from tierfs.cli.session import Session
from tierfs.errors import DataLoss, InvalidRequest, TierfsError
from tierfs.ledger.messages import decode
from tierfs.metadata import directories
from tierfs.metadata.entries import PlacedEntry
from tierfs.metadata.store import MetadataStore
from tierfs.names import printable
from tierfs.reading.entries import EntrySplitter, placed_entries
from tierfs.segments import ledgers
from tierfs.segments.ledgers import Ledger
from tierfs.segments.managed_ledger import Added, ManagedLedger
from tierfs.types import MIB, ByteRange, EntryKind, ReadPriority, SegmentId

_BATCH_BYTES = 4 * MIB
_BATCH_ENTRIES = 4096
_LINES_TOGETHER = 500
"""Entries that are committed together: a commit costs a millisecond."""


@command("append")
@click.argument("segment")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--lines", is_flag=True, help="Make each line an entry, its line feed included.")
def append(session: Session, segment: str, files: tuple[str, ...], lines: bool) -> None:
    """Append each FILE as one entry, or stdin without one (or for -), to the ledger SEGMENT.

    Prints one line when all are durable: the ledger, the first entry's id, and the id behind the last one. A directory,
    which may not be there yet, is a managed ledger: its open ledger takes the entries until policy closes it, then the
    next one. The line then has the positions of the first entry and of the last one.
    """
    session.require_output()
    paths = files or (source.STDIN,)
    source.check_readable(paths)
    batches = _lines(paths) if lines else _files(paths)
    with session.open_store() as store:
        name = store.segment_of_path(segment)
        if _is_managed_ledger(store, name):
            done: Acknowledged | AcknowledgedPositions = _append_to_managed(store, name, batches)
        else:
            done = _append_to_one(store, name, batches)
    session.result(asdict(done), str(done))


def _is_managed_ledger(store: Store, name: str) -> bool:
    """What is not there is one, unless it has the name of a ledger."""
    with store.metadata.read() as txn:
        entry = directories.find(txn, name)
    if entry is None:
        return names.ledger_id(names.split(name)[-1]) is None
    return entry.kind is EntryKind.DIRECTORY


def _append_to_one(store: Store, name: str, batches: Iterable[list[bytes]]) -> Acknowledged:
    writer = store.engine.open_ledger(name)
    with store.metadata.read() as txn:
        count = ledgers.find(txn, writer.name)[1].entries
    done = Acknowledged(writer.name, count, count)
    with closing_writer(store, writer), _told(done):
        for batch in batches:
            with interrupts.deferred():  # else Ctrl-C could come between the commit and the note of it
                done.end_entry_id = writer.append_entries(batch).stop
    return done


def _append_to_managed(store: Store, name: str, batches: Iterable[list[bytes]]) -> AcknowledgedPositions:
    managed = ManagedLedger(store.engine, name)
    done = AcknowledgedPositions(managed.path)
    with closing(managed), _told(done):
        for batch in batches:
            rest = batch
            while rest:
                with interrupts.deferred():
                    added = managed.add(rest)
                    done.note(added)
                rest = rest[len(added.ids) :]
    return done


@dataclass(slots=True)
class Acknowledged:
    """Entries of a ledger that are durable."""

    segment: str
    first_entry_id: int
    end_entry_id: int

    def __str__(self) -> str:
        return f"{printable(self.segment)} {self.first_entry_id} {self.end_entry_id}"

    @property
    def count(self) -> int:
        """How many there are."""
        return self.end_entry_id - self.first_entry_id


@dataclass(slots=True)
class AcknowledgedPositions:
    """Entries of a managed ledger that are durable."""

    managed_ledger: str
    first_position: str | None = None
    last_position: str | None = None
    entries: int = 0
    ledgers: int = 0

    def __str__(self) -> str:
        return f"{printable(self.managed_ledger)} {self.first_position or '-'} {self.last_position or '-'}"

    @property
    def count(self) -> int:
        """How many there are."""
        return self.entries

    def note(self, added: Added) -> None:
        """More of them are."""
        self.ledgers += not self.entries or added.ids.start == 0
        self.first_position = self.first_position or str(added.first)
        self.last_position = str(added.last)
        self.entries += len(added.ids)


@contextmanager
def _told(done: Acknowledged | AcknowledgedPositions) -> Iterator[None]:
    """Make an error inside the block say how many entries were added before it."""
    try:
        yield
    except (TierfsError, OSError, KeyboardInterrupt) as exc:
        remedy = f"leave out the first {done.count} entries of this input when you append the rest"
        raise Partial(exc, f"{done.count} entries are acknowledged: {done}", remedy=remedy, **asdict(done)) from exc


def _files(paths: tuple[str, ...]) -> Iterator[list[bytes]]:
    """Whole files, some together."""
    batch: list[bytes] = []
    for path in paths:
        with _opened(path) as file:
            batch.append(file.read())
        if sum(map(len, batch)) >= _BATCH_BYTES or len(batch) >= _BATCH_ENTRIES:
            yield batch
            batch = []
    if batch:
        yield batch


def _lines(paths: tuple[str, ...]) -> Iterator[list[bytes]]:
    """Lines with their line feeds, as many as there are to read: those of a pipe are not kept waiting for more."""
    for path in paths:
        begun = b""
        with _opened(path) as file:
            while data := file.read1(_BATCH_BYTES):
                *lines, begun = (begun + data).split(b"\n")
                for first in range(0, len(lines), _BATCH_ENTRIES):
                    yield [line + b"\n" for line in lines[first : first + _BATCH_ENTRIES]]
        if begun:
            yield [begun]


@contextmanager
def _opened(path: str) -> Iterator[BufferedReader]:
    """A file, or standard input, which stays open."""
    if path == source.STDIN:
        assert isinstance(sys.stdin.buffer, BufferedReader)
        yield sys.stdin.buffer
        return
    with Path(path).open("rb") as file:
        yield file


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
            store.cat(name, span.start, span.end, read_priority, _write)
            sys.stdout.buffer.flush()
            return
        printer = _Messages(found) if messages else _Entries()
        splitter = EntrySplitter(placed_entries(store.metadata, record.id, start, end), printer.show)
        try:
            store.cat(name, span.start, span.end, read_priority, splitter.write)
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
