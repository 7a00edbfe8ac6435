"""Local chunks, checked on first touch: the CRCs come from the newest commit, the bytes from `local.py`."""

from __future__ import annotations

from dataclasses import replace

from tierfs.errors import NotFound, TierfsError
from tierfs.metadata import checksums, keys
from tierfs.metadata.layout import PlacedChunk
from tierfs.metadata.records import ChecksumRun
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import OBJECTS
from tierfs.reading.grid import Grid, grid_of, run_matches
from tierfs.reading.local import LocalReader
from tierfs.types import CRC_BLOCK_BYTES, ByteRange


class LocalPath:
    """The local path of one open handle; remembers the checksums it needed last."""

    def __init__(self, metadata: MetadataStore, local: LocalReader) -> None:
        self._metadata = metadata
        self._local = local
        self._run: ChecksumRun | None = None

    def read_now(self, placed: PlacedChunk, held: ByteRange, *, growing: bool) -> memoryview | None:
        """Bytes of a local chunk from the page cache; `growing` for the active chunk of its segment.

        None for whatever is not as simple as that: it goes the long way, which also says what is wrong.
        """
        try:
            if self._local.is_checked(placed.object.id, held):
                return self._local.read_now(placed.object.name, held)
            # A chunk that grows: its last checksum must be read together with its length.
            return None if growing else self._checked_now(placed, held)
        except TierfsError:
            return None

    async def read(self, placed: PlacedChunk, held: ByteRange) -> memoryview:
        """Bytes of a local chunk. Raises NotFound when it was evicted, DataLoss for wrong or missing bytes."""
        grid = self._grid_to_check(placed, held)
        return await self._local.read(placed.object.id, placed.object.name, held, grid)

    def _checked_now(self, placed: PlacedChunk, held: ByteRange) -> memoryview | None:
        start = held.start - held.start % CRC_BLOCK_BYTES
        end = min(-(-held.end // CRC_BLOCK_BYTES) * CRC_BLOCK_BYTES, placed.object.length)
        run = self._run
        if run is None or run.object_id != placed.object.id or not run.covers(start, end):
            with self._metadata.read() as txn:
                found = checksums.run_at(txn, placed.object.id, start)
            if found is None or not found.covers(start, end):
                return None
            run = self._run = replace(found, object_id=placed.object.id)
        view = self._local.read_now(placed.object.name, ByteRange(start, end))
        if view is None or not run_matches(run, view, start):
            return None
        self._local.mark_checked(placed.object.id, ByteRange(start, end))
        return view[held.start - start : held.end - start]

    def _grid_to_check(self, placed: PlacedChunk, held: ByteRange) -> Grid | None:
        """The blocks of a local chunk that were not checked yet, with the CRCs of the newest commit."""
        if self._local.is_checked(placed.object.id, held):
            return None
        with self._metadata.read() as txn:
            holder = txn.get(OBJECTS, keys.u64(placed.object.id))
            if holder is None:
                raise NotFound(f"chunk file {placed.object.name} was evicted")
            runs = checksums.runs_covering(txn, placed.object.id, held)
            return grid_of(runs, held, holder.length)
