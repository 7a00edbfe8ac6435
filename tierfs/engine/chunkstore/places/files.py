"""The contract of a file system that has a rename and no metadata of its own: HDFS, SFTP and the like."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import TierfsError
from tierfs.engine.chunkstore.probe import Traits
from tierfs.engine.chunkstore.protocol import OnReceived, Source


@dataclass(frozen=True, slots=True)
class FileStatus:
    """One file."""

    length_bytes: int
    modified_ms: int


class Files(Protocol):
    """Files by absolute paths. Thread-safe. Raises as ObjectPlace does."""

    traits: Traits
    resolution_ms: int
    """The step of its times of modification."""
    vendor_errors: tuple[type[Exception], ...]

    def meaning(self, error: Exception) -> type[TierfsError]:
        """See ObjectPlace.meaning."""
        ...

    def status(self, path: str) -> FileStatus:
        """Return the status of a regular file. Raises FileNotFoundError for anything else."""
        ...

    def entries(self, directory: str) -> Iterable[tuple[str, FileStatus | None]]:
        """Yield names of files with their status, and of directories with None. Raises FileNotFoundError."""
        ...

    def read_into(self, path: str, offset: int, buffer: memoryview, progress: OnReceived | None) -> None:
        """Fill the buffer, in order. Raises Unavailable when fewer bytes come."""
        ...

    def write(self, path: str, source: Source, *, create_only: bool = False) -> None:
        """Write a file of all bytes, durably, and make the directories above it.

        It replaces the one that is there, or with `create_only` raises FileExistsError; that another sees a part of it
        is no matter.
        """
        ...

    def rename(self, path: str, target: str, *, overwrite: bool) -> None:
        """Name a file anew, atomically. Raises FileExistsError unless `overwrite`, FileNotFoundError without parent."""
        ...

    def make_directories(self, path: str) -> None:
        """Make a directory and those above it; one that is there is success."""
        ...

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set a file's time of modification."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file. Raises FileNotFoundError."""
        ...

    def remove_empty(self, path: str) -> bool:
        """Remove a directory if it is empty; return whether it was."""
        ...

    def close(self) -> None:
        """Release connections."""
        ...


@runtime_checkable
class JoinsFiles(Protocol):
    """Files of which the server makes one out of several."""

    def join(self, path: str, others: Sequence[str]) -> None:
        """Append the files `others`, which vanish, to the file `path`."""
        ...
