"""Making a store: check everything first, then create it, and leave nothing behind if that fails.

The bucket is claimed by its first journal slot, which is created create-only: of two stores initialised
on one prefix at the same time exactly one succeeds. `store.toml` is written last and marks a store.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from tierfs import settings
from tierfs.background import ballast
from tierfs.background.journal_names import JOURNAL_PREFIX
from tierfs.background.publish import Publisher
from tierfs.background.status import advisory_fence_warning, shared_filesystem_warning
from tierfs.chunkstore.chunkfiles import ChunkFiles, map_os_errors
from tierfs.chunkstore.directory import DirectoryStorage
from tierfs.chunkstore.probe import probe
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.clock import Clock, SystemClock
from tierfs.config import Settings
from tierfs.connect import FILE_SCHEME, S3_SCHEME, connect_bare
from tierfs.errors import AlreadyExists, Fenced, InvalidRequest, StorageFull
from tierfs.metadata import directories, journal, keys, policies
from tierfs.metadata.records import LocationRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import LOCATIONS
from tierfs.store_paths import StorePaths
from tierfs.types import ROOT_DIRECTORY, LocationId, ReadPriority

MAX_PREFIX_BYTES = 80
"""With it, the longest name and the chunk's own part fill S3's 1024 bytes of a key."""

MIN_FREE_BYTES = 128 * 1024 * 1024
"""The ballast, the floor for appends, and a little to work with."""

_FIRST_LOCATION = LocationId(1)
_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600
_DEFAULT_COLD = "cold"


@dataclass(frozen=True, slots=True)
class ColdChoice:
    """Where the user wants cold bytes; with nothing chosen it is a directory in the store."""

    bucket_url: str | None = None
    cold_dir: Path | None = None
    none: bool = False
    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class InitReport:
    """What was made."""

    path: Path
    store_id: str
    cold_url: str | None
    warnings: tuple[str, ...]


def init_store(path: Path, choice: ColdChoice, clock: Clock | None = None) -> InitReport:
    """Make a store in `path`, which must be missing or empty.

    Raises AlreadyExists for a store or a prefix that holds one, InvalidRequest, PermissionDenied,
    NotFound for a missing bucket, Unavailable for a server that does not answer.
    """
    clock = clock or SystemClock()
    paths = StorePaths(path.absolute())
    location = _location(choice)
    with _new_directory(paths):
        storage = _claimable(location, paths) if location is not None else None
        if location is not None and storage is not None:
            abilities = probe(storage)
            location = replace(
                location,
                create_only_put=abilities.create_only_put,
                create_only_multipart=abilities.create_only_multipart,
                verifies_crc32c=abilities.verifies_crc32c,
            )
        store_id = _create(paths, location, storage, clock)
    url = location.url if location is not None else None
    return InitReport(paths.root, store_id, url, _warnings(paths, location))


def _location(choice: ColdChoice) -> LocationRecord | None:
    if choice.none:
        return None
    if choice.bucket_url is None:
        cold = FILE_SCHEME + (_DEFAULT_COLD if choice.cold_dir is None else str(choice.cold_dir.absolute()))
        return LocationRecord(id=_FIRST_LOCATION, url=cold)
    parts = urlsplit(choice.bucket_url)
    if parts.scheme != S3_SCHEME or not parts.netloc or parts.query or parts.fragment:
        raise InvalidRequest(f"{choice.bucket_url} is no S3 location", remedy="write it as s3://BUCKET/PREFIX")
    prefix = parts.path.strip("/")
    if len(prefix.encode()) > MAX_PREFIX_BYTES:
        raise InvalidRequest(f"the prefix {prefix} has more than {MAX_PREFIX_BYTES} bytes")
    return LocationRecord(
        id=_FIRST_LOCATION,
        url=f"{S3_SCHEME}://{parts.netloc}/{prefix}".rstrip("/"),
        endpoint_url=choice.endpoint_url or "",
        region=choice.region or "",
        profile=choice.profile or "",
    )


def _claimable(location: LocationRecord, paths: StorePaths) -> ChunkStorage:
    """The cold tier, reachable and without a store. Raises what is wrong with it."""
    if location.url == FILE_SCHEME + _DEFAULT_COLD:
        DirectoryStorage.create(paths.cold).close()
    storage = connect_bare(location, paths.root, Settings().cold)
    if next(storage.list(JOURNAL_PREFIX), None) is not None:
        storage.close()
        raise _holds_a_store(location)
    return storage


def _holds_a_store(location: LocationRecord) -> AlreadyExists:
    return AlreadyExists(
        f"{location.url} holds a tierfs store already",
        remedy="choose another prefix; to own that store here: tierfs recover; to follow it: tierfs replica",
    )


def _create(paths: StorePaths, location: LocationRecord | None, storage: ChunkStorage | None, clock: Clock) -> str:
    ChunkFiles.create(paths.chunks).close()
    for directory in (paths.locks, paths.log):
        directory.mkdir(mode=_DIRECTORY_MODE)
    ballast.create(paths.ballast)
    metadata = MetadataStore.create(paths.metadata, clock)
    with closing(metadata):
        _write_first_records(metadata, location)
        if location is not None and storage is not None:
            with closing(storage):
                _claim(metadata, location, storage)
        store_id = metadata.store_id
    _write_settings(paths)
    return store_id


def _write_first_records(metadata: MetadataStore, location: LocationRecord | None) -> None:
    with metadata.write() as txn:
        journal.owner_begins(txn, socket.gethostname())
        journal.directory_changed(txn, directories.directory(txn, ROOT_DIRECTORY))
        policies.put(txn, ROOT_DIRECTORY, {"read_priority": ReadPriority.LOCAL_FIRST.value})
        if location is not None:
            txn.put(LOCATIONS, keys.u32(location.id), location)
            txn.update_store(cold_location_id=location.id)
            journal.location_changed(txn, location)


def _claim(metadata: MetadataStore, location: LocationRecord, storage: ChunkStorage) -> None:
    """Win the journal's first slot; from then on the bucket is ours."""
    try:
        Publisher(metadata, storage).publish()
    except Fenced as exc:
        raise _holds_a_store(location) from exc


def _write_settings(paths: StorePaths) -> None:
    with map_os_errors(str(paths.settings)):
        fd = os.open(paths.settings, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
        with os.fdopen(fd, "w") as file:
            file.write(settings.default_text())
            file.flush()
            os.fsync(fd)
        root = os.open(paths.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(root)
        finally:
            os.close(root)


@contextmanager
def _new_directory(paths: StorePaths) -> Iterator[None]:
    """The store's empty directory; emptied again, and removed if it was made here, when init fails."""
    root = paths.root
    if paths.settings.exists():
        raise AlreadyExists(f"{root} is a tierfs store already")
    if root.is_dir() and any(root.iterdir()):
        raise InvalidRequest(f"{root} is not empty", remedy="name a new or empty directory")
    made = not root.exists()
    with map_os_errors(str(root)):
        root.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        root.chmod(_DIRECTORY_MODE)
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


def _warnings(paths: StorePaths, location: LocationRecord | None) -> tuple[str, ...]:
    found: list[str] = []
    shared = shared_filesystem_warning(paths.root, location.url if location is not None else None)
    if shared:
        found.append(shared)
    advisory = advisory_fence_warning(location)
    if advisory:
        found.append(advisory)
    return tuple(found)
