"""Reading payloads out of a ledger's cold object: frames and padding are left out between the storage and its reader.

Whoever reads sees an object that is nothing but payload: ranges, checksums and caches go by offsets in it. The rows of
`entries` say where in the stored object each payload lies; nothing is parsed. The last rows that were used are kept.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from tierfs.chunkstore.protocol import ChunkStorage, Progress
from tierfs.errors import DataLoss
from tierfs.metadata import entries
from tierfs.metadata.records import EntryRun, ObjectRecord
from tierfs.metadata.store import MetadataStore
from tierfs.names import printable
from tierfs.types import MIB, ByteRange, PayloadEncoding, SegmentId

_KEPT_RUNS = 256
"""Of up to 4096 entries, 32 KiB each: 8 MiB of memory for a million entries."""

_WORTH_A_REQUEST_BYTES = MIB
"""A gap in the stored object, as the padding of a block is, that is rather read than asked around (a guess)."""

_MOST_SCRATCH_BYTES = 16 * MIB
"""What one request reads of the stored object: entries of a few bytes are mostly frames."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of entries as its readers need it."""

    first_entry_id: int
    end_entry_id: int
    payload_start: int
    """In the segment."""
    stored_offset: int
    starts: array[int]
    """Where each payload begins, counted from the run's first; at the end, where the last one ends."""

    @classmethod
    def of(cls, run: EntryRun) -> _Run:
        starts = array("Q", accumulate(run.lengths, initial=0))
        return cls(run.first_entry_id, run.end_entry_id, run.payload_start, run.stored_offset, starts)

    @property
    def payload_end(self) -> int:
        return self.payload_start + self.starts[-1]


@dataclass(frozen=True, slots=True)
class _Stored:
    """A payload, or a part of one, in the stored object."""

    start: int
    end: int


class Payloads:
    """What one process knows of where payloads lie. Thread-safe."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._lock = threading.Lock()
        self._runs: dict[int, OrderedDict[int, _Run]] = {}
        self._order: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._scratch = threading.local()

    def read_into(
        self,
        storage: ChunkStorage,
        holder: ObjectRecord,
        offset: int,
        view: memoryview,
        if_match: str | None,
        progress: Progress | None,
    ) -> None:
        """Fill `view` with an object's bytes from `offset`; see ChunkStorage.read_into.

        Raises DataLoss where nothing is known of the entries that are wanted.
        """
        if holder.encoding is PayloadEncoding.RAW:
            storage.read_into(holder.name, offset, view, if_match=if_match, progress=progress)
            return
        done = 0
        for request in _requests(self._stored(holder, offset, len(view))):
            done = self._get(storage, holder, request, view, done, if_match, progress)

    def _get(
        self,
        storage: ChunkStorage,
        holder: ObjectRecord,
        request: list[_Stored],
        view: memoryview,
        done: int,
        if_match: str | None,
        progress: Progress | None,
    ) -> int:
        """One request for neighbouring payloads; returns how much of `view` is full then."""
        begin = request[0].start
        scratch = self._memory(request[-1].end - begin)
        at = 0

        def arrived(received: int) -> None:
            nonlocal at, done
            end = begin + received
            while at < len(request) and request[at].end <= end:
                one = request[at]
                stop = done + one.end - one.start
                view[done:stop] = scratch[one.start - begin : one.end - begin]
                at, done = at + 1, stop
            if progress is not None:
                progress(done)

        # Bytes of a version that is not pinned may come anew from another one: they are taken when all have arrived.
        taken = None if if_match is None else arrived
        storage.read_into(holder.name, begin, scratch, if_match=if_match, progress=taken)
        arrived(len(scratch))
        return done

    def _memory(self, size_bytes: int) -> memoryview:
        """Memory of this thread: the first touch of fresh memory is dear."""
        held: bytearray | None = getattr(self._scratch, "memory", None)
        if held is None or len(held) < size_bytes:
            held = self._scratch.memory = bytearray(size_bytes)
        return memoryview(held)[:size_bytes]

    def _stored(self, holder: ObjectRecord, offset: int, size_bytes: int) -> Iterator[_Stored]:
        """Where payload bytes [offset, offset + size) of an object are stored, in order."""
        frame_bytes = holder.encoding.frame_bytes
        at = holder.payload_start + offset
        end = at + size_bytes
        while at < end:
            run = self._run(SegmentId(holder.segment_id), at)
            if run is None or not run.stored_offset:
                raise DataLoss(
                    f"{printable(holder.name)}: nobody knows where the payload at {at} lies in it",
                    remedy="run: tierfs fsck --repair",
                )
            yield from _of_run(run, ByteRange(at, min(end, run.payload_end)), frame_bytes)
            at = run.payload_end

    def _run(self, segment_id: SegmentId, offset: int) -> _Run | None:
        """The run that holds a payload byte."""
        with self._lock:
            kept = self._runs.get(segment_id)
            for run in reversed(kept.values()) if kept else ():
                if run.payload_start <= offset < run.payload_end:
                    return run
        with self._metadata.read() as txn:
            found = entries.run_holding(txn, segment_id, offset)
        return None if found is None else self._keep(segment_id, _Run.of(found))

    def _keep(self, segment_id: SegmentId, run: _Run) -> _Run:
        with self._lock:
            self._runs.setdefault(segment_id, OrderedDict())[run.first_entry_id] = run
            self._order[segment_id, run.first_entry_id] = None
            while len(self._order) > _KEPT_RUNS:
                (oldest, first), _ = self._order.popitem(last=False)
                del self._runs[oldest][first]
                if not self._runs[oldest]:
                    del self._runs[oldest]
        return run


def _of_run(run: _Run, wanted: ByteRange, frame_bytes: int) -> Iterator[_Stored]:
    """The stored places of payload bytes that one run holds."""
    starts = run.starts
    first, end = wanted.start - run.payload_start, wanted.end - run.payload_start
    index = bisect_right(starts, first) - 1
    while first < end:
        stop = min(starts[index + 1], end)
        if stop > first:
            shift = run.stored_offset + frame_bytes * (index + 1)
            yield _Stored(first + shift, stop + shift)
            first = stop
        index += 1


def _requests(pieces: Iterator[_Stored]) -> Iterator[list[_Stored]]:
    """Pieces that are asked for together."""
    request: list[_Stored] = []
    for one in pieces:
        if request and (
            one.start - request[-1].end > _WORTH_A_REQUEST_BYTES or one.end - request[0].start > _MOST_SCRATCH_BYTES
        ):
            yield request
            request = []
        request.append(one)
    if request:
        yield request
