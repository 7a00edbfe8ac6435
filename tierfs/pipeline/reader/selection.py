"""Selects the segments of a scan: paths, directories and globs of names, and filters by name and time.

Names follow Spark's options: a directory means the segments in it and those below its directories `column=value`, with
`recursive` all below it.

A pinned snapshot: the segments of a scan as one transaction sees them, each with its end and its extents.

Bytes appended later are not read, however often the scan runs; so retries and later actions see the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.config import ColdSettings
from tierfs.base.options.precedence import Effective
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest, NotFound, PermissionDenied, Unavailable
from tierfs.base.words.names import printable
from tierfs.base.words.types import ROOT_DIRECTORY, ByteRange, DirectoryId, EntryKind, ReadPriority, SegmentKind
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.metadata import chains, directories, entries, policies, tables
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.ledger_records import EntryRun
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.tables import LOCATIONS, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.pipeline.reader import globs
from tierfs.pipeline.reader.extents import Extent, ScannedStore, extents_of, with_blocks
from tierfs.pipeline.reader.fetching import ScannedLedger
from tierfs.pipeline.reader.partition_directories import partition_value, partition_values, value_of

if TYPE_CHECKING:
    from tierfs.pipeline.reader.partition_conditions import PartitionCondition


def conditions_of(text: str) -> tuple[PartitionCondition, ...]:
    """Return the conditions in a text. Raises InvalidRequest as `parse_conditions`, which most reads do not need."""
    from tierfs.pipeline.reader.partition_conditions import parse_conditions

    return parse_conditions(text)


@dataclass(frozen=True, slots=True)
class Selection:
    """The paths and filters of a scan. Times are milliseconds since the epoch, half-open."""

    paths: tuple[str, ...] = ("",)
    recursive: bool = False
    name_glob: str | None = None
    """Of the last component, like Spark's pathGlobFilter."""
    modified_after_ms: int | None = None
    modified_before_ms: int | None = None
    conditions: tuple[PartitionCondition, ...] = ()
    """On the columns of directories."""
    skips_hidden: bool = False
    """Whether names that Hadoop hides are left out."""

    def selects(self, name: str) -> bool:
        """Return whether a segment of this full name would be selected, whether or not it exists."""
        parts = names.split(name)
        for pattern in (pattern for path in self.paths for pattern in globs.expanded(globs.masked(path))):
            wanted = [part for part in pattern.split("/") if part]
            below = parts[len(wanted) : -1]
            if len(parts) < len(wanted) or not (self.recursive or not below or partition_value(below[0])):
                continue
            if all(globs.matcher(glob).match(part) for glob, part in zip(wanted, parts, strict=False)):
                return self.takes(name) and not any(map(self._hides, below))
        return False

    def takes(self, name: str) -> bool:
        """Return whether the filters accept a segment's full name."""
        directory, _, last = name.rpartition("/")
        if self._hides(last):
            return False
        if self.name_glob is not None and not globs.matcher(globs.masked(self.name_glob)).match(last):
            return False
        return all(condition.holds(value_of(directory, condition.column)) for condition in self.conditions)

    def takes_record(self, segment: SegmentRecord) -> bool:
        """Return whether the filters by time accept a segment."""
        if self.modified_after_ms is not None and segment.modified_ms <= self.modified_after_ms:
            return False
        return self.modified_before_ms is None or segment.modified_ms < self.modified_before_ms

    def enters(self, directory: str, *, deep: bool) -> bool:
        """Return whether segments in a directory of this name are read along with those around it.

        `deep`: it lies below a directory that was entered. One named `column=value` is part of its table.
        """
        wanted = deep or self.recursive or partition_value(directory) is not None
        if not wanted or self._hides(directory):
            return False
        if not self.conditions:
            return True
        from tierfs.pipeline.reader.partition_conditions import admits  # most reads have none

        return admits(self.conditions, directory)

    def _hides(self, component: str) -> bool:
        return self.skips_hidden and names.is_hadoop_hidden(component)


def select(txn: ReadTransaction, selection: Selection) -> Iterator[tuple[str, SegmentRecord]]:
    """Return full names and records of the segments, each once, in the order of paths and names.

    Raises NotFound for a path that leads nowhere, and for a glob that matches nothing.
    """
    for name, entry in selected_names(txn, selection):
        segment = txn.must_get(SEGMENTS, tables.u64(entry.id), f"segment {printable(name)}")
        if selection.takes_record(segment):
            yield name, segment


def selected_names(txn: ReadTransaction, selection: Selection) -> Iterator[tuple[str, Entry]]:
    """Return full names and entries of the segments that `select` chooses from by time, without reading them."""
    seen: set[int] = set()
    for path in selection.paths:
        for root, entry in _matches(txn, path):
            for name, segment in _below(txn, selection, entry, root):
                if segment.id not in seen and selection.takes(name):
                    seen.add(segment.id)
                    yield name, segment


def table_directories(txn: ReadTransaction, selection: Selection, base: str | None) -> set[str]:
    """Return the directories of the segments that `selected_names` has, by their names below `base`.

    Without `base` names are below each path: a path of a segment has no directory then. Raises InvalidRequest if a path
    is not below `base`, and what `select` raises.
    """
    parents: set[str] = set()
    for path in selection.paths:
        for root, entry in _matches(txn, path):
            top = root if base is None else base
            if base and root != base and not root.startswith(f"{base}/"):
                raise InvalidRequest(
                    f"{printable(root) or '/'} is not below the basePath {printable(base)}",
                    remedy="set basePath to the directory that contains the table's first column=value directories",
                )
            for name, _ in _below(txn, selection, entry, root):
                if selection.takes(name):
                    parents.add(name.rpartition("/")[0][len(top) :].lstrip("/"))
    return parents


def explain_nothing(txn: ReadTransaction, selection: Selection) -> None:
    """Raise InvalidRequest if a selection has no segments for a reason that its user hardly wants.

    Conditions name a column that no directory has, or the paths hold only directories that are not entered.
    """
    everything = selected_names(txn, replace(selection, conditions=()))
    columns = {column for name, _ in everything for column, _ in partition_values(name.rpartition("/")[0])}
    known = {column.lower() for column in columns}
    unknown = next((condition.column for condition in selection.conditions if condition.column not in known), None)
    if unknown is not None and known:
        raise InvalidRequest(
            f"partitionFilter uses {printable(unknown)}, but no directory has a name {printable(unknown)}=…",
            remedy=f"the columns of directories are {', '.join(map(printable, sorted(columns)))}",
        )
    roots = [match for path in selection.paths for match in _matches(txn, path)]
    below = [_only_directories(txn, entry) for _, entry in roots]
    if all(below) and not selection.recursive:
        raise InvalidRequest(
            f"{printable(roots[0][0]) or '/'} has no segments, only directories such as {printable(below[0])}",
            remedy="set recursiveFileLookup to true, or specify the directories, also by a glob: DIRECTORY/*",
        )


def _only_directories(txn: ReadTransaction, entry: Entry) -> str:
    """Return the first name in a directory that holds directories, and nothing else that a read takes; else nothing."""
    if entry.kind is EntryKind.SEGMENT:
        return ""
    first = ""
    for child in directories.entries(txn, DirectoryId(entry.id)):
        if child.kind is EntryKind.SEGMENT or partition_value(child.name) is not None:
            return ""
        first = first or child.name
    return first


def _matches(txn: ReadTransaction, path: str) -> list[tuple[str, Entry]]:
    pattern = globs.masked(path)
    if not globs.is_glob(pattern):
        name = globs.unmasked(pattern)
        entry = directories.find(txn, name)
        if entry is None:
            raise NotFound(f"{printable(name)} does not exist in the store", remedy="to list names: tierfs ls")
        return [(names.join(names.split(name)), entry)]
    matches = [match for glob in globs.expanded(pattern) for match in _walk(txn, glob)]
    if not matches:
        raise NotFound(f"nothing in the store matches {printable(path)}", remedy="to list names: tierfs ls")
    return matches


def _walk(txn: ReadTransaction, pattern: str) -> Iterator[tuple[str, Entry]]:
    """Yield entries whose full names match a pattern, component by component."""
    matches = [("", Entry("", EntryKind.DIRECTORY, ROOT_DIRECTORY))]
    for part in (part for part in pattern.split("/") if part):
        matches = [match for path, entry in matches for match in _children(txn, path, entry, part)]
    yield from matches


def _children(txn: ReadTransaction, path: str, entry: Entry, part: str) -> Iterator[tuple[str, Entry]]:
    if entry.kind is not EntryKind.DIRECTORY:
        return
    if not globs.is_glob(part):
        name = globs.unmasked(part)
        child = directories.lookup(txn, DirectoryId(entry.id), name)
        if child is not None and not directories.is_removed(entry.id, name):
            yield _joined(path, name), child
        return
    matcher = globs.matcher(part)
    for child in directories.entries(txn, DirectoryId(entry.id)):
        if matcher.match(child.name):
            yield _joined(path, child.name), child


def _below(
    txn: ReadTransaction, selection: Selection, entry: Entry, path: str, *, deep: bool = False
) -> Iterator[tuple[str, Entry]]:
    """Yield a segment, or those in a directory and in the directories below that the selection enters."""
    if entry.kind is EntryKind.SEGMENT:
        yield path, entry
        return
    for child in directories.entries(txn, DirectoryId(entry.id)):
        if child.kind is EntryKind.SEGMENT:
            yield _joined(path, child.name), child
        elif selection.enters(child.name, deep=deep):
            yield from _below(txn, selection, child, _joined(path, child.name), deep=True)


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
    facts: tuple[object, ...] = ()
    """Values of the record that rows have."""

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
        window = self._cut(path, segment, segment.range if wanted is None else segment.range.intersect(wanted))
        extents = tuple(extents_of(self._txn, segment, window, priority.value))
        ledger = self._ledger(segment, window, extents)
        if ledger is not None:
            ledger = replace(ledger, start_entry_id=start_entry_id, end_entry_id=end_entry_id)
        return PinnedSegment(segment, path, window, extents, priority, ledger)

    def _cut(self, path: str, segment: SegmentRecord, wanted: ByteRange) -> ByteRange:
        """Return the bytes before those only in the store's directory, unless these may be read."""
        if self._tail is Tail.LOCAL:
            return wanted
        cold_end = chains.cold_end(self._txn, segment)
        if wanted.end <= cold_end:
            return wanted
        if self._tail is not Tail.COLD_ONLY:
            local_bytes = wanted.end - max(cold_end, wanted.start)
            raise Unavailable(
                f"segment {printable(path)}: {local_bytes} bytes are only in the store's directory",
                remedy="set the option tail to local, offload or cold-only",
            )
        return ByteRange(wanted.start, max(wanted.start, cold_end))

    def _ledger(self, segment: SegmentRecord, window: ByteRange, extents: Sequence[Extent]) -> ScannedLedger | None:
        if segment.kind is not SegmentKind.LEDGER:
            return None
        return ScannedLedger(segment.id, tuple(_runs(self._txn, segment, with_blocks(window, extents))))


def place_of(txn: ReadTransaction, path: str, settings: ColdSettings) -> ScannedStore:
    """Return the store as executors reach it, with the locations that may be read."""
    allowed = (record for _, record in txn.scan(LOCATIONS) if _may_be_read(Place(record, Path(path), settings)))
    return ScannedStore(path, txn.store.store_id, tuple(replace(record, stored=b"") for record in allowed), settings)


def _may_be_read(place: Place) -> bool:
    try:
        place.require_allowed()
    except PermissionDenied:
        return False
    return True


def _runs(txn: ReadTransaction, segment: SegmentRecord, window: ByteRange) -> Iterator[EntryRun]:
    """Return the runs that intersect `window`, with those of empty entries at its end if the segment ends there."""
    first = entries.run_holding(txn, segment.id, window.start) if window.start > segment.start_offset else None
    for run in entries.runs(txn, segment.id, 0 if first is None else first.first_entry_id):
        if run.payload_start > window.end or (run.payload_start == window.end < segment.length):
            return
        if run.payload_end >= window.start:
            yield replace(run, stored=b"")
