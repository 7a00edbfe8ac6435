"""Which files the job `ingest` takes, and the segments they become: found out on the driver, before tasks start."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tierfs import names
from tierfs.app import Store
from tierfs.errors import AlreadyExists, Conflict, InvalidRequest, NotFound
from tierfs.metadata import directories
from tierfs.types import MIB

TASK_BYTES = 128 * MIB
_OPEN_COST_BYTES = MIB
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was when the job was planned."""

    path: str
    name: str
    """Of the segment, below the directory that the job writes to."""
    size_bytes: int
    modified_ns: int

    def require_unchanged(self, read_bytes: int) -> None:
        """Raise Conflict for a file that was written to since it was listed."""
        found = os.stat(self.path)
        if (found.st_size, found.st_mtime_ns) != (self.size_bytes, self.modified_ns) or read_bytes != self.size_bytes:
            raise Conflict(f"{names.printable(self.path)} changed while it was read", remedy="run the job again")


def files_of(sources: Sequence[str]) -> list[SourceFile]:
    """Files by their names, and those below directories by their paths in them, in order; links there are left out.

    Raises NotFound, and InvalidRequest for a name that no segment can have and for two files of one name.
    """
    found = [one for source in sources for one in _below(Path(os.path.abspath(source)), source)]
    by_name: dict[str, SourceFile] = {}
    for one in found:
        other = by_name.setdefault(one.name, one)
        if other is not one:
            raise InvalidRequest(
                f"{names.printable(other.path)} and {names.printable(one.path)} would both become {one.name}",
                remedy="ingest them into two directories",
            )
    return found


def require_new(store: Store, into: str, wanted: Iterable[str]) -> None:
    """Raise AlreadyExists when there is anything of these names, relative to `into`, in the store."""
    there = list(existing(store, into, wanted))
    if there:
        shown = ", ".join(map(names.printable, there[:_SHOWN])) + (" …" if len(there) > _SHOWN else "")
        raise AlreadyExists(
            f"{len(there)} of the segments exist already: {shown}", remedy="leave them out with --skip-existing"
        )


def existing(store: Store, into: str, wanted: Iterable[str]) -> Iterator[str]:
    """Full names of what the store has already. Raises InvalidRequest for a name that no segment can have."""
    above = names.split(into)
    with store.metadata.read() as txn:
        for name in wanted:
            full = names.join((*above, *names.split(name)))
            if directories.find(txn, full) is not None:
                yield full


def tasks_of(files: Iterable[SourceFile], task_bytes: int = TASK_BYTES) -> list[tuple[SourceFile, ...]]:
    """Small files together; a large one, which only one task can write, alone and first."""
    tasks: list[tuple[SourceFile, ...]] = []
    waiting: list[SourceFile] = []
    size_bytes = 0
    for one in sorted(files, key=lambda one: -one.size_bytes):
        cost = one.size_bytes + _OPEN_COST_BYTES
        if waiting and size_bytes + cost > task_bytes:
            tasks.append(tuple(waiting))
            waiting, size_bytes = [], 0
        waiting.append(one)
        size_bytes += cost
    return [*tasks, tuple(waiting)] if waiting else tasks


def _below(path: Path, given: str) -> Iterator[SourceFile]:
    if not path.exists():
        raise NotFound(f"{names.printable(given)} does not exist", remedy="name files and directories of this machine")
    if path.is_file():
        yield _file(path, path.name)
        return
    for root, inner, files in os.walk(path, onerror=_raise):
        inner.sort()
        for name in sorted(files):
            one = Path(root, name)
            if one.is_file() and not one.is_symlink():
                yield _file(one, str(one.relative_to(path)))


def _file(path: Path, name: str) -> SourceFile:
    found = path.stat()
    return SourceFile(str(path), names.join(names.split(name)), found.st_size, found.st_mtime_ns)


def _raise(error: OSError) -> None:
    raise error
