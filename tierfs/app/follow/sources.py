"""The logs that paths, directories and patterns stand for, and the segment of each."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tierfs.app.follow import rotations
from tierfs.app.follow.tree import Tree
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
class Source:
    """A path as it was typed: a file, a directory, or a pattern."""

    typed: str
    root: str
    """The directory that the logs' segments are named from."""
    parts: tuple[str, ...]
    """Below it: the name of a file, or the parts of a pattern."""
    below: str = ""
    """The directory of the target that these segments are in."""

    def paths(self, tree: Tree) -> Iterator[str]:
        """Yield what is there now, but no directories."""
        yield from _matching(tree, self.root, self.parts)


@dataclass(slots=True)
class Found:
    """What a look at all sources found."""

    logs: dict[str, Log] = field(default_factory=dict)
    """By path."""
    refused: dict[str, str] = field(default_factory=dict)
    """By path: why it cannot be followed."""


def sources_of(typed: Sequence[str]) -> list[Source]:
    """Return the sources of typed paths; a directory beside other paths keeps its name, as with `ingest`."""
    return [_source(text, alone=len(typed) == 1) for text in typed]


def _source(text: str, *, alone: bool) -> Source:
    path = os.path.abspath(text)
    if os.path.isdir(path):
        return Source(text, path, (_ANY_DEPTH, "*"), "" if alone else name_of_copy(text))
    if not names.is_pattern(text) or os.path.lexists(path):
        return Source(text, os.path.dirname(path), (os.path.basename(path),))
    parts = path.split("/")
    at = next(number for number, part in enumerate(parts) if names.is_pattern(part))
    return Source(text, "/".join(parts[:at]) or "/", tuple(parts[at:]))


def find(sources: Sequence[Source], into: str, tree: Tree, is_known: Callable[[str], bool]) -> Found:
    """Look for all logs. `is_known` tells whether a segment follows a log already, which may have no file just now.

    Rotated files of a log are left out, but for one that was typed; and so are links to another log.
    """
    found = Found()
    for source in sources:
        exact = len(source.parts) == 1 and not names.is_pattern(source.parts[0])
        for path in source.paths(tree):
            inner = os.path.relpath(path, source.root)
            segment = f"{into}/{source.below}/{inner}"
            if path in found.logs or (not exact and _is_rotated(path, segment, tree, is_known)):
                continue
            try:
                name = names.join(names.split(names.from_os(segment)))
                names.require_unreserved(name)
                found.logs[path] = Log(path, name)
            except InvalidRequest as exc:
                found.refused[path] = str(exc)
    return _without_links(found)


def _is_rotated(path: str, segment: str, tree: Tree, is_known: Callable[[str], bool]) -> bool:
    directory, name = os.path.split(path)
    logs = {log for log, _ in rotations.logs_of(name)}
    if not logs:
        return False
    if not logs.isdisjoint(tree.listing(directory).names):
        return True
    above = segment.rpartition("/")[0]
    return any(is_known(f"{above}/{log}".strip("/")) for log in logs)


def _without_links(found: Found) -> Found:
    """Leave out special files, links to nothing, and links to another log; report logs of one segment."""
    files: dict[tuple[int, int], str] = {}
    segments: dict[str, str] = {}
    for path in sorted(found.logs, key=lambda each: (os.path.islink(each), each)):
        try:
            status = os.stat(path)
        except OSError:
            del found.logs[path]
            continue
        identity, segment = (status.st_dev, status.st_ino), found.logs[path].segment
        is_other = os.path.islink(path) and identity in files
        if not stat.S_ISREG(status.st_mode) or is_other:
            del found.logs[path]
        elif segment in segments:
            found.refused[path] = f"{segments[segment]} is followed into its segment {names.printable(segment)}"
            del found.logs[path]
        else:
            files[identity], segments[segment] = path, path
    return found


def _matching(tree: Tree, directory: str, parts: Sequence[str]) -> Iterator[str]:
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
