"""ScratchRows: rows on disk for one run, ordered by key, where there may be more of them than memory holds.

Nothing of it is durable, and nothing is left when it is closed. It is no metadata: rows that a store keeps are in its
environment.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import lmdb

from tierfs.base.system import osio
from tierfs.engine.metadata.environment import MAP_SIZE_BYTES
from tierfs.engine.metadata.lmdb_errors import map_lmdb_errors

# Puts per commit. LMDB keeps the pages of an open commit in memory: at most two for a put, so some 16 MiB.
_PUTS_PER_COMMIT = 2000


class ScratchRows:
    """Tables of rows in a directory of its own. Used by one thread; close it."""

    def __init__(self, path: Path, tables: tuple[bytes, ...]) -> None:
        """Make the directory `path`, in place of what an earlier run left there. Raises what LMDB raises, as ours."""
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(mode=osio.OWNER_DIRECTORY)
        self.path = path
        self._errors = map_lmdb_errors(path)
        with self._errors:
            self._lmdb = lmdb.open(
                str(path), map_size=MAP_SIZE_BYTES, max_dbs=len(tables), mode=osio.OWNER_FILE, sync=False
            )
            self._tables = {name: self._lmdb.open_db(name) for name in tables}
            self._txn = self._lmdb.begin(write=True)
        self._puts = 0

    def __enter__(self) -> ScratchRows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def put(self, table: bytes, key: bytes, value: bytes) -> None:
        """Write a row, in place of one of the same key. Raises StorageFull, and Unavailable for a failing disk."""
        with self._errors:
            self._txn.put(key, value, db=self._tables[table])
            self._puts += 1
            if self._puts >= _PUTS_PER_COMMIT:
                self._commit()

    def get(self, table: bytes, key: bytes) -> bytes | None:
        """Return the row of a key, or None."""
        with self._errors:
            value: bytes | None = self._txn.get(key, db=self._tables[table])
            return value

    def count(self, table: bytes) -> int:
        """Return the number of rows."""
        with self._errors:
            entries: int = self._txn.stat(self._tables[table])["entries"]
            return entries

    def scan(self, table: bytes, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows whose key has a prefix, in key order, as of the first one; others may be put meanwhile."""
        with self._errors:
            self._commit()
            view = self._lmdb.begin()
        try:
            cursor = view.cursor(db=self._tables[table])
            rows = cursor.iternext() if cursor.set_range(prefix) else iter(())
            for key, value in rows:
                if not key.startswith(prefix):
                    return
                yield key, value
        finally:
            view.abort()

    def close(self) -> None:
        """Delete all of it; idempotent."""
        self._txn.abort()
        self._lmdb.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def _commit(self) -> None:
        if self._puts:
            self._txn.commit()
            self._txn, self._puts = self._lmdb.begin(write=True), 0
