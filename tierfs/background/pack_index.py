"""Reading the index of a pack from the cold tier: its trailer, then the bytes that the trailer names."""

from __future__ import annotations

from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import DataLoss
from tierfs.metadata import pack
from tierfs.metadata.pack import TRAILER_BYTES, PackIndex
from tierfs.names import printable


def read_index(storage: ChunkStorage, name: str, length_bytes: int) -> PackIndex:
    """What a pack of this length says that it holds. Costs two small reads.

    Raises DataLoss when it is damaged or contradicts its name, and what the storage raises.
    """
    said = pack.parse_name(name)
    if said is None:
        raise DataLoss(f"{printable(name)} does not have the name of a pack")
    if length_bytes < TRAILER_BYTES:
        raise DataLoss(f"pack {printable(name)} is damaged: it has {length_bytes} bytes")
    tail = memoryview(bytearray(TRAILER_BYTES))
    storage.read_into(name, length_bytes - TRAILER_BYTES, tail)
    trailer = pack.parse_trailer(tail, length_bytes, name)
    data = memoryview(bytearray(trailer.index.length_bytes))
    if data:
        storage.read_into(name, trailer.index.start, data)
    index = pack.parse_index(data, trailer, name)
    if (index.store_epoch, index.attempt) != (said.store_epoch, said.attempt):
        raise DataLoss(f"pack {printable(name)} is damaged: its index contradicts its name")
    return index
