"""Holding a store: the background work of a mount, and `tierfs daemon`. Part of the composition root."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import trio

from tierfs import daemonize
from tierfs.app import Store, open_store
from tierfs.background import ballast, holder
from tierfs.background.holder import HeldElsewhere
from tierfs.background.keeper import AloneTask, HolderTask, HolderTools, ReplicaTask, WriterTask
from tierfs.background.status import advisory_fence_warning
from tierfs.background.tasks import BackgroundThreads
from tierfs.errors import InvalidRequest
from tierfs.recovery.follow import Follower, Refreshed
from tierfs.signals import HEARD, Reload, until_told_to_end
from tierfs.store_paths import StorePaths

log = logging.getLogger(__name__)

_NAME = "daemon"


def holder_task_of(store: Store, threads: BackgroundThreads) -> HolderTask:
    """Choose how an open store is held."""
    tools = HolderTools(store.paths.holder, store.metadata, lambda: store.settings.background, threads)
    location = store.cold_location
    if location is None:
        return AloneTask(tools, store.alone_tools())
    if store.is_replica:
        return ReplicaTask(tools, lambda: follower_of(store).refresh)
    advisory = advisory_fence_warning(location)
    if advisory:
        log.warning("%s", advisory)
    ballast.restore(store.paths.ballast)
    return WriterTask(tools, store.cold_work)


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


async def reload(store: Store, task: HolderTask, threads: BackgroundThreads) -> None:
    """Read settings and credentials again and begin the background work with them; raise what is wrong."""
    await threads(store.reload)
    task.renew()


def hold_foreground(store_path: Path) -> None:
    """Hold the store and do its background work until SIGTERM or SIGINT.

    Raises HeldElsewhere naming the holder there is.
    """
    with daemonize.reporting(StorePaths(store_path).log, _NAME) as announce, open_store(store_path) as store:
        threads = BackgroundThreads()
        task = holder_task_of(store, threads)
        trio.run(_serve, task, partial(reload, store, task, threads), announce)
        threads.leave()


def hold_background(store_path: Path) -> Path:
    """Start a daemon that holds the store; returns its log once it does. Raises what it failed with."""
    with open_store(store_path) as store:
        paths = store.paths
        found = holder.current(paths.holder)
    if found is not None:
        raise HeldElsewhere(f"the store is held by {found}", remedy="leave it to that process, or end it first")
    return daemonize.start(["--store", str(paths.root), "daemon", "-f"], paths.log, _NAME)


async def _serve(task: HolderTask, on_reload: Reload, announce: Callable[[], None]) -> None:
    with trio.open_signal_receiver(*HEARD) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_end_on_signal, signals, on_reload, nursery.cancel_scope)
            await task.run(wait=False, on_held=announce)
            nursery.cancel_scope.cancel()


async def _end_on_signal(signals: AsyncIterator[int], on_reload: Reload, scope: trio.CancelScope) -> None:
    await until_told_to_end(signals, on_reload)
    scope.cancel()
