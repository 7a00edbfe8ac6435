"""Reading payloads out of a ledger's cold object: frames and padding are left out between the storage and its reader.

Whoever reads sees an object that is nothing but payload: ranges, checksums and caches go by offsets in it. The rows of
`entries` say where in the stored object each payload lies; nothing is parsed. The last rows that were used are kept.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

from tierfs.chunkstore.protocol import ChunkStorage, OnReceived
from tierfs.errors import DataLoss
from tierfs.metadata import entries
from tierfs.metadata.ledger_and_batch_records import EntryRun
from tierfs.metadata.records import ObjectRecord
from tierfs.metadata.store import MetadataStore
from tierfs.names import printable
from tierfs.types import MIB, ByteRange, ObjectId, PayloadEncoding, SegmentId

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
    lengths: tuple[int, ...]
    starts: array[int]
    """Where each payload begins, counted from the run's first; at the end, where the last one ends."""

    @classmethod
    def of(cls, run: EntryRun) -> _Run:
        starts = array("Q", accumulate(run.lengths, initial=0))
        return cls(run.first_entry_id, run.end_entry_id, run.payload_start, run.stored_offset, run.lengths, starts)

    @property
    def payload_end(self) -> int:
        return self.payload_start + self.starts[-1]


class _Share:
    """What one run holds of the payload that is wanted: taken out as it arrives."""

    __slots__ = ("_at", "_end", "_frame_bytes", "_index", "_run", "begin", "finish")

    def __init__(self, run: _Run, wanted: ByteRange, frame_bytes: int) -> None:
        """`wanted`: bytes of the segment that the run holds, not empty."""
        self._run = run
        self._frame_bytes = frame_bytes
        self._at, self._end = wanted.start - run.payload_start, wanted.end - run.payload_start
        self._index = bisect_right(run.starts, self._at) - 1
        last = bisect_left(run.starts, self._end) - 1
        self.begin = self._stored(self._index, self._at)
        """Where in the stored object the first byte is."""
        self.finish = self._stored(last, self._end)

    def _stored(self, index: int, offset: int) -> int:
        return self._run.stored_offset + self._frame_bytes * (index + 1) + offset

    def take(self, scratch: memoryview, origin: int, arrived: int, view: memoryview, done: int) -> int:
        """Copy what has arrived, whole entries, to `view` from `done` on; returns up to where it is full then.

        `scratch` holds the stored object from `origin` on, as far as `arrived` bytes.
        """
        end = origin + arrived
        done = self._take_one(scratch, origin, end, view, done)  # of the first entry a part may be wanted
        starts, first = self._run.starts, self._index
        limit = bisect_right(starts, self._end) - 1
        if self._stored(limit - 1, starts[limit]) > end:
            limit = bisect_right(range(limit), end, lo=first, key=lambda one: self._stored(one, starts[one + 1]))
        if limit > first:
            position, frame_bytes = self._stored(first, self._at) - origin, self._frame_bytes
            # Measured: the quickest way that Python has, half a microsecond for an entry of 1 KiB.
            for length in self._run.lengths[first:limit]:
                view[done : done + length] = scratch[position : position + length]
                done += length
                position += length + frame_bytes
            self._index, self._at = limit, starts[limit]
        return self._take_one(scratch, origin, end, view, done)

    def _take_one(self, scratch: memoryview, origin: int, end: int, view: memoryview, done: int) -> int:
        """The entry that comes next, or what is wanted of it."""
        if self._at >= self._end:
            return done
        stop = min(self._run.starts[self._index + 1], self._end)
        start, size = self._stored(self._index, self._at), stop - self._at
        if start + size > end:
            return done
        view[done : done + size] = scratch[start - origin : start - origin + size]
        if stop == self._run.starts[self._index + 1]:
            self._index += 1
        self._at = stop
        return done + size

    @property
    def taken(self) -> bool:
        """Whether all of it was."""
        return self._at >= self._end


FindRun: TypeAlias = Callable[[ObjectRecord, int], EntryRun | None]
"""The row that holds a payload byte of a ledger, by the ledger's object and the byte's offset in the segment."""


def rows_of(metadata: MetadataStore) -> FindRun:
    """Finds rows in a store."""

    def find(holder: ObjectRecord, offset: int) -> EntryRun | None:
        with metadata.read() as txn:
            return entries.run_holding(txn, SegmentId(holder.segment_id), offset)

    return find


class Payloads:
    """What one process knows of where payloads lie. Thread-safe."""

    def __init__(self, find_run: FindRun) -> None:
        self._find_run = find_run
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
        progress: OnReceived | None,
    ) -> None:
        """Fill `view` with an object's bytes from `offset`; see ChunkStorage.read_into.

        Raises DataLoss where nothing is known of the entries that are wanted.
        """
        if holder.encoding is PayloadEncoding.RAW:
            storage.read_into(holder.name, offset, view, if_match=if_match, progress=progress)
            return
        done = 0
        for request in _requests(self._shares(holder, offset, len(view))):
            done = self._get(storage, holder, request, view, done, if_match, progress)

    def _get(
        self,
        storage: ChunkStorage,
        holder: ObjectRecord,
        request: list[_Share],
        view: memoryview,
        done: int,
        if_match: str | None,
        progress: OnReceived | None,
    ) -> int:
        """One request for what neighbouring runs hold; returns how much of `view` is full then."""
        origin = request[0].begin
        scratch = self._memory(request[-1].finish - origin)
        waiting = deque(request)

        def arrived(received: int) -> None:
            nonlocal done
            while waiting:
                done = waiting[0].take(scratch, origin, received, view, done)
                if not waiting[0].taken:
                    break
                waiting.popleft()
            if progress is not None:
                progress(done)

        # Bytes of a version that is not pinned may come anew from another one: they are taken when all have arrived.
        taken = None if if_match is None else arrived
        storage.read_into(holder.name, origin, scratch, if_match=if_match, progress=taken)
        arrived(len(scratch))
        return done

    def _memory(self, size_bytes: int) -> memoryview:
        """Memory of this thread: the first touch of fresh memory is dear."""
        held: bytearray | None = getattr(self._scratch, "memory", None)
        if held is None or len(held) < size_bytes:
            held = self._scratch.memory = bytearray(size_bytes)
        return memoryview(held)[:size_bytes]

    def _shares(self, holder: ObjectRecord, offset: int, size_bytes: int) -> Iterator[_Share]:
        """What the runs hold of payload bytes [offset, offset + size) of an object, in order."""
        at = holder.payload_start + offset
        end = at + size_bytes
        while at < end:
            run = self._run(holder, at)
            if run is None:
                raise DataLoss(
                    f"{printable(holder.name)}: nobody knows where the payload at {at} lies in it",
                    remedy="run: tierfs fsck --repair",
                )
            yield _Share(run, ByteRange(at, min(end, run.payload_end)), holder.encoding.frame_bytes)
            at = run.payload_end

    def _run(self, holder: ObjectRecord, offset: int) -> _Run | None:
        """The run that holds a payload byte of the ledger; None where nobody knows its place in the object."""
        with self._lock:
            kept = self._runs.get(holder.id)
            for run in reversed(kept.values()) if kept else ():
                if run.payload_start <= offset < run.payload_end:
                    return run
        found = self._find_run(holder, offset)
        return self._keep(holder.id, _Run.of(found)) if found is not None and found.stored_offset else None

    def _keep(self, object_id: ObjectId, run: _Run) -> _Run:
        # By object: a ledger that is offloaded anew has another one, where its entries may lie elsewhere.
        with self._lock:
            self._runs.setdefault(object_id, OrderedDict())[run.first_entry_id] = run
            self._order[object_id, run.first_entry_id] = None
            while len(self._order) > _KEPT_RUNS:
                (oldest, first), _ = self._order.popitem(last=False)
                del self._runs[oldest][first]
                if not self._runs[oldest]:
                    del self._runs[oldest]
        return run


def _requests(shares: Iterator[_Share]) -> Iterator[list[_Share]]:
    """Shares that are asked for together."""
    request: list[_Share] = []
    for one in shares:
        if request and (
            one.begin - request[-1].finish > _WORTH_A_REQUEST_BYTES
            or one.finish - request[0].begin > _MOST_SCRATCH_BYTES
        ):
            yield request
            request = []
        request.append(one)
    if request:
        yield request
