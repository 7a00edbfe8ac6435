"""OwnerWatch: a process that changes a store asks its bucket now and then whether it is still the store's.

Nobody notifies a store that another host took over. Its holder would notice at the next publish; without a holder an
appender would go on acknowledging bytes, at offsets that the new owner uses too. So every change waits for a listing
that is at most `owner_check_s` old, made by any process of the store on this host. Beside a busy appender it is made
ahead of time by a thread; a change waits for it only if the last one is too old, and at most WAIT_S: a bucket that does
not answer stops nobody from writing to the local disk.

The thread does network alone. Records are read before and written after it by the callers, so that closing the store
never waits for a server.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.system import deadlines, forks
from tierfs.base.words.errors import TierfsError, Unavailable, WrongColdTier
from tierfs.engine.metadata.records import StoreRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.store_ownership import owns_bucket

if TYPE_CHECKING:  # the journal takes 14 ms to import, which most commands that append need not
    from tierfs.engine.chunkstore.protocol import ChunkStorage
    from tierfs.engine.journal.publish import OtherOwner

log = logging.getLogger(__name__)

# Longest wait of a change, or of `status`, for an answer. A guess: a cold start with a far server takes 2 s.
WAIT_S = 5.0

# Share of the period by which a process that asked before asks ahead of time: 10 s of a minute. A guess.
_AHEAD = 1 / 6


@dataclass(slots=True)
class _Question:
    """One listing, made by a thread."""

    store: StoreRecord
    """As it was before the listing."""
    connect: Callable[[], ChunkStorage]
    began_s: float
    ended: threading.Event = field(default_factory=threading.Event)
    storage: ChunkStorage | None = None
    other: OtherOwner | None = None
    error: TierfsError | None = None

    def ask(self) -> None:
        """Make the listing."""
        from tierfs.engine.journal.publish import look_for_other

        try:
            self.storage = self.connect()
            self.other = look_for_other(self.storage, self.store)
        except TierfsError as exc:
            self.error = exc
        except Exception as exc:
            log.exception("checking the owner of the bucket")
            self.error = Unavailable(f"internal error: {exc!r}")
        finally:
            self.ended.set()


class OwnerWatch:
    """Asks for one process. Thread-safe."""

    def __init__(
        self, metadata: MetadataStore, period_s: float, connector: Callable[[], Callable[[], ChunkStorage] | None]
    ) -> None:
        """Watch without asking yet.

        `connector` returns what connects to the cold tier, which may wait for a server; None without a cold tier.
        """
        self._metadata = metadata
        self._period_s = period_s
        self._connector = connector
        self.forget()
        forks.register(self)
        metadata.owner_due_s, metadata.ask_owner = 0.0, self.before_write

    def forget(self) -> None:
        """Begin again in a child of fork, which has no thread of its parent's."""
        self._lock = threading.Lock()
        self._question: _Question | None = None
        self._has_asked = False

    def before_write(self) -> None:
        """Ask if it is time to; see MetadataStore.write. Raises nothing: the record says who owns the bucket."""
        now_s = self._metadata.clock.boot_s()
        with self._lock:
            question, expires_s = self._due(now_s)
        if question is not None and now_s >= expires_s:
            self._wait(question)

    def ask(self) -> TierfsError | None:
        """Ask now; return why nobody can say whether the bucket is the store's. Records another owner, and raises not.

        For a look: nothing else is recorded, as a look must not wait for a writer.
        """
        with self._lock:
            question = self._begin()
        if question is None:
            return None
        if not question.ended.wait(deadlines.within(WAIT_S)):
            return _no_answer()
        with self._lock:
            return self._conclude(question)

    def _due(self, now_s: float) -> tuple[_Question | None, float]:
        """Conclude or begin a question; return the one that is under way, and the time from which it is waited for."""
        if self._question is not None and self._question.ended.is_set():
            self._note(self._question)
        with self._metadata.read() as txn:
            asked_s = txn.store.journal.asked.at_s(self._metadata.clock.boot_id())
            is_owner = owns_bucket(txn.store)
        expires_s = 0.0 if asked_s is None or asked_s > now_s else asked_s + self._period_s
        due_s = expires_s - (self._period_s * _AHEAD if self._has_asked else 0.0)
        if not is_owner or now_s < due_s:
            self._metadata.owner_due_s = due_s if is_owner else now_s + self._period_s
            return None, expires_s
        question = self._question or self._begin()
        self._metadata.owner_due_s = now_s + self._period_s if question is None else now_s
        return question, expires_s

    def _begin(self) -> _Question | None:
        """Start the thread; None where there is nothing to ask."""
        connect = self._connector()
        with self._metadata.read() as txn:
            store = txn.store
        if connect is None or not owns_bucket(store):
            return None
        question = self._question = _Question(store, connect, self._metadata.clock.boot_s())
        self._has_asked = True
        threading.Thread(target=question.ask, name="tierfs-owner", daemon=True).start()
        return question

    def _wait(self, question: _Question) -> None:
        """Wait for the answer, of which the caller's own transaction takes note."""
        wait_s = deadlines.within(WAIT_S)
        if not question.ended.wait(wait_s) and wait_s < WAIT_S:
            return  # the caller has no more time; whoever changes something next waits for the answer
        with self._lock:
            if self._question is question:
                self._note(question)

    def _note(self, question: _Question) -> None:
        """Record the outcome of a question that has ended, or took too long, and that it was asked."""
        from tierfs.engine.journal.asked import note_asked
        from tierfs.engine.journal.cold_identity import as_warning

        error = self._conclude(question) if question.ended.is_set() else _no_answer()
        if error is not None:
            log.info("whether the bucket is still this store's is unknown: %s", error)
        is_known = error is None or isinstance(error, WrongColdTier)
        wrong_place = as_warning(error) if isinstance(error, WrongColdTier) else ""
        note_asked(self._metadata, question.began_s, wrong_place if is_known else None)
        self._question = None
        self._metadata.owner_due_s = question.began_s + self._period_s * (1 - _AHEAD)

    def _conclude(self, question: _Question) -> TierfsError | None:
        """Record another owner; return why nobody can say whether the bucket is the store's."""
        from tierfs.engine.journal.publish import fenced_by

        with self._metadata.read() as txn:
            before, state = question.store.journal, txn.store.journal
        other = question.other
        proven = state.published_sequence, state.checkpoint_slot
        if proven != (before.published_sequence, before.checkpoint_slot):
            return None  # this store published meanwhile, which proved the place its own
        if other is None or other.attempt in (state.intent.attempt, state.checkpoint.attempt):
            return question.error
        try:
            assert question.storage is not None
            error: TierfsError = fenced_by(self._metadata, question.storage, other)
        except TierfsError as exc:
            return exc
        log.info("%s", error)  # the caller's transaction raises it
        return None


def _no_answer() -> Unavailable:
    return Unavailable(f"the cold tier did not respond within {WAIT_S:.0f} s")
