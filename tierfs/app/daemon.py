"""Hold a store without a mount, in the foreground or as a daemon. Part of the composition root."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path

import trio

from tierfs.app.background import follow_place, holder_task_of, log_as_set, reload, save_requests, serve_metrics
from tierfs.app.store import Store, open_store
from tierfs.base.system import guards, processes
from tierfs.base.system.metrics import MetricName, Sampled
from tierfs.base.system.signals import HEARD, Reload, until_told_to_end
from tierfs.base.system.store_paths import HOLDER_NAME, StorePaths, require_trusted
from tierfs.reading.reader import run_loop
from tierfs.upkeep.holder.loop import HolderTask
from tierfs.upkeep.holder.samples import samples_of
from tierfs.upkeep.holder.tasks import BackgroundThreads

log = logging.getLogger(__name__)


def hold_foreground(store_path: Path) -> None:
    """Hold the store and do its background work until SIGTERM or SIGINT.

    Raises HeldElsewhere naming the holder there is, and Fenced, at the start or later, where another store owns the
    bucket.
    """
    require_trusted(store_path)  # before a log is written there
    with processes.reporting(StorePaths(store_path).log, HOLDER_NAME) as announce, open_store(store_path) as store:
        log_as_set(store)
        processes.share_arenas()
        _require_owner(store)
        threads = BackgroundThreads()
        task = holder_task_of(store, threads)
        _expose(store, task)
        run_loop(_serve, store, task, partial(reload, store, task, threads), announce)
        threads.leave()


def _require_owner(store: Store) -> None:
    """Raise Fenced for a store that may only be read, as its records or the bucket say; a replica follows its owner.

    Before the daemon is announced: one without work would look as if it were at work. A bucket that does not answer
    within seconds keeps no daemon from its work, which goes on asking.
    """
    if store.is_replica:
        return
    if (unknown := store.owner_watch.ask()) is not None:
        log.info("whether the bucket is still this store's is unknown: %s", unknown)
    with store.metadata.write():
        pass  # it raises what the record says, the answer included


def _expose(store: Store, task: HolderTask) -> None:
    """Have the metrics of a daemon tell of the store. Raises InvalidRequest, Unavailable for an unusable address."""
    begun_s, clock, watched = store.clock.monotonic_s(), store.clock, store.watched

    def samples() -> Mapping[MetricName, Sampled]:
        uptime_s = clock.monotonic_s() - begun_s
        return samples_of(watched, holds=task.holds, backlog=task.backlog, uptime_s=uptime_s)

    store.metrics.sample_with(samples)
    wanted = store.settings.metrics
    if wanted.listen and (end := store.metrics.serve(wanted.listen, public=wanted.public)) is not None:
        end()  # serve_metrics serves it, once there is a loop


async def _write_metrics(store: Store) -> None:
    """Write the metrics of a daemon to a file again and again, if its settings say so. An error is logged once."""
    failing = False
    while True:
        wanted = store.settings.metrics
        if wanted.textfile:
            path = store.path / wanted.textfile
            try:
                await trio.to_thread.run_sync(store.metrics.write, path, abandon_on_cancel=True)
                failing = False
            except Exception as exc:  # of the disk, or of the metadata that are counted
                if not failing:
                    log.warning("cannot write metrics to %s: %s", path, exc)
                failing = True
        await trio.sleep(wanted.textfile_s)


async def _serve(store: Store, task: HolderTask, on_reload: Reload, announce: Callable[[], None]) -> None:
    with trio.open_signal_receiver(*HEARD) as signals:
        guards.let_through()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_end_on_signal, signals, on_reload, nursery.cancel_scope)
            nursery.start_soon(follow_place, store, task)
            nursery.start_soon(_write_metrics, store)
            nursery.start_soon(save_requests, store)
            if store.settings.metrics.listen:
                nursery.start_soon(serve_metrics, store)
            await task.run(wait=False, on_held=announce)
            nursery.cancel_scope.cancel()


async def _end_on_signal(signals: AsyncIterator[int], on_reload: Reload, scope: trio.CancelScope) -> None:
    await until_told_to_end(signals, on_reload)
    scope.cancel()
