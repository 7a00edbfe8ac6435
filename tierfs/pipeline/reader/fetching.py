"""Fetches extents on an executor: reads ahead in threads, checks every block, and tries another copy if one fails.

Adjacent extents of one object are joined into one request; planning requests is pure. Shared state: a pool of threads
per Fetcher, which belongs to one task. A buffer is reused once the next bytes are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType

from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Pool
from tierfs.base.words.errors import (
    Archived,
    DataLoss,
    NotFound,
    PermissionDenied,
    TierfsError,
    Unavailable,
    unexpected,
)
from tierfs.base.words.names import as_word, printable
from tierfs.base.words.types import CRC_BLOCK_BYTES, ByteRange, PayloadEncoding, ReadPriority, SegmentId, Tier
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.ledger_records import EntryRun
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.pipeline.reader.buffers import BUFFERS
from tierfs.pipeline.reader.extents import Copy, Extent, PlaceConnections, ScannedStore, extents_of
from tierfs.pipeline.reader.in_flight import StepOf
from tierfs.pipeline.reader.task_reader import TaskReader, TaskRows, run_holding
from tierfs.reading.fetch.checked_blocks import BlockDiffers

# A gap between two extents up to this size is read along with them (a guess).
_GAP_BYTES = 2 * CRC_BLOCK_BYTES

# What a data frame can do about archived objects, and a command of tierfs cannot.
OR_WAIT = "; or set the option archived to wait, which looks first"
OR_WAIT_FIRST = "; or set archived to wait"


@dataclass(frozen=True, slots=True)
class WantedRequest:
    """Bytes of one extent for one reader."""

    owner: int
    """The reader's own number."""
    extent: Extent

    @property
    def blocks(self) -> ByteRange:
        """Return the bytes read for it from the first copy's object: whole blocks of checksums."""
        return self.extent.copies[0].grid.range


@dataclass(frozen=True, slots=True)
class Request:
    """One read of one object, for one or several extents, in order."""

    wanted: tuple[WantedRequest, ...]

    @property
    def first(self) -> Copy:
        """The copy to read, of the first extent; the other extents are in the same object."""
        return self.wanted[0].extent.copies[0]

    @property
    def range(self) -> ByteRange:
        """The object's bytes to read."""
        return ByteRange(self.wanted[0].blocks.start, max(piece.blocks.end for piece in self.wanted))


def requests_of(wanted: Iterable[WantedRequest], step_of: StepOf) -> Iterator[Request]:
    """Yield requests that together contain all wanted bytes, in order."""
    return (Request(tuple(run)) for run in ranges.runs(_cut(wanted, step_of), partial(_goes_with, step_of)))


def _cut(wanted: Iterable[WantedRequest], step_of: StepOf) -> Iterator[WantedRequest]:
    """Yield extents in steps that end on a line of the object's grid, so that no block is read twice."""
    for piece in wanted:
        copy, whole = piece.extent.copies[0], piece.extent.range
        at = whole.start
        while at < whole.end:
            step = step_of(copy.object.tier)
            held = copy.range.start + at - whole.start
            end = min(whole.end, at + step - held % step)
            yield WantedRequest(piece.owner, piece.extent.clipped(ByteRange(at, end)))
            at = end


def _goes_with(step_of: StepOf, waiting: Sequence[WantedRequest], piece: WantedRequest) -> bool:
    first, last, new = waiting[0], waiting[-1].extent.copies[0], piece.extent.copies[0]
    encoding = new.object.encoding
    if new.object.id != last.object.id or encoding.is_ledger:
        return False
    near = last.range.end <= new.range.start <= last.range.end + _GAP_BYTES
    # The task does not know the frames of a block that none of its extents touches.
    is_known = encoding is PayloadEncoding.RAW or piece.blocks.start <= waiting[-1].blocks.end
    return near and is_known and piece.blocks.end - first.blocks.start <= step_of(new.object.tier)


@dataclass(frozen=True, slots=True)
class ScannedLedger:
    """Rows of a ledger's entries that a part of a scan covers, in order."""

    segment_id: SegmentId
    runs: tuple[EntryRun, ...]
    start_entry_id: int = 0
    end_entry_id: int | None = None
    """Entries that are read, half-open: several empty ones begin at the same byte."""


@dataclass(frozen=True, slots=True)
class ScanSource:
    """A segment as a task reads it."""

    segment_id: SegmentId
    name: str
    priority: ReadPriority
    ledger: ScannedLedger | None = None
    facts: tuple[object, ...] = ()
    """Values of its record that the reader's rows have."""


@dataclass(frozen=True, slots=True)
class FetchedPiece:
    """Bytes of a segment that have arrived; `view` is valid until the next piece is asked for."""

    owner: int
    range: ByteRange
    view: memoryview


class ScanFetcher:
    """Reads for one task. Close it, or use it as a context manager."""

    def __init__(self, place: ScannedStore, connections: PlaceConnections, sources: Sequence[ScanSource]) -> None:
        """`sources`: the segments by number of owner; more may be added."""
        self._place = place
        self._connections = connections
        self._sources = sources
        self._sees_store = connections.sees(place)
        self._rows = TaskRows(self._run)
        self._reader = TaskReader(place, connections, self._rows)
        self._pool = Pool(self._reader.in_flight.threads, "tierfs-scan")

    def pieces(self, wanted: Iterable[WantedRequest]) -> Iterator[FetchedPiece]:
        """Yield all wanted bytes, in order. Raises Unavailable or DataLoss for bytes that no copy delivers."""
        in_flight = self._reader.in_flight
        requests = requests_of(map(self._reachable, wanted), in_flight.step_bytes)
        with_memory = ((request, BUFFERS.take(request.range.length_bytes)) for request in requests)
        for pieces, buffer in self._pool.in_order(self._fetch, with_memory, ahead=lambda: in_flight.ahead):
            yield from pieces
            BUFFERS.give(buffer)

    def read(self, owner: int, extents: Iterable[Extent]) -> bytes:
        """Return the joined bytes of extents; for small amounts."""
        return b"".join(bytes(piece.view) for piece in self.pieces(WantedRequest(owner, extent) for extent in extents))

    def close(self) -> None:
        """End the threads; idempotent."""
        self._reader.patience.end()
        self._pool.close()
        self._connections.adopt_etags(self._place)

    def __enter__(self) -> ScanFetcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _reachable(self, wanted: WantedRequest) -> WantedRequest:
        """Return the copies with those on another machine last, and note the frames of all."""
        copies = wanted.extent.copies
        self._note_frames(wanted.extent)
        if self._sees_store or len(copies) == 1:
            return wanted
        sorted_copies = tuple(sorted(copies, key=lambda copy: copy.object.tier is Tier.LOCAL))
        return replace(wanted, extent=replace(wanted.extent, copies=sorted_copies))

    def _note_frames(self, extent: Extent) -> None:
        for copy in extent.copies:
            if copy.frames:
                self._rows.add(copy.object, copy.frames)

    def _fetch(self, wanted: tuple[Request, bytearray]) -> tuple[list[FetchedPiece], bytearray]:
        """Fetch a request, in a thread. Copies that fail are replaced one extent at a time."""
        request, buffer = wanted
        asked = request.range
        view = memoryview(buffer)[: asked.length_bytes]
        failed: TierfsError | None = None
        try:
            record = request.first.object.record
            etag = self._reader.fill(record, asked.start, view)
            bad = [piece for piece in request.wanted if not piece.extent.copies[0].is_right(view, asked.start)]
            if not bad:
                self._reader.proved(record, etag)
        except Exception as exc:
            failed = unexpected(exc, printable(request.first.object.name))
            bad = list(request.wanted)
        pieces = []
        for piece in request.wanted:
            right = self._other(piece, failed) if piece in bad else piece.extent.copies[0].range.of(view, asked.start)
            pieces.append(FetchedPiece(piece.owner, piece.extent.range, right))
        return pieces, buffer

    def _other(self, wanted: WantedRequest, failed: TierfsError | None) -> memoryview:
        """Return one extent from the first good copy, or from its present place if all copies are gone.

        `failed`: how the request failed. An archived copy is not requested again. Waits for a server that answered
        before. Raises the first copy's error if none delivers.
        """
        source, copies = self._sources[wanted.owner], wanted.extent.copies
        archived: TierfsError | None = None
        if isinstance(failed, Archived):
            archived, copies = self._explained(failed, copies[0], source), copies[1:]
        while True:
            first = archived
            unanswered: Unavailable | None = None
            for copy in copies:
                try:
                    return self._whole(copy)
                except Exception as exc:
                    error = unexpected(exc, f"segment {printable(source.name)}")
                    first = first or self._explained(error, copy, source)
                    if isinstance(error, Unavailable) and self._reader.may_answer(copy.object.record):
                        unanswered = unanswered or error
            moved = self._moved(wanted)
            if moved is not None:
                return memoryview(b"".join(self._whole(extent.copies[0]) for extent in moved))
            assert first is not None
            if unanswered is None or not self._reader.patience.pause(unanswered):
                raise first from unanswered

    def _whole(self, copy: Copy) -> memoryview:
        """Return the bytes of one copy, proved right. Raises as VerifiedReader.read."""
        return self._reader.read(copy.object.record, copy.range, copy.grid, copy.own)

    def _moved(self, wanted: WantedRequest) -> list[Extent] | None:
        """Return the present copies of the bytes, or None: chunks may have moved since the scan was planned."""
        source = self._sources[wanted.owner]
        metadata = self._connections.metadata(self._place)
        if metadata is None:
            return None
        with metadata.read() as txn:
            segment = directories.segment(txn, source.segment_id)
            if segment is None or segment.start_offset > wanted.extent.range.start:
                return None
            present = list(extents_of(txn, segment, wanted.extent.range, source.priority))
        for extent in present:
            self._note_frames(extent)
        before = {copy.object.id for copy in wanted.extent.copies}
        return present if any(extent.copies[0].object.id not in before for extent in present) else None

    def _explained(self, error: TierfsError, copy: Copy, source: ScanSource) -> TierfsError:
        """Return the same error with the segment's name, and the remedy if bytes are on another machine."""
        name = printable(source.name)
        if copy.object.tier is Tier.LOCAL and isinstance(error, NotFound | PermissionDenied):
            return Unavailable(
                f"segment {name}: bytes from {copy.range.start} on are only in {self._place.path}, "
                f"which this executor cannot read: {error}",
                remedy="set the option tail to offload or cold-only, or make the directory visible to executors",
            )
        if isinstance(error, Archived):
            return Archived(
                f"segment {name}: {error}",
                remedy=f"run: tierfs thaw --wait {as_word(source.name)}; "
                "or set the option archived to wait, which looks first",
            )
        if isinstance(error, BlockDiffers):
            return DataLoss(f"segment {name}: {error}", remedy=error.remedy)
        if isinstance(error, NotFound) and (away := self._away(copy.object.record)):
            return Unavailable(
                f"segment {name}: this is not the store's cold tier: {away}",
                remedy="mount it, or check bucket and endpoint, and read again",
            )
        if isinstance(error, NotFound):
            return DataLoss(
                f"segment {name}: {error}", remedy="create the data frame again: the segment may have changed"
            )
        return error

    def _away(self, record: ObjectRecord) -> str:
        """Return why the place of an object is not the store's, such as a disk that is not mounted; or nothing."""
        from tierfs.engine.journal import store_mark  # at need: only an error asks for it

        if record.foreign:
            return ""
        try:
            owner = store_mark.read_store_id(self._connections.storage(self._place, record.location_id))
        except PermissionDenied:  # a key for some names alone
            return ""
        except (NotFound, Unavailable) as exc:
            return str(exc)
        return "" if owner == self._place.store_id else "it has no mark of this store"

    def _run(self, ledger: ObjectRecord, offset: int) -> EntryRun | None:
        for source in self._sources:
            if source.ledger is not None and source.segment_id == ledger.segment_id:
                run = run_holding(source.ledger.runs, offset)
                if run is not None:  # else another source, which covers other entries of the ledger, may have it
                    return run
        return None
