"""Changes that verbs add to the journal, and layouts that take more than one verb to make."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tests.stores import TestStore
from tierfs.checksum import block_crcs, crc32c
from tierfs.metadata import chains, checksums, directories, tables
from tierfs.metadata import changes as journal
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.records import ChunkRecord, ObjectRecord
from tierfs.metadata.tables import SEGMENTS
from tierfs.types import ObjectId, Tier


class Crash(BaseException):
    """Death of the process."""


@contextmanager
def journaled(store: TestStore) -> Iterator[list[pb.Change]]:
    """Collect the changes that the block adds to the outbox, except garbage; filled when it ends."""
    changes: list[pb.Change] = []
    with store.metadata.read() as txn:
        before = txn.store.next_outbox - 1
    yield changes
    with store.metadata.read() as txn:
        added = [pb.Change.FromString(data) for _, data in journal.outbox(txn, before)]
    changes.extend(change for change in added if not change.HasField("garbage"))


def link_local(store: TestStore, name: str, start: int, data: bytes, *, pad: int = 0) -> None:
    """Insert a local chunk of `data` at `start`, which begins `pad` bytes into its file."""
    stored = b"." * pad + data
    file = f"00/1-{start:x}-{'f' * 16}"
    (store.files.root / file).write_bytes(stored)
    with store.metadata.write() as txn:
        segment = directories.segment_by_name(txn, name)
        holder = ObjectRecord(
            id=ObjectId(txn.allocate_id()), tier=Tier.LOCAL, name=file, length=len(stored), crc32c=crc32c(stored)
        )
        chunk = ChunkRecord(start_offset=start, length=len(data), object_id=holder.id, object_offset=pad)
        checksums.write_blocks(txn, holder.id, 0, block_crcs(stored))
        changed = chains.insert(txn, segment, Tier.LOCAL, chunk, holder)
        length = max(segment.length, start + len(data))
        txn.put(SEGMENTS, tables.u64(segment.id), replace(changed, length=length))
