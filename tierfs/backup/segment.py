"""Dumps of single segments in the bucket: `dumps/<segment id>-<attempt>`, the metadata of the cold bytes.

An object is a sequence of framed SegmentDump messages, so that reading one takes bounded memory. It is no part of the
journal and stays until a user deletes it.
"""

from __future__ import annotations

import base64
import logging
import mmap
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from tierfs import names
from tierfs.chunkstore.protocol import BufferSource, ChunkStorage, StoredObject
from tierfs.errors import DataLoss, NotFound
from tierfs.metadata import changes, directories
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.records import RECORD_VERSION, SegmentRecord
from tierfs.metadata.store import MetadataStore, new_id
from tierfs.metadata.transaction import ReadTransaction

log = logging.getLogger(__name__)

DUMPS_PREFIX = "dumps/"

_WRITTEN = "written"
_NAME = re.compile(r"dumps/\d+-[0-9a-f]{32}")
_PIECE_BYTES = 4 * 1024 * 1024
"""Changes per framed message end here, half of what one may have."""


@dataclass(frozen=True, slots=True)
class SegmentDumped:
    """The contents of a segment's dump."""

    segment: str
    object: str
    bytes: int
    """Of the dump itself."""
    cold_bytes: int
    """Of the segment that loading the dump brings back."""
    only_local_bytes: int
    """Of the segment that it does not."""


@dataclass(frozen=True, slots=True)
class _Header:
    store_id: str
    path: str
    written_ms: int


def dump_segment(metadata: MetadataStore, storage: ChunkStorage, name: str) -> SegmentDumped:
    """Write the metadata of a segment's cold bytes to the bucket. Raises NotFound, IsDirectory, and the storage's."""
    path = names.join(names.split(name))
    with tempfile.TemporaryFile() as spool:
        written_ms = metadata.clock.now_ms()
        with metadata.read() as txn:
            segment = directories.segment_by_name(txn, path)
            for piece in _pieces(txn, segment, path, written_ms):
                spool.write(changes.frame(piece))
        spool.flush()
        described = {
            "store": metadata.store_id,
            "segment": str(segment.id),
            "name": _encoded(path),
            _WRITTEN: str(written_ms),
        }
        object_name = f"{DUMPS_PREFIX}{segment.id}-{new_id()}"
        with mmap.mmap(spool.fileno(), 0, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
            stored = storage.put(object_name, BufferSource(view), metadata=described)
    return SegmentDumped(
        segment=path,
        object=object_name,
        bytes=stored.length_bytes,
        cold_bytes=segment.cold.bytes,
        only_local_bytes=max(0, segment.range.length_bytes - segment.cold.bytes),
    )


def find_dump(storage: ChunkStorage, store_id: str, wanted: str) -> StoredObject:
    """Return the dump with this object name, or the newest one of the segment with this name. Raises NotFound."""
    if _NAME.fullmatch(wanted):
        return _ours(storage, storage.stat(wanted), store_id)
    path, newest, newest_ms = names.join(names.split(wanted)), None, -1
    for listed in storage.list(DUMPS_PREFIX):
        if not _NAME.fullmatch(listed.name):
            continue
        stored = storage.stat(listed.name)
        header = _header(storage, stored)
        if header is not None and (header.store_id, header.path) == (store_id, path) and header.written_ms > newest_ms:
            newest, newest_ms = stored, header.written_ms
    if newest is None:
        raise NotFound(
            f"the bucket has no dump of {names.printable(wanted)}",
            remedy=f"they are made with: tierfs dump {names.printable(wanted)} --to-bucket",
        )
    return newest


def read_dump(storage: ChunkStorage, stored: StoredObject) -> Iterator[pb.SegmentDump]:
    """Yield the messages of a dump, each checked. Raises DataLoss for damage, and what the storage raises."""
    file = ObjectFile(storage, stored)
    while (framed := changes.read_framed(file, stored.name)) is not None:
        piece = changes.parse_segment_dump(framed, stored.name)
        if piece.version > RECORD_VERSION:
            raise DataLoss(f"{stored.name} has format version {piece.version}", remedy="upgrade tierfs")
        yield piece


class ObjectFile:
    """An object read in order, never more of it than requested."""

    def __init__(self, storage: ChunkStorage, stored: StoredObject) -> None:
        self._storage = storage
        self._stored = stored
        self._at = 0

    def read(self, size_bytes: int) -> bytes:
        """Return the next bytes; fewer at the end."""
        buffer = bytearray(min(size_bytes, self._stored.length_bytes - self._at))
        if buffer:
            self._storage.read_into(self._stored.name, self._at, memoryview(buffer), if_match=self._stored.etag)
        self._at += len(buffer)
        return bytes(buffer)


def _pieces(txn: ReadTransaction, segment: SegmentRecord, path: str, written_ms: int) -> Iterator[pb.SegmentDump]:
    head = pb.SegmentDump(version=RECORD_VERSION, store_id=txn.store.store_id, path=path, written_ms=written_ms)
    piece, size_bytes = pb.SegmentDump(), 0
    piece.CopyFrom(head)
    for change in changes.segment_state(txn, segment):
        if size_bytes and size_bytes + change.ByteSize() > _PIECE_BYTES:
            yield piece
            piece, size_bytes = pb.SegmentDump(), 0
            piece.CopyFrom(head)
        piece.changes.append(change)
        size_bytes += change.ByteSize()
    yield piece


def _ours(storage: ChunkStorage, stored: StoredObject, store_id: str) -> StoredObject:
    header = _header(storage, stored)
    if header is None or header.store_id != store_id:
        raise NotFound(f"{stored.name} is the dump of another store's segment")
    return stored


def _header(storage: ChunkStorage, stored: StoredObject) -> _Header | None:
    """Return the header of a dump: its user metadata, or its first message where a copy dropped those."""
    metadata = stored.metadata
    try:
        if "store" in metadata:
            # The server's clock tells seconds only.
            written_ms = int(metadata[_WRITTEN]) if _WRITTEN in metadata else stored.modified_ms
            return _Header(metadata["store"], base64.urlsafe_b64decode(metadata["name"]).decode(), written_ms)
        first = next(read_dump(storage, stored), None)
    except (KeyError, ValueError, DataLoss) as exc:
        log.info("%s is not a readable dump: %s", stored.name, exc)
        return None
    return None if first is None else _Header(first.store_id, first.path, first.written_ms)


def _encoded(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode("ascii")
