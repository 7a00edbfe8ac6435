"""Make a store: check everything first, then create it, and leave nothing behind if that fails.

The directory is empty at first; `store.toml` is written last and marks a store. The bucket is claimed by its first
journal slot, which is created create-only: of two stores initialised on one prefix at the same time exactly one
succeeds.

A new cold tier may lie neither inside another store's nor above one: then neither store could tell its objects from the
other's. Checking that takes a few listings: one per prefix above, and below it one per name found, up to a bound.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from tierfs.app.setup.connect import FILE_SCHEME, S3_SCHEME, connect_bare, create_bucket
from tierfs.base.options import settings
from tierfs.base.options.config import ColdSettings, Settings
from tierfs.base.system import osio
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.system.os_errors import map_os_errors
from tierfs.base.system.store_paths import StorePaths, require_own
from tierfs.base.words.errors import (
    AlreadyExists,
    Fenced,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    StorageFull,
    WrongColdTier,
)
from tierfs.base.words.names import from_os, printable
from tierfs.base.words.types import ROOT_DIRECTORY, Ack, LocationId
from tierfs.engine.chunkstore import binding
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.probe import probe
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.chunkstore.validate import MARK_NAME
from tierfs.engine.journal import store_mark
from tierfs.engine.journal.names import JOURNAL_PREFIX
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata import changes, directories, policies
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import DIRECTORIES, LOCATIONS
from tierfs.tiering.garbage import ballast
from tierfs.upkeep.holder.status import advisory_fence_warning, kept_objects_warning, shared_filesystem_warning

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
        raise AlreadyExists(f"{root} is a tierfs store already")
    if paths.metadata.exists():
        raise InvalidRequest(
            f"{root} is not a store, but holds metadata: an init or recover that was killed left it",
            remedy="name another directory, or remove this one; if it was a store before, put back its store.toml "
            "(an empty one will do)",
        )
    if root.is_dir() and any(root.iterdir()):
        raise InvalidRequest(f"{root} is not empty", remedy="name a new or empty directory")
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


# Objects of one listing request of S3.
_PAGE = 1000

# Directories looked into below a prefix that is not empty. A guess: stores are not nested below that many others.
_MOST_LISTINGS = 20

# After every name that begins with the text before it.
_LAST = "\U0010ffff"

_OF_A_STORE = re.compile(rf"(?P<prefix>.+)/({JOURNAL_PREFIX}(checkpoint-)?[0-9]{{20}}|{MARK_NAME})", re.DOTALL)


def refuse_nested(location: LocationRecord, store: Path, storage: ChunkStorage, settings: ColdSettings) -> None:
    """Raise AlreadyExists when another store's cold tier is above or below a location; `storage` is connected to it."""
    for above in _above(location, store):
        if _is_a_store(above, store, settings):
            raise _nested(location, f"lies inside the cold tier of another store, {printable(above.url)}")
    below = _store_below(storage)
    if below is not None:
        raise _nested(location, f"has the cold tier of another store below it, in {printable(below)}/")


def _nested(location: LocationRecord, how: str) -> AlreadyExists:
    return AlreadyExists(f"{printable(location.url)} {how}", remedy="choose another prefix or directory")


def _above(location: LocationRecord, store: Path) -> Iterator[LocationRecord]:
    """Yield the places above, nearest first."""
    if location.url.startswith(FILE_SCHEME):
        directory = (store / location.url.removeprefix(FILE_SCHEME)).resolve()
        for parent in directory.parents:
            yield replace(location, url=f"{FILE_SCHEME}{parent}", writable=False)
        return
    scheme, _, path = location.url.partition("://")
    from tierfs.engine.chunkstore.places import address

    if scheme != S3_SCHEME and not address.is_known(location.url):
        return  # only the package that serves the URL knows what is above
    bucket, *parts = path.split("/")
    while parts:
        parts.pop()
        yield replace(location, url=f"{scheme}://{'/'.join([bucket, *parts])}", writable=False)


def _is_a_store(place: LocationRecord, store: Path, settings: ColdSettings) -> bool:
    """Return whether a journal is there; False for keys that may not look above their own prefix."""
    try:
        with closing(connect_bare(place, store, settings)) as storage:
            first = next(storage.list(JOURNAL_PREFIX), None)
    except (PermissionDenied, NotFound):
        return False
    return first is not None and _OF_A_STORE.fullmatch(f"x/{first.name}") is not None


def _store_below(storage: ChunkStorage) -> str | None:
    """Return the first prefix found that is a store's; of very many names, check only the first of each directory."""
    after = ""
    for _ in range(_MOST_LISTINGS):
        page = list(islice(storage.list("", after=after), _PAGE))
        for stored in page:
            match = _OF_A_STORE.fullmatch(stored.name)
            if match is not None:
                return match["prefix"]
        if len(page) < _PAGE:
            return None
        directory, slash, _ = page[-1].name.partition("/")
        after = f"{directory}/{_LAST}" if slash else page[-1].name
    return None


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
            create_bucket(location, Settings().cold)
        storage = claimable(location, paths, may_nest=may_nest) if location is not None else None
        if location is not None and storage is not None:
            location = probed(location, storage)
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
        raise InvalidRequest(f"{address.without_secret(url)} has neither region nor profile: they are of S3")
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


def probed(location: LocationRecord, storage: ChunkStorage) -> LocationRecord:
    """Return the location with what its server was found to honour. Raises what the storage raises."""
    abilities = probe(storage)
    return replace(
        location,
        create_only_put=abilities.create_only_put,
        create_only_multipart=abilities.create_only_multipart,
        verifies_crc32c=abilities.verifies_crc32c,
        keeps_objects=not abilities.deletes,
    )


def claimable(location: LocationRecord, paths: StorePaths, *, may_nest: bool = False) -> ChunkStorage:
    """Connect to the cold tier; raise what is wrong with it, AlreadyExists if it holds a store."""
    if location.url == FILE_SCHEME + _DEFAULT_COLD:
        DirectoryStorage.create(paths.cold).close()
    try:
        storage = connect_bare(location, paths.root, Settings().cold)
    except NotFound as exc:
        if exc.remedy or not location.url.startswith(FILE_SCHEME):
            raise
        raise NotFound(str(exc), remedy="make the directory, or mount its disk, first") from exc
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
        f"{location.url} holds a tierfs store already",
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
        warnings.append("the cold tier is in the memory of this process, and gone when it ends")
    return tuple(warnings)
