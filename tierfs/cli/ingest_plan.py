"""What tierfs ingest is asked to do: which file becomes which segment."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tierfs import names
from tierfs.cli.edge import from_os_error
from tierfs.errors import InvalidRequest, NotFound, TierfsError
from tierfs.metadata.records import IngestedFile


@dataclass(frozen=True, slots=True)
class Item:
    """One file and the segment it becomes."""

    path: str
    segment: str
    size_bytes: int


def file_of(status: os.stat_result, length: int) -> IngestedFile:
    """What is kept of a file, of which `length` bytes were read after `status`."""
    return IngestedFile(mode=status.st_mode, modified_ns=status.st_mtime_ns, length=length)


@dataclass(slots=True)
class Plan:
    """All files, what cannot be ingested and why, and what is left out."""

    items: list[Item] = field(default_factory=list)
    refused: list[tuple[str, TierfsError]] = field(default_factory=list)
    special: list[str] = field(default_factory=list)
    """Links, sockets, devices and pipes below a directory."""

    @property
    def total_bytes(self) -> int:
        """Size of all files."""
        return sum(item.size_bytes for item in self.items)

    @property
    def hadoop_warnings(self) -> list[str]:
        """Why Hadoop and Spark cannot read some of the segments."""
        return [warning for item in self.items if (warning := names.hadoop_warning(item.segment))]


def plan_ingest(paths: Sequence[str], into: str) -> Plan:
    """Look at everything named, changing nothing.

    Raises NotFound for a path that does not exist, InvalidRequest for a bad `into` and for two files that
    would become one segment. A file named may be a link; links below a directory are left out.
    """
    names.split(into)
    plan = Plan()
    for path in paths:
        if not os.path.exists(path):
            raise NotFound(f"{path} does not exist")
        if os.path.isdir(path):
            _add_directory(plan, path, into)
        elif os.path.isfile(path):
            _add(plan, path, f"{into}/{os.path.basename(path)}")
        else:
            raise InvalidRequest(f"{path} is not a regular file", remedy=f"tierfs append SEGMENT {path}")
    _require_one_file_per_segment(plan.items)
    return plan


def _add_directory(plan: Plan, directory: str, into: str) -> None:
    for path, mode in _files_below(plan, directory):
        if stat.S_ISREG(mode):
            _add(plan, path, f"{into}/{os.path.relpath(path, directory)}")
        else:
            plan.special.append(path)


def _files_below(plan: Plan, directory: str) -> Iterator[tuple[str, int]]:
    """Paths and modes of everything that is no directory, in name order."""

    def note(error: OSError) -> None:
        plan.refused.append((os.fsdecode(error.filename or directory), from_os_error(error)))

    for root, inner, files in os.walk(directory, onerror=note):
        linked = [name for name in inner if os.path.islink(os.path.join(root, name))]
        inner.sort()
        for name in sorted([*files, *linked]):
            path = os.path.join(root, name)
            try:
                yield path, os.lstat(path).st_mode
            except OSError as exc:  # gone since it was listed
                note(exc)


def _add(plan: Plan, path: str, segment: str) -> None:
    try:
        name = names.join(names.split(segment))
    except InvalidRequest as exc:
        plan.refused.append((path, exc))
        return
    plan.items.append(Item(path, name, os.path.getsize(path)))


def _require_one_file_per_segment(items: Sequence[Item]) -> None:
    by_segment: dict[str, Item] = {}
    for item in items:
        other = by_segment.setdefault(item.segment, item)
        if other is not item:
            raise InvalidRequest(
                f"{other.path} and {item.path} would both become {item.segment}",
                remedy="ingest them into two directories",
            )
