"""What one `evict` command looks at, and asks for: segments in pages, so that any number of them takes the same memory.

An active chunk that is wholly cold, as appends with ack=cold make it, is ended first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.bytes.parallel import Attempts
from tierfs.base.bytes.progress import Meter, OnProgress
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import ReadPriority, SegmentId
from tierfs.engine.metadata import directories, sums, tables
from tierfs.engine.metadata.directories import Named
from tierfs.engine.metadata.policies import PolicyCache
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering.evict import MOST_SEGMENTS, Evicted, Outcome, would_evict
from tierfs.tiering.part import PartEnds
from tierfs.tiering.policy import EvictAction

# Cold at any time, also at one that a wrong clock wrote: an explicit command waives the lag and goes by no clock.
_WHENEVER_MS = (1 << 63) - 1

# What a file takes of a disk however short it is: a block of nearly every filesystem.
_LEAST_FILE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class EvictReport:
    """The bytes that an evict dropped and kept, with the reasons."""

    chunks: int = 0
    bytes: int = 0
    kept_bytes: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    """Reason -> bytes kept for it."""

    def plus(self, local_bytes: int, dropped: Evicted, reason: str) -> EvictReport:
        """Add one more segment, which had so many bytes here."""
        kept = local_bytes - dropped.bytes
        reasons = dict(self.reasons)
        if kept:
            reasons[reason] = reasons.get(reason, 0) + kept
        return EvictReport(self.chunks + dropped.chunks, self.bytes + dropped.bytes, self.kept_bytes + kept, reasons)


@dataclass(frozen=True, slots=True)
class LocalSegment:
    """A segment with local bytes."""

    name: str
    id: SegmentId
    local_bytes: int
    end: int | None
    """Up to where its chunks go; None: all of them."""
    ends_active: bool
    """Whether its active chunk can go, and has to end first."""
    stays: bool
    """Whether its policy keeps its local bytes."""
    why_kept: str

    @property
    def action(self) -> EvictAction:
        """Drop what of it is cold."""
        return EvictAction(self.id, _WHENEVER_MS, self.end)


def of_bytes(segments: Iterator[LocalSegment], least_bytes: int) -> Iterator[LocalSegment]:
    """Take segments whose files take so many bytes of the disk together, or as many as one commit takes."""
    for segment in islice(segments, MOST_SEGMENTS):
        yield segment
        least_bytes -= 0 if segment.stays else max(segment.local_bytes, _LEAST_FILE_BYTES)
        if least_bytes <= 0:
            return


class EvictCommand:
    """The segments of one command; `ends`: chunks after these offsets stay, and so do segments that are not in it."""

    def __init__(
        self,
        metadata: MetadataStore,
        roll: Callable[[SegmentId], object],
        attempts: Attempts,
        *,
        force: bool = False,
        ends: PartEnds | None = None,
    ) -> None:
        """`roll` ends an active chunk; `attempts` gets the error of each segment, which keeps no other.

        Without `force`, segments under an effective `local-only` priority are kept.
        """
        self._metadata = metadata
        self._roll = roll
        self._force = force
        self._ends = ends
        self._policies = PolicyCache()
        self._attempts = attempts

    def meter(self, path: str, report: OnProgress) -> Meter:
        """Return a meter for all segments at or below a path, and their local bytes."""
        listed, count, local_bytes = Meter(report, noun="listed segment"), 0, 0
        for page in directories.pages(self._metadata.read, path):
            with self._metadata.read() as txn:
                local_bytes += sum(row.local.bytes for _, row in self._rows(txn, page))
            count += len(page)
            listed(0, page[-1][0] if page else path, len(page))
        return Meter(report, local_bytes, count)

    def look(self, page: Iterable[Named]) -> list[LocalSegment]:
        """Return those of some segments that have local bytes."""
        with self._metadata.read() as txn:
            return [self._of(txn, name, row) for (name, _), row in self._rows(txn, page) if row.local.count]

    def actions(self, segments: Iterable[LocalSegment]) -> Iterator[EvictAction]:
        """Yield what is to be evicted; ends active chunks on the way."""
        for segment in segments:
            if segment.ends_active and not segment.stays:
                with self._attempts.step():
                    self._roll(segment.id)
            if not segment.stays:
                yield segment.action

    def succeeded(self, outcomes: Iterable[tuple[EvictAction, Outcome]]) -> dict[SegmentId, Evicted]:
        """Return what was dropped, by segment."""
        done: dict[SegmentId, Evicted] = {}
        for action, outcome in outcomes:
            if isinstance(outcome, Evicted):
                done[action.segment_id] = outcome
            else:
                self._attempts.note(outcome)
        return done

    def would_do(self, segments: Sequence[LocalSegment]) -> Iterator[tuple[EvictAction, Evicted]]:
        """Yield what the actions would drop now; changes nothing."""
        with self._metadata.read() as txn:
            for segment in segments:
                record = None if segment.stays else directories.segment(txn, segment.id)
                if record is not None:
                    yield segment.action, would_evict(txn, record, segment.action, ended=segment.ends_active)

    def _of(self, txn: ReadTransaction, name: str, row: Any) -> LocalSegment:
        end = None if self._ends is None else self._ends.of(row)
        alone_bytes, _ = sums.here_alone(row)
        stays = not self._force and self._policies.of(txn, row).values.read_priority is ReadPriority.LOCAL_ONLY
        why = "not cold yet" if end is None else "the newest bytes, or not cold yet"
        return LocalSegment(
            name=name,
            id=SegmentId(row.id),
            local_bytes=row.local.bytes,
            end=end,
            ends_active=row.active and not alone_bytes and (end is None or end >= row.length),
            stays=stays,
            why_kept="read priority is local-only (--force overrides)" if stays else why,
        )

    def _rows(self, txn: ReadTransaction, page: Iterable[Named]) -> Iterator[tuple[Named, Any]]:
        """Yield the rows of segments that are still there, as messages: decoding each costs ten times as much."""
        for named in page:
            try:
                row = txn.message(SEGMENTS, tables.u64(named[1]))
            except DataLoss as exc:
                self._attempts.note(exc)
                continue
            if row is not None:
                yield named, row
