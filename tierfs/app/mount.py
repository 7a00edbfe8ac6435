"""Mount a store in the foreground; hold it whenever no other process does. Part of the composition root."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

import trio

from tierfs.app import fill_cache
from tierfs.app.background import follow_place, holder_task_of, log_as_set, reload, save_requests, serve_metrics
from tierfs.app.setup import place_settings
from tierfs.app.store import Store, open_store
from tierfs.base.options import settings
from tierfs.base.system import processes
from tierfs.base.system.prometheus import parse_listen
from tierfs.base.system.store_paths import MOUNT_NAME, StorePaths, require_trusted
from tierfs.base.words.errors import Closed, TierfsError
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal.names import JOURNAL_PREFIX
from tierfs.mount.control_files import Opener, made_in_thread, made_when_opened
from tierfs.mount.options import MountOptions, parse_options
from tierfs.mount.session import MountSession
from tierfs.mount.stats import Observation
from tierfs.reading.cache_report import CACHE_REPORT_NAME, report_of
from tierfs.reading.reader import StoreReader
from tierfs.upkeep.holder.loop import HolderTask
from tierfs.upkeep.holder.requests import RequestServer
from tierfs.upkeep.holder.status import backlog_of, totals_of
from tierfs.upkeep.holder.tasks import BackgroundThreads

log = logging.getLogger(__name__)

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
        log_as_set(store)
        connect_early(store)
        threads = BackgroundThreads()
        session_of(store, threads).run(mountpoint, parsed, announce)
        threads.leave()


def session_of(store: Store, threads: BackgroundThreads) -> MountSession:
    """Make a mount of an open store, with its part of the background work.

    Raises InvalidRequest for a `metrics.listen` that no process may serve.
    """
    wanted = store.settings.metrics
    if wanted.listen:
        parse_listen(wanted.listen, public=wanted.public)  # later it would be an error that only the log has
    holder = holder_task_of(store, threads)
    reader = store.reader(cached=True)

    async def on_reload() -> None:
        await reload(store, holder, threads)
        store.limits.apply(reader)

    cache_directory = store.paths.cache(store.settings.read.cache_directory)

    async def hold() -> None:
        await holder.run(before_work=session.wait_settled)

    tasks: list[Callable[[], Awaitable[None]]] = [
        hold,
        partial(follow_place, store, holder),
        partial(save_requests, store),
    ]
    if wanted.listen:
        tasks.append(partial(serve_metrics, store))
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
            log.exception("cannot serve warm-up requests; next attempt in %g s", _AGAIN_S)
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
        log.debug("the mount stopped before the cold tier responded")
    except TierfsError as exc:
        log.warning("the cold tier does not respond: %s", exc)
    except Exception:
        log.exception("reading the journal from the cold tier")


def described_settings(store: Store) -> str:
    """Return the current settings, as `tierfs config` prints them."""
    loaded = settings.load_with_origins(store.paths.settings, os.environ)
    return "\n".join([*place_settings.lines(store.cold_location), settings.lines(loaded), ""])


def control_files(
    store: Store, reader: StoreReader, holder: HolderTask, cache_directory: Path, options: MountOptions
) -> Mapping[str, Opener]:
    """Return the openers of the files of `.tierfs`."""
    observation = Observation(store.watched, reader, store.metrics, store.clock, holder, options)
    files = {
        "config": lambda: described_settings(store).encode(),
        CACHE_REPORT_NAME: lambda: report_of(reader, cache_directory).encode(),
        "stats": observation.stats,
    }
    backlog = made_in_thread(partial(_described_backlog, store))
    in_thread = {"backlog": backlog, "metrics": made_in_thread(observation.metrics)}
    return {name: made_when_opened(make) for name, make in files.items()} | in_thread


def _described_backlog(store: Store) -> bytes:
    """Return the backlog as `tierfs status --json` has it. In a thread: it may look at every segment."""
    with store.metadata.read() as txn:
        backlog = backlog_of(txn, totals_of(txn), store.clock.now_ms(), held=store.is_held)
    return json.dumps(asdict(backlog), indent=1).encode() + b"\n"
