"""Cold objects by the piece, for the tests of consolidation, and what has become of them."""

from __future__ import annotations

import os
from dataclasses import replace

from tests.stores import LOCATION, TestStore
from tierfs.base.bytes.checksum import block_crcs
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.types import CRC_BLOCK_BYTES
from tierfs.engine.metadata import changes, checksums, directories, tables
from tierfs.engine.metadata.tables import GARBAGE, INTENTS, SEGMENTS
from tierfs.tiering.consolidate_command import asked_for
from tierfs.tiering.consolidate_plan import ConsolidateAction

GRACE_S = OffloadSettings().grace_s
POLICY = {"chunk_bytes": "1000000", "object_bytes": "3000000"}
BLOCK = CRC_BLOCK_BYTES


def cold_pieces(store: TestStore, *sizes: int, name: str = "s", seal: bool = False) -> bytes:
    """Append so that each size becomes a cold object of its own; returns the bytes."""
    data = b""
    for size in sizes:
        part = os.urandom(size)
        store.append(name, part)
        store.offload(name)
        store.evict(name)
        data += part
    if seal:
        store.engine.seal(name)
    return data


def cut_head(store: TestStore, name: str, start_offset: int) -> None:
    """Truncate a segment whose chunks all end after the new start."""
    with store.metadata.write() as txn:
        segment = replace(directories.segment_by_name(txn, name), start_offset=start_offset)
        txn.put(SEGMENTS, tables.u64(segment.id), segment)
        changes.segment_changed(txn, segment)


def actions(store: TestStore, name: str = "s") -> list[ConsolidateAction]:
    with store.metadata.read() as txn:
        return list(asked_for(txn, directories.segment_by_name(txn, name), LOCATION, store.settings)[0])


def objects(store: TestStore) -> list[str]:
    return [found.name for found in store.cold.list("segments/")]


def rows(store: TestStore) -> tuple[int, int]:
    """Return the number of intents and of garbage rows."""
    with store.metadata.read() as txn:
        return txn.count(INTENTS.name), txn.count(GARBAGE.name)


def assert_grids(store: TestStore, name: str, data: bytes) -> None:
    """Every cold object has the grid that an offload of the same bytes would have given it."""
    with store.metadata.read() as txn:
        for placed in store.layout(name).cold:
            held = bytearray(placed.object.length)
            store.cold.read_into(placed.object.name, 0, memoryview(held))
            found = [run.crc(i) for run in checksums.runs(txn, placed.object.id) for i in range(run.count)]
            assert found == block_crcs(held)
            at = placed.chunk.object_offset
            assert held[at : at + placed.chunk.length] == data[placed.chunk.start_offset : placed.chunk.end_offset]
