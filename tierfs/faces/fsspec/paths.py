"""URLs and paths of segments, and the listings of `ls` and `info` from one snapshot of the metadata.

    tierfs:///srv/store/logs/web    the longest leading part that is a store is the store
    tierfs://logs/web               the store is named by the option `store` or by TIERFS_STORE

A path keeps the form it was given in: listing `/srv/store/logs` gives `/srv/store/logs/web`, and listing `logs` gives
`logs/web`, because fsspec compares the names it lists with the name it asked for.
"""

from __future__ import annotations

import os
from typing import Any, TypeAlias

from tierfs.app.sources import URL_PREFIX, below, store_of
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest, NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.types import DirectoryId, EntryKind, ReadPriority
from tierfs.engine.metadata import directories, tables
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.policies import PolicyCache
from tierfs.engine.metadata.records import DirectoryRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments.stat import modified_ns

PROTOCOL = "tierfs"


def strip(url: str) -> str:
    """Return the path of a URL, without a slash at its end; a path stays unchanged, and the root is empty."""
    return url.removeprefix(URL_PREFIX).rstrip("/")


def is_url(where: str) -> bool:
    """Return whether a store is named by the URL of its bucket, not by its directory."""
    return "://" in where


def name_in(store: str, path: str) -> str:
    """Return the name in `store` of a path's segment or directory.

    Raises InvalidRequest for a path into another store.
    """
    if not path.startswith("/"):
        return path
    if not is_url(store) and (inside := below(store, path)) is not None:
        return inside
    other = store_of(path)
    if other is not None and (is_url(store) or os.path.realpath(other) != os.path.realpath(store)):
        raise InvalidRequest(
            f"{printable(path)} is in the store {printable(other)}, and this filesystem is of {printable(store)}",
            remedy=f"open it as {URL_PREFIX}{printable(path)}, without another store in storage_options",
        )
    return path.strip("/") if other is None else below(other, path) or ""


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
