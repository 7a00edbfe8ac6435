"""Typed access to the records inside one LMDB transaction.

A change of metadata is one synchronous function over one WriteTransaction: no I/O, no await. The superblock is read
once and written at commit if it changed. The outbox holds changes of this owner that the bucket's journal does not name
yet; changes.py reads it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar

import lmdb

from tierfs.base.options.precedence import NO_HOST, Host
from tierfs.base.system import forks
from tierfs.base.system.clock import Clock, ClockReading, newest_reading
from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata import sums, tables
from tierfs.engine.metadata.environment import Environment, enter_read_only
from tierfs.engine.metadata.lmdb_errors import map_lmdb_errors, raise_as_ours
from tierfs.engine.metadata.records import RECORD_VERSION, Record, StoreRecord
from tierfs.engine.metadata.sums import COUNTED, SUMS_KEY, Sums, Tally
from tierfs.engine.metadata.tables import OUTBOX_NAME, STORE, TOUCHES, Table

R = TypeVar("R", bound=Record)

SUPERBLOCK_KEY = b"superblock"

# Rows kept in `changes`; a mount that polls every 0.25 s never lags that far.
MAX_TOUCHES = 100_000

_TRIM_BATCH = 1000

# Rows of a store without sums that each commit counts: about a millisecond.
_COUNTED_PER_COMMIT = 300


class ReadTransaction:
    """A consistent view of the store. Valid inside its `with` block and on its thread only."""

    def __init__(self, environment: Environment, txn: Any, host: Host) -> None:
        self._databases = environment.databases
        self._txn = txn
        self.host = host
        """The settings of this host that set policies."""
        self._store: StoreRecord | None = None

    @property
    def id(self) -> int:
        """Number of the newest committed transaction that this one sees."""
        return int(self._txn.id())

    @property
    def store(self) -> StoreRecord:
        """The superblock. Raises DataLoss without one."""
        return self._store or self._read_store()

    def _read_store(self) -> StoreRecord:
        self._store = self.get(STORE, SUPERBLOCK_KEY)
        if self._store is None:
            raise DataLoss("the store has no superblock", remedy="run: tierfs recover")
        return self._store

    @property
    def sums(self) -> Sums | None:
        """Sums over all rows; None while a store of an older tierfs is being counted."""
        tally = sums.read(self.get_raw(STORE.name, SUMS_KEY), self.id)
        return None if tally is None else tally.sums

    @property
    def oldest_local_only_ms(self) -> int:
        """Earliest time since which bytes may have been on the local disk alone; 0 when none are, or it is unknown."""
        tally = sums.read(self.get_raw(STORE.name, SUMS_KEY), self.id)
        return 0 if tally is None else tally.oldest_ms

    def get(self, table: Table[R], key: bytes) -> R | None:
        """Return the record under `key`, or None."""
        data = self._txn.get(key, db=self._databases[table.name])
        return None if data is None else table.codec.decode(data)

    def get_raw(self, name: bytes, key: bytes) -> bytes | None:
        """Return the encoded record under `key`, or None."""
        data: bytes | None = self._txn.get(key, db=self._databases[name])
        return data

    def message(self, table: Table[R], key: bytes) -> Any | None:
        """Return the message under `key`, or None: a few fields of it are read, or changed, at a fifth of the price."""
        data = self._txn.get(key, db=self._databases[table.name])
        return None if data is None else table.codec.message(data)

    def must_get(self, table: Table[R], key: bytes, what: str) -> R:
        """Return the record under `key`; raises NotFound naming `what`."""
        record = self.get(table, key)
        if record is None:
            raise NotFound(f"{what} does not exist")
        return record

    def scan(self, table: Table[R], start: bytes = b"", *, prefix: bytes = b"") -> Iterator[tuple[bytes, R]]:
        """Yield records in key order from the first key >= `start`, as long as keys begin with `prefix`."""
        for key, data in self.scan_raw(table.name, start or prefix, prefix=prefix):
            yield key, table.codec.decode(data)

    def scan_raw(self, name: bytes, start: bytes = b"", *, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield encoded records, as `scan`."""
        with self._txn.cursor(db=self._databases[name]) as cursor:
            if not (cursor.set_range(start) if start else cursor.first()):
                return
            for key, data in cursor.iternext():
                if not key.startswith(prefix):
                    return
                yield key, data

    def cursor_raw(self, name: bytes) -> lmdb.Cursor[bytes]:
        """Return a cursor for many seeks; it ends with the transaction."""
        cursor: lmdb.Cursor[bytes] = self._txn.cursor(db=self._databases[name])
        return cursor

    def at_or_before(self, table: Table[R], key: bytes, *, prefix: bytes = b"") -> R | None:
        """Return the record with the greatest key <= `key` that begins with `prefix`."""
        with self._txn.cursor(db=self._databases[table.name]) as cursor:
            if cursor.set_range(key):
                if cursor.key() != key and not cursor.prev():
                    return None
            elif not cursor.last():
                return None
            found_key, data = cursor.item()
        return table.codec.decode(data) if found_key.startswith(prefix) else None

    @property
    def database_names(self) -> Collection[bytes]:
        """All databases, those of newer versions included."""
        return self._databases.keys()

    def last_key(self, name: bytes) -> bytes | None:
        """Return the greatest key of a database; None when it is empty."""
        with self._txn.cursor(db=self._databases[name]) as cursor:
            return bytes(cursor.key()) if cursor.last() else None

    def count(self, name: bytes) -> int:
        """Return the number of rows of a database."""
        return int(self._txn.stat(db=self._databases[name])["entries"])


class WriteTransaction(ReadTransaction):
    """The store's one write transaction. Committed whole or not at all."""

    def __init__(self, environment: Environment, txn: Any, clock: Clock, host: Host) -> None:
        super().__init__(environment, txn, host)
        self._now, self._store = ClockReading.of(clock), self.get(STORE, SUPERBLOCK_KEY)
        self.now_ms = self._store.clock_seen.dates(self._now) if self._store is not None else self._now.wall_ms
        self._store_changed = False
        self._counters: dict[str, int] = {}
        """Counters of the superblock that advanced since it was last put together: a `replace` for each is dear."""
        self._late_changes: list[bytes] = []
        self._kept_tally: Tally | None = None
        self._dirty = False
        self._touched: set[int] = set()
        self.path_bytes: dict[int, int] = {}
        """Lengths of directories' paths, as the replay of a journal finds and keeps them."""
        self.notifies = True
        """Whether `touch` lists changes. Not in a store that is being rebuilt, which nobody has opened yet."""

    @property
    def store(self) -> StoreRecord:
        """The superblock as it is now."""
        if self._counters:
            self.update_store()
        return self._store or self._read_store()

    @property
    def uncounted(self) -> StoreRecord:
        """The superblock, whose counters may be behind: to read another field of it need not put it together."""
        return self._store or self._read_store()

    @property
    def sums(self) -> Sums | None:
        """See ReadTransaction.sums; with the changes so far."""
        return self._tally.sums if self._tally.complete else None

    def count_rows(self, rows: int, *, anew: bool = False) -> bool:
        """Add up to `rows` rows to incomplete sums; return whether they are complete. `anew`: begin at the first."""
        tally = self._tally
        if anew:
            tally.restart()
        if not tally.complete:
            self._dirty = True
            tally.count(self.scan_raw, rows)
        return tally.complete

    def note_oldest(self, since_ms: int) -> None:
        """Record since when the oldest byte has been on the local disk alone, as the caller found; 0 when none is."""
        self._dirty = True
        self._tally.oldest_ms = since_ms

    def put(self, table: Table[R], key: bytes, record: R) -> None:
        """Write a record after its check()."""
        self.put_raw(table.name, key, table.codec.encode(record))

    def put_raw(self, name: bytes, key: bytes, data: bytes) -> None:
        """Write encoded bytes; the caller keeps the invariants of their record."""
        self._dirty = True
        if name in COUNTED:
            tally = self._kept_tally or self._tally
            tally.changed(name, key, self._txn.replace(key, data, db=self._databases[name]), data)
        else:
            self._txn.put(key, data, db=self._databases[name])

    def put_equal(self, name: bytes, key: bytes, data: bytes) -> None:
        """Do as `put_raw`, for a row that is there and adds the same to the sums: an object with another reference."""
        self._dirty = True
        self._txn.put(key, data, db=self._databases[name])

    def delete(self, name: bytes, key: bytes) -> bool:
        """Remove a row; return False when there was none."""
        if name in COUNTED:
            old = self._txn.pop(key, db=self._databases[name])
            if old is not None:
                self._dirty = True
                self._tally.changed(name, key, old, None)
            return old is not None
        deleted = bool(self._txn.delete(key, db=self._databases[name]))
        self._dirty |= deleted
        return deleted

    def put_ascending(self, name: bytes, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Write many encoded rows whose keys ascend; after the last key of the database they are appended."""
        if not rows:
            return
        with self._txn.cursor(db=self._databases[name]) as cursor:
            # Fills whole pages instead of halves, without a search: allowed only where no key is greater.
            at_end = not cursor.last() or cursor.key() < rows[0][0]
            if at_end or name not in COUNTED:
                self._dirty = True
                cursor.putmulti(rows, append=at_end)
                for key, data in rows if name in COUNTED else ():
                    self._tally.changed(name, key, None, data)
                return
        for key, data in rows:
            self.put_raw(name, key, data)

    def delete_prefix(self, name: bytes, prefix: bytes) -> None:
        """Remove every row whose key begins with `prefix`."""
        self._dirty = True
        with self._txn.cursor(db=self._databases[name]) as cursor:
            has_row = cursor.set_range(prefix)
            while has_row and cursor.key().startswith(prefix):
                if name in COUNTED:
                    self._tally.changed(name, bytes(cursor.key()), bytes(cursor.value()), None)
                has_row = cursor.delete()

    def create_store(self, record: StoreRecord) -> None:
        """Write the superblock of a new store."""
        self._store = record
        self._store_changed = True

    def update_store(self, **changes: Any) -> None:
        """Change fields of the superblock."""
        moved, self._counters = self._counters, {}
        self._store = dataclasses.replace(self._store or self._read_store(), **(moved | changes))
        self._store_changed = True

    def allocate_id(self) -> int:
        """Return a number never used before for a segment, directory, object or inode."""
        return self.take("next_id")

    def touch(
        self, *, parent_inode: int = 0, name: str = "", inode: int = 0, segment_id: int = 0, policies: bool = False
    ) -> None:
        """Notify mounts of what to invalidate, and the holder of what to examine again.

        `policies` of a segment changed; of a directory where no segment is named: the holder examines all segments.
        """
        if not self.notifies:
            return
        self._touched.add(segment_id)
        sequence = self.take("next_change")
        row = pb.TouchRecord(version=RECORD_VERSION, parent_inode=parent_inode, name=name, inode=inode)
        row.segment_id, row.policies = segment_id, policies
        self.put_raw(TOUCHES.name, tables.u64(sequence), row.SerializeToString(deterministic=True))
        if sequence > MAX_TOUCHES and sequence % _TRIM_BATCH == 0:
            with self._txn.cursor(db=self._databases[TOUCHES.name]) as cursor:
                has_row = cursor.first()
                while has_row and tables.read_u64(cursor.key()) < sequence - MAX_TOUCHES:
                    has_row = cursor.delete()

    def add_to_outbox(self, data: bytes) -> int:
        """Queue a serialized Change for the journal; return its sequence. `data` lacks the sequence."""
        sequence = self.take("next_outbox")
        self.put_raw(OUTBOX_NAME, tables.u64(sequence), data)
        journal = (self._store or self._read_store()).journal
        if not journal.queued_ms:
            self.update_store(journal=dataclasses.replace(journal, queued_ms=self.now_ms))
        return sequence

    def add_to_outbox_last(self, data: bytes) -> None:
        """Queue a Change after all others of this transaction.

        A journal that ends in between must not list as garbage an object that it still links.
        """
        self._late_changes.append(data)

    def finish(self) -> None:
        """Queue the late changes, and write the superblock and the sums if they changed; called before the commit."""
        for data in self._late_changes:
            self.add_to_outbox(data)
        for segment_id in sorted(self._kept_tally.changed_active - self._touched) if self._kept_tally else ():
            self.touch(segment_id=segment_id)
        # By any process (garbage/clocks.py), but by no load of a dump: the superblock's row follows most others there.
        store = self._store
        changed = self._dirty or self._store_changed or self._counters
        if changed and store is not None and not store.clock_seen.is_kept(self._now):
            self.update_store(clock_seen=newest_reading(store.clock_seen, store.last_wall_ms, self._now))
        if self._store_changed or self._counters:
            store = self.store
            wall_ms = max(store.last_wall_ms, self.now_ms)
            self.put(STORE, SUPERBLOCK_KEY, dataclasses.replace(store, last_wall_ms=wall_ms))
        if self._dirty:
            tally = self._kept_tally or self._tally
            if not tally.complete:
                tally.count(self.scan_raw, _COUNTED_PER_COMMIT)
            self._txn.put(SUMS_KEY, tally.encode(self._txn.id(), self.now_ms), db=self._databases[STORE.name])

    def take(self, counter: str) -> int:
        """Return the next number of one of the superblock's counters."""
        number = self._next_of(counter)
        self._counters[counter] = number + 1
        return number

    def reserve(self, counter: str, number: int) -> None:
        """Let `take` never return a number up to this one."""
        if number >= self._next_of(counter):
            self._counters[counter] = number + 1

    def _next_of(self, counter: str) -> int:
        return int(self._counters.get(counter) or getattr(self._store or self._read_store(), counter))

    @property
    def _tally(self) -> Tally:
        """The sums as they are now. Only a transaction that changes rows, and so is dirty, writes them."""
        if self._kept_tally is None:
            self._kept_tally = Tally(self.get_raw(STORE.name, SUMS_KEY), self._txn.id() - 1)
        return self._kept_tally


class read_transaction:  # a class, as a generator costs three times as much
    """Opens a read-only view; never waits for the writer."""

    __slots__ = ("_environment", "_errors", "_host", "_txn")

    def __init__(self, environment: Environment, host: Host = NO_HOST) -> None:
        self._environment = environment
        self._errors = map_lmdb_errors(environment.path)
        self._host = host

    def __enter__(self) -> ReadTransaction:
        if self._environment.read_only:
            self._environment = enter_read_only(self._environment)
        with self._errors:
            self._txn = self._environment.lmdb.begin()
        return ReadTransaction(self._environment, self._txn, self._host)

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        _end(self._environment, self._txn)
        self._environment.leave()
        self._errors.__exit__(kind, exc, trace)


class write_transaction:
    """Opens the write transaction: durable when the block ends, undone when it raises.

    `may_write` sees the superblock first and raises what forbids the change; so does `Environment.require_writable`.
    """

    __slots__ = ("_clock", "_environment", "_host", "_may_write", "_txn", "_writer")

    def __init__(
        self,
        environment: Environment,
        clock: Clock,
        may_write: Callable[[StoreRecord], None] | None = None,
        host: Host = NO_HOST,
    ) -> None:
        self._environment = environment
        self._clock = clock
        self._may_write = may_write
        self._host = host

    def __enter__(self) -> WriteTransaction:
        environment = self._environment
        environment.require_writable()
        environment.watch.waiting()
        try:
            self._txn = environment.lmdb.begin(write=True)
        except BaseException as exc:
            environment.watch.gave_up()
            raise_as_ours(environment.path, exc)
            raise
        environment.watch.acquired()
        try:
            environment.require_writable()  # a commit may have failed during the wait
            self._writer = WriteTransaction(environment, self._txn, self._clock, self._host)
            if self._may_write is not None:
                self._may_write(self._writer.store)
        except BaseException as exc:
            self._undo(exc)
            raise
        return self._writer

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        environment = self._environment
        if exc is not None:
            self._undo(exc)
            return
        try:
            environment.require_process()
            self._writer.finish()
            environment.watch.released()
            environment.commit(self._txn)
        except BaseException as failure:
            self._undo(failure)
            raise

    def _undo(self, error: BaseException) -> None:
        self._environment.watch.released()
        _end(self._environment, self._txn)
        raise_as_ours(self._environment.path, error)


def _end(environment: Environment, txn: Any) -> None:
    """End a transaction without changes. In a child of fork it is left to the parent, which continues with it."""
    if environment.pid != os.getpid():
        forks.leak(txn)
    else:
        txn.abort()
