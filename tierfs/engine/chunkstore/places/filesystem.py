"""Files of fsspec's own file systems: in the memory of this process, and of this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tierfs.base.system import osio
from tierfs.base.words.errors import TierfsError, Unavailable
from tierfs.engine.chunkstore.places.files import FileStatus
from tierfs.engine.chunkstore.places.steps import fill, source_steps
from tierfs.engine.chunkstore.probe import Traits
from tierfs.engine.chunkstore.protocol import OnReceived, Source

_MS_PER_S = 1000


class MemoryFiles:
    """Files of fsspec's `memory` file system: shared by this process, and gone with it."""

    traits = Traits(create_only="a lock of this process")
    resolution_ms = 1
    vendor_errors: tuple[type[Exception], ...] = ()

    # For all instances: they share one store of files.
    _lock = threading.RLock()

    def __init__(self) -> None:
        import fsspec

        self._fs: Any = fsspec.filesystem("memory")

    def meaning(self, error: Exception) -> type[TierfsError]:
        return Unavailable

    def status(self, path: str) -> FileStatus:
        with self._lock:
            file = self._fs.store.get(path)
        if file is None:
            raise FileNotFoundError(path)
        return FileStatus(file.size, round(file.modified.timestamp() * _MS_PER_S))

    def entries(self, directory: str) -> Iterable[tuple[str, FileStatus | None]]:
        start = directory.rstrip("/") + "/"
        with self._lock:
            below = [path[len(start) :] for path in self._fs.store if path.startswith(start)]
        directories = {name.partition("/")[0] for name in below if "/" in name}
        yield from ((name, None) for name in directories)
        for name in below:
            if "/" not in name:
                with suppress(FileNotFoundError):
                    yield name, self.status(start + name)

    def read_into(self, path: str, offset: int, buffer: memoryview, progress: OnReceived | None) -> None:
        fill(path, self._fs.cat_file(path, offset, offset + len(buffer)), buffer, progress)

    def write(self, path: str, source: Source, *, create_only: bool = False) -> None:
        data = b"".join(source_steps(path, source))
        with self._lock:
            if create_only and path in self._fs.store:
                raise FileExistsError(path)
            self._fs.pipe_file(path, data)

    def rename(self, path: str, target: str, *, overwrite: bool) -> None:
        with self._lock:  # its own `mv` is a copy and a removal
            if not overwrite and target in self._fs.store:
                raise FileExistsError(target)
            self._fs.store[target] = self._fs.store.pop(path)

    def make_directories(self, path: str) -> None:
        """See Files.make_directories: there are none."""

    def set_modified(self, path: str, modified_ms: int) -> None:
        self._fs.store[path].modified = datetime.fromtimestamp(modified_ms / _MS_PER_S, UTC)

    def remove(self, path: str) -> None:
        with self._lock:
            if self._fs.store.pop(path, None) is None:
                raise FileNotFoundError(path)

    def remove_empty(self, path: str) -> bool:
        return False

    def close(self) -> None:
        """Nothing is open."""


class LocalFiles:
    """Files of fsspec's `local` file system. For trying out: a directory does more (`--cold-dir`)."""

    traits = Traits(create_only="link(2)")
    resolution_ms = 1
    vendor_errors: tuple[type[Exception], ...] = ()

    def __init__(self) -> None:
        import fsspec

        self._fs: Any = fsspec.filesystem("local")

    def meaning(self, error: Exception) -> type[TierfsError]:
        return Unavailable

    def status(self, path: str) -> FileStatus:
        return _status(self._fs.info(path))

    def entries(self, directory: str) -> Iterable[tuple[str, FileStatus | None]]:
        for info in self._fs.ls(directory, detail=True):
            name = os.path.basename(info["name"])
            if info["type"] == "directory":
                yield name, None
            elif info["type"] == "file":
                yield name, _status(info)

    def read_into(self, path: str, offset: int, buffer: memoryview, progress: OnReceived | None) -> None:
        fill(path, self._fs.cat_file(path, offset, offset + len(buffer)), buffer, progress)

    def write(self, path: str, source: Source, *, create_only: bool = False) -> None:
        self._fs.makedirs(os.path.dirname(path), exist_ok=True)
        with self._fs.open(path, "xb" if create_only else "wb") as file:
            for step in source_steps(path, source):
                file.write(step)
            file.flush()
            os.fsync(file.fileno())

    def rename(self, path: str, target: str, *, overwrite: bool) -> None:
        """See Files.rename. The file keeps its time."""
        if overwrite:
            os.replace(path, target)
        else:
            self._fs.link(path, target)  # refuses a name that is taken; a rename replaces it
            self._fs.rm_file(path)
        osio.sync_directory(Path(target).parent)

    def make_directories(self, path: str) -> None:
        self._fs.makedirs(path, exist_ok=True)

    def set_modified(self, path: str, modified_ms: int) -> None:
        os.utime(path, (modified_ms / _MS_PER_S, modified_ms / _MS_PER_S))

    def remove(self, path: str) -> None:
        self._fs.rm_file(path)

    def remove_empty(self, path: str) -> bool:
        try:
            self._fs.rmdir(path)
        except OSError:  # not empty, or gone
            return False
        return True

    def close(self) -> None:
        """Nothing is open."""


def _status(info: Any) -> FileStatus:
    if info["type"] != "file":
        raise FileNotFoundError(info["name"])
    return FileStatus(info["size"], round(info["mtime"] * _MS_PER_S))
