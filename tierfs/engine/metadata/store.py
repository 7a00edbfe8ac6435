"""MetadataStore: the metadata of one store, as the rest of tierfs holds it.

Every write transaction of a verb asks `store_ownership` whether this store may change anything (invariant 7).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from tierfs.base.options.precedence import NO_HOST, Host
from tierfs.base.system.clock import Clock
from tierfs.base.words.errors import AlreadyExists, DataLoss, Fenced
from tierfs.base.words.types import ROOT_DIRECTORY, ROOT_INODE, DirectoryId
from tierfs.engine.metadata import environment as lmdb_environment
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.journal_state import JournalState
from tierfs.engine.metadata.records import RECORD_VERSION, DirectoryRecord, StoreRecord
from tierfs.engine.metadata.store_ownership import require_owner
from tierfs.engine.metadata.tables import DIRECTORIES
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction, read_transaction, write_transaction

_ID_BYTES = 16

# Time for which a process may use a store that was removed, before it looks at the path (a guess): 2 us each.
_LOOK_S = 1.0

# Rows per commit of a full count: some 5 ms, so that appends hardly wait.
COUNTED_AT_ONCE = 3000


def _nothing() -> None:
    pass


def new_id() -> str:
    """Return a random id of 32 hexadecimal digits: of a store, or of an attempt to create an object."""
    return os.urandom(_ID_BYTES).hex()


class MetadataStore:
    """Transactions on one store. Thread-safe; survives fork by opening its environment again."""

    def __init__(self, path: Path, clock: Clock, host: Host = NO_HOST) -> None:
        """Open the metadata in directory `path`; raises NotFound, Conflict or DataLoss."""
        self.path = path = path.resolve()
        self.clock = clock
        self.host = host
        """The settings of this host that set policies. Every transaction has them, so that no face can forget them."""
        self.owner_due_s = math.inf
        """Time since boot from which `ask_owner` is called before each transaction of `write`, outside of the lock."""
        self.ask_owner: Callable[[], None] = _nothing
        """See journal/owner_watch.py."""
        self._look_due_s = 0.0
        """Time from which the store's path is looked at before the next transaction."""
        lmdb_environment.add_user(path, self)  # all stores of one path share an environment
        try:
            self._identity = lmdb_environment.open_present(path).identity
            with self.read() as txn:
                _check_version(txn.store, path)
                self.store_id = txn.store.store_id
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, path: Path, clock: Clock, store_id: str | None = None) -> MetadataStore:
        """Make an empty store in `path`, which must not exist: a new one, or a copy of the store `store_id`.

        Raises AlreadyExists.
        """
        if path.exists():
            raise AlreadyExists(f"{path} already contains a store")
        lmdb_environment.create_directory(path)
        path = path.resolve()
        environment = lmdb_environment.open_present(path, create=True)
        with write_transaction(environment, clock) as txn:
            _write_empty_store(txn, store_id or new_id())
        return cls(path, clock)

    def copied(self, path: Path) -> MetadataStore:
        """Return a copy in `path`, which must not exist, of this store as it is now; others go on using this one."""
        environment = self._environment()
        lmdb_environment.create_directory(path)
        environment.copy_to(path)
        return MetadataStore(path, self.clock, self.host)

    @property
    def is_present(self) -> bool:
        """Whether the store is still the one at its path. Costs two microseconds."""
        return lmdb_environment.identity_at(self.path) == self._identity

    def _environment(self) -> lmdb_environment.Environment:
        """Return the environment. Raises Fenced once the store was removed, or another one is at its path."""
        environment = lmdb_environment.open_environment(self.path)
        if environment.identity == self._identity and time.monotonic() < self._look_due_s:
            return environment
        # A removed store goes on working for whoever has it open, and all that is acknowledged there ends with them.
        if environment.identity != self._identity or not self.is_present:
            another = lmdb_environment.identity_at(self.path) is not None
            raise Fenced(
                f"the store at {self.path.parent} was removed"
                + (", and another store is there now" if another else ""),
                remedy="reopen it: handles opened earlier are no longer valid" if another else "restore it",
            )
        self._look_due_s = time.monotonic() + _LOOK_S
        return environment

    def read(self) -> AbstractContextManager[ReadTransaction]:
        """Open a consistent read-only view."""
        return read_transaction(self._environment(), self.host)

    def write(self) -> AbstractContextManager[WriteTransaction]:
        """Open the one write transaction; durable when its block ends.

        Raises before the block in a store that may only be read: Fenced in a fenced one or a replica, PermissionDenied
        in one that only a newer tierfs may write.
        """
        if self.clock.boot_s() >= self.owner_due_s:
            self.ask_owner()
        return write_transaction(self._environment(), self.clock, require_owner, self.host)

    def write_notes(self) -> AbstractContextManager[WriteTransaction]:
        """Open a write transaction for rows that no segment depends on: requests, failures, the journal's position.

        Works in a store that may only be read, too.
        """
        return write_transaction(self._environment(), self.clock, host=self.host)

    def write_replayed(self) -> AbstractContextManager[WriteTransaction]:
        """Open a write transaction for the owner's journal, in a replica."""
        return write_transaction(self._environment(), self.clock, host=self.host)

    def count_sums(self, *, anew: bool = False) -> None:
        """Bring the sums of a store of an older tierfs up to date, in commits of some milliseconds; free if they are.

        `anew`: count all rows again, whatever the sums are.
        """
        with self.read() as txn:
            complete = txn.sums is not None and not anew
        while not complete:
            with self.write_notes() as txn:
                complete = txn.count_rows(COUNTED_AT_ONCE, anew=anew)
            anew = False

    def clear_dead_readers(self) -> int:
        """Free the slots of readers that were killed, as the holder does now and then; return how many."""
        return self._environment().clear_dead_readers()

    def last_transaction_id(self) -> int:
        """Return a number that changes whenever any process commits; costs about 2 microseconds."""
        return self._environment().last_transaction_id()

    def close(self) -> None:
        """Close the environment unless other users in this process have the store open; idempotent."""
        lmdb_environment.remove_user(self.path, self)


def _write_empty_store(txn: WriteTransaction, store_id: str) -> None:
    txn.create_store(
        StoreRecord(
            store_id=store_id, created_ms=txn.now_ms, next_id=ROOT_DIRECTORY + 1, journal=JournalState(next_slot=1)
        )
    )
    root = DirectoryRecord(
        id=ROOT_DIRECTORY,
        parent_id=DirectoryId(0),
        name="",
        inode=ROOT_INODE,
        created_ms=txn.now_ms,
        modified_ms=txn.now_ms,
    )
    txn.put(DIRECTORIES, tables.u64(ROOT_DIRECTORY), root)


def _check_version(store: StoreRecord, path: Path) -> None:
    if store.min_reader_version > RECORD_VERSION:
        raise DataLoss(
            f"{path} has format version {store.version}, this tierfs reads up to {RECORD_VERSION}",
            remedy="upgrade tierfs",
        )
