"""Chunk files whose commit failed, so that no record says whether they are named."""

from __future__ import annotations

from collections.abc import Iterable

from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments.active_chunk import ActiveChunk

# Files from which a commit has to succeed before another append is written (a guess).
MOST_UNSURE = 16


class UnsureFiles:
    """Chunk files of one engine's appends whose commit failed, so that whether it happened is not known yet.

    A commit that was begun may be on the disk although it failed, or come back with a power loss. The next one that
    succeeds decides: it has the failed one's number, and so writes to the same page. Files that no record names then
    go; a process that ends before leaves them to the store's holder (garbage/orphans.py). One thread at a time.
    """

    def __init__(self, metadata: MetadataStore, files: ChunkFiles) -> None:
        self._metadata = metadata
        self._files = files
        self._waiting: list[ActiveChunk] = []

    def add(self, chunks: Iterable[ActiveChunk]) -> None:
        """Let the files of a failed commit wait for the next one."""
        self._waiting.extend(chunks)

    def require_room(self) -> None:
        """Raise the error of a commit while too many files wait, so that refused appends leave no more of them."""
        if len(self._waiting) >= MOST_UNSURE:
            self.settle()

    def settle(self) -> None:
        """Commit, and delete the files that no record names then. Raises what the commit raises."""
        if not self._waiting:
            return
        with self._metadata.write_notes() as txn:
            txn.update_store(last_wall_ms=txn.store.last_wall_ms)  # a commit without a change is not written
            unnamed = self.unnamed(txn)
        self.decided(unnamed)

    def unnamed(self, txn: ReadTransaction) -> list[ActiveChunk]:
        """Return the files that no record names; pass them to `decided` once `txn` is committed."""
        return [chunk for chunk in self._waiting if not _is_named(txn, chunk)]

    def decided(self, unnamed: Iterable[ActiveChunk]) -> None:
        """Delete these of the waiting files; the others are named, and none waits any more."""
        for chunk in unnamed:
            self._files.discard(chunk.name)
        self._waiting.clear()


def _is_named(txn: ReadTransaction, chunk: ActiveChunk) -> bool:
    """Return whether the object that the failed commit made is there: its number may be another's by now."""
    record = txn.get(OBJECTS, tables.u64(chunk.object_id))
    return record is not None and record.name == chunk.name
