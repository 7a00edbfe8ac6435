"""The archive by a command: plan the objects below a path, and move them, several at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Pool
from tierfs.base.bytes.progress import Meter, OnProgress
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.types import LocationId, SegmentId, Tier
from tierfs.engine.metadata import chains, directories
from tierfs.engine.metadata.directories import Named
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering.archive.due import ArchiveAction, ArchiveTarget, DueObjects, Movable
from tierfs.tiering.archive.move import ArchiveMove
from tierfs.tiering.objects import ChunksMoved

# Objects that move at once: the server copies, so these wait for it and not for bytes (a guess).
AT_ONCE = 8

# Chunks of a segment that one transaction reads: some 10 ms.
_WINDOW_CHUNKS = 500

# Actions that are planned before they are carried out: their records are in memory.
_PLANNED = 1000


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """Result of moving objects to another storage class, done or planned."""

    objects: int = 0
    bytes: int = 0
    """Stored bytes."""
    client_bytes: int = 0
    """Bytes of them that were uploaded from here; the server copied the rest."""
    shared: int = 0
    """Objects that stay, because segments elsewhere have parts of them."""
    journal_entries: int = 0


class ArchiveCommand:
    """One run of the command; used once."""

    def __init__(
        self,
        metadata: MetadataStore,
        move: ArchiveMove,
        location_id: LocationId,
        wanted: ArchiveTarget,
        report: OnProgress,
    ) -> None:
        self._metadata = metadata
        self._move = move
        self._location_id = location_id
        self._wanted = wanted
        self._meter = Meter(report, noun="object")
        self._lock = threading.Lock()
        self._error: TierfsError | None = None
        self._done = ArchiveReport()

    def would_do(self, pages: Iterable[Sequence[Named]]) -> ArchiveReport:
        """Report what `run` would do, and change nothing."""
        due = self._due()
        objects = size_bytes = 0
        for action in self._actions(pages, due):
            objects, size_bytes = objects + 1, size_bytes + action.object.stored_bytes
        return ArchiveReport(objects, size_bytes, shared=due.shared)

    def run(self, pages: Iterable[Sequence[Named]], publish: Callable[[], int]) -> ArchiveReport:
        """Move the objects; raise the first error after all were attempted.

        `publish` is called before, as only objects move that the journal names, and after each thousand.
        """
        entries, due = publish(), self._due()
        actions = self._actions(pages, due)
        while batch := list(islice(actions, _PLANNED)):
            self._meter.total_bytes += sum(action.object.stored_bytes for action in batch)
            self._meter.total_items += len(batch)
            with Pool(AT_ONCE, "tierfs-archive") as pool:
                pool.run(self._try, batch)
            entries += publish()
        if self._error is not None:
            raise self._error
        done = self._done
        return ArchiveReport(done.objects, done.bytes, done.client_bytes, due.shared, entries)

    def _due(self) -> DueObjects:
        with self._metadata.read() as txn:
            return DueObjects(Movable.of(txn, self._location_id), asked=True)

    def _actions(self, pages: Iterable[Sequence[Named]], due: DueObjects) -> Iterator[ArchiveAction]:
        for page in pages:
            for name, segment_id in page:
                yield from met_in(self._metadata, due, segment_id, name, self._wanted)

    def _try(self, action: ArchiveAction) -> None:
        try:
            done = self._move.run(action)
        except ChunksMoved:  # removed or joined meanwhile
            return
        except TierfsError as exc:
            with self._lock:
                self._error = self._error or exc
            return
        with self._lock:
            sums = self._done
            client_bytes = sums.client_bytes + done.client_bytes
            self._done = ArchiveReport(sums.objects + 1, sums.bytes + done.bytes, client_bytes)
        self._meter(done.bytes, action.path, 1)


def met_in(
    metadata: MetadataStore, due: DueObjects, segment_id: SegmentId, path: str, wanted: ArchiveTarget
) -> Iterator[ArchiveAction]:
    """Let the cold chunks of a segment pass by, in steps of one transaction; yield the objects that are due."""
    at: int | None = 0
    while at is not None:
        with metadata.read() as txn:
            segment = directories.living_segment(txn, segment_id)
            if segment is None or not segment.cold.count:
                return
            placed, at = _window(txn, segment, at)
        yield from due.met(segment_id, path, wanted, placed)


def _window(txn: ReadTransaction, segment: SegmentRecord, start: int) -> tuple[list[PlacedChunk], int | None]:
    """Return cold chunks of a segment that start at an offset or after, and where the next ones do; None at the end."""
    placed: list[PlacedChunk] = []
    for number, chunk in enumerate(chains.starting_from(txn, segment.id, Tier.COLD, start)):
        if number >= _WINDOW_CHUNKS:
            return placed, chunk.start_offset
        if not chunk.lost:
            placed.append(PlacedChunk(chunk, chains.object_of(txn, chunk)))
    return placed, None
