"""The life of one mount, from the checks to the clean end. trio runs in the main thread."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyfuse3
import trio

from tierfs.chunkstore.chunkfiles import ChunkFiles
from tierfs.config import MountSettings
from tierfs.errors import Unavailable
from tierfs.fuse import mountpoint as points
from tierfs.fuse.operations import Operations
from tierfs.fuse.options import MountOptions
from tierfs.fuse.watch import watch_changes
from tierfs.metadata.store import MetadataStore
from tierfs.metrics import MetricSink
from tierfs.mounts import FSNAME_PREFIX
from tierfs.reading.reader import Reader

log = logging.getLogger(__name__)

MAX_TASKS = 10_000
"""Requests served at once; with pyfuse3's 99, slow reads starve a stat (measured: 2.5 s)."""

_UNFREEZE_INTERVAL_S = 0.25
"""A request that vanishes with its process leaves pyfuse3 blocked in read(2) with the GIL held, and every
thread frozen, until a signal interrupts it (measured: 10 times in 940 kills)."""


class MountSession:
    """One mount of one store."""

    def __init__(
        self,
        store: Path,
        metadata: MetadataStore,
        files: ChunkFiles,
        reader: Reader,
        settings: MountSettings,
        metrics: MetricSink,
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._files = files
        self._reader = reader
        self._settings = settings
        self._metrics = metrics

    def run(self, mountpoint: Path, options: MountOptions, on_ready: Callable[[], None]) -> None:
        """Mount, call `on_ready` once the mount answers, and serve until it is unmounted or told to end.

        SIGTERM and SIGINT unmount. Raises what is wrong with the mount point, with nothing mounted.
        """
        points.require_usable(mountpoint)
        with _unfreezing():
            trio.run(self._serve, mountpoint, options, on_ready)

    async def _serve(self, mountpoint: Path, options: MountOptions, on_ready: Callable[[], None]) -> None:
        async with self._reader:
            operations = Operations(self._metadata, self._files, self._reader, options, self._settings, self._metrics)
            self._init(operations, mountpoint, options)
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_end_on_signal)
                    nursery.start_soon(watch_changes, self._metadata, operations.inodes, self._settings.poll_s)
                    nursery.start_soon(_announce, mountpoint, on_ready)
                    await pyfuse3.main(max_tasks=MAX_TASKS)
                    nursery.cancel_scope.cancel()
            finally:
                pyfuse3.close(unmount=True)

    def _init(self, operations: Operations, mountpoint: Path, options: MountOptions) -> None:
        try:
            pyfuse3.init(operations, str(mountpoint), self._fuse_options(options))
        except RuntimeError as exc:
            raise Unavailable(
                f"{mountpoint} was not mounted: {exc}", remedy="see what the kernel says: dmesg | tail"
            ) from exc

    def _fuse_options(self, options: MountOptions) -> set[str]:
        # libfuse takes backslash as an escape, and a comma ends an option.
        source = str(self._store).replace("\\", "\\\\").replace(",", "\\,")
        chosen = {f"fsname={FSNAME_PREFIX}{source}", "subtype=tierfs", "ro", "nosuid", "nodev", "noexec"}
        chosen.add("default_permissions")
        if options.allow_other:
            chosen.add("allow_other")
        return chosen


async def _announce(mountpoint: Path, on_ready: Callable[[], None]) -> None:
    """The mount answers when a stat through the kernel does; then tune it and say so."""
    await trio.to_thread.run_sync(os.stat, mountpoint, abandon_on_cancel=True)
    tuned = await trio.to_thread.run_sync(points.tune_read_ahead, mountpoint, abandon_on_cancel=True)
    if not tuned:
        log.info("the kernel's read-ahead stays as it is: changing it needs root")
    on_ready()


async def _end_on_signal() -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            log.info("%s: unmounting", signal.Signals(number).name)
            pyfuse3.terminate()
            return


@contextmanager
def _unfreezing() -> Iterator[None]:
    """An interval timer with a handler that does nothing: it interrupts a blocked read(2)."""
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, _UNFREEZE_INTERVAL_S, _UNFREEZE_INTERVAL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
