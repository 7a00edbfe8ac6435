"""Objects of files that the server joined into one: their own names stay, as ranges of the new object.

HDFS' CONCAT moves the blocks of files to the end of another one in a single step of its name node, and the files are
gone. But readers of a store know the old objects for hours, on other hosts too, and a crash may come before any row
names the new one. So each old name becomes an *alias* first: a small file with the place of its bytes in the new
object, which counts where no file has the name.

Crash order: the list of the aliases -> the aliases -> the new object, empty -> CONCAT. Before the last step the old
files are read, after it the aliases; there is no time at which a name has no bytes. No deletion frees bytes that an
alias needs: the object is renamed to a hidden body, which goes with the last alias.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import DataLoss, InvalidRequest, TierfsError
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.places.files import Files, FileStatus, JoinsFiles
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.chunkstore.validate import is_relative

# Directories of the root: aliases by the names of their objects, and the lists and bodies of joined objects.
ALIASES, JOINS = ".joined", ".joins"

_BODY = ".body"

# Longest list of aliases that is read: 10,000 names of 1 KiB.
_MAX_LIST_BYTES = 16 * 1024 * 1024

# An object may be joined again, and that one too, while readers know the first names.
_DEPTH = 16

# WebHDFS has the sources of a CONCAT in the query; Jetty takes 8 KiB for the line and the headers of a request.
_SOURCES_BYTES = 4096


@dataclass(frozen=True, slots=True)
class HeldBytes:
    """The bytes of an object: a file, or a range of one."""

    status: FileStatus
    """Of the object."""
    path: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class _Alias:
    """A name whose bytes are in another object."""

    target: str
    """Name of the object."""
    offset: int
    status: FileStatus
    """Of the file that had the name."""


class JoinedFiles:
    """The joined objects and the aliases below a root. Thread-safe; its files may be used by several processes."""

    def __init__(self, files: Files, root: str, encode: Callable[[str], str]) -> None:
        """Use `files` below `root`, "" or an absolute path; `encode` makes a name one that they take."""
        self._files = files
        self._root = root
        self._encode = encode

    def locate(self, name: str, depth: int = _DEPTH) -> HeldBytes:
        """Return the place of an object's bytes. Raises FileNotFoundError, DataLoss for a damaged alias."""
        path = self._path(name)
        try:
            return HeldBytes(self._files.status(path), path)
        except FileNotFoundError:
            alias = self._alias(name) if depth else None
            if alias is None:
                raise
        held = self._bytes_of(alias.target, depth - 1)
        if held.status.length_bytes < alias.offset + alias.status.length_bytes:
            raise FileNotFoundError(name)
        return HeldBytes(alias.status, held.path, held.offset + alias.offset)

    def _bytes_of(self, target: str, depth: int) -> HeldBytes:
        try:
            return self.locate(target, depth)
        except FileNotFoundError:  # deleted, and kept for its aliases
            body = self._joins(target) + _BODY
            return HeldBytes(self._files.status(body), body)

    def join(self, name: str, sources: Sequence[tuple[str, FileStatus]]) -> FileStatus | None:
        """Make an object of the bytes of files, in order, without moving them; return its status.

        Returns None, with nothing changed, where the server cannot: files in several directories or of other block
        sizes, a name node that refuses. Raises FileExistsError for a taken name, DataLoss where another number of bytes
        was joined, and what fails; the names of the sources are readable in every case.
        """
        files, names = self._files, [source for source, _ in sources]
        directory = name.rpartition("/")[0]
        if not isinstance(files, JoinsFiles) or any(each.rpartition("/")[0] != directory for each in names):
            return None
        if any("," in each for each in names):  # it separates the sources
            return None
        self._write(self._joins(name), {"name": name, "sources": names})
        offset = 0
        for source, status in sources:
            placed = {"offset": offset, "length": status.length_bytes, "modified_ms": status.modified_ms}
            self._write(self._alias_path(source), {"of": name, **placed})
            offset += status.length_bytes
        files.write(self._path(name), BufferSource(b""), create_only=True)
        try:
            for group in self._groups(names):
                files.join(self._path(name), group)
        except InvalidRequest:  # before any source is touched, but in a later group
            self.delete(name)
            return None
        except Exception:
            if not self._has(name, offset):
                with suppress(OSError, TierfsError, *files.vendor_errors):
                    self.delete(name)
                raise
        status = files.status(self._path(name))
        if status.length_bytes != offset:
            self.delete(name)
            raise DataLoss(f"{printable(name)}: {status.length_bytes} of {offset} bytes were joined")
        return status

    def _has(self, name: str, length_bytes: int) -> bool:
        """Return whether a join whose answer was lost is complete."""
        with suppress(OSError, TierfsError, *self._files.vendor_errors):
            return self._files.status(self._path(name)).length_bytes == length_bytes
        return False

    def _groups(self, names: Sequence[str]) -> Iterator[list[str]]:
        """Yield the paths of sources, as many at once as fit into a request."""
        group: list[str] = []
        size = 0
        for name in names:
            path = self._path(name)
            if group and size + len(path.encode()) > _SOURCES_BYTES:
                yield group
                group, size = [], 0
            group.append(path)
            size += len(path.encode()) + 1
        yield group

    def delete(self, name: str) -> FileStatus:
        """Remove an object or an alias; bytes that other names need stay. Return its status.

        Raises FileNotFoundError.
        """
        path = self._path(name)
        try:
            status = self._files.status(path)
        except FileNotFoundError:
            alias = self._alias(name)
            if alias is None:
                raise
            self._forget(name)
            self._settle(alias.target)
            return alias.status
        if self._list(name) is None:
            self._files.remove(path)
        else:
            # Renamed before anything is looked at: a CONCAT that was given up, and arrives now, finds no target.
            with suppress(FileExistsError):
                self._files.rename(path, self._joins(name) + _BODY, overwrite=False)
            with suppress(FileNotFoundError):  # it has its body already: these bytes are a copy
                self._files.remove(path)
            self._settle(name)
        with suppress(FileNotFoundError):
            self._forget(name)  # of a join that failed
        return status

    def _settle(self, name: str) -> None:
        """Remove the list of a joined object without aliases, and its body."""
        listed = self._list(name)
        if listed is None:
            return
        body = self._joins(name) + _BODY
        try:
            is_empty = self._files.status(body).length_bytes == 0
        except FileNotFoundError:
            is_empty = False
        if is_empty:  # nothing was joined: its aliases are of files that are there
            for source in listed:
                alias = self._alias(source)
                if alias is not None and alias.target == name:
                    self._forget(source)
        elif self._aliases_of(listed):
            return
        for path in (body, self._joins(name)):
            with suppress(FileNotFoundError):
                self._files.remove(path)
        self._files.remove_empty(f"{self._root}/{JOINS}")

    def _aliases_of(self, sources: Sequence[str]) -> bool:
        """Return whether one of these names, which are in one directory, is an alias."""
        directory = self._alias_path(sources[0]).rpartition("/")[0]
        wanted = {self._alias_path(source).rpartition("/")[2] for source in sources}
        with suppress(FileNotFoundError):
            return any(entry in wanted for entry, status in self._files.entries(directory) if status is not None)
        return False

    def _forget(self, name: str) -> None:
        """Remove an alias, and directories that become empty. Raises FileNotFoundError."""
        path = self._alias_path(name)
        self._files.remove(path)
        while path != f"{self._root}/{ALIASES}":
            path = path.rpartition("/")[0]
            if not self._files.remove_empty(path):
                break

    def unsettled(self) -> Iterator[tuple[str, FileStatus]]:
        """Yield the lists without an alias, as a crash leaves them, by the names of their files."""
        with suppress(FileNotFoundError):
            for entry, status in self._files.entries(f"{self._root}/{JOINS}"):
                if status is not None and not entry.endswith(_BODY):
                    name, sources = self._named_list(f"{self._root}/{JOINS}/{entry}") or ("", [])
                    if name and not self._aliases_of(sources):
                        yield entry, status

    def settle_list(self, entry: str) -> None:
        """Remove a list of `unsettled`, and its body; one that is gone is success."""
        named = self._named_list(f"{self._root}/{JOINS}/{entry}")
        if named is not None:
            self._settle(named[0])

    def entries(self, directory: str) -> Iterator[tuple[str, FileStatus | None]]:
        """Yield the aliases in a directory, named as "" or ending in a slash, with the status of their objects.

        Also the directories that have some, with None; both as the files name them.
        """
        with suppress(FileNotFoundError, NotADirectoryError):
            for entry, status in self._files.entries(f"{self._root}/{ALIASES}/{self._encode(directory)}".rstrip("/")):
                if status is None:
                    yield entry, None
                    continue
                content = self._json(f"{self._root}/{ALIASES}/{self._encode(directory)}{entry}")
                if content is not None:
                    yield entry, _alias_in(content, entry).status

    def _alias(self, name: str) -> _Alias | None:
        content = self._json(self._alias_path(name))
        return None if content is None else _alias_in(content, name)

    def _list(self, name: str) -> list[str] | None:
        """Return the names that were joined into an object; None for any other."""
        named = self._named_list(self._joins(name))
        return None if named is None else named[1]

    def _named_list(self, path: str) -> tuple[str, list[str]] | None:
        content = self._json(path)
        if content is None:
            return None
        name, sources = content.get("name"), content.get("sources")
        if not isinstance(name, str) or not isinstance(sources, list) or not sources:
            raise _damaged(path)
        if not all(isinstance(each, str) and is_relative(each) for each in (name, *sources)):
            raise _damaged(path)
        return name, sources

    def _json(self, path: str) -> Mapping[str, Any] | None:
        """Return what a hidden file says; None without one. Raises DataLoss."""
        try:
            length_bytes = self._files.status(path).length_bytes
            buffer = memoryview(bytearray(min(length_bytes, _MAX_LIST_BYTES)))
            if buffer:
                self._files.read_into(path, 0, buffer, None)
        except FileNotFoundError:
            return None
        try:
            content = json.loads(bytes(buffer))
        except (ValueError, RecursionError) as exc:
            raise _damaged(path) from exc
        if not isinstance(content, dict):
            raise _damaged(path)
        return content

    def _write(self, path: str, content: Mapping[str, object]) -> None:
        self._files.write(path, BufferSource(json.dumps(content).encode()))

    def _path(self, name: str) -> str:
        return f"{self._root}/{self._encode(name)}"

    def _alias_path(self, name: str) -> str:
        return f"{self._root}/{ALIASES}/{self._encode(name)}"

    def _joins(self, name: str) -> str:
        return f"{self._root}/{JOINS}/{hashlib.sha256(name.encode()).hexdigest()}"


def _alias_in(content: Mapping[str, Any], name: str) -> _Alias:
    numbers = [content.get(key) for key in ("offset", "length", "modified_ms")]
    target = content.get("of")
    if not isinstance(target, str) or not is_relative(target):
        raise _damaged(name)
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise _damaged(name)
    offset, length_bytes, modified_ms = map(int, numbers)  # type: ignore[arg-type]
    return _Alias(target, offset, FileStatus(length_bytes, modified_ms))


def _damaged(name: str) -> DataLoss:
    return DataLoss(f"{printable(name)}: the record of its joined bytes is damaged", remedy="run: tierfs check")
