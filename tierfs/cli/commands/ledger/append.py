"""tierfs ledger append: entries into a ledger, or into the open one of a managed ledger."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from io import BufferedReader
from pathlib import Path

import click

from tierfs import names
from tierfs.app.store import Store
from tierfs.app.verbs import open_managed_ledger
from tierfs.cli.commands import append as source
from tierfs.cli.commands.append import closing_writer
from tierfs.cli.errors import Partial
from tierfs.cli.group import command
from tierfs.cli.options import HOLDER_WAIT_S, Room, wait_option
from tierfs.cli.session import Session
from tierfs.errors import TierfsError
from tierfs.metadata import directories
from tierfs.names import printable
from tierfs.segments import ledgers
from tierfs.segments.managed_ledger import Added
from tierfs.system import processes
from tierfs.types import MIB, EntryKind

_BATCH_BYTES = 4 * MIB
_BATCH_ENTRIES = 4096
"""Entries that are committed together: a commit costs a millisecond."""


@command("append")
@click.argument("segment")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--lines", is_flag=True, help="Make each line an entry, its line feed included.")
@click.option("--take-over", is_flag=True, help="Fence a writer that is still alive.")
@wait_option
def append(
    session: Session, segment: str, files: tuple[str, ...], lines: bool, take_over: bool, wait: float | None
) -> None:
    """Append each FILE as one entry, or stdin without one (or for -), to the ledger SEGMENT.

    Prints one line when all are durable: the ledger, the first entry's id, and the id behind the last one. A directory,
    which may not be there yet, is a managed ledger: its open ledger takes the entries until policy closes it, then the
    next one. The line then has the positions of the first entry and of the last one. On a full disk cold bytes are
    evicted first.
    """
    session.require_output()
    paths = files or (source.STDIN,)
    source.check_readable(paths)
    batches = _lines(paths) if lines else _files(paths)
    with session.open_store() as store:
        name = store.segment_of_path(segment)
        room = Room(store, session, wait_s=wait, holder_wait_s=HOLDER_WAIT_S)
        if _is_managed_ledger(store, name):
            done: AcknowledgedEntries | AcknowledgedPositions = _append_to_managed(
                store, name, batches, room, take_over=take_over
            )
        else:
            done = _append_to_one(store, name, batches, room, take_over=take_over)
    session.result(asdict(done), str(done))


def _is_managed_ledger(store: Store, name: str) -> bool:
    """What is not there is one, unless it has the name of a ledger."""
    with store.metadata.read() as txn:
        entry = directories.find(txn, name)
    if entry is None:
        return names.ledger_id(names.split(name)[-1]) is None
    return entry.kind is EntryKind.DIRECTORY


def _append_to_one(
    store: Store, name: str, batches: Iterable[list[bytes]], room: Room, *, take_over: bool
) -> AcknowledgedEntries:
    writer = room.make(name, partial(store.engine.open_ledger, name, take_over=take_over))
    with store.metadata.read() as txn:
        count = ledgers.find(txn, writer.name)[1].entries
    done = AcknowledgedEntries(writer.name, count, count)

    def add(batch: list[bytes]) -> None:
        with processes.deferred():  # else Ctrl-C could come between the commit and the note of it
            done.end_entry_id = writer.append_entries(batch).stop

    with closing_writer(store, writer), _told(done):
        for batch in batches:
            room.make(name, partial(add, batch))
    return done


def _append_to_managed(
    store: Store, name: str, batches: Iterable[list[bytes]], room: Room, *, take_over: bool
) -> AcknowledgedPositions:
    managed = room.make(name, partial(open_managed_ledger, store, name, take_over=take_over))
    done = AcknowledgedPositions(managed.path)

    def add(rest: list[bytes]) -> int:
        with processes.deferred():
            added = managed.add(rest)
            done.note(added)
        return len(added.ids)

    with closing(managed), _told(done):
        for batch in batches:
            rest = batch
            while rest:
                rest = rest[room.make(name, partial(add, rest)) :]
    return done


@dataclass(slots=True)
class AcknowledgedEntries:
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
def _told(done: AcknowledgedEntries | AcknowledgedPositions) -> Iterator[None]:
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
