"""The logs that paths, directories and patterns stand for, and the segment of each."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from tierfs.app.follow import rotations
from tierfs.app.follow.tree import WatchedTree
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest
from tierfs.engine.segments.copied_directories import name_of_copy

_ANY_DEPTH = "**"


@dataclass(frozen=True, slots=True)
class Log:
    """A file to follow."""

    path: str
    segment: str


@dataclass(frozen=True, slots=True)
class LogSource:
    """A file, a directory, or a pattern."""

    path: str
    """Absolute."""
    root: str
    """The directory that the logs' segments are named from."""
    parts: tuple[str, ...]
    """Below it: the name of a file, or the parts of a pattern."""
    below: str = ""
    """The directory of the target that these segments are in."""

    @classmethod
    def of(cls, path: str, below: str = "") -> LogSource:
        """Return the source that an absolute path is now."""
        if os.path.isdir(path):
            return cls(path, path, (_ANY_DEPTH, "*"), below)
        if not names.is_pattern(path) or os.path.lexists(path):
            return cls(path, os.path.dirname(path), (os.path.basename(path),), below)
        parts = path.split("/")
        at = next(number for number, part in enumerate(parts) if names.is_pattern(part))
        return cls(path, "/".join(parts[:at]) or "/", tuple(parts[at:]), below)

    def paths(self, tree: WatchedTree) -> Iterator[str]:
        """Yield what is there now, but no directories."""
        yield from _matching(tree, self.root, self.parts)


@dataclass(slots=True)
class Found:
    """The result of a look at all sources."""

    logs: dict[str, Log] = field(default_factory=dict)
    """By path."""
    refused: dict[str, str] = field(default_factory=dict)
    """By path: why it cannot be followed."""


def sources_of(typed: Sequence[str]) -> list[LogSource]:
    """Return the sources of typed paths; a directory beside other paths keeps its name, as with `ingest`."""
    keeps = {text: name_of_copy(text) for text in typed if len(typed) > 1 and os.path.isdir(text)}
    return [LogSource.of(os.path.abspath(text), keeps.get(text, "")) for text in typed]


def find(sources: Sequence[LogSource], into: str, tree: WatchedTree, is_known: Callable[[str], bool]) -> Found:
    """Look for all logs. `is_known` tells whether a segment follows a log already, which may have no file just now.

    Rotated files of a log are left out, but for one that was typed; and so are links to another log.
    """
    seen = Found()
    for source in sources:
        exact = len(source.parts) == 1 and not names.is_pattern(source.parts[0])
        for path in source.paths(tree):
            inner = path.removeprefix(source.root).lstrip("/")
            segment = "/".join(filter(None, (into, source.below, inner)))  # as an error shows it
            if path in seen.logs or (not exact and _is_rotated(path, segment, tree, is_known)):
                continue
            try:
                name = names.join(names.split(names.from_os(segment)))
                names.require_unreserved(name)
                seen.logs[path] = Log(path, name)
            except InvalidRequest as exc:
                seen.refused[path] = str(exc)
    return _without_links(seen)


def absent(sources: Sequence[LogSource], into: str, segments: Iterable[str]) -> list[Log]:
    """Return the logs of segments that have no file now, as between a rotation and the first line after it."""
    logs: list[Log] = []
    for source in sources:
        above = "/".join(filter(None, (into, source.below)))
        prefix = f"{above}/" if above else ""
        for segment in segments:
            inner = segment.removeprefix(prefix) if segment.startswith(prefix) else ""
            path = os.path.join(source.root, names.to_os(inner))
            if inner and _fits_parts(inner.split("/"), source.parts) and not os.path.lexists(path):
                logs.append(Log(path, segment))
    return logs


def _fits_parts(inner: Sequence[str], parts: Sequence[str]) -> bool:
    if not parts or not inner:
        return not parts and not inner
    if parts[0] == _ANY_DEPTH:
        return _fits_parts(inner, parts[1:] or ("*",)) or (len(inner) > 1 and _fits_parts(inner[1:], parts))
    return _fits(inner[0], parts[0]) and _fits_parts(inner[1:], parts[1:])


def _is_rotated(path: str, segment: str, tree: WatchedTree, is_known: Callable[[str], bool]) -> bool:
    directory, name = os.path.split(path)
    logs = {log for log, _ in rotations.logs_of(name)}
    if not logs:
        return False
    if not logs.isdisjoint(tree.listing(directory).names):
        return True
    above = segment.rpartition("/")[0]
    return any(is_known(f"{above}/{log}".strip("/")) for log in logs)


def _without_links(seen: Found) -> Found:
    """Leave out special files, links to nothing, and links to another log; report logs of one segment."""
    files: dict[tuple[int, int], str] = {}
    segments: dict[str, str] = {}
    for path in sorted(seen.logs, key=lambda each: (os.path.islink(each), each)):
        try:
            status = os.stat(path)
        except OSError:
            del seen.logs[path]
            continue
        identity, segment = (status.st_dev, status.st_ino), seen.logs[path].segment
        is_other = os.path.islink(path) and identity in files
        if not stat.S_ISREG(status.st_mode) or is_other:
            del seen.logs[path]
        elif segment in segments:
            seen.refused[path] = f"{segments[segment]} is followed into its segment {names.printable(segment)}"
            del seen.logs[path]
        else:
            files[identity], segments[segment] = path, path
    return seen


def _matching(tree: WatchedTree, directory: str, parts: Sequence[str]) -> Iterator[str]:
    part, rest = parts[0], parts[1:]
    listing = tree.listing(directory)
    if part == _ANY_DEPTH:
        yield from _matching(tree, directory, rest or ("*",))
        for name in sorted(listing.directories):
            yield from _matching(tree, os.path.join(directory, name), parts)
    elif rest:
        # A pattern may go through links to directories.
        for name in sorted(listing.directories | listing.names):
            path = os.path.join(directory, name)
            if _fits(name, part) and (name in listing.directories or os.path.isdir(path)):
                yield from _matching(tree, path, rest)
    else:
        yield from (os.path.join(directory, name) for name in sorted(listing.names) if _fits(name, part))


def _fits(name: str, part: str) -> bool:
    if not names.is_pattern(part):
        return name == part
    return fnmatchcase(name, part)
