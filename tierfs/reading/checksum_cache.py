"""Checksum runs of cold objects, remembered: they never change, and each lookup lets go of the interpreter's lock.

Measured: without it a random read takes 38 µs more, and 16 of them at once get about half the IOPS.
"""

from __future__ import annotations

from collections import OrderedDict

from tierfs.metadata import checksums
from tierfs.metadata.records import ChecksumRun
from tierfs.metadata.store import MetadataStore
from tierfs.reading.grid import Grid, grid_of
from tierfs.types import ByteRange, ObjectId

MAX_RUNS = 4096
"""About 1 KiB each, for 32 MiB of an object: 4 MiB of memory for 128 GiB."""


class ChecksumCache:
    """On the trio loop only. For objects that do not grow."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._runs: OrderedDict[tuple[ObjectId, int], ChecksumRun] = OrderedDict()

    def grid(self, object_id: ObjectId, wanted: ByteRange, object_length: int) -> Grid:
        """The blocks of an object that touch `wanted`. Raises DataLoss where it has no checksums."""
        found = self._remembered(object_id, wanted)
        if found is None:
            with self._metadata.read() as txn:
                found = checksums.runs_covering(txn, object_id, wanted)
            self._remember(object_id, found)
        return grid_of(found, wanted, object_length)

    def _remembered(self, object_id: ObjectId, wanted: ByteRange) -> tuple[ChecksumRun, ...] | None:
        found = []
        at = wanted.start
        while at < wanted.end:
            key = (object_id, at - at % checksums.RUN_BYTES)
            run = self._runs.get(key)
            if run is None or not run.covers(at, min(wanted.end, key[1] + checksums.RUN_BYTES)):
                return None
            self._runs.move_to_end(key)
            found.append(run)
            at = key[1] + checksums.RUN_BYTES
        return tuple(found)

    def _remember(self, object_id: ObjectId, runs: tuple[ChecksumRun, ...]) -> None:
        """Only those that begin where runs of an object normally do: others are looked up each time."""
        for run in runs:
            if run.start % checksums.RUN_BYTES == 0:
                self._runs[object_id, run.start] = run
        while len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)
