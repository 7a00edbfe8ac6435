"""Plan the next reads of a log: which file continues it, and which come after that. Pure.

The store has ranges of files; the directory has files, the oldest first. The file of the newest range is found by its
inode or, after a copy or a compression, by its bytes. Newer files follow in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum

from tierfs.base.bytes.frozen import dataclass
from tierfs.engine.metadata import followed
from tierfs.engine.metadata.followed_range import MAX_PROOF_BYTES, FollowedRange


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file of a log, as a look at its directory found it."""

    path: str
    device: int
    inode: int
    size: int
    modified_ns: int
    compressed: bool = False

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode: no other file has them at the same time."""
        return self.device, self.inode


class Match(Enum):
    """Whether a file has the bytes of a range's file, up to the range's end."""

    SAME = "same"
    SHORTER = "shorter"
    """It has the first of them and no others: a copy that was made before the last ones were written."""
    OTHER = "other"
    UNKNOWN = "unknown"
    """It cannot be read to there now: it is being compressed, or may not be read."""


Matches = Callable[[FollowedRange, SeenFile], Match]


@dataclass(frozen=True, slots=True)
class FileComparison:
    """The ways to compare the bytes of files."""

    match: Matches
    is_copy: Callable[[SeenFile, SeenFile], bool]
    """Whether the first one may be a copy of the second one, or of its beginning."""


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """Bytes to read of one file."""

    file: SeenFile
    start: int
    end: int | None = None
    """None: to its end, also one that it gets meanwhile. A newer file is read as far as it was written when the
    directory was looked at: lines that are later than these may follow others in the file before it."""
    late: bool = False
    """Whether a newer file of the log is in the store already."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The next reads, in order."""

    reads: tuple[PlannedRead, ...] = ()
    waits: bool = False
    """Whether the file that continues the log may still be found: it is looked for again soon."""
    gap: str = ""
    """The reason for which lines may be missing before the first of `reads`; empty without one."""


def plan(
    known: Sequence[FollowedRange],
    files: Sequence[SeenFile],
    compare: FileComparison,
    *,
    nameless: SeenFile | None = None,
    patient: bool = True,
) -> Plan:
    """Return what to read of a log, whose files are given in order, the newest last.

    `nameless` is open, and was the newest before: it was deleted or moved away. With `patient`, a file that is not
    found is waited for.
    """
    last, match = followed.newest_file(known), compare.match
    if last is None:
        return _with_newer((), files, compare, patient=patient)
    place, unsure = _find(last, files, match)
    if nameless is not None and _is_of(last, nameless, match):
        if unsure and place is None and patient:
            return Plan(waits=True)
        at = _before(nameless, files) if place is None else place[0]  # of the copy that was made of it
        return _with_newer((PlannedRead(nameless, last.file_end),), files[at + 1 :], compare, patient=patient)
    if place is not None:
        at, how = place
        first = (PlannedRead(files[at], last.file_end),) if how is Match.SAME else ()
        return _with_newer(first, files[at + 1 :], compare, patient=patient)
    newer = [file for file in files if file.size and file.modified_ns >= last.modified_ns]
    newer = [file for file in newer if not any(_is_of(each, file, match) for each in known)]
    if patient and (unsure or newer):
        return Plan(waits=True)
    made = _with_newer((), newer, compare, patient=patient)
    return replace(made, gap=_gap(last)) if made.reads else made


def _with_newer(
    first: tuple[PlannedRead, ...], newer: Sequence[SeenFile], compare: FileComparison, *, patient: bool
) -> Plan:
    """Return a plan that reads newer files too, each from its start.

    The last but one may be a copy of the last one, which is truncated next: its lines are read where they are.
    """
    written = [file for file in newer if file.size]
    if len(written) > 1 and compare.is_copy(written[-2], written[-1]):
        if written[-2].size > MAX_PROOF_BYTES:
            del written[-2]
        elif patient:  # two files may well begin with the same line; a copy is one for a moment only
            return Plan(first, waits=not first)
    ends = [None] * (len(written) - 1) + [None if file.compressed else file.size for file in written[-1:]]
    return Plan((*first, *(PlannedRead(file, 0, end) for file, end in zip(written, ends, strict=True))))


def late(known: Sequence[FollowedRange], files: Sequence[SeenFile], match: Matches) -> tuple[PlannedRead, ...]:
    """Return what was written to earlier files of a log after newer ones had been begun, by writers that kept them."""
    last = followed.newest_file(known)
    ends = {(each.device, each.inode): each for each in known}
    reads: list[PlannedRead] = []
    for file in files:
        each = ends.get(file.identity)
        if each is None or last is None or file.compressed or file.identity == (last.device, last.inode):
            continue
        if file.size > each.file_end > 0 and match(each, file) is Match.SAME:
            reads.append(PlannedRead(file, each.file_end, late=True))
    return tuple(reads)


def _is_of(known: FollowedRange, file: SeenFile, match: Matches) -> bool:
    return (known.device, known.inode) == file.identity and match(known, file) is Match.SAME


def _find(last: FollowedRange, files: Sequence[SeenFile], match: Matches) -> tuple[tuple[int, Match] | None, bool]:
    """Return the place of the newest range's file and how it matches; or None, and whether one could not be read."""
    unsure = False
    inode = [at for at, file in enumerate(files) if file.inode == last.inode and not file.compressed]
    # A device has another number after a restart of the machine; the inode stays.
    inode.sort(key=lambda at: files[at].device != last.device)
    for at in inode:
        how = match(last, files[at])
        if how is Match.SAME:
            return (at, how), False
        unsure |= how is Match.UNKNOWN
    if not last.file_end and not last.head_length:
        return _after(last, files), unsure
    # A copy is made later than its file was read. Two files may begin with the same line: the older one is ours.
    others = [at for at, file in enumerate(files) if at not in inode or file.compressed]
    others.sort(key=lambda at: (files[at].modified_ns < last.modified_ns, at))
    shorter: int | None = None
    for at in others:
        how = match(last, files[at])
        if how is Match.SAME:
            return (at, how), False
        unsure |= how is Match.UNKNOWN
        if how is Match.SHORTER and shorter is None and files[at].modified_ns >= last.modified_ns:
            shorter = at
    if shorter is not None and not unsure:
        return (shorter, Match.SHORTER), False
    return None, unsure


def _before(nameless: SeenFile, files: Sequence[SeenFile]) -> int:
    """Return the place of the newest file that was last written before a file without a place."""
    return max((at for at, file in enumerate(files) if file.modified_ns < nameless.modified_ns), default=-1)


def _after(last: FollowedRange, files: Sequence[SeenFile]) -> tuple[int, Match] | None:
    """Return the place after which everything is newer than a file that was empty when it was seen."""
    older = [at for at, file in enumerate(files) if file.modified_ns < last.modified_ns]
    return (older[-1] if older else -1), Match.SHORTER


def _gap(last: FollowedRange) -> str:
    return f"after byte {last.file_end} of inode {last.inode}: the rest of that file was not found, or cannot be read"
