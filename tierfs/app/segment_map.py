"""The map of a segment: which of its bytes are in which tier, as runs, and as the cells of a bar over one scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

from tierfs.app.describe import is_active
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import ByteRange, ChunkState, Tier
from tierfs.engine.metadata import chains
from tierfs.engine.metadata.records import ChunkRecord, SegmentRecord
from tierfs.engine.metadata.transaction import ReadTransaction


class Mark(IntEnum):
    """Content of a cell. The greatest mark wins in a cell of several runs."""

    NOTHING = 0
    GOOD = 1
    ACTIVE = 2
    SUSPECT = 3
    LOST = 4


_MARKS_BY_STATE = {ChunkState.GOOD: Mark.GOOD, ChunkState.SUSPECT: Mark.SUSPECT, ChunkState.LOST: Mark.LOST}


@dataclass(frozen=True, slots=True)
class BarRun:
    """A run of bytes with one mark."""

    range: ByteRange
    mark: Mark
    owner: int = 0
    """Identifies the counted thing that the run belongs to."""


class Bar:
    """The cells of one tier; runs are painted in any order."""

    def __init__(self, window: ByteRange, cells: int) -> None:
        self._window = window
        self._cells = [Mark.NOTHING] * cells

    def paint(self, run: BarRun) -> None:
        """Mark every cell that contains a byte of the run, to keep the smallest run visible."""
        visible = run.range.intersect(self._window)
        if not visible:
            return
        count, length, origin = len(self._cells), self._window.length_bytes, self._window.start
        first = (visible.start - origin) * count // length
        end = -(-(visible.end - origin) * count // length)
        for cell in range(first, end):
            self._cells[cell] = max(self._cells[cell], run.mark)

    @property
    def marks(self) -> frozenset[Mark]:
        """The visible marks."""
        return frozenset(self._cells)

    @property
    def cells(self) -> Sequence[Mark]:
        """The mark of each cell."""
        return self._cells


def runs(txn: ReadTransaction, record: SegmentRecord, tier: Tier) -> Iterator[BarRun]:
    """Yield the runs of one tier in the order of offsets; an owner is an object of the cold tier, or a local chunk."""
    for chunk in chains.chunks(txn, record.id, tier, record.start_offset):
        yield _run(record, tier, chunk)


def bar_of(txn: ReadTransaction, record: SegmentRecord, tier: Tier, cells: int, most_chunks: int) -> Bar:
    """Return the bar of one tier; of more chunks than `most_chunks`, only the one at the start of each cell is read."""
    bar = Bar(record.range, cells)
    if record.tier_state(tier).count <= most_chunks:
        for run in runs(txn, record, tier):
            bar.paint(run)
        return bar
    for cell in range(cells):
        offset = record.start_offset + record.range.length_bytes * cell // cells
        chunk = chains.chunk_at(txn, record.id, tier, offset)
        if chunk is not None and chunk.end_offset > offset:
            run = _run(record, tier, chunk)
            bar.paint(BarRun(ByteRange(offset, offset + 1), run.mark, run.owner))
    return bar


def _run(record: SegmentRecord, tier: Tier, chunk: ChunkRecord) -> BarRun:
    owner = chunk.object_id if tier is Tier.COLD else chunk.start_offset
    return BarRun(chunk.range, _mark(record, tier, chunk), owner)


def _mark(record: SegmentRecord, tier: Tier, chunk: ChunkRecord) -> Mark:
    active = chunk.state is ChunkState.GOOD and is_active(record, tier, chunk)
    return Mark.ACTIVE if active else _MARKS_BY_STATE[chunk.state]
