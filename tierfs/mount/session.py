"""The life of one mount, from the checks to the clean end. trio runs in the main thread."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyfuse3
import trio

from tierfs.base.options.config import MountSettings
from tierfs.base.system import guards, processes
from tierfs.base.system.metrics import MetricSink
from tierfs.base.system.places import FSNAME_PREFIX
from tierfs.base.system.signals import HEARD, Reload, until_told_to_end
from tierfs.base.words.errors import Unavailable
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.metadata.store import MetadataStore
from tierfs.mount import access_log
from tierfs.mount import mountpoint as points
from tierfs.mount.access_log import AccessLog
from tierfs.mount.control_files import ControlFiles, Opener
from tierfs.mount.operations import Operations
from tierfs.mount.options import MountOptions
from tierfs.mount.server import serving
from tierfs.mount.watch import ChangeWatcher
from tierfs.reading.reader import StoreReader, run_loop
from tierfs.reading.rehearsal import rehearse

log = logging.getLogger(__name__)

# Requests served at once; with pyfuse3's 99, slow reads starve a stat (measured: 2.5 s).
MAX_TASKS = 10_000

# A request that vanishes with its process leaves pyfuse3 blocked in read(2) with the GIL held, and every thread frozen,
# until a signal interrupts it (measured: 10 times in 940 kills).
_UNFREEZE_INTERVAL_S = 0.25

# Interpreter switch interval while mounted; Python's default is 5 ms. A read takes the interpreter back several times,
# and each time waits that long for a thread of the background writer (a guess: a tenth).
_SWITCH_S = 0.0005

# For the first readers of a mount alone, before its background work begins (a guess).
_FIRST_READERS_S = 0.25

# Seconds that requests in flight may continue after SIGTERM (a guess); a read from a tier that does not answer would
# hold the mount for its whole deadline.
_END_GRACE_S = 5.0


class MountSession:
    """One mount of one store."""

    def __init__(
        self,
        store: Path,
        metadata: MetadataStore,
        files: ChunkFiles,
        reader: StoreReader,
        settings: MountSettings,
        metrics: MetricSink,
        *,
        tasks: Sequence[Callable[[], Awaitable[None]]] = (),
        control: Callable[[MountOptions], Mapping[str, Opener]] = lambda options: {},
        reload: Reload | None = None,
    ) -> None:
        """Keep the parts of the mount.

        `tasks` run beside the mount and end with it; `control` makes the files of `.tierfs` from the mount's options;
        `reload` is awaited on SIGHUP.
        """
        self._store = store
        self._tasks = tasks
        self._control = control
        self._reload = reload or _nothing_to_reload
        self._metadata = metadata
        self._files = files
        self._reader = reader
        self._settings = settings
        self._metrics = metrics
        self._announced = trio.Event()
        self._until_end = ExitStack()

    async def wait_settled(self) -> None:
        """Return when the mount was announced, and its first readers had a moment for themselves."""
        await self._announced.wait()
        await trio.sleep(_FIRST_READERS_S)

    def run(self, mountpoint: Path, options: MountOptions, on_ready: Callable[[], None]) -> None:
        """Mount, call `on_ready` once the mount answers, and serve until it is unmounted or a signal ends it.

        SIGTERM and SIGINT unmount; a second one does not wait for requests in flight. Raises a TierfsError for an
        unusable mount point, with nothing mounted. Call it in the main thread.
        """
        points.require_usable(mountpoint, allow_other=options.allow_other)
        processes.share_arenas()
        with _unfreezing(), _prompt():
            run_loop(self._serve, mountpoint, options, on_ready)

    async def _serve(self, mountpoint: Path, options: MountOptions, on_ready: Callable[[], None]) -> None:
        log_of_accesses = AccessLog(self._metadata.clock)
        control = ControlFiles({**self._control(options), access_log.NAME: log_of_accesses.open}, options)
        operations = Operations(
            self._metadata, self._files, self._reader, options, self._settings, self._metrics, control, log_of_accesses
        )
        watcher = ChangeWatcher(self._metadata, operations.inodes, operations.growth)
        # Signals first: one that arrived between mounting and listening would leave a dead mount.
        with trio.open_signal_receiver(*HEARD) as signals:
            guards.let_through()
            self._init(operations, mountpoint, options)
            try:
                async with self._reader, trio.open_nursery() as nursery:
                    operations.growth.nursery = nursery
                    nursery.start_soon(self._obey, signals, nursery.cancel_scope)
                    nursery.start_soon(watcher.run, self._settings.poll_s)
                    nursery.start_soon(operations.last_pages.run)
                    nursery.start_soon(self._reader.local.let_go)
                    for task in self._tasks:
                        nursery.start_soon(task)
                    nursery.start_soon(self._announce, mountpoint, on_ready)
                    await pyfuse3.main(max_tasks=MAX_TASKS)
                    nursery.cancel_scope.cancel()
            finally:
                pyfuse3.close(unmount=True)
                self._until_end.close()

    async def _announce(self, mountpoint: Path, on_ready: Callable[[], None]) -> None:
        """Wait until a stat through the kernel is answered, tune the mount, then call `on_ready`."""
        await trio.to_thread.run_sync(os.stat, mountpoint, abandon_on_cancel=True)
        await trio.to_thread.run_sync(
            self._until_end.enter_context,
            serving(self._store, mountpoint, self._metadata.clock),
            abandon_on_cancel=True,
        )
        tuned = await trio.to_thread.run_sync(points.tune_read_ahead, mountpoint, abandon_on_cancel=True)
        if not tuned:
            log.info("the kernel's read-ahead is unchanged: changing it needs root")
        if not await trio.to_thread.run_sync(points.widen_background, mountpoint, abandon_on_cancel=True):
            log.info("reads that wait for the cold tier may block other reads: %s is not mounted", points.CONNECTIONS)
        await rehearse(self._reader)
        # Else a collection soon goes through all that the start has made, in the middle of a read (measured: 3 ms of
        # the young ones).
        gc.freeze()
        on_ready()
        self._announced.set()

    async def _obey(self, signals: AsyncIterator[int], serving: trio.CancelScope) -> None:
        """At the first ending signal refuse new requests; drop those in flight at the next, or after _END_GRACE_S."""
        await until_told_to_end(signals, self._reload)
        pyfuse3.terminate()
        with trio.move_on_after(_END_GRACE_S):
            await anext(signals)
        log.info("requests in flight are dropped")
        serving.cancel()

    def _init(self, operations: Operations, mountpoint: Path, options: MountOptions) -> None:
        try:
            pyfuse3.init(operations, str(mountpoint), self._fuse_options(options))
        except RuntimeError as exc:
            raise Unavailable(
                f"{mountpoint} was not mounted: {exc}", remedy="check the kernel log: dmesg | tail"
            ) from exc

    def _fuse_options(self, options: MountOptions) -> set[str]:
        # libfuse takes backslash as an escape, and a comma ends an option.
        source = str(self._store).replace("\\", "\\\\").replace(",", "\\,")
        chosen = {_Option(f"fsname={FSNAME_PREFIX}{source}"), "subtype=tierfs", "ro", "nosuid", "nodev", "noexec"}
        chosen.add("default_permissions")
        if options.allow_other:
            chosen.add("allow_other")
        return chosen


class _Option(str):
    """An option with any path in it: pyfuse3 encodes ASCII only, the kernel accepts every byte."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """Return the bytes of the path, for every encoding."""
        return os.fsencode(str(self))


async def _nothing_to_reload() -> None:
    """Do nothing: the mount has no settings of its own."""


@contextmanager
def _prompt() -> Iterator[None]:
    """Shorten the loop's waits for the interpreter while threads of the background writer compute."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def _unfreezing() -> Iterator[None]:
    """Run an interval timer with an empty handler: it interrupts a blocked read(2)."""
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, _UNFREEZE_INTERVAL_S, _UNFREEZE_INTERVAL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
