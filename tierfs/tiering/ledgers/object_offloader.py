"""ObjectOffloader: an Offloader that writes the two objects of Pulsar's offloader into any storage of objects."""

from __future__ import annotations

import os
import tempfile
from array import array
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import BinaryIO
from uuid import UUID

import tierfs
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.system.os_errors import map_os_errors
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import ByteRange
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage, FileSource, StoredObject
from tierfs.engine.ledger import block_reader, keys, transforms
from tierfs.engine.ledger.blocks import plan_blocks
from tierfs.engine.ledger.deviations import Deviations
from tierfs.engine.ledger.index import LedgerIndex
from tierfs.engine.ledger.index_codec import encode_index
from tierfs.engine.ledger.keys import Role
from tierfs.engine.ledger.offloader import ReadableLedger
from tierfs.reading.ledger_objects import Pieces, read_index
from tierfs.tiering.ledgers import copies
from tierfs.tiering.ledgers.offload import BLOCK_BYTES
from tierfs.tiering.ledgers.source import LedgerSource

_SPOOL = "a temporary file"

# Requests at once of a reader, 8 MiB each: one is used while the next arrives.
_JOBS = 2


class ObjectOffloader:
    """Writes ledgers as a real Pulsar does, and reads what it or a Pulsar wrote. Thread-safe."""

    def __init__(
        self,
        storage: ChunkStorage,
        *,
        transform: str | None = None,
        block_bytes: int = BLOCK_BYTES,
        clock: Clock | None = None,
    ) -> None:
        """Write into `storage`, which stays the caller's, with the entries as `transform` makes them.

        Raises InvalidRequest for an unknown transform.
        """
        self._storage = storage
        self._transform = None if transform is None else transforms.named(transform)
        self._block_bytes = block_bytes
        self._clock = clock or SystemClock()

    def offload(self, ledger: ReadableLedger, uuid: UUID, extra_metadata: Mapping[str, str] | None = None) -> None:
        """See Offloader.offload; the data object first, then the index, with which Pulsar takes it for offloaded.

        Needs as much room in the directory for temporary files as the payloads take. Raises InvalidRequest for a ledger
        without entries, for an entry that fits into no block, and for extra metadata that no object can have; DataLoss;
        and storage errors.
        """
        extra = keys.extra_metadata(extra_metadata or {})
        if self._transform is not None:
            extra[keys.TRANSFORM_KEY] = self._transform.name
        entries = ledger.read(0, ledger.last_entry_id) if ledger.last_entry_id >= 0 else iter(())
        # The lengths of all entries are in the plan of the first block, and a transform tells them as it runs. An error
        # of the ledger that is read, or of the storage, is theirs: only those of the file are named after it.
        with _temporary_file() as spool:
            lengths = array("I")
            for payload in entries if self._transform is None else self._transform.entries(entries):
                lengths.append(len(payload))
                with map_os_errors(_SPOOL):
                    spool.write(payload)
            with map_os_errors(_SPOOL):
                spool.flush()
            if not lengths:
                raise InvalidRequest(f"ledger {ledger.ledger_id} has no entries: there is nothing to offload")
            if self._transform is None and sum(lengths) != ledger.length:
                raise DataLoss(f"ledger {ledger.ledger_id} has {ledger.length} bytes, but {sum(lengths)} were read")
            plans = plan_blocks(lengths, self._block_bytes)
            source = LedgerSource(FileSource(spool.fileno(), os.fspath(tempfile.gettempdir())), lengths, plans)
            data_name = keys.data_key(uuid, ledger.ledger_id)
            self._storage.put(data_name, source, metadata=_metadata(Role.DATA, extra))
        described = copies.closed_metadata(sum(lengths), len(lengths), self._clock.now_ms())
        index = encode_index(LedgerIndex.of_plans(described, plans))
        index_name = keys.index_key(uuid, ledger.ledger_id)
        self._storage.put(index_name, BufferSource(index), metadata=_metadata(Role.INDEX, extra))

    def read_offloaded(self, ledger_id: int, uuid: UUID) -> LedgerInObjects:
        """See Offloader.read_offloaded; reads the index. Raises NotFound, DataLoss, and storage errors."""
        data = self._storage.stat(keys.data_key(uuid, ledger_id))
        index = self._storage.stat(keys.index_key(uuid, ledger_id))
        keys.check_version(index.metadata, index.name)
        decoded = read_index(self._storage, index, Deviations())
        if not isinstance(decoded, LedgerIndex):
            raise DataLoss(f"{printable(index.name)} is an index of several ledgers", remedy="run: tierfs adopt")
        decoded.check(data.length_bytes, data.name, Deviations())
        return LedgerInObjects(self._storage, data, decoded, ledger_id, index.metadata.get(keys.TRANSFORM_KEY))

    def delete_offloaded(self, ledger_id: int, uuid: UUID) -> None:
        """See Offloader.delete_offloaded: the index first, so that a half deleted ledger is none. Storage errors."""
        self._storage.delete(keys.index_key(uuid, ledger_id))
        self._storage.delete(keys.data_key(uuid, ledger_id))


class LedgerInObjects:
    """A ledger in its two objects. Thread-safe."""

    def __init__(
        self, storage: ChunkStorage, data: StoredObject, index: LedgerIndex, ledger_id: int, transform: str | None
    ) -> None:
        self._storage = storage
        self._data = data
        self._index = index
        self.ledger_id = ledger_id
        self.transform = transform
        """The transform that made its entries; None for those of the ledger itself."""

    @property
    def last_entry_id(self) -> int:
        """The id of the last entry."""
        return self._index.metadata.readable_last_entry_id

    @property
    def length(self) -> int:
        """The bytes of all payloads."""
        return self._index.metadata.length

    def read(self, first: int, last: int) -> Iterator[bytes]:
        """See ReadableLedger.read; reads from the block of the first entry on. Raises InvalidRequest, DataLoss."""
        if not 0 <= first <= last <= self.last_entry_id:
            raise InvalidRequest(
                f"ledger {self.ledger_id} has entries 0 to {self.last_entry_id}, not {first} to {last}"
            )
        begin = self._index.find(first)
        blocks = [block for block in self._index.blocks() if block.first_entry_id >= begin.first_entry_id]
        blocks = [block for block in blocks if block.first_entry_id <= last]
        wanted = ByteRange(blocks[0].offset, blocks[-1].end_offset)
        with closing(Pieces(self._storage, _JOBS)) as pieces:
            data = pieces.of(self._data, wanted)
            for entry in block_reader.read_entries(data, blocks, self._data.name, Deviations(), wanted.start):
                if entry.entry_id > last:
                    return
                if entry.entry_id >= first:
                    yield entry.payload


@contextmanager
def _temporary_file() -> Iterator[BinaryIO]:
    with map_os_errors(_SPOOL):
        spool = tempfile.TemporaryFile()  # noqa: SIM115
    try:
        yield spool
    finally:
        with map_os_errors(_SPOOL):
            spool.close()


def _metadata(role: Role, extra: Mapping[str, str]) -> dict[str, str]:
    return {**keys.user_metadata(role, "", f"tierfs-offloader {tierfs.__version__}", "none"), **extra}
