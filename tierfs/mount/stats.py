"""The mount's reports: `.tierfs/stats` for programs and `tierfs top`, `.tierfs/metrics` for Prometheus."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import trio

from tierfs.base.system.clock import Clock
from tierfs.base.system.metrics import MetricName, Sampled
from tierfs.base.system.prometheus import Metrics
from tierfs.mount.options import MountOptions
from tierfs.reading import stats
from tierfs.reading.reader import StoreReader
from tierfs.upkeep.holder.loop import HolderTask
from tierfs.upkeep.holder.samples import Watched, samples_of
from tierfs.upkeep.holder.status import BacklogStatus, age_s

# Raised when a key changes its meaning or is removed; not for new keys.
STATS_VERSION = 1

_TIERS = ("local", "cold")
_USERS_SHOWN = 100
_STORAGE = {
    "requests": MetricName.STORAGE_REQUESTS,
    "bytes": MetricName.STORAGE_BYTES,
    "errors": MetricName.STORAGE_ERRORS,
}


class Observation:
    """Observes one mount, from its construction on the loop of its reader on."""

    def __init__(
        self,
        store: Watched,
        reader: StoreReader,
        metrics: Metrics,
        clock: Clock,
        holder: HolderTask,
        options: MountOptions,
    ) -> None:
        self._store = store
        self._reader = reader
        self._metrics = metrics
        self._clock = clock
        self._holder = holder
        self._options = options
        self._begun_s = clock.monotonic_s()
        self._loop = trio.lowlevel.current_trio_token()
        metrics.sample_with(self._samples)

    def metrics(self) -> bytes:
        """Return every metric in Prometheus text format."""
        return self._metrics.exposition()

    def stats(self) -> bytes:
        """Return one JSON document; its keys are in docs/monitoring.md."""
        return json.dumps(self._document(), indent=1).encode() + b"\n"

    def _document(self) -> dict[str, Any]:
        reading = stats.snapshot(self._reader)
        figures = reading.figures
        return {
            "version": STATS_VERSION,
            "time_ms": self._clock.now_ms(),
            "uptime_s": round(self._uptime_s, 3),
            "store": str(self._store.path),
            "options": asdict(self._options),
            "operations": self._by_label(MetricName.FUSE_OPERATIONS),
            "errors": self._errors(),
            "reads": self._counted(_TIERS, MetricName.READ_REQUESTS, MetricName.READ_BYTES),
            "storage": self._storage(),
            "cache": self._cache(),
            "unpacked": self._unpacked(),
            "memory": {"budget_bytes": figures.budget_bytes, "used_bytes": figures.used_bytes},
            "fetches": {"in_flight": figures.fetches_in_flight, "waiting": figures.fetches_waiting},
            "link": asdict(figures.link),
            "waiting": asdict(figures.waiting),
            "limits": self._limits(),
            "handles": figures.handles,
            "sessions": figures.sessions,
            "segments_open": figures.segments_open,
            "segments": [asdict(segment) for segment in reading.segments],
            "disk_cache": self._disk_cache(),
            "holder": self._holder.holds,
            "backlog": self._backlog(self._holder.backlog),
            **self._position(),
        }

    def _position(self) -> dict[str, Any]:
        """Return the store's id and its slot in the bucket's journal, to compare mounts of several machines."""
        with self._reader.metadata.read() as txn:
            record = txn.store
        slot = max(0, record.journal.next_slot - 1)
        return {"store_id": record.store_id, "journal": {"slot": slot, "replica": record.replica}}

    @property
    def _uptime_s(self) -> float:
        return self._clock.monotonic_s() - self._begun_s

    def _by_label(self, name: MetricName) -> dict[str, int]:
        """Return the values of a counter with one label."""
        return {labels[0]: int(value) for labels, value in self._metrics.values(name).items()}

    def _errors(self) -> dict[str, dict[str, int]]:
        errors: dict[str, dict[str, int]] = {}
        for (operation, errno), value in self._metrics.values(MetricName.FUSE_ERRORS).items():
            errors.setdefault(operation, {})[errno] = int(value)
        return errors

    def _counted(self, keys: Iterable[str], requests: MetricName, size: MetricName) -> dict[str, dict[str, int]]:
        numbers, sizes = self._by_label(requests), self._by_label(size)
        return {key: {"requests": numbers.get(key, 0), "bytes": sizes.get(key, 0)} for key in keys}

    def _storage(self) -> dict[str, dict[str, int]]:
        """Return the calls to chunk storage by verb, over all tiers."""
        rows: dict[str, dict[str, int]] = {}
        for key, name in _STORAGE.items():
            for labels, value in self._metrics.values(name).items():
                row = rows.setdefault(labels[1], dict.fromkeys(_STORAGE, 0))
                row[key] += int(value)
        return rows

    def _cache(self) -> dict[str, dict[str, int]]:
        hits, misses = self._by_label(MetricName.CACHE_HITS), self._by_label(MetricName.CACHE_MISSES)
        caches = sorted({"memory", *hits, *misses})
        return {key: {"hits": hits.get(key, 0), "misses": misses.get(key, 0)} for key in caches}

    def _unpacked(self) -> dict[str, int]:
        """Return what was read from compressed objects."""
        sizes = self._by_label(MetricName.UNPACKED_BYTES)
        frames = sum(self._metrics.values(MetricName.UNPACKED_FRAMES).values())
        by_form = {f"{form}_bytes": sizes.get(form, 0) for form in ("stored", "plain")}
        return {"frames": int(frames), **by_form}

    def _limits(self) -> dict[str, Any] | None:
        """Return the limits of reads and what waits for them; None without limits."""
        gate, read = self._reader.fetcher.gate, self._reader.settings
        if gate is None:
            return None
        return {
            "bandwidth": read.bandwidth,
            "user_bandwidth": read.user_bandwidth,
            "hourly_bytes": read.hourly_bytes,
            "hourly_requests": read.hourly_requests,
            "when_spent": read.when_spent,
            "fetches_waiting": gate.waiting,
            "budgets": [asdict(budget) for budget in gate.budgets.shown[:_USERS_SHOWN]],
        }

    def _disk_cache(self) -> dict[str, Any] | None:
        cache = self._reader.cache
        if cache is None:
            return None
        figures = cache.stats
        return {
            "state": figures.state.value,
            "used_bytes": figures.used_bytes,
            "limit_bytes": figures.size_bytes,
            "hits": figures.hits,
            "misses": figures.misses,
        }

    def _backlog(self, backlog: BacklogStatus | None) -> dict[str, float] | None:
        if backlog is None:
            return None
        return {
            "pending_bytes": backlog.pending_bytes,
            "active_bytes": backlog.active_bytes,
            "oldest_s": age_s(self._clock.now_ms(), backlog),
            "kept_bytes": backlog.kept_bytes,
        }

    def _samples(self) -> Mapping[MetricName, Sampled]:
        """Return the samples; in any thread, and the loop's own figures from the loop."""
        if trio.lowlevel.in_trio_run():
            figures = stats.figures(self._reader)
        else:
            figures = trio.from_thread.run_sync(stats.figures, self._reader, trio_token=self._loop)
        waiting = figures.waiting
        samples = samples_of(
            self._store,
            holds=self._holder.holds,
            backlog=self._holder.backlog,
            uptime_s=self._uptime_s,
            waiting=[f"{waiting.reads} reads: {waiting.why}"] if waiting.reads else [],
        )
        samples |= {
            MetricName.MEMORY_BUDGET: figures.budget_bytes,
            MetricName.MEMORY_USED: figures.used_bytes,
            MetricName.FETCHES_IN_FLIGHT: figures.fetches_in_flight,
            MetricName.FETCHES_WAITING: figures.fetches_waiting,
            MetricName.STREAMS: figures.link.streams,
            MetricName.READS_WAITING: figures.waiting.reads,
            MetricName.OPEN_HANDLES: figures.handles,
            MetricName.READ_SESSIONS: figures.sessions,
        }
        if self._reader.cache is not None:
            samples[MetricName.DISK_CACHE_LIMIT] = self._reader.cache.stats.size_bytes
        return samples
