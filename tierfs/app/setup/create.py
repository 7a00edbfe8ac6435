"""Make a store: check everything first, then create it, and leave nothing behind if that fails.

The bucket is claimed by its first journal slot, which is created create-only: of two stores initialised on one prefix
at the same time exactly one succeeds.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from tierfs.app.setup.nesting import refuse_nested
from tierfs.app.setup.store_directory import create_files, new_directory, write_settings
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options import contradictions
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import (
    AlreadyExists,
    Fenced,
    NotFound,
    WrongColdTier,
)
from tierfs.base.words.types import ROOT_DIRECTORY
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
from tierfs.engine.chunkstore.place import FILE_SCHEME, Place
from tierfs.engine.chunkstore.probe import require_writable
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal import store_mark
from tierfs.engine.journal.names import JOURNAL_PREFIX
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata import changes, directories, policies
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import DIRECTORIES, LOCATIONS
from tierfs.upkeep.holder.store_warnings import advisory_fence_warning, kept_objects_warning, shared_filesystem_warning

# The place of a store that is given none.
INSIDE = Place.inside()

NO_POLICIES: Mapping[str, str] = {}


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
    place: Place | None = INSIDE,
    clock: Clock | None = None,
    *,
    may_nest: bool = False,
    new_bucket: bool = False,
    root_policies: Mapping[str, str] = NO_POLICIES,
) -> InitReport:
    """Make a store in `path`, which must be missing or empty, with its cold tier in a place; None: without one.

    `new_bucket` makes the bucket first, which stays if something else fails. `may_nest` lets the cold tier lie
    inside another store's, as that of a benchmark does for a while. `root_policies`, in their stored form, become those
    of the whole store. Raises AlreadyExists for a store or a prefix that holds one, InvalidRequest, PermissionDenied,
    NotFound for a missing bucket, Unavailable for a server that does not answer.
    """
    clock = clock or SystemClock()
    paths = StorePaths(path.absolute())
    storage = None
    with new_directory(paths):
        if place is not None:
            place = place.of_store(paths.root)
            if new_bucket:
                place.make_bucket()
            storage = claimable(place, may_nest=may_nest)
            place = place.probed(storage)
        store_id, useless = _create(paths, place, storage, clock, root_policies)
    url = place.record.url if place is not None else None
    return InitReport(paths.root, store_id, url, (*warnings_of(paths, place), *useless))


def claimable(place: Place, *, may_nest: bool = False) -> ChunkStorage:
    """Connect to the cold tier; raise what is wrong with it, AlreadyExists if it holds a store."""
    if place.record.url == INSIDE.record.url:
        DirectoryStorage.create(StorePaths(place.store).cold).close()
    try:
        storage = place.open()
    except NotFound as exc:
        if exc.remedy or not place.record.url.startswith(FILE_SCHEME):
            raise
        raise NotFound(str(exc), remedy="create the directory, or mount its disk, first") from exc
    require_writable(storage)
    if next(storage.list(JOURNAL_PREFIX), None) is not None or store_mark.is_there(storage):
        storage.close()
        raise holds_a_store(place)
    try:
        if not may_nest:
            refuse_nested(place, storage)
    except BaseException:
        storage.close()
        raise
    return storage


def holds_a_store(place: Place) -> AlreadyExists:
    return AlreadyExists(
        f"{place.record.url} already contains a tierfs store",
        remedy="choose another prefix; to own that store here: tierfs recover; to follow it: tierfs replica",
    )


def _create(
    paths: StorePaths,
    place: Place | None,
    storage: ChunkStorage | None,
    clock: Clock,
    root_policies: Mapping[str, str],
) -> tuple[str, list[str]]:
    """Return the id of the new store, and why policies do nothing in it."""
    create_files(paths)
    metadata = MetadataStore.create(paths.metadata, clock)
    with closing(metadata):
        _write_first_records(metadata, place, root_policies)
        if place is not None and storage is not None:
            with closing(storage):
                claim(metadata, place, storage)
        store_id = metadata.store_id
        with metadata.read() as txn:
            useless = [text for _, text in contradictions.useless(policies.at(txn, ""))]
    write_settings(paths)
    return store_id, useless


def _write_first_records(metadata: MetadataStore, place: Place | None, root_policies: Mapping[str, str]) -> None:
    with metadata.write() as txn:
        changes.owner_begins(txn, socket.gethostname())
        changes.changed(txn, DIRECTORIES, directories.directory(txn, ROOT_DIRECTORY))
        if place is not None:
            txn.update_store(cold_location_id=place.record.id)
            changes.put(txn, LOCATIONS, place.record)
        policies.change(txn, "", put_settings=root_policies)
        if place is not None:
            policies.require_supported(txn, place.record)


def claim(metadata: MetadataStore, place: Place, storage: ChunkStorage) -> None:
    """Win the journal's first slot, and publish everything; from then on the bucket is ours, and marked."""
    try:
        Publisher(metadata, storage).publish(claims=True)
    except (Fenced, WrongColdTier) as exc:
        raise holds_a_store(place) from exc


def warnings_of(paths: StorePaths, place: Place | None) -> tuple[str, ...]:
    """Return what a user should know about the place of a new store's bytes."""
    record = place.record if place is not None else None
    url = record.url if record is not None else None
    warnings: list[str] = []
    shared = shared_filesystem_warning(paths.root, url)
    if shared:
        warnings.append(shared)
    advisory = advisory_fence_warning(record)
    if advisory:
        warnings.append(advisory)
    warnings += kept_objects_warning(record)
    if url is not None and url.startswith("memory:"):
        warnings.append("the cold tier is in the memory of this process, and is lost when it exits")
    return tuple(warnings)
