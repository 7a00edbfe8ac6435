"""The listings of `ls` and `info`, from one snapshot of the metadata."""

from __future__ import annotations

from typing import Any, TypeAlias

from tierfs.base.words import names
from tierfs.base.words.errors import NotFound
from tierfs.base.words.types import DirectoryId, EntryKind, ReadPriority
from tierfs.engine.metadata import directories, tables
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.policies import PolicyCache
from tierfs.engine.metadata.records import DirectoryRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments.stat import modified_ns

Info: TypeAlias = dict[str, Any]
_MS_PER_S = 1000
_NS_PER_S = 1_000_000_000


def info(metadata: MetadataStore, name: str, path: str, call: ReadPriority | None = None) -> Info:
    """Return the information about a name; `path` is the caller's form of it, `call` its read priority.

    Raises NotFound.
    """
    with metadata.read() as txn:
        return _Infos(txn, call).of_entry(_find(txn, name), path)


def segment(
    metadata: MetadataStore, name: str, path: str, call: ReadPriority | None = None
) -> tuple[SegmentRecord, Info]:
    """Return a segment's record and its information. Raises NotFound, or IsDirectory."""
    with metadata.read() as txn:
        record = directories.segment_by_name(txn, name)
        return record, _Infos(txn, call).of_segment(record, path)


def children(metadata: MetadataStore, name: str, path: str, call: ReadPriority | None = None) -> list[Info]:
    """List a directory, by name; a segment is a list of itself. Raises NotFound."""
    with metadata.read() as txn:
        entry, infos = _find(txn, name), _Infos(txn, call)
        if entry.kind is EntryKind.SEGMENT:
            return [infos.of_entry(entry, path)]
        below = f"{path}/" if path else ""
        listed = directories.entries(txn, DirectoryId(entry.id))
        return [infos.of_entry(child, f"{below}{child.name}") for child in listed]


def _find(txn: ReadTransaction, name: str) -> Entry:
    entry = directories.find(txn, name)
    if entry is None:
        raise NotFound(f"{names.printable(name)} does not exist in this store")
    return entry


class _Infos:
    """Informations about names in one transaction."""

    def __init__(self, txn: ReadTransaction, call: ReadPriority | None) -> None:
        self._txn = txn
        self._call = call
        self._policies = PolicyCache()

    def of_entry(self, entry: Entry, path: str) -> Info:
        if entry.kind is EntryKind.DIRECTORY:
            return _of_directory(directories.directory(self._txn, entry.id), path)
        what = f"segment {names.printable(path)}"
        return self.of_segment(self._txn.must_get(SEGMENTS, tables.u64(entry.id), what), path)

    def of_segment(self, record: SegmentRecord, path: str) -> Info:
        priority = self._policies.of(self._txn, record).read_priority(self._call)
        return {
            "name": path,
            "size": record.range.length_bytes,
            "type": "file",
            "kind": record.kind.name.lower(),
            "mtime": modified_ns(record) / _NS_PER_S,
            "created": record.created_ms / _MS_PER_S,
            "sealed": record.sealed,
            "generation": record.generation,
            "segment_id": record.id,
            "start_offset": record.start_offset,
            "read_priority": priority.value.value,
            "read_priority_origin": str(priority.origin),
        }


def _of_directory(record: DirectoryRecord, path: str) -> Info:
    return {
        "name": path,
        "size": 0,
        "type": "directory",
        "kind": "directory",
        "mtime": record.modified_ms / _MS_PER_S,
        "created": record.created_ms / _MS_PER_S,
    }
