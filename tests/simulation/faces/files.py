"""The file system of fsspec over a world's store, with the reader in a thread of its own, as in every process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tierfs.engine.metadata.store import MetadataStore
from tierfs.faces.fsspec.filesystem import TierfsFileSystem
from tierfs.reading.read_loop import ReadLoop
from tierfs.reading.reader import StoreReader


@dataclass(frozen=True, slots=True)
class _Store:
    """What the file system needs of an open store to read."""

    metadata: MetadataStore


class _Connection:
    """An open store and the thread that reads from it, which the first read starts."""

    is_inherited = False

    def __init__(self, metadata: MetadataStore, make_reader: Callable[[], StoreReader]) -> None:
        self.store = _Store(metadata)
        self._make_reader = make_reader

    @cached_property
    def loop(self) -> ReadLoop:
        """The thread."""
        return ReadLoop(self._make_reader)

    def close(self) -> None:
        """End the thread, if it was started."""
        if "loop" in vars(self):
            self.loop.close()


class Files(TierfsFileSystem):
    """The file system of one process. Close it at the end of that process."""

    cachable = False  # fsspec would keep each for ever, and with it the world of a life

    def __init__(self, metadata: MetadataStore, make_reader: Callable[[], StoreReader], **options: Any) -> None:
        super().__init__(store="/nowhere", **options)
        self._world_connection = _Connection(metadata, make_reader)

    def _connected(self) -> Any:
        return self._world_connection

    def settle(self) -> None:
        """Mark what failed now, not in a second."""
        loop = self._world_connection.loop
        loop._do(loop._reader.settle)

    def close(self) -> None:
        """End its thread."""
        self._world_connection.close()
