"""Searches files and objects without a record for the bytes of a hole, before it is recorded as lost."""

from __future__ import annotations

from collections.abc import Container, Iterable

from tierfs.base.words import object_names
from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.base.words.types import AttemptId, ByteRange, SegmentId
from tierfs.engine.chunkstore import local_files
from tierfs.engine.chunkstore.local_files import ChunkFiles, file_name
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.message_rows import messages
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import GARBAGE
from tierfs.tiering.garbage.orphans import SEGMENTS_PREFIX
from tierfs.tiering.packs.format import PACKS_PREFIX, read_index

# Per segment: the ranges of it that packs hold, with the name of the pack.
Packed = dict[int, list[tuple[ByteRange, str]]]


class Unrecorded:
    """Finds unrecorded copies by name: a name contains the segment and the offset it was made for."""

    def __init__(self, metadata: MetadataStore, files: ChunkFiles) -> None:
        self._metadata = metadata
        self._files = files
        self._expected: set[int] = set()
        self._packed: Packed | None = None

    def expect(self, segments: Iterable[int]) -> None:
        """Announce the segments of later calls; the packs are read for all of them once, at the first need."""
        self._expected, self._packed = set(segments), None

    def copy_of(self, segment_id: SegmentId, lost: ByteRange, storage: ChunkStorage | None) -> str | None:
        """Return the reason `lost` may not be recorded as such: a file, object or pack that may hold bytes of it.

        Raises what the storage raises.
        """
        with self._metadata.read() as txn:
            waiting = {row.name for _, row in messages(txn, GARBAGE) if row is not None}
            segment = directories.segment(txn, segment_id)
            path = None if segment is None else directories.path_of(txn, segment.parent_id, segment.name)
        name = self._file(segment_id, lost, waiting)
        if name is None and storage is not None:
            name = _object(path, segment_id, lost, waiting, storage) or self._pack(segment_id, lost, waiting, storage)
        return None if name is None else f"{name} may contain these bytes: tierfs recover, tierfs restore"

    def _pack(self, segment_id: SegmentId, lost: ByteRange, waiting: set[str], storage: ChunkStorage) -> str | None:
        """Return a pack whose index names bytes of the range; costs two small reads per pack, once."""
        if segment_id not in self._expected:
            self.expect({*self._expected, segment_id})
        if self._packed is None:
            self._packed = _in_packs(storage, self._expected)
        for held, name in self._packed.get(segment_id, ()):
            if name not in waiting and held.intersect(lost):
                return f"pack {name}"
        return None

    def _file(self, segment_id: SegmentId, lost: ByteRange, waiting: set[str]) -> str | None:
        directory = file_name(segment_id, 0, AttemptId("")).partition("/")[0]
        for name in self._files.names_in(directory):
            parsed = local_files.NAME.fullmatch(name)
            if parsed is None or int(parsed["segment"], 16) != segment_id or name in waiting:
                continue
            try:
                start = int(parsed["start"], 16)
                held = ByteRange(start, start + self._files.length_bytes(name))
            except NotFound:
                continue
            if held.intersect(lost):
                return f"chunk file {name}"
        return None


def _object(
    path: str | None, segment_id: SegmentId, lost: ByteRange, waiting: set[str], storage: ChunkStorage
) -> str | None:
    if path is None:
        return None
    for listed in storage.list(f"{SEGMENTS_PREFIX}{path}/{segment_id}/"):
        parsed = object_names.CHUNK.fullmatch(listed.name)
        if parsed is None or listed.name in waiting:
            continue
        if ByteRange(int(parsed["start"]), int(parsed["end"])).intersect(lost):
            return f"object {listed.name}"
    return None


def _in_packs(storage: ChunkStorage, segments: Container[int]) -> Packed:
    """Return the ranges of some segments that packs hold; a pack whose index cannot be read is skipped."""
    packed: Packed = {}
    for listed in storage.list(PACKS_PREFIX):
        try:
            entries = read_index(storage, listed.name, listed.length_bytes).entries
        except (DataLoss, NotFound):
            continue
        for entry in entries:
            if entry.segment_id in segments:
                packed.setdefault(entry.segment_id, []).append((entry.range, listed.name))
    return packed
