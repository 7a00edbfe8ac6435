"""Holding a store: the keeper of a mount, and `tierfs daemon`. Part of the composition root."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import trio

from tierfs import daemonize
from tierfs.app import Store, open_store
from tierfs.background import ballast, holder
from tierfs.background.alone import Alone
from tierfs.background.following import Following, FollowingTools
from tierfs.background.holder import HeldElsewhere
from tierfs.background.keeper import HolderLoop, Keeper, KeeperTools
from tierfs.background.status import advisory_fence_warning
from tierfs.background.threads import BackgroundThreads
from tierfs.errors import InvalidRequest
from tierfs.recovery.follow import Follower, Refreshed
from tierfs.signals import HEARD, Reload, until_told_to_end
from tierfs.store_paths import StorePaths

log = logging.getLogger(__name__)

_NAME = "daemon"


def keeper_of(store: Store, threads: BackgroundThreads) -> HolderLoop:
    """The keeper of an open store."""
    location = store.cold_location
    if location is None:
        return Alone(store.alone_tools(), threads, lambda: store.settings.background)
    if store.is_replica:
        tools = FollowingTools(store.paths.holder, store.metadata, lambda: follower_of(store).refresh, threads)
        return Following(tools, lambda: store.settings.background)
    advisory = advisory_fence_warning(location)
    if advisory:
        log.warning("%s", advisory)
    ballast.restore(store.paths.ballast)
    return Keeper(KeeperTools(store.paths.holder, store.cold_work, lambda: store.settings.background, threads))


def refresh(store: Store) -> Refreshed:
    """Bring a replica up to date now. Raises HeldElsewhere when another process does so by itself."""
    if not store.is_replica:
        raise InvalidRequest("this store is no replica: it owns its bucket, and nothing comes from there")
    with holder.hold(store.paths.holder, store.clock):
        return follower_of(store).refresh()


def follower_of(store: Store) -> Follower:
    """What keeps a replica up to date, connected as the settings say now."""
    location = store.cold_location
    assert location is not None
    return Follower(store.metadata, store.storage_of(location.id), location)


async def reload(store: Store, keeper: HolderLoop, threads: BackgroundThreads) -> None:
    """Read settings and credentials anew and begin the background work with them; raises what is wrong."""
    await threads(store.reload)
    keeper.renew()


def hold_foreground(store_path: Path) -> None:
    """Hold the store and do its background work until SIGTERM or SIGINT.

    Raises HeldElsewhere naming the holder there is.
    """
    with daemonize.reporting(StorePaths(store_path).log, _NAME) as announce, open_store(store_path) as store:
        threads = BackgroundThreads()
        keeper = keeper_of(store, threads)
        trio.run(_serve, keeper, partial(reload, store, keeper, threads), announce)
        threads.leave()


def hold_background(store_path: Path) -> Path:
    """Start a daemon that holds the store; returns its log once it does. Raises what it failed with."""
    with open_store(store_path) as store:
        paths = store.paths
        found = holder.current(paths.holder)
    if found is not None:
        raise HeldElsewhere(f"the store is held by {found}", remedy="leave it to that process, or end it first")
    return daemonize.start(["--store", str(paths.root), "daemon", "-f"], paths.log, _NAME)


async def _serve(keeper: HolderLoop, on_reload: Reload, announce: Callable[[], None]) -> None:
    with trio.open_signal_receiver(*HEARD) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_end_on_signal, signals, on_reload, nursery.cancel_scope)
            await keeper.run(wait=False, on_held=announce)
            nursery.cancel_scope.cancel()


async def _end_on_signal(signals: AsyncIterator[int], on_reload: Reload, scope: trio.CancelScope) -> None:
    await until_told_to_end(signals, on_reload)
    scope.cancel()
