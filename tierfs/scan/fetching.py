"""Fetching on an executor: requests read ahead in threads, every block checked, another copy where one fails.

Shared state: a pool of threads per Fetcher, which one task has. A buffer is used again once the next bytes are asked
for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType

from tierfs.checksum import crc32c
from tierfs.chunkstore.protocol import ChunkStorage, EtagDiffers
from tierfs.errors import DataLoss, NotFound, PermissionDenied, TierfsError, Unavailable
from tierfs.metadata import directories
from tierfs.metadata.ledger_records import EntryRun
from tierfs.metadata.placements import HeldObject
from tierfs.metadata.records import ObjectRecord
from tierfs.names import printable
from tierfs.parallel import Pool
from tierfs.reading.payloads import Payloads
from tierfs.scan.buffers import BUFFERS
from tierfs.scan.extents import Copy, Extent, extents_of
from tierfs.scan.places import Connections, Place
from tierfs.scan.requests import Request, Wanted, requests_of
from tierfs.types import ByteRange, ReadPriority, SegmentId, Tier

_AHEAD = 3
"""Requests under way beside the one that is read: 32 MiB per task (measured: 2 are slower, 4 gain nothing)."""

_TRIES = 2
"""Reads of a copy whose bytes do not match: the way may have damaged them once."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Rows of a ledger's entries that a part of a scan covers, in order."""

    segment_id: SegmentId
    runs: tuple[EntryRun, ...]
    start_entry_id: int = 0
    end_entry_id: int | None = None
    """Entries that are read, half-open: several empty ones begin at the same byte."""


@dataclass(frozen=True, slots=True)
class Source:
    """A segment as a task reads it."""

    segment_id: SegmentId
    name: str
    priority: ReadPriority
    ledger: Ledger | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a segment that have arrived; `view` is valid until the next piece is asked for."""

    owner: int
    range: ByteRange
    view: memoryview


class Fetcher:
    """Reads for one task. Close it, or use it as a context manager."""

    def __init__(self, place: Place, connections: Connections, sources: Sequence[Source]) -> None:
        """`sources`: what the numbers of owners stand for; more may be added."""
        self._place = place
        self._connections = connections
        self._sources = sources
        self._payloads = Payloads(self._run)
        self._sees_store = connections.sees(place)
        self._pool = Pool(_AHEAD, "tierfs-scan")

    def pieces(self, wanted: Iterable[Wanted]) -> Iterator[Piece]:
        """All that is wanted, in order. Raises Unavailable or DataLoss for bytes that no copy delivers."""
        requests = requests_of(map(self._reachable, wanted))
        with_memory = ((request, BUFFERS.take(request.range.length_bytes)) for request in requests)
        for pieces, buffer in self._pool.in_order(self._fetch, with_memory, ahead=_AHEAD):
            yield from pieces
            BUFFERS.give(buffer)

    def read(self, owner: int, extents: Iterable[Extent]) -> bytes:
        """The bytes of extents, joined: for little."""
        return b"".join(bytes(piece.view) for piece in self.pieces(Wanted(owner, extent) for extent in extents))

    def close(self) -> None:
        """End the threads; idempotent."""
        self._pool.close()

    def __enter__(self) -> Fetcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _reachable(self, wanted: Wanted) -> Wanted:
        """Copies on another machine come last."""
        copies = wanted.extent.copies
        if self._sees_store or len(copies) == 1:
            return wanted
        sorted_copies = tuple(sorted(copies, key=lambda copy: copy.object.tier is Tier.LOCAL))
        return replace(wanted, extent=replace(wanted.extent, copies=sorted_copies))

    def _fetch(self, wanted: tuple[Request, bytearray]) -> tuple[list[Piece], bytearray]:
        """In a thread. Copies that fail are replaced one extent at a time."""
        request, buffer = wanted
        span = request.range
        view = memoryview(buffer)[: span.length_bytes]
        try:
            self._read(request.first.object, span.start, view)
            bad = [one for one in request.wanted if not _is_right(one.extent.copies[0], view, span.start)]
        except TierfsError:
            bad = list(request.wanted)
        pieces = [
            Piece(one.owner, one.extent.range, self._other(one) if one in bad else _part(one, view, span.start))
            for one in request.wanted
        ]
        return pieces, buffer

    def _other(self, wanted: Wanted) -> memoryview:
        """One extent, from the first copy that is right; from where it lies by now where all are gone."""
        first: TierfsError | None = None
        source = self._sources[wanted.owner]
        for copy in wanted.extent.copies:
            for _ in range(_TRIES):
                try:
                    return self._whole(copy, source)
                except TierfsError as exc:
                    first = first or self._explained(exc, copy, source)
                    if not isinstance(exc, DataLoss):
                        break
        moved = self._found_again(wanted)
        if moved is not None:
            return memoryview(b"".join(self._whole(extent.copies[0], source) for extent in moved))
        assert first is not None
        raise first

    def _whole(self, copy: Copy, source: Source) -> memoryview:
        """The bytes of one copy, proved right. Raises DataLoss, and what reading raises."""
        blocks = copy.grid.range
        view = memoryview(bytearray(blocks.length_bytes))
        self._read(copy.object, blocks.start, view)
        if not _is_right(copy, view, blocks.start):
            raise DataLoss(
                f"segment {printable(source.name)}: {printable(copy.object.name)} does not match its checksums "
                f"between bytes {blocks.start} and {blocks.end}",
                remedy="run: tierfs fsck --deep",
            )
        return view[copy.range.start - blocks.start :][: copy.range.length_bytes]

    def _found_again(self, wanted: Wanted) -> list[Extent] | None:
        """Where the bytes lie now: chunks may have moved since the scan was planned. None where that is not known."""
        source = self._sources[wanted.owner]
        metadata = self._connections.metadata(self._place)
        if metadata is None:
            return None
        with metadata.read() as txn:
            segment = directories.segment(txn, source.segment_id)
            if segment is None or segment.start_offset > wanted.extent.range.start:
                return None
            found = list(extents_of(txn, segment, wanted.extent.range, source.priority))
        before = {copy.object.id for copy in wanted.extent.copies}
        return found if any(extent.copies[0].object.id not in before for extent in found) else None

    def _explained(self, error: TierfsError, copy: Copy, source: Source) -> TierfsError:
        """The same with the segment's name; and what to do where bytes are on another machine."""
        name = printable(source.name)
        if copy.object.tier is Tier.LOCAL and isinstance(error, NotFound | PermissionDenied):
            return Unavailable(
                f"segment {name}: bytes from {copy.range.start} on are only in {self._place.path}, "
                f"which this executor cannot read: {error}",
                remedy="set the option tail to offload or to cold-only, or let executors see the store's directory",
            )
        if isinstance(error, NotFound):
            return DataLoss(
                f"segment {name}: {error}", remedy="make the data frame again: the segment may have changed since"
            )
        return error

    def _read(self, held: HeldObject, offset: int, view: memoryview) -> None:
        if held.tier is Tier.LOCAL:
            self._read_file(held.name, offset, view)
            return
        holder = held.record
        storage = self._connections.storage(self._place, holder.location_id)
        try:
            self._read_object(storage, holder, offset, view, holder.etag)
        except EtagDiffers:
            # A copied bucket has other etags; the checksums tell whether the bytes are the same.
            self._read_object(storage, holder, offset, view, None)

    def _read_object(
        self, storage: ChunkStorage, holder: ObjectRecord, offset: int, view: memoryview, etag: str | None
    ) -> None:
        self._payloads.read_into(storage, holder, offset, view, etag, None)

    def _read_file(self, name: str, offset: int, view: memoryview) -> None:
        self._connections.files(self._place).read_into(name, offset, view)

    def _run(self, holder: ObjectRecord, offset: int) -> EntryRun | None:
        for source in self._sources:
            if source.ledger is not None and source.segment_id == holder.segment_id:
                runs = source.ledger.runs
                index = bisect_right(runs, offset, key=lambda run: run.payload_start) - 1
                if index >= 0 and offset < runs[index].payload_end:
                    return runs[index]
        return None


def _part(wanted: Wanted, view: memoryview, origin: int) -> memoryview:
    held = wanted.extent.copies[0].range
    return view[held.start - origin : held.end - origin]


def _is_right(copy: Copy, view: memoryview, origin: int) -> bool:
    """Whether the bytes of a copy are, by their blocks, or by their own checksum where others share these blocks."""
    blocks = copy.grid.range
    bad, _ = copy.grid.first_bad(view, origin, 0, blocks.end)
    if bad is None:
        return True
    held = view[copy.range.start - origin : copy.range.end - origin]
    return copy.crc32c is not None and crc32c(held) == copy.crc32c
