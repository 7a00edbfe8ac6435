"""The directory of a new store, and its settings: empty at first; `store.toml` is written last and marks a store."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tierfs.base.options import settings
from tierfs.base.system import osio
from tierfs.base.system.os_errors import map_os_errors
from tierfs.base.system.store_paths import StorePaths, require_own
from tierfs.base.words.errors import (
    AlreadyExists,
    InvalidRequest,
    StorageFull,
)
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.tiering.garbage import ballast

# The ballast, the floor for appends, and a little to work with.
MIN_FREE_BYTES = 128 * 1024 * 1024


def create_files(paths: StorePaths) -> None:
    """Make everything of a store but metadata and settings."""
    ChunkFiles.create(paths.chunks).close()
    for directory in (paths.locks, paths.log):
        directory.mkdir(mode=osio.OWNER_DIRECTORY)
    ballast.create(paths.ballast)


def prepare_settings(paths: StorePaths) -> None:
    """Write the settings under another name, so that marking the directory as a store needs no more space."""
    with map_os_errors(str(paths.settings)), osio.durable_file(paths.new_settings, os.O_TRUNC) as file:
        file.write(settings.default_text().encode())


def replace_settings(paths: StorePaths, text: str) -> None:
    """Replace a store's settings by a text that was checked. Durable when it returns."""
    with map_os_errors(str(paths.settings)):
        before = paths.settings.stat()
        # An init that was killed may have left it as a second name of the settings, which would be cut in place.
        paths.new_settings.unlink(missing_ok=True)
        with osio.durable_file(paths.new_settings, os.O_TRUNC) as file:
            os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
            if os.geteuid() == 0:  # the store stays its owner's, whoever edits it
                os.fchown(file.fileno(), before.st_uid, before.st_gid)
            file.write(text.encode())
        os.replace(paths.new_settings, paths.settings)
        osio.sync_directory(paths.root)


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
    """Make the store's directory; when the block fails, empty it again, and remove it if it was made here.

    Raises AlreadyExists for a store, InvalidRequest for any other content, and what making it raises.
    """
    root = paths.root
    if paths.settings.exists():
        raise AlreadyExists(
            f"{root} is already a tierfs store",
            remedy="choose a new directory; keep this one while only it has bytes: tierfs status",
        )
    if paths.metadata.exists():
        raise InvalidRequest(
            f"{root} is not a store, but contains metadata of an init or recover that was killed",
            remedy="choose another directory, or remove this one; if it was a store, restore its store.toml (an "
            "empty file is enough)",
        )
    if root.is_dir() and any(root.iterdir()):
        raise InvalidRequest(f"{root} is not empty", remedy="choose a new or empty directory")
    made = not root.exists()
    if not made:
        require_own(root)
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
