"""The background work of a store, as mounts and daemons do it, and its reload. Part of the composition root.

A mount does it whenever no other process does, `tierfs daemon` always.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import trio

from tierfs.app.adopt_again import repeating
from tierfs.app.follow.in_background import BackgroundFollowing
from tierfs.app.request_log import SAVE_EVERY_S
from tierfs.app.standby import Standby
from tierfs.app.store import Store
from tierfs.base.system import daemon_log
from tierfs.base.words.errors import Unavailable
from tierfs.engine.chunkstore.located import LOOK_S
from tierfs.tiering.garbage import ballast
from tierfs.upkeep.holder import kinds
from tierfs.upkeep.holder.loop import Begin, HolderTask
from tierfs.upkeep.holder.store_warnings import advisory_fence_warning
from tierfs.upkeep.holder.tasks import BackgroundThreads

log = logging.getLogger(__name__)

# Between attempts to serve metrics at an address that another process has, or that is not there yet (a guess).
_PORT_S = 5.0


def holder_task_of(store: Store, threads: BackgroundThreads) -> HolderTask:
    """Make what holds an open store."""
    following = BackgroundFollowing(store)

    def connect() -> Begin:
        return _connect(store, following, lambda: trio.from_thread.run_sync(task.renew))

    task = HolderTask(store.paths.holder, store.metadata, lambda: store.settings.background, threads, connect)
    return task


def _connect(store: Store, following: BackgroundFollowing, renew: Callable[[], None]) -> Begin:
    """Connect to the cold tier, if there is one, and choose the work of the store's holder.

    `renew` begins that again, from its threads: a standby becomes the owner.
    """
    if store.is_replica:
        return partial(kinds.of_replica, store.metadata, lambda: Standby(store, renew).look)
    ballast.restore(store.paths.ballast)
    location = store.cold_location
    if location is None:
        return _with_sources(store, following, partial(kinds.without_cold_tier, store.local_work()))
    advisory = advisory_fence_warning(location)
    if advisory:
        log.warning("%s", advisory)
    return _with_sources(store, following, partial(kinds.with_cold_tier, store.cold_work()))


def _with_sources(store: Store, following: BackgroundFollowing, begin: Begin) -> Begin:
    """Add to the work of a holder what brings in the bytes of others."""
    return following.added_to(repeating(store, begin))


async def reload(store: Store, task: HolderTask, threads: BackgroundThreads) -> None:
    """Read settings and credentials again and begin the background work with them; raise what is wrong."""
    await threads(store.reload)
    log_as_set(store)
    task.renew()


async def follow_place(store: Store, task: HolderTask) -> None:
    """Begin the background work again when the cold tier has another address, which any process may record.

    That work is in one place; whatever reads follows by itself.
    """
    used, failing = store.cold_location, False
    while True:
        await trio.sleep(LOOK_S)
        try:
            newest = store.cold_location
        except Exception as exc:  # of the metadata: what serves goes on, and says so itself
            if not failing:
                log.error("cannot read the address of the cold tier: %s", exc)
            failing = True
            continue
        failing = False
        if newest != used:
            used = newest
            log.info("the address of the cold tier has changed: %s", "none" if newest is None else newest.url)
            task.renew()


async def serve_metrics(store: Store) -> None:
    """Serve the metrics at `metrics.listen`, which is valid, until cancelled.

    While another process has that address, it waits for it: mounts and daemons of one store have the same setting, and
    tell of the store the same. It waits for an address that is not this machine's yet too, as of a network that comes
    up after a mount at boot.
    """
    wanted, told, end = store.settings.metrics, "", None
    while end is None:
        why = "it is in use"
        try:
            end = store.metrics.serve(wanted.listen, public=wanted.public)
        except Unavailable as exc:
            why = str(exc)
        if end is None:
            if why != told:
                log.warning("metrics are not served at metrics.listen = %s yet: %s", wanted.listen, why)
            told = why
            await trio.sleep(_PORT_S)
    try:
        await trio.sleep_forever()
    finally:
        end()


async def save_requests(store: Store) -> None:
    """Add the calls of the cold tier by this process to those of the store, every minute until cancelled."""
    while True:
        await trio.sleep(SAVE_EVERY_S)
        await trio.to_thread.run_sync(store.save_requests)


def log_as_set(store: Store) -> None:
    daemon_log.set_format(store.settings.log.level, store.settings.log.format)
