"""The checksum runs of cold objects, remembered: they never change, and each lookup releases the interpreter lock.

Measured: without it a random read takes 38 µs more, and 16 of them at once get about half the IOPS.
"""

from __future__ import annotations

from collections import OrderedDict

from tierfs.base.words.types import ByteRange, ObjectId
from tierfs.engine.metadata import checksums
from tierfs.engine.metadata.records import ChecksumRun
from tierfs.engine.metadata.store import MetadataStore
from tierfs.reading.fetch.grid import Grid, grid_of

# About 1 KiB each, for 32 MiB of an object: 4 MiB of memory for 128 GiB.
MAX_RUNS = 4096


class ChecksumCache:
    """Remembered checksum runs of objects that do not grow. On the trio loop only."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._runs: OrderedDict[tuple[ObjectId, int], ChecksumRun] = OrderedDict()

    def grid(self, object_id: ObjectId, wanted: ByteRange, object_length: int) -> Grid:
        """Return the blocks of an object that touch `wanted`. Raises DataLoss for missing checksums."""
        runs = self._remembered(object_id, wanted)
        if runs is None:
            with self._metadata.read() as txn:
                runs = checksums.runs_covering(txn, object_id, wanted)
            self._remember(object_id, runs)
        return grid_of(runs, wanted, object_length)

    def _remembered(self, object_id: ObjectId, wanted: ByteRange) -> tuple[ChecksumRun, ...] | None:
        runs = []
        at = wanted.start
        while at < wanted.end:
            key = (object_id, at - at % checksums.RUN_BYTES)
            run = self._runs.get(key)
            if run is None or not run.covers(at, min(wanted.end, key[1] + checksums.RUN_BYTES)):
                return None
            self._runs.move_to_end(key)
            runs.append(run)
            at = key[1] + checksums.RUN_BYTES
        return tuple(runs)

    def _remember(self, object_id: ObjectId, runs: tuple[ChecksumRun, ...]) -> None:
        """Remember runs that begin at regular positions; others are looked up each time."""
        for run in runs:
            if run.start % checksums.RUN_BYTES == 0:
                self._runs[object_id, run.start] = run
        while len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)
