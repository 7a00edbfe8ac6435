"""Define tierfs ledger append: append entries to a ledger, or to the open ledger of a managed ledger."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from io import BufferedReader
from pathlib import Path

import click

from tierfs.app.inputs import STDIN
from tierfs.app.room import HOLDER_WAIT_S, Room
from tierfs.app.store import Store
from tierfs.app.verbs import open_managed_ledger
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system import guards
from tierfs.base.words import names
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.names import printable
from tierfs.base.words.types import MIB, EntryKind
from tierfs.engine.metadata import directories
from tierfs.engine.segments import ledgers
from tierfs.faces.cli.commands import append as source
from tierfs.faces.cli.commands.append import closing_writer
from tierfs.faces.cli.errors import Partial
from tierfs.faces.cli.group import command
from tierfs.faces.cli.options import wait_option
from tierfs.faces.cli.paths import path_argument
from tierfs.faces.cli.session import Session

_BATCH_BYTES = 4 * MIB
# Limit of entries in one commit, which costs a millisecond.
_BATCH_ENTRIES = 4096


@command("append")
@path_argument("segment")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--lines", is_flag=True, help="Append each line as one entry, with its line feed.")
@click.option("--take-over", is_flag=True, help="Fence another writer of the ledger that is still alive.")
@wait_option
def append(
    session: Session, segment: str, files: tuple[str, ...], lines: bool, take_over: bool, wait: float | None
) -> None:
    """Append each FILE as one entry to the ledger SEGMENT.

    Stdin is one entry if there is no FILE (or for -). Prints one line when all entries are durable: the ledger, the
    first entry's id, and the id after the last one. A directory, existing or not, is a managed ledger: entries go to
    its open ledger until a policy closes it, then to the next one. The line then has the positions of the first and the
    last entry. On a full disk cold bytes are evicted first.
    """
    session.require_output()
    paths = files or (STDIN,)
    source.check_readable(paths)
    batches = _lines(paths) if lines else _files(paths)
    with session.open_store() as store:
        name = store.segment_of_path(segment)
        room = Room(store, session, wait_s=wait, holder_wait_s=HOLDER_WAIT_S)
        with store.metadata.read() as txn:
            entry = directories.find(txn, name)
        if entry is None:  # a missing name is that of a managed ledger unless its last part is a ledger id
            is_managed = names.ledger_id(names.split(name)[-1]) is None
        else:
            is_managed = entry.kind is EntryKind.DIRECTORY
        append_all = _append_to_managed if is_managed else _append_to_one
        done = append_all(store, name, batches, room, take_over=take_over)
    session.result(asdict(done), str(done))


def _append_to_one(
    store: Store, name: str, batches: Iterable[list[bytes]], room: Room, *, take_over: bool
) -> AcknowledgedEntries:
    writer = room.make(name, partial(store.engine.open_ledger, name, take_over=take_over))
    with store.metadata.read() as txn:
        count = ledgers.find(txn, writer.name)[1].entries
    done = AcknowledgedEntries(writer.name, count, count)

    def add(batch: list[bytes]) -> None:
        with guards.deferred():  # Ctrl-C must not arrive between the commit and its note
            done.end_entry_id = writer.append_entries(batch).stop

    with closing_writer(store, writer), _reporting(done, lambda: done.end_entry_id - count):
        for batch in batches:
            room.make(name, partial(add, batch))
    return done


def _append_to_managed(
    store: Store, name: str, batches: Iterable[list[bytes]], room: Room, *, take_over: bool
) -> AcknowledgedPositions:
    managed = room.make(name, partial(open_managed_ledger, store, name, take_over=take_over))
    done = AcknowledgedPositions(managed.path)

    def add(rest: list[bytes]) -> int:
        with guards.deferred():
            added = managed.add(rest)
            done.ledgers += not done.entries or added.ids.start == 0
            done.first_position = done.first_position or str(added.first)
            done.last_position = str(added.last)
            done.entries += len(added.ids)
        return len(added.ids)

    with closing(managed), _reporting(done, lambda: done.entries):
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


@contextmanager
def _reporting(done: AcknowledgedEntries | AcknowledgedPositions, count: Callable[[], int]) -> Iterator[None]:
    """Add to an error inside the block the number of entries appended before it."""
    try:
        yield
    except (TierfsError, OSError, KeyboardInterrupt) as exc:
        remedy = f"to append the remaining input, skip its first {count()} entries"
        raise Partial(exc, f"{count()} entries are acknowledged: {done}", remedy=remedy, **asdict(done)) from exc


def _files(paths: tuple[str, ...]) -> Iterator[list[bytes]]:
    """Yield batches of whole files."""
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
    """Yield batches of lines with their line feeds; lines of a pipe do not wait until a batch is full."""
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
    """Open a file, or yield standard input, which stays open."""
    if path == STDIN:
        assert isinstance(sys.stdin.buffer, BufferedReader)
        yield sys.stdin.buffer
        return
    with Path(path).open("rb") as file:
        yield file
