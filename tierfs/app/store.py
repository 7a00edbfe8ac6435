"""The composition root: the one place that names concrete classes and puts a store together.

Opening a store imports no vendor package but LMDB and protobuf, and none of the cold work: botocore, trio, pyfuse3 and
what uploads are imported by the first call that needs them, so that `info`, `append`, `ls` and `status` start fast.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from glob import escape
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from tierfs.base.options import settings
from tierfs.base.options.config import ColdSettings, ReadSettings, Settings
from tierfs.base.options.precedence import Host
from tierfs.base.system import forks
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.system.places import is_path, place_of_typed
from tierfs.base.system.store_paths import StorePaths, require_trusted
from tierfs.base.words import units
from tierfs.base.words.errors import InvalidRequest, NotFound, no_cold_tier
from tierfs.base.words.names import is_pattern, printable
from tierfs.base.words.types import LocationId
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.metadata import directories, policies, tables
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import LOCATIONS

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from tierfs.app.request_log import RequestLog
    from tierfs.app.setup.limits import StoreLimits
    from tierfs.app.setup.locations import Locations
    from tierfs.base.system.prometheus import Metrics
    from tierfs.engine.chunkstore.located import LocatedStorage
    from tierfs.engine.chunkstore.place import Place
    from tierfs.engine.chunkstore.protocol import ChunkStorage
    from tierfs.engine.journal.owner_watch import OwnerWatch
    from tierfs.engine.journal.publish import Publisher
    from tierfs.engine.segments.active_chunk import ChunkDescriptors
    from tierfs.engine.segments.engine import Engine
    from tierfs.engine.segments.group_commit import GroupCommit
    from tierfs.reading.reader import StoreReader
    from tierfs.tiering.objects import ColdTier
    from tierfs.upkeep.holder.local_work import LocalWork
    from tierfs.upkeep.holder.samples import Watched
    from tierfs.upkeep.holder.work import ColdWork


class Store:
    """One open store. Thread-safe; close it, or use it as a context manager."""

    def __init__(self, path: Path, clock: Clock, *, looks: bool = False) -> None:
        self.paths = StorePaths(path)
        self.clock = clock
        self.settings_error: InvalidRequest | None = None
        """Why the settings are the defaults, in a store that is only looked at."""
        try:
            self.settings = settings.load(self.paths.settings, os.environ)
        except InvalidRequest as exc:
            if not looks:
                raise
            self.settings, self.settings_error = Settings(), exc
            log.warning("the default settings are used: %s", exc)
        self.metadata = MetadataStore(self.paths.metadata, clock, Host.of(self.settings))
        self.metadata.owner_due_s = 0.0
        self.metadata.ask_owner = lambda: self.owner_watch.before_write()  # noqa: PLW0108  # made by the first change
        self.files = ChunkFiles(self.paths.chunks)
        self._engine: Engine | None = None
        self._owner_watch: OwnerWatch | None = None
        self._metrics: Metrics | None = None
        self._request_log: RequestLog | None = None
        self._lock = threading.RLock()
        self._locations: Locations | None = None
        self._limits: StoreLimits | None = None
        forks.register(self)

    def forget(self) -> None:
        """Connect again in a child of fork: two processes on one connection would read each other's answers."""
        self._lock = threading.RLock()
        if self._locations is not None:
            self._locations.forget()
        if self._metrics is not None:
            self._requests_of(self._metrics).forget()

    @property
    def metrics(self) -> Metrics:
        """The metrics of this process; made on first use."""
        if self._metrics is None:
            from tierfs.base.system.prometheus import Metrics

            with self._lock:  # functools.cached_property has none since Python 3.12
                if self._metrics is None:
                    self._metrics = Metrics()
        return self._metrics

    def save_requests(self) -> None:
        """Add the calls of the cold tier by this process, since it last did, to those of the store."""
        if self._metrics is not None:
            self._requests_of(self._metrics).save()

    def _requests_of(self, metrics: Metrics) -> RequestLog:
        if self._request_log is None:
            from tierfs.app.request_log import RequestLog

            self._request_log = RequestLog(self.paths.requests, self.paths.requests_lock, self.clock, metrics)
        return self._request_log

    @property
    def watched(self) -> Watched:
        """The store as its metrics sample it."""
        from tierfs.upkeep.holder.samples import Watched

        return Watched(
            self.metadata,
            self.files,
            self.path,
            self.paths.holder,
            floor_bytes=lambda: self.settings.write.free_space_floor_bytes,
            allowed=lambda: self.settings.cold.allowed_locations,
            budgets=lambda: self.limits.budgets,
        )

    @property
    def owner_watch(self) -> OwnerWatch:
        """What asks the bucket for its owner before changes; made by the first of them."""
        if self._owner_watch is None:
            from tierfs.engine.journal.owner_watch import OwnerWatch

            with self._lock:
                if self._owner_watch is None:
                    period_s = self.settings.background.owner_check_s
                    self._owner_watch = OwnerWatch(self.metadata, period_s, self._connector)
        return self._owner_watch

    @property
    def engine(self) -> Engine:
        """The changes of segments; made on first use, as commands that only look need none."""
        if self._engine is None:
            from tierfs.engine.segments.engine import Engine

            with self._lock:
                if self._engine is None:
                    self._engine = Engine(
                        self.metadata, self.files, self.paths.writers, self.clock, self.settings.write, self._pool
                    )
        return self._engine

    def _pool(self, descriptors: ChunkDescriptors) -> GroupCommit:
        """Return what commits the appends that the cold tier acknowledges."""
        from tierfs.tiering.packs.append_pool import AppendPool

        return AppendPool(self.metadata, descriptors, self.settings.ack, self._cold_tier_now)

    def _cold_tier_now(self) -> tuple[Publisher, ColdTier]:
        """Return the cold tier at its present address. Raises NoColdTier."""
        location = self.cold_location
        if location is None:
            raise no_cold_tier("an append with ack=cold")
        return self.cold_tier(location)

    @property
    def path(self) -> Path:
        """The store's directory."""
        return self.paths.root

    @property
    def _read_settings(self) -> ReadSettings:
        """The settings of reads, with a budget within the memory limit of this process."""
        # Commands that list or append read no budget, so they do not load what looks for a limit.
        from tierfs.base.options import memory
        from tierfs.base.system import memory_limit

        limit = memory_limit.find()
        if limit is None:
            return self.settings.read
        fitted = memory.fit_reads(self.settings.read, limit.limit_bytes)
        if fitted != self.settings.read:
            sizes = [units.size(each) for each in (fitted.budget_bytes, self.settings.read.budget_bytes)]
            log.info("memory for reads is %s, not %s: %s allows %s", *sizes, limit.group, units.size(limit.limit_bytes))
        return fitted

    @property
    def _cold_settings(self) -> ColdSettings:
        """The settings of requests, with as many parts in flight as the memory limit of this process allows."""
        from tierfs.base.options import memory
        from tierfs.base.system import memory_limit

        limit = memory_limit.find()
        return self.settings.cold if limit is None else memory.fit_uploads(self.settings.cold, limit.limit_bytes)

    @property
    def limits(self) -> StoreLimits:
        """The limits of bandwidth, and budgets of users; made on first use."""
        if self._limits is None:
            from tierfs.app.setup.limits import StoreLimits

            with self._lock:
                if self._limits is None:
                    self._limits = StoreLimits(self.paths, self.clock, lambda: self.settings)
        return self._limits

    @property
    def locations(self) -> Locations:
        """The connections to the store's locations; made on first use."""
        if self._locations is None:
            from tierfs.app.setup.locations import Locations

            with self._lock:
                if self._locations is None:
                    self._locations = Locations(self.metadata, self.path, self._cold_settings, lambda: self.metrics)
        return self._locations

    def storage_of(self, location_id: LocationId) -> LocatedStorage:
        """Return the storage of a location, wherever that is now and later. Raises NotFound for an unknown one.

        It connects with its first call.
        """
        return self.locations.storage_of(location_id)

    def _connector(self) -> Callable[[], ChunkStorage] | None:
        """Return what connects to the cold tier without a look into the records; None without one."""
        location = self.cold_location
        return None if location is None else partial(self.locations.tried_once_at, location)

    def reader(self, *, cached: bool = False) -> StoreReader:
        """Return a reader over both tiers; enter it inside trio.

        `cached`: with the disk cache, which one process has.
        """
        from tierfs.reading.reader import StoreReader

        read = self._read_settings
        cache = None
        if cached:
            from tierfs.reading.cache.cache import DiskCache

            directory = self.paths.cache(read.cache_directory)
            cache = DiskCache.open(directory, self.metadata.store_id, read.cache_bytes, self.metrics)
        reader = StoreReader(self.metadata, self.files, self.storage_of, read, self.metrics, cache)
        self.limits.apply(reader)
        return reader

    def segment_of_path(self, text: str) -> str:
        """Return the name that was typed, or that a path under a mount of this store stands for.

        A text that may be both is a path first in a directory of a mount, and a name first elsewhere. Raises
        InvalidRequest for a path in a mount of another store, and for one that is not certain to be in one of this.
        """
        return self._name_of(text)[0]

    def _name_of(self, text: str) -> tuple[str, str]:
        """Return the name that `segment_of_path` returns, and the beginning of it that was not typed."""
        if not text or place_of_typed(text) is None:
            return text, ""
        from tierfs.app.setup import typed

        place = typed.under_mount(self.path, self.metadata, text)
        if place is None:
            return text, ""
        if not is_path(text) and ".." not in text.split("/"):  # which no name has
            with self.metadata.read() as txn:
                is_there, is_name = (directories.exists(txn, each) for each in (place.name, text))
            is_first = place_of_typed("") is not None
            if is_name and not is_there if is_first else is_name or not is_there:
                return text, ""
        return place.name, place.above

    def names_of(self, *texts: str) -> list[str]:
        """Return the names that typed paths stand for: all that match one if it is a pattern, and no name itself.

        Raises NotFound where nothing matches one, and what `segment_of_path` raises.
        """
        return [name for text in texts for name in self._names_of(text)]

    def _names_of(self, text: str) -> list[str]:
        name, above = self._name_of(text)
        if not is_pattern(name.removeprefix(above)):
            return [name]
        with self.metadata.read() as txn:
            if directories.exists(txn, name):
                return [name]
            # A directory with a bracket in its name was not typed as a pattern.
            matching = [path for path, _ in directories.matching(txn, escape(above) + name.removeprefix(above))]
        if not matching:
            raise NotFound(f"nothing matches {printable(text)}")
        return matching

    def reload(self) -> None:
        """Read the settings and connect to the cold tier again, so that new credentials count.

        Raises what is wrong with the settings, with nothing changed. Memory, streams and open files of readers stay as
        they are. Old connections end with their last use.
        """
        self.settings = settings.load(self.paths.settings, os.environ)
        self.metadata.host = Host.of(self.settings)
        if self._locations is not None:
            self._locations.renew(self._cold_settings)
        if self._limits is not None:
            self._limits.renew()

    def close(self) -> None:
        """Close everything; idempotent."""
        self.save_requests()
        if self._engine is not None:
            self._engine.close()
        if self._locations is not None:
            self._locations.close()
        self.files.close()
        self.metadata.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def place_of(self, location: LocationRecord) -> Place:
        """Return the place that a record is of, with the settings of this process now."""
        from tierfs.engine.chunkstore.place import Place

        return Place(location, self.path, self._cold_settings)

    def connect_to(self, location: LocationRecord) -> ChunkStorage:
        """Return a connection of its own to a place that is not the store's yet; the caller closes it."""
        return self.place_of(location).shared(self.metrics, sweeps=False)

    @property
    def cold_location_id(self) -> LocationId | None:
        """The location that offload writes to; None without a cold tier."""
        with self.metadata.read() as txn:
            return txn.store.cold_location_id or None

    @property
    def is_replica(self) -> bool:
        """Whether the store follows a bucket that another one owns."""
        with self.metadata.read() as txn:
            return txn.store.replica

    @property
    def is_held(self) -> bool:
        """Whether a process does the store's cold work."""
        from tierfs.upkeep.holder import lock

        return lock.current(self.paths.holder) is not None

    @property
    def cold_location(self) -> LocationRecord | None:
        """The same as a record: what was found of its abilities."""
        with self.metadata.read() as txn:
            return txn.get(LOCATIONS, tables.u32(txn.store.cold_location_id))

    def cold_tier(self, location: LocationRecord, *, paced: bool = False) -> tuple[Publisher, ColdTier]:
        """Return the cold tier, and what publishes to it: both only as long as it has this address.

        `paced`: for work that nobody waits for. The journal never waits: a recovery would lack its changes.
        """
        from tierfs.engine.journal.publish import Publisher
        from tierfs.tiering.objects import ColdTier

        storage = self.locations.at(location)
        publisher = Publisher(self.metadata, storage, location)
        if paced:
            storage = self.locations.paced_at(location, self.limits.pace)
        return publisher, ColdTier(location.id, storage, publisher.require_recent_ownership, publisher.require_place)

    def cold_work(self, what: str = "background work") -> ColdWork:
        """Return the cold work of the store's holder. Raises NoColdTier, naming `what`."""
        from tierfs.app.setup.archive_access import ArchiveAccess
        from tierfs.tiering.garbage.clocks import ClockCheck
        from tierfs.tiering.garbage.collect import Collector
        from tierfs.upkeep.holder.work import ColdWork

        location = self.cold_location
        if location is None:
            raise no_cold_tier(what)
        publisher, cold = self.cold_tier(location, paced=True)
        settings = self.settings.offload
        if location.keeps_objects:
            settings = replace(settings, consolidate_chunks=0)  # the old objects would stay beside the new ones
        archive = ArchiveAccess(self.metadata, self.locations, self.limits.pace, cold)
        require_ownership = publisher.require_ownership
        return ColdWork(
            engine=self.engine,
            collector=Collector(
                self.metadata, self.files, self.storage_of, require_ownership, archive.proof.require_now
            ),
            clocks=ClockCheck(self.metadata, self.clock, lambda: self._server_time_ms(location.id)),
            settings=settings,
            ballast_path=self.paths.ballast,
            metrics=self.metrics,
            cold=cold,
            publisher=publisher,
            connect=self.connect_to,
            in_class=lambda name: self.locations.in_class_at(location, name, self.limits.pace),
            archive_tier=archive.tier,
        )

    def local_work(self) -> LocalWork:
        """Return the work of the holder of a store without a cold tier."""
        from tierfs.tiering.garbage.clocks import ClockCheck
        from tierfs.tiering.garbage.collect import Collector
        from tierfs.upkeep.holder.local_work import LocalWork

        settings = self.settings.offload
        return LocalWork(
            engine=self.engine,
            collector=Collector(self.metadata, self.files, self.storage_of),
            clocks=ClockCheck(self.metadata, self.clock, lambda: None),
            settings=settings,
            ballast_path=self.paths.ballast,
            metrics=self.metrics,
        )

    def _server_time_ms(self, location_id: LocationId) -> int | None:
        """Ask by the present connection: a new one costs 50 ms of the interpreter, in the middle of a first read."""
        from tierfs.engine.chunkstore.probe import server_time_ms

        with self.metadata.read() as txn:
            place = policies.location(txn, location_id)
        return server_time_ms(self.locations.provider_at(place))


def open_store(path: Path, clock: Clock | None = None, *, any_owner: bool = False, looks: bool = False) -> Store:
    """Open a store. Raises NotFound where there is none, PermissionDenied when others may write to it, or own it.

    Raises InvalidRequest for settings that are refused, unless `looks`: a verb that only looks needs none of them.
    `any_owner`: the user trusts the owner, whoever that is.
    """
    paths = StorePaths(path.absolute())
    if not paths.settings.is_file():
        raise NotFound(f"{path} is not a tierfs store", remedy=f"create one with: tierfs --store {path} init")
    require_trusted(paths.root, any_owner=any_owner)
    return Store(paths.root, clock or SystemClock(), looks=looks)
