"""The directory of a store that is being made: empty at first, a store once its settings are written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tierfs import osio, settings
from tierfs.background import ballast
from tierfs.chunkstore.chunkfiles import ChunkFiles
from tierfs.errors import AlreadyExists, InvalidRequest, StorageFull
from tierfs.osio import map_os_errors
from tierfs.store_paths import StorePaths

MIN_FREE_BYTES = 128 * 1024 * 1024
"""The ballast, the floor for appends, and a little to work with."""


def create_files(paths: StorePaths) -> None:
    """Make everything of a store but metadata and settings."""
    ChunkFiles.create(paths.chunks).close()
    for directory in (paths.locks, paths.log):
        directory.mkdir(mode=osio.OWNER_DIRECTORY)
    ballast.create(paths.ballast)


def prepare_settings(paths: StorePaths) -> None:
    """Write the settings under another name, so that marking the directory as a store needs no space any more."""
    with map_os_errors(str(paths.settings)), osio.durable_file(paths.new_settings, os.O_TRUNC) as file:
        file.write(settings.default_text().encode())


def write_settings(paths: StorePaths) -> None:
    """Mark the directory as a store: the last thing that is written. Durable when it returns."""
    if not paths.new_settings.exists():
        prepare_settings(paths)
    with map_os_errors(str(paths.settings)):
        os.link(paths.new_settings, paths.settings)
        paths.new_settings.unlink()
        osio.sync_directory(paths.root)


@contextmanager
def new_directory(paths: StorePaths) -> Iterator[None]:
    """The store's empty directory; emptied again, and removed if it was made here, when the block fails."""
    root = paths.root
    if paths.settings.exists():
        raise AlreadyExists(f"{root} is a tierfs store already")
    if paths.metadata.exists():
        raise InvalidRequest(
            f"{root} is no store, but holds metadata: an init or recover that was killed left it",
            remedy="name another directory, or remove this one; if it was a store before, put back its store.toml "
            "(an empty one will do)",
        )
    if root.is_dir() and any(root.iterdir()):
        raise InvalidRequest(f"{root} is not empty", remedy="name a new or empty directory")
    made = not root.exists()
    with map_os_errors(str(root)):
        osio.make_directories(root, osio.OWNER_DIRECTORY)
        root.chmod(osio.OWNER_DIRECTORY)
    try:
        _require_space(root)
        yield
    except BaseException:
        for child in root.iterdir():
            shutil.rmtree(child) if child.is_dir() else child.unlink()
        if made:
            root.rmdir()
        raise


def _require_space(root: Path) -> None:
    status = os.statvfs(root)
    free = status.f_bavail * status.f_frsize
    if free < MIN_FREE_BYTES:
        raise StorageFull(f"{root} has {free >> 20} MiB free; a store needs at least {MIN_FREE_BYTES >> 20} MiB")
