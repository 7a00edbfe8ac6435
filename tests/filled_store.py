"""A store that a module fills once: a copy for each test takes a third of the time of filling another."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.doubles.manual_clock import ManualClock
from tests.stores import TestStore
from tierfs.base.options.config import OffloadSettings
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.memory import MemoryStorage, ObjectInMemory
from tierfs.engine.chunkstore.protocol import ChunkStorage

_METADATA, _CHUNKS = "metadata", "chunks"


@dataclass(frozen=True)
class FilledStore:
    """A closed store and the objects of its cold tier."""

    path: Path
    objects: Mapping[str, ObjectInMemory]
    files: tuple[Path, ...]
    """Of chunks, below the directory of these."""

    @classmethod
    def of(cls, store: TestStore, cold: MemoryStorage) -> Self:
        """Close a store, whose cold tier is in memory, and keep it."""
        store.close()
        chunks = store.path / _CHUNKS
        files = tuple(path.relative_to(chunks) for path in chunks.rglob("*") if path.is_file())
        return cls(store.path, dict(cold.objects), files)

    def opened(self, path: Path, cold: ChunkStorage, settings: OffloadSettings | None = None) -> TestStore:
        """Open a copy; close it. `cold` has the objects, or copies of them."""
        path.mkdir()
        shutil.copytree(self.path / _METADATA, path / _METADATA)
        ChunkFiles.create(path / _CHUNKS).close()
        for file in self.files:
            shutil.copy2(self.path / _CHUNKS / file, path / _CHUNKS / file)
        return TestStore.opened(path, cold, ManualClock(), settings or OffloadSettings())
