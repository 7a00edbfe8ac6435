"""Before a hole is called lost: is there a file or object of these bytes that lost its record?"""

from __future__ import annotations

from tierfs.background.orphans import COLD_NAME, LOCAL_NAME, SEGMENTS_PREFIX
from tierfs.background.pack_index import read_index
from tierfs.chunkstore.chunkfiles import ChunkFiles, file_name
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import DataLoss, NotFound
from tierfs.metadata import directories
from tierfs.metadata.messages import messages
from tierfs.metadata.pack import PACKS_PREFIX
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import GARBAGE
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import AttemptId, ByteRange, SegmentId


class Unrecorded:
    """Looks through names, which tell the segment and the offset they were made for."""

    def __init__(self, metadata: MetadataStore, files: ChunkFiles) -> None:
        self._metadata = metadata
        self._files = files

    def copy_of(
        self, txn: ReadTransaction, segment_id: SegmentId, span: ByteRange, storage: ChunkStorage | None
    ) -> str | None:
        """Why `span` of a segment may not be lost: what may hold bytes of it. Raises what the storage raises."""
        waiting = {row.name for _, row in messages(txn, GARBAGE) if row is not None}
        name = self._file(segment_id, span, waiting)
        if name is None and storage is not None:
            name = _object(txn, segment_id, span, waiting, storage) or _pack(segment_id, span, waiting, storage)
        return None if name is None else f"{name} may hold these bytes: tierfs recover, tierfs load"

    def _file(self, segment_id: SegmentId, span: ByteRange, waiting: set[str]) -> str | None:
        directory = file_name(segment_id, 0, AttemptId("")).partition("/")[0]
        for name in self._files.names_in(directory):
            parsed = LOCAL_NAME.fullmatch(name)
            if parsed is None or int(parsed["segment"], 16) != segment_id or name in waiting:
                continue
            try:
                start = int(parsed["start"], 16)
                held = ByteRange(start, start + self._files.length_bytes(name))
            except NotFound:
                continue
            if held.intersect(span):
                return f"chunk file {name}"
        return None


def _object(
    txn: ReadTransaction, segment_id: SegmentId, span: ByteRange, waiting: set[str], storage: ChunkStorage
) -> str | None:
    segment = directories.segment(txn, segment_id)
    if segment is None:
        return None
    path = directories.path_of(txn, segment.parent_id, segment.name)
    for listed in storage.list(f"{SEGMENTS_PREFIX}{path}/{segment_id}/"):
        parsed = COLD_NAME.fullmatch(listed.name)
        if parsed is None or listed.name in waiting:
            continue
        start = int(parsed["start"])
        if ByteRange(start, start + listed.length_bytes).intersect(span):
            return f"object {listed.name}"
    return None


def _pack(segment_id: SegmentId, span: ByteRange, waiting: set[str], storage: ChunkStorage) -> str | None:
    """A pack whose index names bytes of the range; costs two small reads for each pack there is."""
    for listed in storage.list(PACKS_PREFIX):
        if listed.name in waiting:
            continue
        try:
            entries = read_index(storage, listed.name, listed.length_bytes).entries
        except (DataLoss, NotFound):
            continue
        if any(one.segment_id == segment_id and one.range.intersect(span) for one in entries):
            return f"pack {listed.name}"
    return None
