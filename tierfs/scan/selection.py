"""Selects the segments of a scan: paths, directories and globs of names, and filters by name and time.

Names follow Spark's options: a directory means the segments in it, with `recursive` all below it.

A pinned snapshot: the segments of a scan as one transaction sees them, each with its end and its extents.

Bytes appended later are not read, however often the scan runs; so retries and later actions see the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import translate

from tierfs import names
from tierfs.config import ColdSettings
from tierfs.errors import InvalidRequest, NotFound, PermissionDenied, Unavailable
from tierfs.metadata import chains, directories, entries, policies, tables
from tierfs.metadata.directories import Entry
from tierfs.metadata.ledger_and_batch_records import EntryRun
from tierfs.metadata.records import LocationRecord, SegmentRecord
from tierfs.metadata.tables import LOCATIONS, SEGMENTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.names import printable
from tierfs.precedence import Effective
from tierfs.scan.extents import Extent, Place, extents_of
from tierfs.scan.fetching import ScannedLedger
from tierfs.setup.connect import require_allowed
from tierfs.types import ROOT_DIRECTORY, ByteRange, DirectoryId, EntryKind, ReadPriority, SegmentId, SegmentKind

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

    def selects(self, name: str) -> bool:
        """Return whether a segment of this full name would be selected, whether or not it exists."""
        parts = names.split(name)
        for pattern in (pattern for path in self.paths for pattern in _expanded(path)):
            wanted = [part for part in pattern.split("/") if part]
            below = len(parts) - len(wanted)
            if below < 0 or (below > 1 and not self.recursive):
                continue
            if all(_matcher(glob).match(part) for glob, part in zip(wanted, parts, strict=False)):
                return self.name_glob is None or _matcher(self.name_glob).match(parts[-1]) is not None
        return False

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


class Tail(StrEnum):
    """Treatment of bytes that are only in the store's directory."""

    LOCAL = "local"
    """Executors read them there."""
    OFFLOAD = "offload"
    """They are made cold first."""
    COLD_ONLY = "cold-only"
    """The scan ends before them."""
    ERROR = "error"
    """The scan is refused."""


@dataclass(frozen=True, slots=True)
class PinnedSegment:
    """One segment of a snapshot."""

    segment: SegmentRecord
    path: str
    range: ByteRange
    """The bytes that may be read."""
    extents: tuple[Extent, ...]
    """Of the whole range."""
    priority: Effective[ReadPriority]
    ledger: ScannedLedger | None = None
    part: ByteRange | None = None
    """Stretch whose records are read; None for the whole range."""

    @property
    def owned(self) -> ByteRange:
        """The range whose records, by their first byte, are read."""
        return self.range if self.part is None else self.part


class Pinner:
    """Pins segments in one transaction."""

    def __init__(self, txn: ReadTransaction, priority: ReadPriority | None, tail: Tail) -> None:
        """`priority` is the call's; `tail`: bytes that were to be offloaded are cold by now."""
        self._txn = txn
        # Executors need not be asked for the store's directory where the tail is cold, or not read.
        self._call = priority or (None if tail is Tail.LOCAL else ReadPriority.OFFLOADED_ONLY)
        self._tail = tail
        self._policies = policies.PolicyCache()

    def pin(
        self,
        path: str,
        segment: SegmentRecord,
        wanted: ByteRange | None = None,
        start_entry_id: int = 0,
        end_entry_id: int | None = None,
    ) -> PinnedSegment:
        """Pin a segment, or its bytes inside `wanted`, and of a ledger only these entries.

        Raises Unavailable or DataLoss for bytes that nothing holds, Unavailable for a tail that may not be read.
        """
        priority = self._policies.of(self._txn, segment).read_priority(self._call)
        span = self._cut(path, segment, segment.range if wanted is None else segment.range.intersect(wanted))
        extents = tuple(extents_of(self._txn, segment, span, priority.value))
        ledger = self._ledger(segment, span)
        if ledger is not None:
            ledger = replace(ledger, start_entry_id=start_entry_id, end_entry_id=end_entry_id)
        return PinnedSegment(segment, path, span, extents, priority, ledger)

    def _cut(self, path: str, segment: SegmentRecord, span: ByteRange) -> ByteRange:
        """Return the bytes before those only in the store's directory, unless these may be read."""
        if self._tail is Tail.LOCAL:
            return span
        cold_end = chains.cold_end(self._txn, segment)
        if span.end <= cold_end:
            return span
        if self._tail is not Tail.COLD_ONLY:
            local_bytes = span.end - max(cold_end, span.start)
            raise Unavailable(
                f"segment {printable(path)}: {local_bytes} bytes are only in the store's directory",
                remedy="set the option tail to local, offload or cold-only",
            )
        return ByteRange(span.start, max(span.start, cold_end))

    def _ledger(self, segment: SegmentRecord, span: ByteRange) -> ScannedLedger | None:
        if segment.kind is not SegmentKind.LEDGER:
            return None
        return ScannedLedger(segment.id, tuple(_runs(self._txn, segment, span)))


def place_of(txn: ReadTransaction, path: str, settings: ColdSettings) -> Place:
    """Return the store as executors reach it, with the locations that may be read."""
    allowed = (record for _, record in txn.scan(LOCATIONS) if _may_be_read(record, settings))
    return Place(path, txn.store.store_id, tuple(replace(record, stored=b"") for record in allowed), settings)


def _may_be_read(location: LocationRecord, settings: ColdSettings) -> bool:
    try:
        require_allowed(location, settings)
    except PermissionDenied:
        return False
    return True


def _runs(txn: ReadTransaction, segment: SegmentRecord, span: ByteRange) -> Iterator[EntryRun]:
    """Return the runs that intersect `span`, with those of empty entries at its end if the segment ends there."""
    first = entries.run_holding(txn, segment.id, span.start) if span.start > segment.start_offset else None
    for run in entries.runs(txn, segment.id, 0 if first is None else first.first_entry_id):
        if run.payload_start > span.end or (run.payload_start == span.end < segment.length):
            return
        if run.payload_end >= span.start:
            yield replace(run, stored=b"")
