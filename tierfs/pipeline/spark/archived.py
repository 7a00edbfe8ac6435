"""Archived objects that a read needs: an error before tasks start, or a wait until they can be read.

Tasks cannot wait: Spark repeats those that fail, and each try would request the same objects again. So the driver looks
before it plans. Objects that a rule of the bucket archived are in no record; a read that waits looks at all of its
objects, any other one at those that are recorded as archived.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.system.deadlines import Deadline
from tierfs.base.words import units
from tierfs.base.words.errors import Archived, InvalidRequest, Unavailable
from tierfs.base.words.names import as_word, printable
from tierfs.base.words.types import ObjectId, Tier
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.pipeline.reader.fetching import OR_WAIT_FIRST
from tierfs.pipeline.spark.row_types import RowType

if TYPE_CHECKING:
    from tierfs.app.store import Store
    from tierfs.app.thaw import ThawReport
    from tierfs.base.bytes.progress import Progress
    from tierfs.pipeline.reader.selection import PinnedSegment

log = logging.getLogger(__name__)

# S3's slowest way back from its deepest class takes two days.
MOST_WAIT_S = 48 * 3600.0

# Least time between two lines of the log about objects that come back (a guess).
_REPORT_S = 60.0

# Objects that a query remembers to have seen back: it forgets them all at once. A guess: 8 MiB.
_MOST_REMEMBERED = 100_000

# The column whose bytes are fetched; without it, rows of these types come from the metadata.
_FETCHED = {RowType.BYTES: "content", RowType.ENTRIES: "payload"}


class WhenArchived(StrEnum):
    """What a read does about bytes that must be restored first."""

    ERROR = "error"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class ArchiveWait:
    """The options of a read about archived objects."""

    waits: bool = False
    most_s: float = MOST_WAIT_S
    days: int = 0
    """Days for which objects are requested back; 0: they are not."""

    @classmethod
    def of(cls, when: WhenArchived, most_s: float | None, days: int | None) -> ArchiveWait:
        """Raises InvalidRequest for an option that has no effect."""
        waits = when is WhenArchived.WAIT
        for name, value in (("thawDays", days), ("archivedTimeout", most_s)):
            if value is not None and not waits:
                raise InvalidRequest(f"{name} has no effect without archived = wait", remedy="set both, or neither")
        return cls(waits, MOST_WAIT_S if most_s is None else most_s, days or 0)


class ArchivedObjects:
    """The archived objects of one read or stream. Used by the driver's thread."""

    def __init__(self, store: Store, wait: ArchiveWait, clock: Clock | None = None) -> None:
        self._store = store
        self._wait = wait
        self._clock = clock or SystemClock()
        self._readable = set[ObjectId]()
        """Objects that were seen to be back."""
        self._reported_s = 0.0

    def require_readable(self, pinned: Iterable[PinnedSegment]) -> bool:
        """Wait until all objects of a plan can be read, if the read waits; return whether it had to wait.

        After a wait objects may have moved, so the caller plans again. Raises Archived for what is not back and not
        waited for, was not requested, or did not come back in time.
        """
        with self._store.metadata.read() as txn:
            if not self._wait.waits and txn.sums is not None and not txn.sums.archived_objects:
                return False
            unread = self._unread(txn, pinned)
        if not unread:
            return False
        deadline = Deadline.after(self._wait.most_s, "archivedTimeout", self._clock)
        try:
            with deadline.in_force():
                waited = self._look_at(unread, deadline)
        except Archived as exc:
            raise self._explained(exc) from None
        except Unavailable as exc:
            if not deadline.is_over:
                raise
            raise Archived(
                f"archived objects of {_some(unread)} are not back after {deadline.limit}",
                remedy="run the read again: requested objects continue to come back",
            ) from exc
        self._remember(unread)
        return waited

    def _unread(self, txn: ReadTransaction, pinned: Iterable[PinnedSegment]) -> list[tuple[ObjectRecord, str]]:
        """Return the objects to look at, with the name of a segment that needs each."""
        names: dict[ObjectId, str] = {}
        for pin in pinned:
            for extent in pin.extents:
                copies = [copy.object for copy in extent.copies]
                if copies and all(copy.tier is Tier.COLD for copy in copies):
                    names.setdefault(copies[0].id, pin.path)
        from tierfs.base.words.storage_classes import is_restored_first  # no store without an archive needs it

        unread = []
        for object_id in sorted(names.keys() - self._readable):
            record = txn.get(OBJECTS, tables.u64(object_id))
            if record is not None and (self._wait.waits or is_restored_first(record.archive_class)):
                unread.append((record, names[object_id]))
        return unread

    def _look_at(self, unread: Sequence[tuple[ObjectRecord, str]], deadline: Deadline) -> bool:
        from tierfs.app.thaw import Thawing  # no other read needs it

        thawing = Thawing(self._store, (), self._report, objects=unread)
        seen = thawing.look(days=self._wait.days)
        if seen.is_ready:
            return False
        waiting = f"{units.count(seen.objects - seen.ready, 'archived object')} of {_some(unread)}"
        if not self._wait.waits:
            raise Archived(
                f"{waiting}: requested, but not back yet", remedy=f"run: tierfs thaw --wait {as_word(unread[0][1])}"
            )
        log.warning("waiting up to %s for %s: %s", deadline.limit, waiting, _size(seen))
        self._reported_s = self._clock.monotonic_s()
        thawing.wait()
        log.warning("all archived objects of the read are back")
        return True

    def _explained(self, error: Archived) -> Archived:
        remedy = error.remedy or ""
        if not self._wait.waits:
            remedy += OR_WAIT_FIRST
        elif not self._wait.days:
            remedy += "; or set thawDays, which requests them back"
        return Archived(str(error), remedy=remedy)

    def _report(self, progress: Progress) -> None:
        """Log the objects that are back, now and then."""
        now_s = self._clock.monotonic_s()
        if not self._reported_s or now_s - self._reported_s < _REPORT_S:
            return
        self._reported_s = now_s
        log.warning("%d of %d archived objects are back", progress.done_items, progress.total_items)

    def _remember(self, unread: Iterable[tuple[ObjectRecord, str]]) -> None:
        if len(self._readable) > _MOST_REMEMBERED:
            self._readable.clear()
        self._readable.update(record.id for record, _ in unread)


def reads_bytes(row_type: RowType, columns: Iterable[str]) -> bool:
    """Return whether rows with these columns need bytes of objects, and not the metadata alone."""
    fetched = _FETCHED.get(row_type)
    return row_type is not RowType.SEGMENTS and (fetched is None or fetched in {name.lower() for name in columns})


def _some(unread: Iterable[tuple[ObjectRecord, str]]) -> str:
    """Return the name of one segment, and how many others there are."""
    first, *others = sorted({segment for _, segment in unread})
    return printable(first) + (f" and {units.count(len(others), 'other segment')}" if others else "")


def _size(seen: ThawReport) -> str:
    return f"{units.size(seen.bytes - seen.ready_bytes)} are on the way back"
