"""Make a store: check everything first, then create it, and leave nothing behind if that fails.

The bucket is claimed by its first journal slot, which is created create-only: of two stores initialised on one prefix
at the same time exactly one succeeds.
"""

from __future__ import annotations

import os
import socket
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tierfs.app.setup.nesting import refuse_nested
from tierfs.app.setup.store_directory import create_files, new_directory, write_settings
from tierfs.base.options.config import Settings
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import (
    AlreadyExists,
    Fenced,
    InvalidRequest,
    NotFound,
    WrongColdTier,
)
from tierfs.base.words.names import from_os
from tierfs.base.words.types import ROOT_DIRECTORY, Ack, LocationId
from tierfs.engine.chunkstore import binding
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
from tierfs.engine.chunkstore.place import FILE_SCHEME, Place
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.chunkstore.s3.location import S3_SCHEME
from tierfs.engine.journal import store_mark
from tierfs.engine.journal.names import JOURNAL_PREFIX
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata import changes, directories, policies
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import DIRECTORIES, LOCATIONS
from tierfs.upkeep.holder.store_warnings import advisory_fence_warning, kept_objects_warning, shared_filesystem_warning

# With it, the longest name and the chunk's own part fill S3's 1024 bytes of a key.
MAX_PREFIX_BYTES = 80

FIRST_LOCATION = LocationId(1)
_DEFAULT_COLD = "cold"


@dataclass(frozen=True, slots=True)
class ColdChoice:
    """The user's choice of a cold tier; by default a directory in the store."""

    bucket_url: str | None = None
    cold_url: str | None = None
    """Of any kind of place; `bucket_url` and `cold_dir` say the same of two of them."""
    cold_dir: Path | None = None
    none: bool = False
    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None

    @property
    def names_a_place(self) -> bool:
        """Whether a place is named, and not the default one meant."""
        return not (self.bucket_url is None and self.cold_url is None and self.cold_dir is None)


@dataclass(frozen=True, slots=True)
class InitReport:
    """The result of init."""

    path: Path
    store_id: str
    cold_url: str | None
    warnings: tuple[str, ...]
    created: bool = True
    """False for a store that existed, with the same cold tier."""


def init_store(
    path: Path,
    choice: ColdChoice,
    clock: Clock | None = None,
    *,
    may_nest: bool = False,
    new_bucket: bool = False,
    ack: Ack | None = None,
) -> InitReport:
    """Make a store in `path`, which must be missing or empty.

    `new_bucket` makes the bucket first, which stays if something else fails. `may_nest` lets the cold tier lie
    inside another store's, as that of a benchmark does for a while. `ack` becomes the policy of the whole store.
    Raises AlreadyExists for a store or a prefix that holds one, InvalidRequest, PermissionDenied,
    NotFound for a missing bucket, Unavailable for a server that does not answer.
    """
    clock = clock or SystemClock()
    paths = StorePaths(path.absolute())
    location = locate(choice)
    with new_directory(paths):
        if new_bucket and location is not None:
            Place(location, paths.root, Settings().cold).make_bucket()
        storage = claimable(location, paths, may_nest=may_nest) if location is not None else None
        if location is not None and storage is not None:
            location = Place(location, paths.root, Settings().cold).probed(storage).record
        store_id = _create(paths, location, storage, clock, ack)
    url = location.url if location is not None else None
    return InitReport(paths.root, store_id, url, warnings_of(paths, location))


def locate(choice: ColdChoice) -> LocationRecord | None:
    """Return the cold tier that was chosen, as a record. Raises InvalidRequest."""
    if choice.none:
        return None
    url = choice.bucket_url or choice.cold_url
    if url is None:
        cold = FILE_SCHEME + (_DEFAULT_COLD if choice.cold_dir is None else from_os(str(choice.cold_dir.absolute())))
        return LocationRecord(id=FIRST_LOCATION, url=cold)
    if not url.startswith(f"{S3_SCHEME}://") and (choice.bucket_url is None or binding.is_bound(url)):
        return _located_place(url, choice)
    from tierfs.engine.chunkstore.places import address

    parts = urlsplit(url)
    if parts.scheme != S3_SCHEME or not parts.netloc or "@" in parts.netloc or parts.query or parts.fragment:
        shown = address.without_secret(url)
        raise InvalidRequest(f"{shown} is not an S3 location", remedy="write it as s3://BUCKET/PREFIX")
    prefix = parts.path.strip("/")
    if len(prefix.encode()) > MAX_PREFIX_BYTES:
        raise InvalidRequest(f"the prefix {prefix} has more than {MAX_PREFIX_BYTES} bytes")
    return LocationRecord(
        id=FIRST_LOCATION,
        url=f"{S3_SCHEME}://{parts.netloc}/{prefix}".rstrip("/"),
        endpoint_url=choice.endpoint_url or configured_endpoint(),
        region=choice.region or "",
        profile=choice.profile or "",
    )


def _located_place(url: str, choice: ColdChoice) -> LocationRecord:
    """Return a place of another kind than S3, as a record. Raises InvalidRequest."""
    from tierfs.engine.chunkstore.places import address

    if choice.region or choice.profile:
        raise InvalidRequest(f"{address.without_secret(url)} takes neither region nor profile: these are for S3")
    directory = url.removeprefix("file://") if url.startswith("file://") else url
    if directory.startswith("/"):
        return LocationRecord(id=FIRST_LOCATION, url=f"{FILE_SCHEME}{directory}")
    if not address.is_known(url) and binding.is_bound(url):
        address.require_no_secret(url)
        return LocationRecord(id=FIRST_LOCATION, url=url.rstrip("/"))
    parsed = address.parse(url, choice.endpoint_url or "")
    if not parsed.in_files and len(parsed.path.encode()) > MAX_PREFIX_BYTES:
        raise InvalidRequest(f"the prefix {parsed.path} has more than {MAX_PREFIX_BYTES} bytes")
    return LocationRecord(id=FIRST_LOCATION, url=parsed.url, endpoint_url=parsed.endpoint_url)


def configured_endpoint() -> str:
    """Return the endpoint that the environment names for AWS' tools, "" for none.

    It is recorded with the place: a mount that is started without that variable must not ask another server.
    """
    if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
        return ""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def claimable(location: LocationRecord, paths: StorePaths, *, may_nest: bool = False) -> ChunkStorage:
    """Connect to the cold tier; raise what is wrong with it, AlreadyExists if it holds a store."""
    if location.url == FILE_SCHEME + _DEFAULT_COLD:
        DirectoryStorage.create(paths.cold).close()
    try:
        storage = Place(location, paths.root, Settings().cold).open()
    except NotFound as exc:
        if exc.remedy or not location.url.startswith(FILE_SCHEME):
            raise
        raise NotFound(str(exc), remedy="create the directory, or mount its disk, first") from exc
    if next(storage.list(JOURNAL_PREFIX), None) is not None or store_mark.is_there(storage):
        storage.close()
        raise holds_a_store(location)
    try:
        if not may_nest:
            refuse_nested(location, paths.root, storage, Settings().cold)
    except BaseException:
        storage.close()
        raise
    return storage


def holds_a_store(location: LocationRecord) -> AlreadyExists:
    return AlreadyExists(
        f"{location.url} already contains a tierfs store",
        remedy="choose another prefix; to own that store here: tierfs recover; to follow it: tierfs replica",
    )


def _create(
    paths: StorePaths, location: LocationRecord | None, storage: ChunkStorage | None, clock: Clock, ack: Ack | None
) -> str:
    create_files(paths)
    metadata = MetadataStore.create(paths.metadata, clock)
    with closing(metadata):
        _write_first_records(metadata, location, ack)
        if location is not None and storage is not None:
            with closing(storage):
                claim(metadata, location, storage)
        store_id = metadata.store_id
    write_settings(paths)
    return store_id


def _write_first_records(metadata: MetadataStore, location: LocationRecord | None, ack: Ack | None) -> None:
    with metadata.write() as txn:
        changes.owner_begins(txn, socket.gethostname())
        changes.changed(txn, DIRECTORIES, directories.directory(txn, ROOT_DIRECTORY))
        if ack is not None:
            policies.put(txn, ROOT_DIRECTORY, {"ack": ack.value})
        if location is not None:
            txn.update_store(cold_location_id=location.id)
            changes.put(txn, LOCATIONS, location)


def claim(metadata: MetadataStore, location: LocationRecord, storage: ChunkStorage) -> None:
    """Win the journal's first slot, and publish everything; from then on the bucket is ours, and marked."""
    try:
        Publisher(metadata, storage).publish(claims=True)
    except (Fenced, WrongColdTier) as exc:
        raise holds_a_store(location) from exc


def warnings_of(paths: StorePaths, location: LocationRecord | None) -> tuple[str, ...]:
    """Return what a user should know about the place of a new store's bytes."""
    warnings: list[str] = []
    shared = shared_filesystem_warning(paths.root, location.url if location is not None else None)
    if shared:
        warnings.append(shared)
    advisory = advisory_fence_warning(location)
    if advisory:
        warnings.append(advisory)
    warnings += kept_objects_warning(location)
    if location is not None and location.url.startswith("memory:"):
        warnings.append("the cold tier is in the memory of this process, and is lost when it exits")
    return tuple(warnings)
