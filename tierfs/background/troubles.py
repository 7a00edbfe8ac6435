"""Troubles: background work that failed, when it is tried again, and since when. Listed, never dropped.

Rows outlive the holder, so that `status` shows them from any process and a new holder keeps the pauses.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from tierfs.config import BackgroundSettings
from tierfs.errors import DataLoss, NotFound, TierfsError
from tierfs.metadata.records import TroubleRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import TROUBLES

log = logging.getLogger(__name__)

_MAX_DOUBLINGS = 20
_MS_PER_S = 1000

_OWN_REASONS = {DataLoss.__name__, NotFound.__name__}


class Troubles:
    """The troubles of one store, for its holder. Thread-safe: each call is one transaction or none."""

    def __init__(self, metadata: MetadataStore, settings: BackgroundSettings) -> None:
        self._metadata = metadata
        self._settings = settings
        self._lock = threading.Lock()
        """Held while `_rows` is looked at or changed, never during a commit."""
        self.ended = 0
        """Troubles that were over: each time everything else may be tried at once."""
        with metadata.read() as txn:
            self._rows = {row.what: row for _, row in txn.scan(TROUBLES)}
        self._ended_at = dict.fromkeys(self._rows, 0)
        """Per row how many troubles were over when it was last written: its pause ends with the next one's end."""

    def has(self, what: str) -> bool:
        """Whether this work failed the last time."""
        return what in self._rows

    def may_try(self, what: str, now_ms: int) -> bool:
        """Whether this work never failed, or its pause is over."""
        return self.next_try_ms(what) <= now_ms

    def next_try_ms(self, what: str) -> int:
        """When the pause of work that failed is over; 0 for work that did not.

        A pause longer than the longest was written by a clock that has been set back since: it is over.
        """
        with self._lock:
            row = self._rows.get(what)
            if row is None or self._ended_at[what] < self.ended:
                return 0
        latest_ms = self._metadata.clock.now_ms() + round(self._settings.retry_longest_s * _MS_PER_S)
        return 0 if row.next_try_ms > latest_ms else row.next_try_ms

    def is_stuck(self, what: str) -> bool:
        """Whether this work failed for a reason of its own, a file that is damaged or missing: others may work."""
        with self._lock:
            row = self._rows.get(what)
        return row is not None and row.error_kind in _OWN_REASONS

    def failed(self, what: str, error: Exception, *, name: str = "", size_bytes: int = 0) -> None:
        """Note a failure and when to try again. The first of a row is a warning in the log."""
        now_ms = self._metadata.clock.now_ms()
        with self._lock:
            old = self._rows.get(what) or TroubleRecord(what=what, since_ms=now_ms)
            row = self._rows[what] = replace(
                old,
                name=name,
                bytes=size_bytes,
                attempts=old.attempts + 1,
                next_try_ms=now_ms + round(self._pause_s(old.attempts) * _MS_PER_S),
                error_kind=type(error).__name__,
                error=str(error),
            )
            self._ended_at[what] = self.ended
        log.log(logging.DEBUG if old.attempts else logging.WARNING, "%s failed: %s", what, error)
        self._write(row)

    def passed(self, what: str) -> None:
        """Note that it worked: its row goes, and all others may be tried at once. Costs nothing without a row."""
        with self._lock:
            row = self._rows.pop(what, None)
            if row is None:
                return
            del self._ended_at[what]
            self.ended += 1
        log.info("%s works again after %d failures", what, row.attempts)
        self._remove(what)

    def retain(self, prefix: str, is_wanted: Callable[[str], bool], *, keep_damage: bool = True) -> None:
        """Drop rows beginning with `prefix` that are not wanted any more; damage stays listed unless told otherwise."""
        with self._lock:
            rows = list(self._rows.items())
        gone = [
            (what, row)
            for what, row in rows
            if what.startswith(prefix)
            and not is_wanted(what)
            and not (keep_damage and row.error_kind == DataLoss.__name__)
        ]
        for what, row in gone:
            with self._lock:
                if self._rows.get(what) is not row:  # it failed again, or passed, meanwhile
                    continue
                del self._rows[what], self._ended_at[what]
            self._remove(what)

    def _pause_s(self, attempts: int) -> float:
        longest = self._settings.retry_longest_s
        return min(longest, self._settings.retry_first_s * (1 << min(attempts, _MAX_DOUBLINGS)))

    def _write(self, row: TroubleRecord) -> None:
        try:
            with self._metadata.write_notes() as txn:
                txn.put(TROUBLES, row.what.encode(), row)
        except TierfsError as exc:  # a full disk, most likely: memory remembers, and the log has it
            log.warning("%s: cannot be written down: %s", row.what, exc)

    def _remove(self, what: str) -> None:
        try:
            with self._metadata.write_notes() as txn:
                txn.delete(TROUBLES.name, what.encode())
        except TierfsError as exc:
            log.warning("%s: its end cannot be written down: %s", what, exc)
