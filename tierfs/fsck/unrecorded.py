"""Before a hole is called lost: is there a file or object of these bytes that lost its record?"""

from __future__ import annotations

from collections.abc import Container, Iterable

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
from tierfs.types import AttemptId, ByteRange, SegmentId

Packed = dict[int, list[tuple[ByteRange, str]]]
"""Segment -> which of its bytes packs hold, by the name of the pack."""


class Unrecorded:
    """Looks through names, which tell the segment and the offset they were made for."""

    def __init__(self, metadata: MetadataStore, files: ChunkFiles) -> None:
        self._metadata = metadata
        self._files = files
        self._expected: set[int] = set()
        self._packed: Packed | None = None

    def expect(self, segments: Iterable[int]) -> None:
        """These segments will be asked for: what packs hold of them is read once, when it is needed first."""
        self._expected, self._packed = set(segments), None

    def copy_of(self, segment_id: SegmentId, span: ByteRange, storage: ChunkStorage | None) -> str | None:
        """Why `span` of a segment may not be lost: what may hold bytes of it. Raises what the storage raises."""
        with self._metadata.read() as txn:
            waiting = {row.name for _, row in messages(txn, GARBAGE) if row is not None}
            segment = directories.segment(txn, segment_id)
            path = None if segment is None else directories.path_of(txn, segment.parent_id, segment.name)
        name = self._file(segment_id, span, waiting)
        if name is None and storage is not None:
            name = _object(path, segment_id, span, waiting, storage) or self._pack(segment_id, span, waiting, storage)
        return None if name is None else f"{name} may hold these bytes: tierfs recover, tierfs load"

    def _pack(self, segment_id: SegmentId, span: ByteRange, waiting: set[str], storage: ChunkStorage) -> str | None:
        """A pack whose index names bytes of the range; costs two small reads for each pack there is, once."""
        if segment_id not in self._expected:
            self.expect({*self._expected, segment_id})
        if self._packed is None:
            self._packed = _in_packs(storage, self._expected)
        for held, name in self._packed.get(segment_id, ()):
            if name not in waiting and held.intersect(span):
                return f"pack {name}"
        return None

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
    path: str | None, segment_id: SegmentId, span: ByteRange, waiting: set[str], storage: ChunkStorage
) -> str | None:
    if path is None:
        return None
    for listed in storage.list(f"{SEGMENTS_PREFIX}{path}/{segment_id}/"):
        parsed = COLD_NAME.fullmatch(listed.name)
        if parsed is None or listed.name in waiting:
            continue
        start = int(parsed["start"])
        if ByteRange(start, start + listed.length_bytes).intersect(span):
            return f"object {listed.name}"
    return None


def _in_packs(storage: ChunkStorage, segments: Container[int]) -> Packed:
    """What the packs hold of some segments; one whose index cannot be read is passed over."""
    found: Packed = {}
    for listed in storage.list(PACKS_PREFIX):
        try:
            entries = read_index(storage, listed.name, listed.length_bytes).entries
        except (DataLoss, NotFound):
            continue
        for one in entries:
            if one.segment_id in segments:
                found.setdefault(one.segment_id, []).append((one.range, listed.name))
    return found
