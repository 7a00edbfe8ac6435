"""Keep replicas up to date, and keep one on this machine for each bucket that is read by its URL.

The replica of a bucket lies in a private directory of the machine's temporary files and is brought up to date each time
it is opened; it may be removed at any time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from tierfs.app.recovery.replica import Follower, Refreshed, create_replica
from tierfs.app.store import Store, open_store
from tierfs.base.bytes.progress import OnProgress, unseen
from tierfs.base.system import osio
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import InvalidRequest, PermissionDenied
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.journal import store_mark
from tierfs.engine.metadata.store import new_id
from tierfs.upkeep.holder import lock
from tierfs.upkeep.holder.lock import HeldElsewhere

_KEY_DIGITS = 32


def refresh(store: Store, report: OnProgress = unseen) -> Refreshed:
    """Bring a replica up to date now.

    Raises InvalidRequest for a store that is none, HeldElsewhere, saying so, when another process does it by itself.
    """
    if not store.is_replica:
        raise InvalidRequest("this store is not a replica: it owns its bucket, so there is nothing to fetch")
    try:
        with lock.hold(store.paths.holder, store.clock):
            return follower_of(store).refresh(report)
    except HeldElsewhere as exc:
        every_s = store.settings.background.replica_refresh_s
        raise HeldElsewhere(str(exc), remedy=f"nothing to do: it updates the replica every {every_s:g} s") from exc


def follower_of(store: Store) -> Follower:
    """Make what keeps a replica up to date, connected as the settings say now."""
    location = store.cold_location
    assert location is not None
    return Follower(store.metadata, store.storage_of(location.id), store.place_of(location))


def refresh_source(store: Store) -> None:
    """Bring the replica of a bucket up to date, with one listing where nothing is new; other stores need no refresh.

    Raises what the storage raises.
    """
    if store.is_replica:
        with suppress(HeldElsewhere):  # another process brings it up to date at this moment
            refresh(store)


def open_replica(place: Place) -> Store:
    """Open the replica of a place on this machine, brought up to date; it is made where there is none."""
    path = _replica_path(place)
    if not StorePaths(path).settings.is_file():
        _create(path, place)
        return open_store(path)
    store = open_store(path)
    try:
        if _is_of_another_store(store):
            store.close()
            shutil.rmtree(path)
            _create(path, place)
            return open_store(path)
        refresh_source(store)
    except BaseException:
        store.close()
        raise
    return store


def _is_of_another_store(store: Store) -> bool:
    """Return whether the bucket is another store's by now: its journal may be too short for a refresh to notice."""
    assert store.cold_location_id is not None
    there = store_mark.read_store_id(store.storage_of(store.cold_location_id))
    return there not in (None, store.metadata.store_id)


def _create(path: Path, place: Place) -> None:
    """Make the replica beside its place and move it there: of two processes one is first, and both may use it."""
    making = path.with_name(f"{path.name}.{new_id()}")
    try:
        create_replica(making, place, lambda _: None)
        try:
            making.rename(path)
        except OSError:
            if not StorePaths(path).settings.is_file():
                raise
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _replica_path(place: Place) -> Path:
    record = place.record
    address = (record.url, record.endpoint_url, record.region, record.profile)
    key = hashlib.sha256(repr(address).encode()).hexdigest()[:_KEY_DIGITS]
    root = Path(tempfile.gettempdir()) / f"tierfs-replicas-{os.geteuid()}"
    try:
        osio.private_directory(root)
    except PermissionError as exc:
        text = f"{root} cannot be used for a replica: {exc.strerror}"
        raise PermissionDenied(text, remedy="remove it, or set TMPDIR to your own directory") from exc
    return root / key
