"""Making a store: check everything first, then create it, and leave nothing behind if that fails.

The bucket is claimed by its first journal slot, which is created create-only: of two stores initialised
on one prefix at the same time exactly one succeeds. `store.toml` is written last and marks a store.
"""

from __future__ import annotations

import socket
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from tierfs import store_directory
from tierfs.background import store_mark
from tierfs.background.journal_names import JOURNAL_PREFIX
from tierfs.background.publish import Publisher
from tierfs.background.status import advisory_fence_warning, kept_objects_warning, shared_filesystem_warning
from tierfs.chunkstore.directory import DirectoryStorage
from tierfs.chunkstore.probe import probe
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.clock import Clock, SystemClock
from tierfs.config import Settings
from tierfs.connect import FILE_SCHEME, S3_SCHEME, connect_bare, create_bucket
from tierfs.errors import AlreadyExists, Fenced, InvalidRequest, WrongColdTier
from tierfs.metadata import directories, journal, keys, policies
from tierfs.metadata.records import LocationRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import LOCATIONS
from tierfs.nested_stores import refuse_nested
from tierfs.store_paths import StorePaths
from tierfs.types import ROOT_DIRECTORY, LocationId, ReadPriority

MAX_PREFIX_BYTES = 80
"""With it, the longest name and the chunk's own part fill S3's 1024 bytes of a key."""

_FIRST_LOCATION = LocationId(1)
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


def init_store(
    path: Path, choice: ColdChoice, clock: Clock | None = None, *, may_nest: bool = False, new_bucket: bool = False
) -> InitReport:
    """Make a store in `path`, which must be missing or empty.

    `new_bucket` makes the bucket first, which stays if something else fails. `may_nest` lets the cold tier lie
    inside another store's, as that of a benchmark does for a while.
    Raises AlreadyExists for a store or a prefix that holds one, InvalidRequest, PermissionDenied,
    NotFound for a missing bucket, Unavailable for a server that does not answer.
    """
    clock = clock or SystemClock()
    paths = StorePaths(path.absolute())
    location = locate(choice)
    with store_directory.new_directory(paths):
        if new_bucket and location is not None:
            create_bucket(location, Settings().cold)
        storage = _claimable(location, paths, may_nest=may_nest) if location is not None else None
        if location is not None and storage is not None:
            location = probed(location, storage)
        store_id = _create(paths, location, storage, clock)
    url = location.url if location is not None else None
    return InitReport(paths.root, store_id, url, warnings_of(paths, location))


def locate(choice: ColdChoice) -> LocationRecord | None:
    """The cold tier that was chosen, as a record. Raises InvalidRequest."""
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


def probed(location: LocationRecord, storage: ChunkStorage) -> LocationRecord:
    """The location with what its server was found to honour. Raises what the storage raises."""
    abilities = probe(storage)
    return replace(
        location,
        create_only_put=abilities.create_only_put,
        create_only_multipart=abilities.create_only_multipart,
        verifies_crc32c=abilities.verifies_crc32c,
        keeps_objects=not abilities.deletes,
    )


def _claimable(location: LocationRecord, paths: StorePaths, *, may_nest: bool) -> ChunkStorage:
    """The cold tier, reachable and without a store. Raises what is wrong with it."""
    if location.url == FILE_SCHEME + _DEFAULT_COLD:
        DirectoryStorage.create(paths.cold).close()
    storage = connect_bare(location, paths.root, Settings().cold)
    if next(storage.list(JOURNAL_PREFIX), None) is not None or store_mark.is_there(storage):
        storage.close()
        raise _holds_a_store(location)
    try:
        if not may_nest:
            refuse_nested(location, paths.root, storage, Settings().cold)
    except BaseException:
        storage.close()
        raise
    return storage


def _holds_a_store(location: LocationRecord) -> AlreadyExists:
    return AlreadyExists(
        f"{location.url} holds a tierfs store already",
        remedy="choose another prefix; to own that store here: tierfs recover; to follow it: tierfs replica",
    )


def _create(paths: StorePaths, location: LocationRecord | None, storage: ChunkStorage | None, clock: Clock) -> str:
    store_directory.create_files(paths)
    metadata = MetadataStore.create(paths.metadata, clock)
    with closing(metadata):
        _write_first_records(metadata, location)
        if location is not None and storage is not None:
            with closing(storage):
                _claim(metadata, location, storage)
        store_id = metadata.store_id
    store_directory.write_settings(paths)
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
    """Win the journal's first slot; from then on the bucket is ours, and marked."""
    try:
        Publisher(metadata, storage).publish(claims=True)
    except (Fenced, WrongColdTier) as exc:
        raise _holds_a_store(location) from exc


def warnings_of(paths: StorePaths, location: LocationRecord | None) -> tuple[str, ...]:
    """What a user should know of where a new store keeps its bytes."""
    found: list[str] = []
    shared = shared_filesystem_warning(paths.root, location.url if location is not None else None)
    if shared:
        found.append(shared)
    advisory = advisory_fence_warning(location)
    if advisory:
        found.append(advisory)
    found += kept_objects_warning(location)
    return tuple(found)
