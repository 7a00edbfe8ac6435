"""Orders of a person to a standby: make a replica one, pause or resume takeovers, take over now."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tierfs.app.recovery.recover import reached
from tierfs.app.recovery.replica import ReplicaReport, create_replica
from tierfs.app.setup import store_directory
from tierfs.app.standby import Standby
from tierfs.app.store import Store
from tierfs.base.bytes.progress import OnProgress, doing, unseen
from tierfs.base.options import settings, store_toml
from tierfs.base.system.os_errors import map_os_errors
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import AlreadyExists, Conflict, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.metadata.store import new_id
from tierfs.upkeep.holder import lock, standby_note
from tierfs.upkeep.holder.lock import HeldElsewhere
from tierfs.upkeep.holder.standby_note import StandbyNote, Taken

# Between two looks whether the holder has taken over; it looks for orders at each look into the bucket.
_POLL_S = 0.2

_FROM_PERSON = "tierfs standby --pause"


def create_standby(
    path: Path, place: Place, takeover_after_s: int, check: str, report: OnProgress = unseen
) -> ReplicaReport:
    """Make a standby in `path`: a replica, and settings by which it takes over.

    Raises as `create_replica`, with the way for each kind of store that is there already, and PermissionDenied where
    the key may not write into the place.
    """
    if StorePaths(path).settings.exists():
        raise AlreadyExists(
            f"{printable(str(path))} is already a tierfs store",
            remedy="a replica becomes a standby by: tierfs config standby.takeover_after_s=TIME; for any other store, "
            "choose a new directory, and keep this one while only it has bytes: tierfs status",
        )
    values = {"standby.takeover_after_s": f"{takeover_after_s}s", "standby.check": check}
    text = settings.default_text()
    for name, value in values.items():
        if value:
            text = store_toml.with_value(text, name, value)
    settings.check(text, path)
    with reached(place.of_store(path.absolute())):  # the owner's rights are tried before the night they are needed
        pass
    created = create_replica(path, place, report)
    paths = StorePaths(created.path)
    store_directory.replace_settings(paths, text)
    standby_note.report(paths, after_s=takeover_after_s)
    return created


def pause(store: Store, why: str) -> StandbyNote:
    """Let no takeover happen by itself until they are resumed. Raises InvalidRequest for an owner."""
    _require_replica(store)
    return _write(store, lambda note: replace(note, paused=why or _FROM_PERSON))


def resume(store: Store) -> StandbyNote:
    """Allow takeovers again. Raises InvalidRequest for an owner."""
    _require_replica(store)
    return _write(store, lambda note: replace(note, paused=""))


def take_over_now(store: Store, report: OnProgress = unseen) -> Taken:
    """Make a replica the owner of its bucket, here or by its holder, and wait for that.

    Raises InvalidRequest for an owner, Fenced when another one was faster, Conflict when the holder failed, and what
    taking over raises.
    """
    _require_replica(store)
    try:
        with lock.hold(store.paths.holder, store.clock):
            Standby(store, lambda: None).take_over_now(report)
    except HeldElsewhere:
        _wait_for_holder(store, report)
    taken = standby_note.read(store.paths).taken
    assert taken is not None
    return taken


def _wait_for_holder(store: Store, report: OnProgress) -> None:
    wanted = new_id()
    _write(store, lambda note: replace(note, wanted=wanted, refused=""))
    try:
        while store.is_replica:
            note = standby_note.read(store.paths)
            if note.refused and note.wanted != wanted:
                raise Conflict(f"the holder did not take over: {note.refused}", remedy="see: tierfs standby")
            if not store.is_held:
                raise Conflict("the mount or daemon has stopped meanwhile", remedy="run the command again")
            report(doing("waiting for the mount or daemon"))
            time.sleep(_POLL_S)
    except BaseException:
        _write(store, lambda note: replace(note, wanted="" if note.wanted == wanted else note.wanted))
        raise
    while standby_note.read(store.paths).taken is None and store.is_held:
        time.sleep(_POLL_S)


def _require_replica(store: Store) -> None:
    if not store.is_replica:
        raise InvalidRequest("this store is not a replica: there is nothing to take over")


def _write(store: Store, change: Callable[[StandbyNote], StandbyNote]) -> StandbyNote:
    with map_os_errors(str(store.paths.standby)):
        return standby_note.write_synced(store.paths, change)
