"""Failures: background work that failed, when it is tried again, and since when. Listed, never dropped.

Rows outlive the holder, so that `status` shows them from any process and a new holder keeps the pauses.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from tierfs.base.options.config import BackgroundSettings
from tierfs.base.words.errors import DataLoss, NotFound, TierfsError
from tierfs.base.words.types import SegmentId
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.holder_records import FailureRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import FAILURES

if TYPE_CHECKING:
    from tierfs.tiering.offload_queue import ObjectKey
    from tierfs.tiering.snapshot import Snapshots

log = logging.getLogger(__name__)

_MAX_DOUBLINGS = 20
_MS_PER_S = 1000

_OWN_REASONS = {DataLoss.__name__, NotFound.__name__}

# Tasks at one object, and at one segment.
OFFLOAD, EVICT = "offload", "evict"
# Names failures of a whole pack, as while the cold tier is away: all packs then wait, under one name.
PACK = "pack"
# Names the check whether the cold tier is there and ours: nothing is uploaded before it succeeds.
OWNER = "owner"
# Names an upload for which the quota of the cold tier leaves no room: others wait too.
QUOTA = "quota"
# Tasks at the whole store: naming what is cold in the bucket's journal, and trusting the clock.
PUBLISH = "publish"
CLOCKS = "timed deletions"

LOOK = "look"
# Segments that a look could not read and that are listed by name: one damaged policy fails those of all below its
# directory.
_MOST_LISTED = 50

_OTHERS = f"{LOOK} others"


def of_segment(task: str, segment_id: SegmentId) -> str:
    """Name the failures of a task at one segment."""
    return f"{task} {segment_id}"


def of_object(key: ObjectKey) -> str:
    """Name the failures of an upload."""
    segment_id, start = key
    return f"{of_segment(OFFLOAD, segment_id)} {start}"


class Failures:
    """The failures of one store, for its holder. Thread-safe: each call is one transaction or none."""

    def __init__(self, metadata: MetadataStore, settings: BackgroundSettings) -> None:
        self._metadata = metadata
        self._settings = settings
        self._lock = threading.Lock()
        """Held while `_rows` is looked at or changed, never during a commit."""
        self.ended = 0
        """Number of times at which everything that failed might be tried at once: with each failure that ended."""
        with metadata.read() as txn:
            self._rows = {row.what: row for _, row in txn.scan(FAILURES)}
        self._ended_at = dict.fromkeys(self._rows, 0)
        """Per row the value of `ended` when it was last written: its pause ends when the next failure does."""

    def has(self, what: str) -> bool:
        """Return whether this work failed the last time."""
        return what in self._rows

    def bytes_of(self, what: str) -> int:
        """Return the bytes that a failure is about; 0 without one."""
        with self._lock:
            row = self._rows.get(what)
        return 0 if row is None else row.bytes

    def may_try(self, what: str) -> bool:
        """Return whether this work never failed, or its pause is over."""
        next_try_ms = self.next_try_ms(what)
        return not next_try_ms or next_try_ms <= self._metadata.clock.now_ms()

    def next_try_ms(self, what: str) -> int:
        """Return when the pause of work that failed is over; 0 for work that did not.

        A pause longer than the longest was written by a clock that has been set back since: it is over.
        """
        with self._lock:
            row = self._rows.get(what)
            if row is None or self._ended_at[what] < self.ended:
                return 0
        latest_ms = self._metadata.clock.now_ms() + round(self._settings.retry_longest_s * _MS_PER_S)
        return 0 if row.next_try_ms > latest_ms else row.next_try_ms

    def is_stuck(self, what: str) -> bool:
        """Return whether this work failed for a reason of its own, a damaged or missing file: others may work."""
        with self._lock:
            row = self._rows.get(what)
        return row is not None and row.error_kind in _OWN_REASONS

    def failed(self, what: str, error: Exception, *, name: str = "", size_bytes: int = 0) -> None:
        """Note a failure and when to try again. The first of a row is a warning in the log.

        Without a `name` for people the row gets the path of the segment, if `what` names one.
        """
        name = name or self._path_of(what)
        now_ms = self._metadata.clock.now_ms()
        with self._lock:
            old = self._rows.get(what) or FailureRecord(what=what, since_ms=now_ms)
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
        level = logging.DEBUG if old.attempts else logging.WARNING
        # Anything but our own errors is a defect of tierfs: its traceback is all that tells where.
        trace = None if isinstance(error, TierfsError) else error
        log.log(level, "%s failed: %s", what, error, exc_info=trace)
        self._write(row)

    def retry_all(self) -> None:
        """Let all that failed be tried at once."""
        with self._lock:
            self.ended += 1

    def passed(self, what: str) -> None:
        """Note a success: drop the row, and let all others be tried at once. Costs nothing without a row."""
        with self._lock:
            row = self._rows.pop(what, None)
            if row is None:
                return
            del self._ended_at[what]
            self.ended += 1
        log.info("%s works again after %d failures", what, row.attempts)
        self._remove(what)

    def retain(self, prefix: str, is_wanted: Callable[[str], bool], *, keep_damage: bool = True) -> None:
        """Drop rows beginning with `prefix` that are not wanted any more; damage stays listed if `keep_damage`."""
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

    def retain_segments(self, task: str, is_wanted: Callable[[SegmentId], bool], *, keep_damage: bool = True) -> None:
        """Drop a task's rows of segments that are not wanted any more; see `retain`."""
        self.retain(f"{task} ", lambda what: is_wanted(_segment_of(what)), keep_damage=keep_damage)

    def _pause_s(self, attempts: int) -> float:
        longest = self._settings.retry_longest_s
        return min(longest, self._settings.retry_first_s * (1 << min(attempts, _MAX_DOUBLINGS)))

    def _path_of(self, what: str) -> str:
        """Return the path of a row's segment; "" without one, when it is gone, or when its own records are damaged."""
        try:
            with self._metadata.read() as txn:
                segment = directories.segment(txn, _segment_of(what))
                return "" if segment is None else directories.path_of(txn, segment.parent_id, segment.name)
        except Exception:  # the failure that is being listed says more
            return ""

    def _write(self, row: FailureRecord) -> None:
        try:
            with self._metadata.write_notes() as txn:
                if self._rows.get(row.what) is row:  # else it failed again, or passed, and that is written already
                    txn.put(FAILURES, row.what.encode(), row)
        except TierfsError as exc:  # a full disk, most likely: memory remembers, and the log has it
            log.warning("%s: cannot record the failure: %s", row.what, exc)

    def _remove(self, what: str) -> None:
        try:
            with self._metadata.write_notes() as txn:
                if what not in self._rows:  # else it failed again, and that is written already
                    txn.delete(FAILURES.name, what.encode())
        except TierfsError as exc:
            log.warning("%s: cannot record its end: %s", what, exc)


def look(
    snapshots: Snapshots, failures: Failures, first: Iterable[SegmentId] = (), *, slice_s: float | None = None
) -> bool:
    """Refresh the snapshots, with failed segments whose pause is over; return whether all that changed was read.

    Segments that cannot be read are listed by name, and forgotten once they work again, damage as well.
    """
    snapshots.try_again(lambda segment_id: failures.may_try(_row_of(segment_id, failures)))
    complete = snapshots.refresh(first, slice_s=slice_s)
    listed = sum(failures.has(of_segment(LOOK, segment_id)) for segment_id in snapshots.failed)
    others: list[Exception] = []
    for segment_id, error in snapshots.failed.items():
        what = of_segment(LOOK, segment_id)
        if not failures.has(what) and listed >= _MOST_LISTED:
            others.append(error)
        elif failures.may_try(what):
            listed += not failures.has(what)
            failures.failed(what, error)
    if others and failures.may_try(_OTHERS):
        failures.failed(_OTHERS, others[0], name=f"at {len(others):,} other segments")
    if complete:
        failed = {_row_of(segment_id, failures) for segment_id in snapshots.failed}
        failures.retain(f"{LOOK} ", failed.__contains__, keep_damage=False)
    return complete


def _row_of(segment_id: SegmentId, failures: Failures) -> str:
    """Return the row that a segment is listed in: its own, or the common one of those too many for a list."""
    own = of_segment(LOOK, segment_id)
    return own if failures.has(own) or not failures.has(_OTHERS) else _OTHERS


def _segment_of(what: str) -> SegmentId:
    """Parse the segment in the name of its failures. Raises LookupError, ValueError for failures of no single one."""
    return SegmentId(int(what.split()[1]))
