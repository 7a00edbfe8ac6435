"""Plan an ingest: the files, and the segments that they become.

The files are listed twice, first to count them and to refuse what cannot be, then as they are copied: so no list of all
is kept, however many there are. Names are kept of one directory at a time, and of directories.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from tierfs.app.unpacking import COMPRESSED, plain_name
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest, NotFound, TierfsError
from tierfs.engine.segments.copied_directories import CopiedDirectories, name_of_copy
from tierfs.faces.cli.errors import from_os_error


@dataclass(frozen=True, slots=True)
class Item:
    """One file and the segment it becomes."""

    path: str
    segment: str
    size_bytes: int
    number: int = 0
    """Its place in the order of the listing."""
    packed: bool = False
    """Whether the segment gets the decompressed content of the file; `size_bytes` is that of the file."""


@dataclass(frozen=True, slots=True)
class _Source:
    """A path that was given."""

    path: str
    copy: str
    """Name of a directory below the target; "" if it becomes the target itself."""
    target: str
    """The segment of a file, else the directory of the copies; as typed where no segment can have the name."""
    is_directory: bool
    chosen: Chosen

    def path_of(self, segment: str) -> str | None:
        """Return the regular file of this source that becomes a segment; None if there is none."""
        if not self.is_directory:
            return self.path if segment == self.target else None
        return next(filter(None, map(self._file_at, self._candidates(segment))), None)

    def _candidates(self, segment: str) -> Iterator[str]:
        """Yield the paths below this directory that become a segment."""
        if segment.startswith(f"{self.target}/" if self.target else ""):
            inner = segment[len(self.target) :].lstrip("/")
            ends = ("", *COMPRESSED) if self.chosen.decompress else ("",)
            yield from (inner + end for end in ends if self.chosen.plain(inner + end) == inner)

    def _file_at(self, inner: str) -> str | None:
        if not self.chosen.reaches(inner):
            return None
        path = os.path.join(self.path, inner)
        try:
            return path if stat.S_ISREG(os.lstat(path).st_mode) else None
        except OSError:
            return None

    def meets(self, other: _Source) -> bool:
        """Return whether files of both may become one segment."""
        ends = f"{self.target}/", f"{other.target}/"
        return ends[0].startswith(ends[1]) or ends[1].startswith(ends[0]) or not (self.target and other.target)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The files that patterns of a shell choose.

    A pattern without a slash is of a name, at any depth; one with a slash is of the path below the directory that was
    given. What excludes a directory excludes all below it.
    """

    include: tuple[str, ...] = ()
    """Files to take; empty: all."""
    exclude: tuple[str, ...] = ()
    decompress: bool = False
    """Take the content of compressed files, with the name without its end."""

    def plain(self, name: str) -> str:
        """Return the name that a file gets."""
        return plain_name(name) if self.decompress else name

    def takes(self, inner: str) -> bool:
        """Return whether a file is taken; `inner` is its path below the directory that was given."""
        return (not self.include or _matches(inner, self.include)) and not self.excludes(inner)

    def excludes(self, inner: str) -> bool:
        """Return whether a file or directory is excluded itself."""
        return _matches(inner, self.exclude)

    def reaches(self, inner: str) -> bool:
        """Return whether a file is taken, of which the directories are not known to be."""
        parts = inner.split("/")
        return self.takes(inner) and not any(self.excludes("/".join(parts[:end])) for end in range(1, len(parts)))


def _matches(inner: str, patterns: Sequence[str]) -> bool:
    parts = inner.split("/")
    return any(_matches_parts(parts, pattern) for pattern in patterns)


def _matches_parts(parts: Sequence[str], pattern: str) -> bool:
    """Compare part by part, so that a star stays within a name, as in a shell."""
    if "/" not in pattern:
        return fnmatchcase(parts[-1], pattern)
    wanted = pattern.strip("/").split("/")
    return len(wanted) == len(parts) and all(map(fnmatchcase, parts, wanted))


_ALL = Chosen()


@dataclass(slots=True)
class IngestPlan:
    """The paths to ingest and the sums of their files; after `items` has ended, also the files that were left out."""

    directories: CopiedDirectories
    into: str
    sources: list[_Source] = field(default_factory=list)
    parents: set[str] = field(default_factory=set)
    """The directories of the segments."""
    files: int = 0
    bytes: int = 0
    unfit: int = 0
    """Names that Hadoop and Spark cannot read."""
    first_unfit: str = ""
    refused: list[tuple[str, TierfsError]] = field(default_factory=list)
    special: int = 0
    """Links, sockets, devices and pipes below a directory."""
    first_special: str = ""

    def items(self) -> Iterator[Item]:
        """List the files; note those that cannot be ingested, and those left out."""
        number = 0
        for source in self.sources:
            for path, mode in _files_of(source, self.refused):
                if not stat.S_ISREG(mode):
                    self.special += 1
                    self.first_special = self.first_special or path
                    continue
                try:
                    packed = source.chosen.plain(path) != path
                    item = Item(path, _segment(source, path, self.into), os.path.getsize(path), number, packed)
                except OSError as exc:  # deleted since it was listed
                    self.refused.append((path, from_os_error(exc)))
                    continue
                except InvalidRequest as exc:
                    self.refused.append((path, exc))
                    continue
                number += 1
                yield item


def plan_ingest(paths: Sequence[str], into: str, report: OnProgress = unseen, chosen: Chosen = _ALL) -> IngestPlan:
    """Plan the ingest of files and directories, and change nothing.

    A directory beside other paths keeps its name, as with `cp -r`; one that is given alone becomes `into`. Raises
    NotFound for a path that does not exist, InvalidRequest for a bad `into` and for two files that would become one
    segment. A path may be a link; links below a directory are left out.
    """
    plan, listed = IngestPlan(CopiedDirectories(into), into), Meter(report, noun="listed file")
    for path in paths:
        if not os.path.exists(path):
            raise NotFound(f"{path} does not exist")
        if os.path.isdir(path):
            copy = "" if len(paths) == 1 else name_of_copy(path)
            target = _canonical(f"{into}/{copy}" if copy else into)
            plan.sources.append(_Source(path, copy, target, is_directory=True, chosen=chosen))
        elif os.path.isfile(path):
            if not chosen.takes(os.path.basename(path)):
                continue
            target = _canonical(f"{into}/{chosen.plain(os.path.basename(path))}")
            plan.sources.append(_Source(path, "", target, is_directory=False, chosen=chosen))
        else:
            raise InvalidRequest(f"{path} is not a regular file", remedy=f"tierfs append SEGMENT {path}")
    for number, source in enumerate(plan.sources):
        later = [other for other in plan.sources[number + 1 :] if source.meets(other)]
        files = _files_of(source, [], plan)
        for path, mode in listed.each(files, lambda file: file[0]) if source.is_directory else files:
            if stat.S_ISREG(mode):
                _count(plan, source, path, later)
    return plan


def _count(plan: IngestPlan, source: _Source, path: str, later: Sequence[_Source]) -> None:
    """Count a file. Raises InvalidRequest if one of a later source becomes the same segment."""
    try:
        segment, size_bytes = _segment(source, path, plan.into), os.path.getsize(path)
    except (InvalidRequest, OSError):
        return  # which is reported when its turn comes
    for other in later:
        if (same := other.path_of(segment)) is not None:
            raise InvalidRequest(
                f"{path} and {same} would both become {segment}",
                remedy="ingest them into different directories with --into",
            )
    plan.files += 1
    plan.bytes += size_bytes
    plan.parents.add(segment.rpartition("/")[0])
    if (unfit := names.hadoop_warning(segment)) is not None:
        plan.unfit += 1
        plan.first_unfit = plan.first_unfit or unfit


def _canonical(name: str) -> str:
    try:
        return names.join(names.split(name))
    except InvalidRequest:
        return name


def _segment(source: _Source, path: str, into: str) -> str:
    """Return the segment of a file. Raises InvalidRequest for a name that no segment can have."""
    inner = os.path.relpath(path, source.path) if source.is_directory else os.path.basename(path)
    inner = source.chosen.plain(inner)
    return names.join(names.split(f"{into}/{source.copy}/{inner}" if source.copy else f"{into}/{inner}"))


def _files_of(
    source: _Source, refused: list[tuple[str, TierfsError]], plan: IngestPlan | None = None
) -> Iterator[tuple[str, int]]:
    """Yield path and mode of everything but directories, in name order; give `plan` these, also empty ones."""
    if not source.is_directory:
        yield source.path, stat.S_IFREG
        return

    def note(error: OSError) -> None:
        refused.append((os.fsdecode(error.filename or source.path), from_os_error(error)))

    for root, inner, files in os.walk(source.path, onerror=note):
        below = "" if root == source.path else f"{os.path.relpath(root, source.path)}/"
        inner[:] = sorted(name for name in inner if not source.chosen.excludes(below + name))
        linked = [name for name in inner if os.path.islink(os.path.join(root, name))]
        chosen = [name for name in sorted([*files, *linked]) if source.chosen.takes(below + name)]
        if plan is not None and (chosen or not source.chosen.include):
            try:
                plan.directories.add(source.path, below, source.copy)
            except TierfsError as exc:
                if not (inner or chosen):  # else each of them is refused
                    plan.refused.append((root, exc))
        taken: dict[str, str] = {}
        for name in chosen:
            path = os.path.join(root, name)
            if (first := taken.setdefault(source.chosen.plain(name), name)) != name:
                why = f"{path} and {first} would both become {source.chosen.plain(name)}"
                refused.append((path, InvalidRequest(why, remedy="ingest one of them with another --into")))
                continue
            try:
                yield path, os.lstat(path).st_mode
            except OSError as exc:  # deleted since it was listed
                note(exc)
