"""The one place between storage and reader: ranges of an object's plain bytes become ranges of the stored ones.

The reader sees an object of plain bytes only: ranges, checksums and caches use offsets in it. Plain bytes of a ledger
lie between frames (payloads.py), those of a compressed object are in frames of zstd (frames.py). Rows of the metadata
locate them in the stored object; nothing is parsed. The rows used last are kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.metrics import MetricName, MetricSink, NullMetrics
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.names import printable
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ByteRange, ObjectId, PayloadEncoding, SegmentId
from tierfs.engine.chunkstore.protocol import ChunkStorage, OnReceived
from tierfs.engine.metadata import checksums, entries
from tierfs.engine.metadata.ledger_records import EntryRun
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.reading.payloads import PayloadRun, PayloadShare
from tierfs.reading.scratch import Scratch

if TYPE_CHECKING:
    from tierfs.engine.frames.frame_map import FrameMap
    from tierfs.reading.frames import FrameShare

# Of up to 4096 entries, 32 KiB each: 8 MiB of memory for a million entries.
_KEPT_RUNS = 256

# Of 256 frames, 4 KiB each: 4 MiB of memory for 32 GiB of plain bytes.
_KEPT_MAPS = 1024

# A gap in the stored object, such as the padding of a block, up to which one request is cheaper (a guess).
_WORTH_A_REQUEST_BYTES = MIB

# Limit of one request to a ledger's object: entries of a few bytes are mostly frames.
_MOST_SCRATCH_BYTES = 16 * MIB

# Stored bytes that the loop asks for even for a few plain ones: those of two frames, which a block may be in.
_MOST_SMALL_BYTES = 2 * CRC_BLOCK_BYTES

# Limit of one request for frames that do not fit into the memory of their plain bytes, as they do not shrink.
_MOST_OWN_SCRATCH_BYTES = MIB


class FindRows(Protocol):
    """Finds the rows that locate plain bytes. Both raise NotFound for an object that was replaced or deleted since."""

    def entries(self, record: ObjectRecord, offset: int) -> EntryRun | None:
        """Return the row that holds a payload byte of a ledger, by its object and the byte's offset in the segment."""
        ...

    def frames(self, record: ObjectRecord, offset: int) -> FrameMap | None:
        """Return the frames of the row that holds a plain byte of a compressed object."""
        ...


class StoreRows:
    """Rows of a store's metadata."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata

    def entries(self, record: ObjectRecord, offset: int) -> EntryRun | None:
        """See FindRows."""
        with self._metadata.read() as txn:
            run = entries.run_holding(txn, SegmentId(record.segment_id), offset)
            if run is None:
                checksums.require_object(txn, record.id)
        return run

    def frames(self, record: ObjectRecord, offset: int) -> FrameMap | None:
        """See FindRows."""
        from tierfs.engine.metadata import frame_rows  # readers of plain objects need none

        with self._metadata.read() as txn:
            run = checksums.run_at(txn, record.id, offset)
            if run is None:
                checksums.require_object(txn, record.id)
        return None if run is None else frame_rows.frames_of(run, record.length)


class NoRows:
    """Of a reader of plain objects only."""

    def entries(self, record: ObjectRecord, offset: int) -> EntryRun | None:
        """See FindRows."""
        return None

    def frames(self, record: ObjectRecord, offset: int) -> FrameMap | None:
        """See FindRows."""
        return None


class PlainBytes:
    """The positions of plain bytes as one process knows them. Thread-safe."""

    def __init__(self, rows: FindRows, metrics: MetricSink | None = None) -> None:
        self._rows = rows
        self._count = _Counts(metrics or NullMetrics())
        self._lock = threading.Lock()
        self._runs: dict[ObjectId, OrderedDict[int, PayloadRun]] = {}
        self._order: OrderedDict[tuple[ObjectId, int], None] = OrderedDict()
        self._maps: OrderedDict[tuple[ObjectId, int], FrameMap] = OrderedDict()
        self._scratch = threading.local()

    def read_into(
        self,
        storage: ChunkStorage,
        record: ObjectRecord,
        offset: int,
        view: memoryview,
        if_match: str | None,
        progress: OnReceived | None,
    ) -> None:
        """Fill `view` with an object's plain bytes from `offset`; see ChunkStorage.read_into.

        Frames that cannot be unpacked are zeros: the caller compares the checksums. Raises DataLoss if the positions of
        the wanted bytes are unknown, NotFound if they are because the object was replaced or deleted.
        """
        if record.encoding is PayloadEncoding.RAW:
            storage.read_into(record.name, offset, view, if_match=if_match, progress=progress)
            return
        start = 0
        for shares, scratch in self._requests(record, offset, view):
            end = start + sum(share.length_bytes for share in shares)
            taker = _Taker(shares, scratch, view[start:end], self._count, start, progress)
            # Without an etag a retry may read another version: take the bytes only when all have arrived.
            taken = None if if_match is None else taker.arrived
            storage.read_into(record.name, scratch.origin, scratch.view, if_match=if_match, progress=taken)
            taker.finish()
            start = end

    def frame_shares(self, record: ObjectRecord, wanted: ByteRange) -> Iterator[FrameShare]:
        """Yield the shares of the rows in plain bytes of a compressed object, in order. Raises as `read_into`."""
        from tierfs.reading.frames import FrameShare  # readers of plain objects need none

        at = wanted.start
        while at < wanted.end:
            frames = self._frames(record, at)
            if frames is None or not frames.plain.contains(ByteRange(at, at + 1)):
                raise DataLoss(
                    f"{printable(record.name)}: the frame of the byte at {at} is unknown",
                    remedy="run: tierfs check --repair",
                )
            end = min(wanted.end, frames.plain.end)
            yield FrameShare(frames, ByteRange(at, end))
            at = end

    def small_request(self, record: ObjectRecord, offset: int, view: memoryview) -> SmallRequest | None:
        """Return the one request that fills a small `view` with plain bytes; None if a thread has to make it.

        A thread gets ledgers' objects, and more stored bytes than twice the plain ones, as with a table between two
        frames. For the loop: it takes memory of its own for the stored bytes, and perhaps a look at the metadata.
        Raises as `read_into`.
        """
        if record.encoding is PayloadEncoding.RAW:
            return SmallRequest(offset, view, None)
        if record.encoding.is_ledger:
            return None
        shares = list(self.frame_shares(record, ByteRange(offset, offset + len(view))))
        stored_bytes = shares[-1].finish - shares[0].begin
        if stored_bytes > max(2 * len(view), _MOST_SMALL_BYTES):
            return None
        scratch = Scratch(memoryview(bytearray(stored_bytes)), shares[0].begin)
        return SmallRequest(scratch.origin, scratch.view, _Taker(shares, scratch, view, self._count))

    def forget(self, object_id: ObjectId) -> None:
        """Forget the positions of an object's bytes, whose rows were or may have been written again."""
        with self._lock:
            for key in [key for key in self._maps if key[0] == object_id]:
                del self._maps[key]
            for first in self._runs.pop(object_id, ()):
                del self._order[object_id, first]

    def _requests(
        self, record: ObjectRecord, offset: int, view: memoryview
    ) -> Iterator[tuple[Sequence[_Share], Scratch]]:
        """Yield the shares of each request, and memory for its stored bytes that is valid until the next."""
        if record.encoding is PayloadEncoding.ZSTD_FRAMES:
            yield from _frame_requests(list(self.frame_shares(record, ByteRange(offset, offset + len(view)))), view)
            return
        for shares in _payload_requests(self._payload_shares(record, offset, len(view))):
            origin = shares[0].begin
            yield shares, Scratch(self._memory(shares[-1].finish - origin), origin)

    def _memory(self, size_bytes: int) -> memoryview:
        """Return memory of this thread, reused because the first touch of fresh memory is expensive."""
        held: bytearray | None = getattr(self._scratch, "memory", None)
        if held is None or len(held) < size_bytes:
            held = self._scratch.memory = bytearray(size_bytes)
        return memoryview(held)[:size_bytes]

    def _payload_shares(self, record: ObjectRecord, offset: int, size_bytes: int) -> Iterator[PayloadShare]:
        """Yield the shares of the runs in payload bytes [offset, offset + size) of an object, in order."""
        at = record.payload_start + offset
        end = at + size_bytes
        while at < end:
            run = self._run(record, at)
            if run is None:
                raise DataLoss(
                    f"{printable(record.name)}: the position of the payload at {at} is unknown",
                    remedy="run: tierfs check --repair",
                )
            yield PayloadShare(run, ByteRange(at, min(end, run.payload_end)), record.encoding.frame_bytes)
            at = run.payload_end

    def _run(self, record: ObjectRecord, offset: int) -> PayloadRun | None:
        """Return the run that holds a payload byte of the ledger; None if its place in the object is unknown."""
        with self._lock:
            kept = self._runs.get(record.id)
            for run in reversed(kept.values()) if kept else ():
                if run.payload_start <= offset < run.payload_end:
                    return run
        row = self._rows.entries(record, offset)
        return self._keep(record.id, PayloadRun.of(row)) if row is not None and row.stored_offset else None

    def _keep(self, object_id: ObjectId, run: PayloadRun) -> PayloadRun:
        # By object: a ledger offloaded again has another one, whose entries may be placed differently.
        with self._lock:
            self._runs.setdefault(object_id, OrderedDict())[run.first_entry_id] = run
            self._order[object_id, run.first_entry_id] = None
            while len(self._order) > _KEPT_RUNS:
                (oldest, first), _ = self._order.popitem(last=False)
                del self._runs[oldest][first]
                if not self._runs[oldest]:
                    del self._runs[oldest]
        return run

    def _frames(self, record: ObjectRecord, offset: int) -> FrameMap | None:
        """Return the frames of the row that holds a plain byte."""
        key = (record.id, offset // checksums.RUN_BYTES)
        with self._lock:
            frames = self._maps.get(key)
            # A task may have the frames of a row in parts.
            if frames is not None and frames.starts[0] <= offset < frames.starts[-1]:
                self._maps.move_to_end(key)
                return frames
        frames = self._rows.frames(record, offset)
        if frames is not None:
            with self._lock:
                self._maps[key] = frames
                if len(self._maps) > _KEPT_MAPS:
                    self._maps.popitem(last=False)
        return frames


def _payload_requests(shares: Iterator[PayloadShare]) -> Iterator[list[PayloadShare]]:
    """Yield groups of shares to request together."""
    request: list[PayloadShare] = []
    for share in shares:
        if request and (
            share.begin - request[-1].finish > _WORTH_A_REQUEST_BYTES
            or share.finish - request[0].begin > _MOST_SCRATCH_BYTES
        ):
            yield request
            request = []
        request.append(share)
    if request:
        yield request


@dataclass(frozen=True, slots=True)
class SmallRequest:
    """One request for the stored form of some plain bytes."""

    offset: int
    """Of the first byte in the stored object."""
    view: memoryview
    """Memory for what arrives."""
    taker: _Taker | None

    def finish(self) -> None:
        """Fill the memory for the plain bytes, after all stored ones arrived."""
        if self.taker is not None:
            self.taker.finish()


class _Counts:
    """Counts what is unpacked."""

    def __init__(self, metrics: MetricSink) -> None:
        self._frames = metrics.counter(MetricName.UNPACKED_FRAMES)
        self._stored = metrics.counter(MetricName.UNPACKED_BYTES, form="stored")
        self._plain = metrics.counter(MetricName.UNPACKED_BYTES, form="plain")

    def add(self, frames: int, stored_bytes: int, plain_bytes: int) -> None:
        """Count one request."""
        self._frames(frames)
        self._stored(stored_bytes)
        self._plain(plain_bytes)


class _Share(Protocol):
    """The wanted plain bytes in one row."""

    @property
    def length_bytes(self) -> int:
        """Number of the wanted plain bytes."""
        ...

    @property
    def frames(self) -> int:
        """Number of the frames that are still to be unpacked."""
        ...

    @property
    def taken(self) -> bool:
        """Whether all of it was taken."""
        ...

    def take(self, scratch: Scratch, arrived: int, view: memoryview, done: int) -> int:
        """Make plain bytes of some that arrived, to `view` from `done` on; return the filled length of `view`.

        It stops in front of what does not fit into `view`.
        """
        ...


class _Taker:
    """Takes the shares of one request as its bytes arrive."""

    def __init__(
        self,
        shares: Sequence[_Share],
        scratch: Scratch,
        view: memoryview,
        count: _Counts,
        before: int = 0,
        progress: OnReceived | None = None,
    ) -> None:
        """`view` is for the shares' plain bytes, of which `before` precede them in what `progress` counts."""
        self._waiting = deque(shares)
        self._frames = sum(share.frames for share in shares)
        self._count = count
        self._scratch = scratch
        self._view = view
        self._before = before
        self._progress = progress
        self._done = 0

    def arrived(self, received: int) -> None:
        """Take what is complete with so many stored bytes, if none of them is received where its plain ones go."""
        self._take(received, self._scratch.untouched(self._view))

    def finish(self) -> None:
        """Take the rest, after all stored bytes arrived and no more will."""
        self._take(len(self._scratch.view), self._view)
        if self._frames:
            self._count.add(self._frames, len(self._scratch.view), self._done)

    def _take(self, received: int, view: memoryview) -> None:
        """Take what fits into `view`, and report each step."""
        while self._waiting:
            share, before = self._waiting[0], self._done
            self._done = share.take(self._scratch, received, view, before)
            if share.taken:
                self._waiting.popleft()
            elif self._done == before:
                break
            if self._progress is not None and self._done > before:
                self._progress(self._before + self._done)


def _frame_requests(shares: Sequence[FrameShare], view: memoryview) -> Iterator[tuple[Sequence[FrameShare], Scratch]]:
    """Yield groups of shares to request together, and memory for their stored bytes.

    Frames are received into the end of `view`: no reader's memory is outside of the budget. Only if they shrink too
    little for that, which `auto` excludes, they take a request and some memory for each MiB. A table between two frames
    that has more is not received.
    """
    origin, stored_bytes = shares[0].begin, shares[-1].finish - shares[0].begin
    gap, done = len(view) - stored_bytes, 0
    fits = gap >= 0
    for share in shares:
        fits = fits and not share.spoils(gap, origin, done)
        done += share.length_bytes
    if fits:
        yield shares, Scratch(view[gap:], origin, gap)
        return
    parts = (part for share in shares for part in share.cut(_MOST_OWN_SCRATCH_BYTES) if part.length_bytes)
    for run in ranges.runs(parts, lambda run, part: part.finish - run[0].begin <= _MOST_OWN_SCRATCH_BYTES):
        yield run, Scratch(memoryview(bytearray(run[-1].finish - run[0].begin)), run[0].begin)
