"""Mount a store, or hold it without a mount, in the foreground or as a daemon. Part of the composition root.

Both do the store's background work: a mount whenever no other process does, `tierfs daemon` always.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

import trio

from tierfs.app import fill_cache
from tierfs.app.adopt_again import repeating
from tierfs.app.replica import follower_of
from tierfs.app.setup import place
from tierfs.app.store import Store, open_store
from tierfs.base.options import settings
from tierfs.base.system import daemon_log, guards, processes
from tierfs.base.system.metrics import MetricName
from tierfs.base.system.signals import HEARD, Reload, until_told_to_end
from tierfs.base.system.store_paths import HOLDER_NAME, MOUNT_NAME, StorePaths, require_trusted
from tierfs.base.words.errors import Closed, TierfsError
from tierfs.engine.chunkstore.located import LOOK_S
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal.names import JOURNAL_PREFIX
from tierfs.mount.control_files import Opener, made_in_thread, made_when_opened
from tierfs.mount.options import MountOptions, parse_options
from tierfs.mount.session import MountSession
from tierfs.mount.stats import Observation
from tierfs.reading.cache_report import CACHE_REPORT_NAME, report_of
from tierfs.reading.reader import StoreReader, run_loop
from tierfs.tiering.garbage import ballast
from tierfs.upkeep.holder import kinds
from tierfs.upkeep.holder.loop import Begin, HolderTask
from tierfs.upkeep.holder.requests import RequestServer
from tierfs.upkeep.holder.status import advisory_fence_warning, backlog_of, samples_of, totals_of
from tierfs.upkeep.holder.tasks import BackgroundThreads

log = logging.getLogger(__name__)


def holder_task_of(store: Store, threads: BackgroundThreads) -> HolderTask:
    """Make what holds an open store."""
    connect = partial(_connect, store)
    return HolderTask(store.paths.holder, store.metadata, lambda: store.settings.background, threads, connect)


def _connect(store: Store) -> Begin:
    """Connect to the cold tier, if there is one, and choose the work of the store's holder."""
    if store.is_replica:
        return partial(kinds.of_replica, store.metadata, lambda: follower_of(store).refresh)
    ballast.restore(store.paths.ballast)
    location = store.cold_location
    if location is None:
        return repeating(store, partial(kinds.without_cold_tier, store.local_work()))
    advisory = advisory_fence_warning(location)
    if advisory:
        log.warning("%s", advisory)
    return repeating(store, partial(kinds.with_cold_tier, store.cold_work()))


async def reload(store: Store, task: HolderTask, threads: BackgroundThreads) -> None:
    """Read settings and credentials again and begin the background work with them; raise what is wrong."""
    await threads(store.reload)
    _log_as_set(store)
    task.renew()


async def _follow_place(store: Store, task: HolderTask) -> None:
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
                log.error("where the cold tier is cannot be read: %s", exc)
            failing = True
            continue
        failing = False
        if newest != used:
            used = newest
            log.info("the cold tier is at another address now: %s", "none" if newest is None else newest.url)
            task.renew()


def _log_as_set(store: Store) -> None:
    daemon_log.set_format(store.settings.log.level, store.settings.log.format)


def hold_foreground(store_path: Path) -> None:
    """Hold the store and do its background work until SIGTERM or SIGINT.

    Raises HeldElsewhere naming the holder there is, and Fenced, at the start or later, where another store owns the
    bucket.
    """
    require_trusted(store_path)  # before a log is written there
    with processes.reporting(StorePaths(store_path).log, HOLDER_NAME) as announce, open_store(store_path) as store:
        _log_as_set(store)
        processes.share_arenas()
        _require_owner(store)
        threads = BackgroundThreads()
        task = holder_task_of(store, threads)
        end = _expose(store, task)
        run_loop(_serve, store, task, partial(reload, store, task, threads), announce)
        threads.leave()
        end()


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


def _expose(store: Store, task: HolderTask) -> Callable[[], None]:
    """Serve the metrics of a daemon, if its settings say so; return what ends that."""
    begun_s, clock = store.clock.monotonic_s(), store.clock

    def samples() -> Mapping[MetricName, float]:
        uptime_s = clock.monotonic_s() - begun_s
        return samples_of(store.metadata, holds=task.holds, backlog=task.backlog, uptime_s=uptime_s)

    store.metrics.sample_with(samples)
    listen = store.settings.metrics.listen
    return store.metrics.serve(listen) if listen else lambda: None


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
                    log.warning("metrics cannot be written to %s: %s", path, exc)
                failing = True
        await trio.sleep(wanted.textfile_s)


async def _serve(store: Store, task: HolderTask, on_reload: Reload, announce: Callable[[], None]) -> None:
    with trio.open_signal_receiver(*HEARD) as signals:
        guards.let_through()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_end_on_signal, signals, on_reload, nursery.cancel_scope)
            nursery.start_soon(_follow_place, store, task)
            nursery.start_soon(_write_metrics, store)
            await task.run(wait=False, on_held=announce)
            nursery.cancel_scope.cancel()


async def _end_on_signal(signals: AsyncIterator[int], on_reload: Reload, scope: trio.CancelScope) -> None:
    await until_told_to_end(signals, on_reload)
    scope.cancel()


# A request and the imports before it take 0.5 s; a mount may not wait for its server's time-outs (measured: 105 s).
_EARLY_S = 1.5

# After the metadata could not be written, as on a full disk (a guess).
_AGAIN_S = 10.0


def mount_foreground(store_path: Path, mountpoint: Path, options: str) -> None:
    """Mount and serve until unmounted; hold the store whenever no other process does.

    Raises what is wrong, with nothing mounted.
    """
    parsed = parse_options(options)
    require_trusted(store_path, any_owner=parsed.allow_other_owner)  # before a log is written there
    log_directory, any_owner = StorePaths(store_path).log, parsed.allow_other_owner
    with (
        processes.reporting(log_directory, MOUNT_NAME) as announce,
        open_store(store_path, any_owner=any_owner) as store,
    ):
        _log_as_set(store)
        connect_early(store)
        threads = BackgroundThreads()
        session_of(store, threads).run(mountpoint, parsed, announce)
        threads.leave()


def session_of(store: Store, threads: BackgroundThreads) -> MountSession:
    """Make a mount of an open store, with its part of the background work."""
    holder = holder_task_of(store, threads)
    reader = store.reader(cached=True)

    async def on_reload() -> None:
        await reload(store, holder, threads)
        reader.settings = store.settings.read

    cache_directory = store.paths.cache(store.settings.read.cache_directory)

    async def hold() -> None:
        await holder.run(before_work=session.wait_settled)

    tasks: list[Callable[[], Awaitable[None]]] = [hold, partial(_follow_place, store, holder)]
    if reader.cache is not None:
        check = trio.from_thread.check_cancelled
        server = fill_cache.server(store, reader.cache, cache_directory, check, lambda: reader.mount_option)
        tasks.append(partial(_fill_on_request, server, store.settings.background.request_poll_s))
    session = MountSession(
        store.path,
        store.metadata,
        store.files,
        reader,
        store.settings.mount,
        store.metrics,
        tasks=tasks,
        control=lambda options: control_files(store, reader, holder, cache_directory, options),
        reload=on_reload,
    )
    return session


async def _fill_on_request(server: RequestServer, poll_s: float) -> None:
    """Fill the mount's disk cache for commands that ask, until cancelled; an unfinished request stays for others."""
    while True:
        await trio.sleep(poll_s)
        try:
            if server.may_have_next:
                await trio.to_thread.run_sync(server.serve)
        except Exception:
            log.exception("warm-up requests cannot be served; the next try is in %g s", _AGAIN_S)
            await trio.sleep(_AGAIN_S)


def connect_early(store: Store) -> None:
    """Send one signed request to the cold tier, so that the first read finds an open connection.

    A cold tier that does not answer in a moment is no reason not to start, nor is one that cannot be connected for
    want of credentials or of its directory: local bytes can be read. The thread goes on, and the log has its error.
    """
    location_id = store.cold_location_id
    if location_id is None:
        return
    asking = threading.Thread(target=_ask, args=(store.storage_of(location_id),), name="tierfs-early", daemon=True)
    asking.start()
    asking.join(_EARLY_S)


def _ask(storage: ChunkStorage) -> None:
    try:
        next(storage.list(JOURNAL_PREFIX), None)
    except Closed:
        log.debug("the mount ended before the cold tier answered")
    except TierfsError as exc:
        log.warning("the cold tier does not answer: %s", exc)
    except Exception:
        log.exception("asking the cold tier for its journal")


def described_settings(store: Store) -> str:
    """Return the current settings, as `tierfs config` prints them."""
    loaded = settings.load_with_origins(store.paths.settings, os.environ)
    return "\n".join([*place.lines(store.cold_location), settings.lines(loaded), ""])


def control_files(
    store: Store, reader: StoreReader, holder: HolderTask, cache_directory: Path, options: MountOptions
) -> Mapping[str, Opener]:
    """Return the openers of the files of `.tierfs`."""
    observation = Observation(store.path, reader, store.metrics, store.clock, holder, options)
    files = {
        "config": lambda: described_settings(store).encode(),
        CACHE_REPORT_NAME: lambda: report_of(reader, cache_directory).encode(),
        "metrics": observation.metrics,
        "stats": observation.stats,
    }
    backlog = made_in_thread(partial(_described_backlog, store))
    return {**{name: made_when_opened(make) for name, make in files.items()}, "backlog": backlog}


def _described_backlog(store: Store) -> bytes:
    """Return the backlog as `tierfs status --json` has it. In a thread: it may look at every segment."""
    with store.metadata.read() as txn:
        backlog = backlog_of(txn, totals_of(txn), store.clock.now_ms(), held=store.is_held)
    return json.dumps(asdict(backlog), indent=1).encode() + b"\n"
