"""Ledger: a segment of numbered entries; ManagedLedger: the ledgers of one topic, with the one writer of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Self

from tierfs.app import verbs
from tierfs.app.open_segment import SegmentHandle
from tierfs.base.bytes.checksum import Buffer
from tierfs.base.bytes.parallel import Attempts
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import ByteRange, EntryKind
from tierfs.engine.ledger.offloader import Offloader, ReadableLedger
from tierfs.engine.metadata import directories
from tierfs.engine.segments import ledgers, managed_ledger, positions
from tierfs.engine.segments.positions import Position
from tierfs.reading.entries import payloads
from tierfs.tiering.ledgers.elsewhere import OffloadElsewhere

if TYPE_CHECKING:
    from tierfs.app.connection import Connection
    from tierfs.engine.segments.delete import Deletion


class Ledger:
    """One ledger, as it was when it was opened. A ReadableLedger: an Offloader takes it."""

    def __init__(self, connection: Connection, name: str) -> None:
        """Raises NotFound, IsDirectory, InvalidRequest for another segment."""
        self._connection = connection
        self.name = names.join(names.split(name))
        with connection.store.metadata.read() as txn:
            self._record, known = ledgers.find(txn, self.name)
        self.ledger_id = self._record.id if known.ledger_id is None else known.ledger_id
        """From its name; of another name the segment's own number."""
        self.last_entry_id = known.last_entry_id
        """-1 without an entry, as in Pulsar."""
        self.length = known.length
        """Bytes of all payloads."""
        self.closed = self._record.sealed

    def __repr__(self) -> str:
        return f"Ledger({self.name!r}, last_entry_id={self.last_entry_id})"

    def __len__(self) -> int:
        return self.last_entry_id + 1

    def __iter__(self) -> Iterator[bytes]:
        return self.read()

    def read(self, first: int = 0, last: int | None = None) -> Iterator[bytes]:
        """Yield the payloads of entries `first` to `last`, both included, from whichever tier has them.

        Raises InvalidRequest for an entry that it does not have, Unavailable or DataLoss for bytes in no tier.
        """
        last = self.last_entry_id if last is None else last
        if not (0 <= first <= last <= self.last_entry_id or (first, last) == (0, -1)):
            shown = printable(self.name)
            raise InvalidRequest(f"{shown} has entries 0 to {self.last_entry_id}, not {first} to {last}")
        return self._read(first, last + 1)

    def _read(self, first: int, end: int) -> Iterator[bytes]:
        with closing(SegmentHandle(self._connection, self._record, None)) as opened:
            start = self._record.start_offset

            def read(wanted: ByteRange) -> Buffer:
                return opened.read_ranges([ByteRange(wanted.start - start, wanted.end - start)])[0]

            yield from payloads(self._connection.store.metadata, self._record.id, first, end, read)


class ManagedLedger:
    """The one writer of a managed ledger. Thread-safe; a context manager. Closing it lets other processes write."""

    def __init__(
        self, connection: Connection, path: str, *, offloader: Offloader | None = None, take_over: bool = False
    ) -> None:
        """See Store.managed_ledger."""
        self._connection = connection
        self.path = names.join(names.split(path))
        self._elsewhere = None
        if offloader is not None:
            metadata = connection.store.metadata
            self._elsewhere = OffloadElsewhere(metadata, self.path, offloader, lambda name: Ledger(connection, name))
        self._writer = verbs.open_managed_ledger(
            connection.store, self.path, take_over=take_over, elsewhere=self._elsewhere
        )

    def add(self, payloads: Sequence[Buffer]) -> list[managed_ledger.Added]:
        """Append entries, durably, over several ledgers if policy closes them; return the ids in each ledger.

        Raises InvalidRequest for too long an entry, Sealed once it is terminated, Fenced, StorageFull, Unavailable or
        Closed; entries of ledgers before the one that failed stay.
        """
        return self._writer.add_entries(payloads)

    def ledgers(self) -> list[Ledger]:
        """Return its ledgers, oldest first."""
        with self._connection.store.metadata.read() as txn:
            entry = directories.find(txn, self.path)
            if entry is None or entry.kind is not EntryKind.DIRECTORY:
                return []
            members = positions.members(txn, positions.directory_of(txn, self.path))
        return [Ledger(self._connection, f"{self.path}/{member.segment.name}") for member in members]

    def end(self) -> Position | None:
        """Return the position after the last entry; None without a ledger."""
        last = self.ledgers()[-1:]
        return Position(last[0].ledger_id, len(last[0])) if last else None

    def roll(self) -> None:
        """Close the open ledger, if there is one; the next entry starts another."""
        self._writer.roll()

    def terminate(self) -> Position | None:
        """Close all its ledgers for good; return the position of the last entry, None without one."""
        return self._writer.terminate()

    def offload_prefix(self, before: Position | str, *, metadata: Mapping[str, str] | None = None) -> Position:
        """Offload the closed ledgers before a position, like `42:7`; return the first position that is not offloaded.

        By the offloader that it was given, which makes a copy more, or else into the store's cold tier. The objects
        have `metadata` in addition to those of tierfs. Raises InvalidRequest for a position outside of it and for
        metadata that an object cannot have, NoColdTier, Conflict during another offload, and what fails.
        """
        position = Position.parse(before) if isinstance(before, str) else before
        return self._writer.offload_prefix(position, metadata or {})

    def read_offloaded(self, ledger_id: int) -> ReadableLedger:
        """Return a ledger as the offloader has it. Raises NotFound, and InvalidRequest without an offloader."""
        return self._require_elsewhere().read_offloaded(ledger_id)

    def delete_offloaded(self, ledger_id: int) -> None:
        """Have the offloader delete its copy of a ledger. Raises as `read_offloaded`."""
        self._require_elsewhere().delete_offloaded(ledger_id)

    def trim(self, before: Position | str) -> Deletion:
        """Delete the closed ledgers before a position, and the copies that the offloader made of them.

        Without an offloader they can be restored for as long as the policy `trash_age` says. Raises InvalidRequest, and
        after the deletion the first error of the offloader: the next call has it delete that copy again.
        """
        position = Position.parse(before) if isinstance(before, str) else before
        store, elsewhere = self._connection.store, self._elsewhere
        attempts = Attempts()
        if elsewhere is not None:
            elsewhere.delete_before(position, attempts)
        done = verbs.trim_ledgers(store, self.path, position, now=elsewhere is not None)
        verbs.settle(store)
        attempts.end()
        return done

    def close(self) -> None:
        """Let other processes write; the open ledger stays open. Idempotent."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _require_elsewhere(self) -> OffloadElsewhere:
        if self._elsewhere is None:
            raise InvalidRequest(f"managed ledger {printable(self.path)} has no offloader")
        return self._elsewhere
