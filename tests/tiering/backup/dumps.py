"""Forged dumps of a segment, and what loading one must leave as it is."""

from __future__ import annotations

from collections.abc import Iterable

from tests.stores import TestStore
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.bytes.progress import Progress
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.metadata import directories, frames, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.tables import (
    CHECKSUMS,
    CHUNKS,
    DIRECTORIES,
    DIRENTS,
    GARBAGE,
    INTENTS,
    LOCATIONS,
    OBJECTS,
    POLICIES,
    SEGMENTS,
    STORE,
)
from tierfs.tiering.backup.segment import DumpSource, SegmentRestore, SegmentRestored, dump_segment, read_dump

NAME = "a/s"

State = dict[tuple[bytes, bytes], bytes]


def filled(store: TestStore) -> None:
    """Make a segment with objects of its own and a part of a pack, and others with the rest of the pack."""
    for name in (NAME, "a/t", "u"):
        store.append(name, name.encode() * 2)
    store.offload()
    for part in (b"abcdefgh", b"ijklmnopq"):
        store.append(NAME, part)
        store.offload()
    store.append("v", b"of another")
    store.offload()


def dumped(store: TestStore) -> list[pb.SegmentDump]:
    """Dump the segment; return the messages, and take the dump away again."""
    made = dump_segment(store.metadata, store.cold, NAME)
    pieces = list(read_dump(store.cold, store.cold.stat(made.object)))
    store.cold.delete(made.object)
    return pieces


def framed(payload: bytes) -> bytes:
    """Return the bytes as a whole message, whatever they are."""
    return frames._HEADER.pack(frames.MAGIC, 1, crc32c(payload), len(payload)) + payload


def put(store: TestStore, data: bytes, segment_id: int) -> str:
    """Write a dump without user metadata; return its name."""
    name = f"dumps/{segment_id}-{'f' * 32}"
    store.cold.put(name, BufferSource(data), create_only=False)
    return name


def put_pieces(store: TestStore, pieces: Iterable[pb.SegmentDump], segment_id: int) -> str:
    """Write these messages as a dump."""
    return put(store, b"".join(framed(piece.SerializeToString()) for piece in pieces), segment_id)


def load(store: TestStore, wanted: str = NAME) -> SegmentRestored:
    """Load a dump, as the holder does; lost bytes are accepted."""
    source = DumpSource(store.metadata, store.cold, lambda _: store.cold)
    return SegmentRestore(source).restore(wanted, accept_loss=True, report=_ignore)


def remove(store: TestStore, name: str = NAME) -> None:
    """Remove the segment; its objects stay for an hour."""
    store.engine.delete(name, recursive=True, cold_due_ms=store.clock.now_ms() + 3_600_000)


def everything(store: TestStore) -> State:
    """Return all rows."""
    with store.metadata.read() as txn:
        return {(name, key): value for name in txn.database_names for key, value in txn.scan_raw(name)}


def of_others(store: TestStore, segment_id: int, its_objects: set[int]) -> State:
    """Return the rows that loading a segment may not change; references to packs, and times of directories, change."""
    kept: State = {}
    with store.metadata.read() as txn:
        for table in (SEGMENTS, CHUNKS, OBJECTS, CHECKSUMS, POLICIES, DIRECTORIES, DIRENTS, LOCATIONS, INTENTS):
            for key, value in txn.scan_raw(table.name):
                number = tables.read_u64(key) if len(key) >= 8 else 0
                if table in (SEGMENTS, CHUNKS, POLICIES) and number == segment_id:
                    continue
                if table in (OBJECTS, CHECKSUMS) and number in its_objects:
                    continue
                message = table.codec.message(value)
                for name in ("references", "modified_ms") if table in (OBJECTS, DIRECTORIES) else ():
                    if name in message.DESCRIPTOR.fields_by_name:
                        message.ClearField(name)
                if table is DIRENTS and message.kind == 1 and message.id == segment_id:
                    continue
                kept[table.name, key] = message.SerializeToString(deterministic=True)
        journal = txn.store.journal
        kept[STORE.name, b"position"] = repr((journal.next_slot, txn.store.store_epoch, txn.store.replica)).encode()
    return kept


def bytes_of_others(store: TestStore) -> dict[str, bytes]:
    """Return the bytes of every other segment."""
    with store.metadata.read() as txn:
        names = [name for name, _ in directories.segments_at(txn, "") if name in ("a/t", "u", "v")]
    return {name: store.read(name) for name in names}


def garbage(store: TestStore) -> set[str]:
    """Return the names of what is to be deleted."""
    with store.metadata.read() as txn:
        return {row.name for _, row in txn.scan(GARBAGE)}


def _ignore(_: Progress) -> None:
    return None
