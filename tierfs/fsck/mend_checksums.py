"""Computing checksums anew: right where the object's whole CRC32C, written with it, proves the bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tierfs.checksum import grid_of
from tierfs.chunkstore.chunkfiles import ChunkFiles
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.metadata import checksums, keys
from tierfs.metadata.records import ObjectRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import OBJECTS
from tierfs.reading.etags import Etags
from tierfs.types import CRC_BLOCK_BYTES, LocationId, ObjectId, Tier

_STEP_BYTES = 32 * CRC_BLOCK_BYTES


class ChecksumMender:
    """Reads objects and writes their runs."""

    def __init__(
        self, metadata: MetadataStore, files: ChunkFiles, storage_of: Callable[[LocationId], ChunkStorage]
    ) -> None:
        self._metadata = metadata
        self._files = files
        self._storage_of = storage_of
        self._etags = Etags(metadata)

    def mend(self, object_id: ObjectId) -> str | None:
        """Write an object's runs anew; why not, otherwise. Raises NotFound, Unavailable."""
        with self._metadata.read() as txn:
            holder = txn.get(OBJECTS, keys.u64(object_id))
        if holder is None:
            return None
        if holder.crc32c is None:
            return "the CRC32C of the whole is not known either"
        found = grid_of(self._read(holder))
        if found.crc32c != holder.crc32c:
            return "its bytes do not match the CRC32C of the whole"
        with self._metadata.write() as txn:
            if txn.get(OBJECTS, keys.u64(object_id)) != holder:
                return "it changed meanwhile; run it again"
            checksums.delete(txn, object_id)
            checksums.put_grid(txn, object_id, found.grid())
        return None

    def _read(self, holder: ObjectRecord) -> Iterator[memoryview]:
        """Read an object in steps; each is valid until the next."""
        buffer = memoryview(bytearray(_STEP_BYTES))
        for start in range(0, holder.length, _STEP_BYTES):
            view = buffer[: min(_STEP_BYTES, holder.length - start)]
            self._fill(holder, start, view)
            yield view

    def _fill(self, holder: ObjectRecord, start: int, view: memoryview) -> None:
        if holder.tier is Tier.COLD:
            self._etags.read_into(self._storage_of(holder.location_id), holder, start, view)
            return
        self._files.read_into(holder.name, start, view)
