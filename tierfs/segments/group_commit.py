"""Group commit: concurrent appenders share file syncs and one LMDB commit.

The first to arrive leads: it takes everything queued, syncs each file once, commits once, and wakes the others.
Appenders that arrive during that form the next group. Order inside a segment is queue order. Signals are deferred
until the group is woken: a Ctrl-C in the leader's thread must not decide over the others' appends.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from tierfs.errors import Conflict, NotFound, TierfsError
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.transaction import WriteTransaction
from tierfs.segments.active_chunk import ActiveChunk, ChunkDescriptors, ChunkEnded
from tierfs.system import processes


class PendingCommit(ABC):
    """A change that waits for its group. Subclasses define the change."""

    def __init__(self, chunks: Sequence[ActiveChunk]) -> None:
        self.chunks = tuple(chunks)
        self.error: BaseException | None = None
        self.done = threading.Event()

    @abstractmethod
    def apply(self, txn: WriteTransaction) -> None:
        """Change the records. Raises StaleBase, Conflict or NotFound before the first change, or not at all.

        Anything else it raises undoes the whole group.
        """

    @abstractmethod
    def failed(self) -> None:
        """Handle that the change was not committed; called on the leader's thread, before any waiter is woken."""


@dataclass(slots=True)
class GroupCommit:
    """One per engine. `enqueue` in the order in which changes must apply, then `wait`."""

    metadata: MetadataStore
    descriptors: ChunkDescriptors
    _queue: list[PendingCommit] = field(default_factory=list)
    _queue_lock: threading.Lock = field(default_factory=threading.Lock)
    _leading: threading.Lock = field(default_factory=threading.Lock)

    def enqueue(self, pending: PendingCommit) -> None:
        """Queue a change; cheap, never blocks on the disk."""
        with self._queue_lock:
            self._queue.append(pending)

    def wait(self, pending: PendingCommit) -> None:
        """Wait until the change is durable. Raises its error, with nothing changed."""
        while not pending.done.is_set():
            with self._leading, processes.deferred():  # the next leader waits here while a group is on its way
                if not pending.done.is_set():
                    self._lead()
        if pending.error is not None:
            raise pending.error

    def _lead(self) -> None:
        with self._queue_lock:
            group, self._queue = self._queue, []
        try:
            self._sync(group)
            self._commit([pending for pending in group if pending.error is None])
        except BaseException as exc:
            error = exc if isinstance(exc, Exception) else StaleBase("the leader of the group ended")
            for pending in group:
                pending.error = pending.error or error
            if error is not exc:
                raise
        finally:
            for pending in group:
                if pending.error is not None:
                    pending.failed()
                pending.done.set()

    def _sync(self, group: Sequence[PendingCommit]) -> None:
        """Sync each file once. After a failed sync its file is never used again: the next append starts another."""
        synced: set[int] = set()
        for pending in group:
            for chunk in pending.chunks:
                try:
                    if id(chunk) not in synced and not chunk.sync_failed:
                        self.descriptors.sync(chunk)
                        synced.add(id(chunk))
                except TierfsError as exc:
                    chunk.sync_failed = True
                    pending.error = StaleBase(str(exc)) if isinstance(exc, ChunkEnded) else exc
                if chunk.sync_failed and pending.error is None:
                    pending.error = _SyncFailed(f"{chunk.name}: an earlier sync failed")

    def _commit(self, group: Sequence[PendingCommit]) -> None:
        if not group:
            return
        with self.metadata.write() as txn:
            for pending in group:
                try:
                    pending.apply(txn)
                except (StaleBase, Conflict, NotFound) as exc:
                    pending.error = exc


class StaleBase(TierfsError):
    """Internal: an earlier change failed or the segment moved; the bytes must be written again."""


class _SyncFailed(StaleBase):
    """Internal: the sync of the file failed for an earlier change of the same group."""
