"""Write a managed ledger: entries go into its newest ledger; policy closes it, and the next one follows."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.policy import Policy
from tierfs.base.words import names
from tierfs.base.words.errors import Closed, InvalidRequest, NotFound, Sealed, no_cold_tier
from tierfs.base.words.names import printable
from tierfs.base.words.types import DirectoryId, EntryKind
from tierfs.engine.metadata import directories, tables
from tierfs.engine.metadata.policies import PolicyCache
from tierfs.engine.metadata.tables import DIRECTORIES
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments import ledgers, positions, streams
from tierfs.engine.segments.engine import Engine
from tierfs.engine.segments.ledgers import Filling
from tierfs.engine.segments.positions import MemberLedger, Position
from tierfs.engine.segments.writer import SegmentWriter

# Times the ledger may be found closed by another process before the entries are refused.
_MAX_CLOSED = 8


@dataclass(frozen=True, slots=True)
class Added:
    """Durable entries of one ledger."""

    segment: str
    ledger_id: int
    ids: range

    @property
    def first(self) -> Position:
        """Return the position of the first entry."""
        return Position(self.ledger_id, self.ids.start)

    @property
    def last(self) -> Position:
        """Return the position of the last entry."""
        return Position(self.ledger_id, self.ids.stop - 1)


class PrefixOffloader(Protocol):
    """Offloads the ledgers before a position."""

    def __call__(self, path: str, before: Position, extra: Mapping[str, str], /) -> Position:
        """Offload, and return the first position that is not offloaded; see ManagedOffload.offload_prefix.

        `extra`: metadata that the objects have in addition.
        """
        ...


class ManagedLedgerWriter:
    """The one writer of a managed ledger. Thread-safe; close it to let other processes write at once.

    A ledger is closed in the commit of the entry that fills it (`ledger_entries`, `seal_bytes`), so that it can be
    offloaded at once; the next one is created with the next entry.
    """

    def __init__(
        self, engine: Engine, path: str, *, take_over: bool = False, offloader: PrefixOffloader | None = None
    ) -> None:
        """Open the newest ledger if it is open; nothing is created before the first entry.

        Raises Sealed for one that was terminated, Conflict naming a live writer of its open ledger (unless
        `take_over`), InvalidRequest for a segment.
        """
        self.path = names.join(names.split(path))
        self._engine = engine
        self._offloader = offloader
        self._lock = threading.Lock()
        self._policies = PolicyCache()
        self._writer: SegmentWriter | None = None
        self._directory_id: DirectoryId | None = None
        self._closed = False
        if not self.path:
            raise InvalidRequest("a managed ledger needs a name: the directory that its ledgers are in")
        newest = self._newest()
        if newest is not None and not newest.segment.sealed:
            self._writer = engine.open_ledger(self._name_of(newest), take_over=take_over)

    def add(self, payloads: Sequence[Buffer]) -> Added:
        """Append as many of these entries as the open ledger has room for, at least one; all of those or none.

        Raises InvalidRequest without entries, Closed, Sealed once it is terminated, and what
        SegmentWriter.append_entries raises.
        """
        if not payloads:
            raise InvalidRequest("there is no entry to add")
        with self._lock:
            for _ in range(_MAX_CLOSED):
                writer = self._open_writer()
                try:
                    added = self._add(writer, payloads)
                except (NotFound, Sealed):  # closed by its age, or trimmed: try the next one
                    self._leave(writer)
                    continue
                if added is not None:
                    return added
            raise Closed(f"managed ledger {printable(self.path)}: other processes keep closing its ledgers")

    def add_entries(self, payloads: Sequence[Buffer]) -> list[Added]:
        """Append all of these entries, over several ledgers if needed; raises as `add`, with earlier ledgers kept."""
        added: list[Added] = []
        while payloads:
            added.append(self.add(payloads))
            payloads = payloads[len(added[-1].ids) :]
        return added

    def roll(self) -> None:
        """Close the open ledger, if there is one; the next entry starts another."""
        with self._lock:
            self._require_open()
            if self._writer is not None:
                self._close_ledger(self._writer)

    def terminate(self) -> Position | None:
        """Close all its ledgers for good; return the position of the last entry, None without one."""
        with self._lock:
            self._require_open()
            if self._writer is not None:
                self._leave(self._writer)
            self._closed = True
            with self._engine.metadata.read() as txn:
                self.path = self._path_now(txn)
            return self._engine.terminate_managed_ledger(self.path)

    def offload_prefix(self, before: Position, extra: Mapping[str, str] | None = None) -> Position:
        """Make the ledgers before a position cold, with extra metadata; see ManagedOffload.offload_prefix.

        Raises NoColdTier where no offload is configured, and Closed.
        """
        self._require_open()
        if self._offloader is None:
            raise no_cold_tier(f"offload of managed ledger {printable(self.path)}")
        return self._offloader(self.path, before, extra or {})

    def close(self) -> None:
        """Let other processes write; the open ledger stays open. Idempotent."""
        with self._lock:
            self._closed = True
            if self._writer is not None:
                self._leave(self._writer)

    def _add(self, writer: SegmentWriter, payloads: Sequence[Buffer]) -> Added | None:
        """Append to the writer's ledger; None, with the ledger closed, when it is already due by policy."""
        with self._engine.metadata.read() as txn:
            segment = directories.segment_by_name(txn, writer.name)
            policy, held = self._policies.of(txn, segment).values, ledgers.filling(txn, segment)
            if held.is_full(policy) or streams.is_old(segment, policy, self._engine.metadata.clock.now_ms()):
                count, fills = 0, True
            else:
                count, fills = _fitting(payloads, held, policy)
        if not count:
            self._close_ledger(writer)
            return None
        ids = writer.append_entries(payloads[:count], seal=fills)
        if fills:
            self._leave(writer)
        last = names.split(writer.name)[-1]
        ledger_id = names.ledger_id(last)
        return Added(writer.name, segment.id if ledger_id is None else ledger_id, ids)

    def _open_writer(self) -> SegmentWriter:
        self._require_open()
        if self._writer is None:
            newest = self._newest()
            if newest is None or newest.segment.sealed:
                with self._engine.metadata.write() as txn:
                    name = ledgers.make(txn, self.path)
                    self._directory_id = _directory(txn, self.path)
            else:
                name = self._name_of(newest)
            self._writer = self._engine.open_ledger(name)
        return self._writer

    def _newest(self) -> MemberLedger | None:
        with self._engine.metadata.read() as txn:
            self.path = self._path_now(txn)
            self._directory_id = directory_id = _directory(txn, self.path)
            if directory_id is None:
                return None
            ledgers.require_not_terminated(txn, directory_id, self.path)
            return positions.newest(txn, directory_id)

    def _path_now(self, txn: ReadTransaction) -> str:
        """Return the directory's name now: it may have been renamed. One that was removed is made again."""
        record = None if self._directory_id is None else txn.get(DIRECTORIES, tables.u64(self._directory_id))
        path = self.path if record is None else directories.path_of(txn, record.parent_id, record.name)
        return self.path if names.is_removed(path) else path

    def _close_ledger(self, writer: SegmentWriter) -> None:
        try:
            writer.append_entries([], seal=True)
        finally:
            self._leave(writer)

    def _leave(self, writer: SegmentWriter) -> None:
        self._writer = None
        self._engine.close_writer(writer)

    def _require_open(self) -> None:
        if self._closed:
            raise Closed(f"managed ledger {printable(self.path)} is closed")

    def _name_of(self, member: MemberLedger) -> str:
        return names.join((*names.split(self.path), member.segment.name))


def _directory(txn: ReadTransaction, path: str) -> DirectoryId | None:
    entry = directories.find(txn, path)
    if entry is not None and entry.kind is not EntryKind.DIRECTORY:
        raise InvalidRequest(f"{printable(path)} is a segment, not a managed ledger", remedy="give its directory")
    return None if entry is None else DirectoryId(entry.id)


def _fitting(payloads: Sequence[Buffer], held: Filling, policy: Policy) -> tuple[int, bool]:
    """Return the number of these entries that a ledger has room for, and whether they fill it."""
    for count, payload in enumerate(payloads, 1):
        held = held.plus(len(payload))
        if held.is_full(policy):
            return count, True
    return len(payloads), False
