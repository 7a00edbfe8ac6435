"""Turn a word that a person typed, or a program passed, into a store and a name in it.

A path stands for a segment only where the mount that covers it is one of that store. The process that serves a mount
keeps a lock in the store, named after the mount's device, which is one on the whole machine: it tells whose the mount
is in every mount namespace and through every bind mount, also when the mount does not answer. In doubt a path is
refused, never taken for another segment.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from tierfs.base.system.mounts import MountState, asked, state_of
from tierfs.base.system.places import Mount, MountedPlace, is_path, place_of_typed
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import InvalidRequest, NotFound, TierfsError
from tierfs.base.words.names import as_word, printable
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.store import MetadataStore
from tierfs.upkeep.holder import lock

_STATS = Path(".tierfs/stats")


def under_mount(store: Path, metadata: MetadataStore, text: str) -> MountedPlace | None:
    """Return what a text stands for under a mount of the store in a directory; None when it is in none.

    The empty text is the whole store, from everywhere. Raises InvalidRequest for a path in a mount of another store, or
    one of which that is not certain.
    """
    place = place_of_typed(text) if text else None
    if place is None:
        return None
    if not is_mount_of(store, metadata, place.mount):
        if not is_path(text):
            return None
        raise InvalidRequest(
            f"{text} is in a mount of the store {place.mount.store}, not of {store}",
            remedy="omit --store: the mount already specifies its store",
        )
    if place.mount.root:
        _require_root(metadata, place)
    return place


def is_mount_of(store: Path, metadata: MetadataStore, mount: Mount) -> bool:
    """Return whether a mount shows this store. Raises InvalidRequest where that cannot be told."""
    if lock.server_of(store, mount.device) is not None:
        return True
    if not lock.same_directory(mount.store, store):
        return False
    # The directory of the same path may be another one where the mount was made, or was made anew since.
    state = state_of(mount)
    if state is MountState.DEAD and StorePaths(store).mount(mount.device).exists():
        return True
    if state is MountState.ALIVE and _reported_store(mount) == metadata.store_id:
        return True
    raise _in_doubt(mount, f"cannot be identified as a mount of the store {store}")


def only_mount(store: Path, verb: str) -> Path:
    """Return the mount of a store, for a verb without a MOUNT. Raises NotFound, or InvalidRequest for several."""
    points = [mount.mountpoint for mount in lock.mounts_of(store) if not mount.root]
    if not points:
        raise NotFound(f"{store} is not mounted", remedy=f"mount it: tierfs --store {store} mount DIR")
    if len(points) > 1:
        shown = ", ".join(map(str, points))
        raise InvalidRequest(
            f"{store} has {len(points)} mounts: {shown}", remedy=f"specify one: tierfs {verb} {points[0]}"
        )
    return points[0]


def store_of(mount: Mount) -> Path:
    """Return the directory of a mount's store. Raises NotFound where this process does not see it."""
    if not StorePaths(mount.store).settings.is_file():
        raise NotFound(
            f"{mount.mountpoint} is a mount of the store {mount.store}, which does not exist for this process",
            remedy="give the store's directory on this side: --store DIR",
        )
    return mount.store


def _reported_store(mount: Mount) -> str | None:
    """Return the id of the store that a mount reports; None for a bind mount of a part."""

    def read() -> str | None:
        try:
            return str(json.loads((mount.mountpoint / _STATS).read_bytes()).get("store_id"))
        except (OSError, ValueError):
            return None

    return asked(read)


def _require_root(metadata: MetadataStore, place: MountedPlace) -> None:
    """Require that a bind mount shows what has its name in the store now; the kernel hears of changes later."""

    def inode() -> int | None:
        try:
            return os.stat(place.mount.mountpoint).st_ino
        except OSError:
            return None

    shown = asked(inode)
    with metadata.read() as txn:
        entry = directories.find(txn, place.mount.name)
        now = None if entry is None else directories.inode_of(txn, entry)
    if shown is None or shown != now:
        raise _in_doubt(place.mount, f"may show a {printable(place.mount.name)} other than the store has now")


def _in_doubt(mount: Mount, why: str) -> TierfsError:
    return InvalidRequest(
        f"the mount at {mount.mountpoint} {why}",
        remedy=f"mount it again, or specify store and segment: tierfs --store {as_word(str(mount.store))} …",
    )
