"""Selects the segments of a scan: paths, directories and globs of names, and filters by name and time.

Names follow Spark's options: a directory means the segments in it, with `recursive` all below it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import translate

from tierfs import names
from tierfs.errors import InvalidRequest, NotFound
from tierfs.metadata import directories, tables
from tierfs.metadata.directories import Entry
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.tables import SEGMENTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import ROOT_DIRECTORY, DirectoryId, EntryKind, SegmentId

_GLOB = frozenset("*?[{")
_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST_BRACES = 1000


@dataclass(frozen=True, slots=True)
class Selection:
    """The paths and filters of a scan. Times are milliseconds since the epoch, half-open."""

    paths: tuple[str, ...] = ("",)
    recursive: bool = False
    name_glob: str | None = None
    """Of the last component, like Spark's pathGlobFilter."""
    modified_after_ms: int | None = None
    modified_before_ms: int | None = None

    def accepts(self, path: str, segment: SegmentRecord) -> bool:
        """Return whether the filters accept a segment."""
        if self.name_glob is not None and not _matcher(self.name_glob).match(path.rpartition("/")[2]):
            return False
        if self.modified_after_ms is not None and segment.modified_ms <= self.modified_after_ms:
            return False
        return self.modified_before_ms is None or segment.modified_ms < self.modified_before_ms


def select(txn: ReadTransaction, selection: Selection) -> Iterator[tuple[str, SegmentRecord]]:
    """Return full names and records of the segments, each once, in the order of paths and names.

    Raises NotFound for a path that leads nowhere, and for a glob that matches nothing.
    """
    seen: set[int] = set()
    for path in selection.paths:
        for name, entry in _matches(txn, path):
            for full_name, segment in _below(txn, entry, name, recursive=selection.recursive):
                if segment.id not in seen and selection.accepts(full_name, segment):
                    seen.add(segment.id)
                    yield full_name, segment


def _matches(txn: ReadTransaction, path: str) -> list[tuple[str, Entry]]:
    if not _GLOB.intersection(path):
        entry = directories.find(txn, path)
        if entry is None:
            raise NotFound(f"{names.printable(path)} does not exist in the store", remedy="look with: tierfs ls")
        return [(names.join(names.split(path)), entry)]
    found = [match for pattern in _expanded(path) for match in _walk(txn, pattern)]
    if not found:
        raise NotFound(f"nothing in the store matches {names.printable(path)}", remedy="look with: tierfs ls")
    return found


def _walk(txn: ReadTransaction, pattern: str) -> Iterator[tuple[str, Entry]]:
    """Yield entries whose full names match a pattern, component by component."""
    matches = [("", Entry("", EntryKind.DIRECTORY, ROOT_DIRECTORY))]
    for part in (part for part in pattern.split("/") if part):
        matches = [match for path, entry in matches for match in _children(txn, path, entry, part)]
    yield from matches


def _children(txn: ReadTransaction, path: str, entry: Entry, part: str) -> Iterator[tuple[str, Entry]]:
    if entry.kind is not EntryKind.DIRECTORY:
        return
    if not _GLOB.intersection(part):
        child = directories.lookup(txn, DirectoryId(entry.id), part)
        if child is not None and not directories.is_removed(entry.id, part):
            yield _joined(path, part), child
        return
    matcher = _matcher(part)
    for child in directories.entries(txn, DirectoryId(entry.id)):
        if matcher.match(child.name):
            yield _joined(path, child.name), child


def _below(txn: ReadTransaction, entry: Entry, path: str, *, recursive: bool) -> Iterator[tuple[str, SegmentRecord]]:
    if entry.kind is EntryKind.SEGMENT or recursive:
        yield from directories.segments_below(txn, entry, path)
        return
    for child in directories.entries(txn, DirectoryId(entry.id)):
        if child.kind is EntryKind.SEGMENT:
            record = txn.must_get(SEGMENTS, tables.u64(SegmentId(child.id)), f"segment {names.printable(child.name)}")
            yield _joined(path, child.name), record


def _expanded(pattern: str) -> list[str]:
    """Return a pattern without braces for each alternative. Raises InvalidRequest for too many."""
    patterns = [pattern]
    while any("{" in pattern_ for pattern_ in patterns):
        grown: list[str] = []
        for pattern_ in patterns:
            braces = _BRACES.search(pattern_)
            if braces is None:
                if "{" in pattern_:
                    raise InvalidRequest(f"{names.printable(pattern)}: a brace is not closed")
                grown.append(pattern_)
                continue
            grown += [pattern_[: braces.start()] + part + pattern_[braces.end() :] for part in braces[1].split(",")]
        if len(grown) > _MOST_BRACES:
            raise InvalidRequest(f"{names.printable(pattern)} stands for more than {_MOST_BRACES} patterns")
        patterns = grown
    return patterns


def _matcher(pattern: str) -> re.Pattern[str]:
    """Return the matcher of a glob of one component; `[!a]` and Hadoop's `[^a]` mean the same."""
    return re.compile("|".join(translate(one.replace("[^", "[!")) for one in _expanded(pattern)))


def _joined(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
