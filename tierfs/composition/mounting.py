"""Mounting a store, in the foreground or as a daemon. Part of the composition root."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from tierfs import daemonize, settings
from tierfs.app import Store, open_store
from tierfs.background.journal_names import JOURNAL_PREFIX
from tierfs.background.keeper import HolderTask
from tierfs.background.tasks import BackgroundThreads
from tierfs.composition.holding import holder_task_of, reload
from tierfs.errors import Unavailable
from tierfs.fuse import mountpoint as points
from tierfs.fuse.control import Content
from tierfs.fuse.observation import BackgroundView, Observation, Sources
from tierfs.fuse.options import MountOptions, parse_options
from tierfs.fuse.session import MountSession
from tierfs.reading.cache_report import CACHE_REPORT_NAME, report_of
from tierfs.reading.reader import Reader
from tierfs.store_paths import StorePaths

log = logging.getLogger(__name__)

_NAME = "mount"


def mount_foreground(store_path: Path, mountpoint: Path, options: str) -> None:
    """Mount and serve until unmounted; hold the store whenever nobody else does.

    Raises what is wrong, with nothing mounted.
    """
    with daemonize.reporting(StorePaths(store_path).log, _NAME) as announce:
        parsed = parse_options(options)
        with open_store(store_path) as store:
            connect_early(store)
            threads = BackgroundThreads()
            session_of(store, threads).run(mountpoint, parsed, announce)
            threads.leave()


def mount_background(store_path: Path, mountpoint: Path, options: str) -> Path:
    """Start a daemon that mounts; returns its log once the mount answers. Raises what it failed with."""
    parse_options(options)
    points.require_usable(mountpoint)
    with open_store(store_path) as store:
        paths = store.paths
    arguments = ["--store", str(paths.root), "mount", str(mountpoint), "-f", *(["-o", options] if options else [])]
    return daemonize.start(arguments, paths.log, _NAME)


def session_of(store: Store, threads: BackgroundThreads) -> MountSession:
    """A mount of an open store, with its part of the background work."""
    holder = holder_task_of(store, threads)
    reader = store.reader(cached=True)

    async def on_reload() -> None:
        await reload(store, holder, threads)
        reader.settings = store.settings.read

    return MountSession(
        store.path,
        store.metadata,
        store.files,
        reader,
        store.settings.mount,
        store.metrics,
        tasks=(holder.run,),
        control=lambda options: control_files(store, reader, holder, options),
        reload=on_reload,
    )


def connect_early(store: Store) -> None:
    """Send one signed request to the cold tier, so that the first read finds an open connection.

    A cold tier that does not answer now is no reason not to start: local bytes can be read.
    """
    location_id = store.cold_location_id
    if location_id is None:
        return
    try:
        next(store.storage_of(location_id).list(JOURNAL_PREFIX), None)
    except Unavailable as exc:
        log.warning("the cold tier does not answer: %s", exc)


def described_settings(store: Store) -> str:
    """The settings as of now, as `tierfs config show` prints them."""
    return settings.lines(settings.load_with_origins(store.paths.settings, os.environ)) + "\n"


def control_files(store: Store, reader: Reader, holder: HolderTask, options: MountOptions) -> Mapping[str, Content]:
    """What the files of `.tierfs` say."""

    def background() -> BackgroundView:
        return BackgroundView(holder.holds, holder.backlog)

    observation = Observation(Sources(store.path, reader, store.metrics, store.clock, background), options)
    cache_directory = store.paths.cache(store.settings.read.cache_directory)
    return {
        "config": lambda: described_settings(store).encode(),
        CACHE_REPORT_NAME: lambda: report_of(reader, cache_directory).encode(),
        "metrics": observation.metrics,
        "stats": observation.stats,
    }
