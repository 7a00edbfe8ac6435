"""SegmentView: the snapshot of one segment that an open handle reads from.

The chunks of a segment are loaded in windows, so that opening one of a million chunks costs as little as a small one.
A window begins small and doubles while reads continue where the last one ended. Windows of an unsealed segment are
dropped after a commit of any process; those of a sealed one stay until they are renewed.

`resolve`, which is pure, cuts a range into pieces with the chunks that can serve them, best first.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from contextlib import suppress
from operator import attrgetter

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names
from tierfs.base.words.errors import Fenced, TierfsError
from tierfs.base.words.types import ByteRange, ChunkState, SegmentId, Tier
from tierfs.engine.metadata import chains, directories, policies
from tierfs.engine.metadata.layout import WINDOW_CHUNKS, Layout, PlacedChunk, load
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore

# Chunks of each tier in the first window at a new place: a random read needs no more.
_FIRST_CHUNKS = 1

# Windows kept, 1 KiB each and more: random reads return to the same chunks.
_MAX_WINDOWS = 256

_start = attrgetter("window.start")
_piece_start = attrgetter("chunk.start_offset")


class SegmentView:
    """One segment by a snapshot. Creation raises NotFound for an unknown segment, later calls Fenced once deleted."""

    def __init__(self, metadata: MetadataStore, segment_id: SegmentId) -> None:
        self._metadata = metadata
        self.segment: SegmentRecord
        self._windows: list[Layout] = []
        """Ordered by their start."""
        self._chunks = _FIRST_CHUNKS
        with metadata.read() as txn:
            self._take(directories.segment_by_id(txn, segment_id), txn.id)

    @property
    def name(self) -> str:
        """The segment for messages, by its path."""
        return f"segment {names.printable(self.path)}"

    @property
    def path(self) -> str:
        """Name of the segment, in full while it is there."""
        path = self.segment.name
        with suppress(TierfsError), self._metadata.read() as txn:  # of a message, which goes on without it
            path = directories.path_of(txn, self.segment.parent_id, path)
        return path

    def cold_place(self, offset: int) -> str:
        """Return the place of a byte's only copy, in the cold tier, for messages; empty if it is not known.

        Of a byte with a local copy too it is not: the local disk may be what does not answer.
        """
        with suppress(TierfsError), self._metadata.read() as txn:
            chunk = next(chains.chunks(txn, self.segment.id, Tier.COLD, offset), None)
            local = next(chains.chunks(txn, self.segment.id, Tier.LOCAL, offset), None)
            if chunk is not None and chunk.object_id and (local is None or local.start_offset > offset):
                return policies.told(policies.location(txn, chains.object_of(txn, chunk).location_id))
        return ""

    def refresh(self) -> None:
        """Renew after a commit of any process, unless the segment cannot have changed."""
        if not self._sealed and self._metadata.last_transaction_id() != self._transaction_id:
            self.renew()

    def renew(self) -> None:
        """Forget all windows and read the segment's record again. Raises Fenced once deleted."""
        with self._metadata.read() as txn:
            segment = directories.segment(txn, self.segment.id)
            if segment is None:
                raise Fenced(f"{self.name} was deleted")
            self._take(segment, txn.id)

    def clamp(self, offset: int, size_bytes: int) -> ByteRange:
        """Return bytes [offset, offset + size), cut at the segment's end. Raises Fenced below its start offset."""
        segment = self.segment
        self.require(offset)
        return ByteRange(min(offset, segment.length), min(offset + size_bytes, segment.length))

    def require(self, offset: int) -> None:
        """Raise Fenced if the head with this byte was cut off."""
        if offset < self.segment.start_offset:
            raise self._gone(offset, self.segment.start_offset)

    def layout(self, offset: int) -> Layout:
        """Return the window that holds the byte at `offset`, which lies inside the segment."""
        index = bisect_right(self._windows, offset, key=_start) - 1
        if index >= 0 and offset < self._windows[index].window.end:
            return self._windows[index]
        return self._load(offset)

    def _load(self, offset: int) -> Layout:
        continues = any(layout.window.end == offset for layout in self._windows)
        self._chunks = min(WINDOW_CHUNKS, self._chunks * 2) if continues else _FIRST_CHUNKS
        was_sealed = self._sealed
        with self._metadata.read() as txn:
            unchanged = txn.id == self._transaction_id
            segment = self.segment if unchanged else directories.segment(txn, self.segment.id)
            if segment is None:
                raise Fenced(f"{self.name} was deleted")
            # A sealed segment is read as it was opened, as long as its chunks exist.
            layout = load(txn, self.segment if was_sealed else segment, offset, self._chunks)
            if not unchanged and not was_sealed:
                self._take(segment, txn.id)
        if offset < segment.start_offset and not (was_sealed and layout.holds(offset)):
            raise self._gone(offset, segment.start_offset)
        if len(self._windows) >= _MAX_WINDOWS:
            self._windows.clear()
        insort(self._windows, layout, key=_start)
        return layout

    def _gone(self, offset: int, start_offset: int) -> Fenced:
        return Fenced(f"{self.name} starts at {start_offset} now; bytes from {offset} on are deleted")

    def _take(self, segment: SegmentRecord, transaction_id: int) -> None:
        """Keep a record together with its transaction's number, and forget the windows of an older one.

        The number alone would make `refresh` take the older record for the newest until the next commit.
        """
        self.segment, self._transaction_id = segment, transaction_id
        self._sealed = segment.sealed
        self._windows.clear()


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes that every one of `candidates` holds; without a candidate, or with lost ones only, they are lost."""

    range: ByteRange
    candidates: tuple[PlacedChunk, ...]

    @property
    def lost(self) -> bool:
        """Whether no copy is known to exist; the object of a candidate may have been restored."""
        return not self.candidates or self.candidates[0].chunk.lost


def resolve(layout: Layout, wanted: ByteRange, tiers: Sequence[Tier]) -> Iterator[Piece]:
    """Cut `wanted`, which must lie in the layout's window, into pieces in offset order, each made when it is asked for.

    Candidates are in the order of `tiers`, suspect chunks after good ones and lost ones last. A piece
    ends where any tier's chunk begins or ends, so each candidate holds all of it.
    """
    if len(tiers) == 1 or not layout.local or not layout.cold:
        tiers = [tier for tier in tiers if layout.chunks(tier)]
    return _pieces(layout, wanted, tiers)


def _pieces(layout: Layout, wanted: ByteRange, tiers: Sequence[Tier]) -> Iterator[Piece]:
    at = wanted.start
    while at < wanted.end:
        end = wanted.end
        candidates: list[PlacedChunk] = []
        for tier in tiers:
            chunks = layout.chunks(tier)
            index = bisect_right(chunks, at, key=_piece_start) - 1
            holds = index >= 0 and chunks[index].range.end > at
            if holds:
                end = min(end, chunks[index].range.end)
                candidates.append(chunks[index])
            elif index + 1 < len(chunks):
                end = min(end, chunks[index + 1].range.start)
        yield Piece(ByteRange(at, end), _ranked(candidates))
        at = end


def _ranked(candidates: list[PlacedChunk]) -> tuple[PlacedChunk, ...]:
    if all(placed.chunk.state is ChunkState.GOOD for placed in candidates):
        return tuple(candidates)
    return tuple(sorted(candidates, key=lambda placed: placed.chunk.state))


def in_object(piece: ByteRange, placed: PlacedChunk) -> ByteRange:
    """Return the bytes of a piece as offsets in the object of one of its candidates."""
    shift = placed.chunk.object_offset - placed.chunk.start_offset
    return ByteRange(piece.start + shift, piece.end + shift)
