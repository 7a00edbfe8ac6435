"""Measuring with a store made for it: both tiers through a mount, against the cold tier and a null filesystem."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tierfs.app.store import Store, open_store
from tierfs.bench import mounted, raw
from tierfs.bench.children import null_mount, store_mount
from tierfs.bench.figures import Figure, Results, Series
from tierfs.bench.raw import MOUNT_COLD, MOUNT_LOCAL, MOUNT_RANDOM, NULL, RAW, RAW_SMALL, Tell
from tierfs.bench.temporary import temporary_store
from tierfs.chunkstore.link_limit import LinkMeasurement
from tierfs.chunkstore.link_probe import ReadRange
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.holder.verbs import EVICT, OFFLOAD, perform
from tierfs.metadata import directories
from tierfs.segments.engine import Engine
from tierfs.types import MIB, ByteRange

_APPEND_BYTES = 4 * MIB
_RANDOM_READS = 50
"""Of each kind in each repetition: their median settles, and a server far away answers in seconds."""

_SEED = 1
_COLD, _LOCAL = "cold", "local"


@dataclass(slots=True)
class _Trial:
    """One run: what is read, and what was measured so far."""

    store: Store
    directory: Path
    size_bytes: int
    series: Series = field(default_factory=Series)
    chosen: random.Random = field(default_factory=lambda: random.Random(_SEED))
    link: LinkMeasurement | None = None

    @property
    def whole(self) -> ByteRange:
        """All bytes of either segment."""
        return ByteRange(0, self.size_bytes)


def bench_store(path: Path, size_bytes: int, repetitions: int, tell: Tell) -> Results:
    """Measure with a temporary store beside the one at `path`; everything written is deleted again.

    Raises NotFound where there is no store, StorageFull without room for it, and what the cold tier raises.
    """
    with open_store(path) as original, temporary_store(original, size_bytes) as store:
        trial = _Trial(store, store.path.parent, size_bytes)
        has_cold = store.cold_location_id is not None
        tell(f"writing {size_bytes // MIB} MiB for each tier")
        fill(store.engine, _LOCAL, random_blocks(size_bytes))
        if has_cold:
            fill(store.engine, _COLD, random_blocks(size_bytes))
            perform(store, OFFLOAD, _COLD)
            perform(store, EVICT, _COLD)
            trial.link = _measured_link(trial)
        for number in range(1, repetitions + 1):
            tell(f"repetition {number} of {repetitions}")
            if has_cold:
                _measure_cold(trial)
            _measure_local(trial)
        return Results(str(original.path), size_bytes, _figures(trial.series, has_cold=has_cold), trial.link)


def random_blocks(size_bytes: int) -> Iterator[bytes]:
    """Random bytes in blocks of 4 MiB: nothing on the way can compress them."""
    for at in range(0, size_bytes, _APPEND_BYTES):
        yield os.urandom(min(_APPEND_BYTES, size_bytes - at))


def fill(engine: Engine, name: str, blocks: Iterable[bytes]) -> None:
    """Write a sealed segment, an append for each block."""
    writer = engine.open_writer(name)
    for block in blocks:
        writer.append(block)
    engine.close_writer(writer)
    engine.seal(name)


def _cold_pieces(trial: _Trial) -> list[ReadRange]:
    with trial.store.metadata.read() as txn:
        segment = directories.segment_by_name(txn, _COLD)
    return raw.pieces(trial.store, segment, trial.whole)


def _measured_link(trial: _Trial) -> LinkMeasurement:
    with raw.bare_storage(trial.store) as storage:
        return raw.link(storage, _cold_pieces(trial), trial.store.settings.read.streams)


def _measure_cold(trial: _Trial) -> None:
    wanted = _cold_pieces(trial)
    with raw.bare_storage(trial.store) as storage:
        trial.series.add_rate(RAW, trial.size_bytes, raw.parallel_s(storage, wanted))
        _measure_mount(trial, storage, wanted)
        trial.series.add_delay(RAW_SMALL, raw.small_s(storage, wanted, _RANDOM_READS, trial.chosen))
        _measure_random(trial, storage, wanted)


def _measure_mount(trial: _Trial, storage: ChunkStorage, wanted: list[ReadRange]) -> None:
    """A mount that has just started: neither it nor the kernel holds a byte."""
    raw.forget(storage, wanted)
    mountpoint = _mountpoint(trial)
    with store_mount(trial.store.path, trial.store.paths.log, mountpoint):
        trial.series.add_rate(MOUNT_COLD, trial.size_bytes, mounted.sequential_s(mountpoint / _COLD, trial.whole))


def _measure_random(trial: _Trial, storage: ChunkStorage, wanted: list[ReadRange]) -> None:
    raw.forget(storage, wanted)
    mountpoint = _mountpoint(trial)
    with store_mount(trial.store.path, trial.store.paths.log, mountpoint):
        taken_s = mounted.random_s(mountpoint / _COLD, trial.size_bytes, _RANDOM_READS, trial.chosen)
        trial.series.add_delay(MOUNT_RANDOM, taken_s)


def _measure_local(trial: _Trial) -> None:
    """The mount's local tier with its chunk files in the page cache, and the null filesystem."""
    mountpoint = _mountpoint(trial)
    with null_mount(mountpoint, trial.size_bytes) as file:
        trial.series.add_rate(NULL, trial.size_bytes, mounted.sequential_s(file, trial.whole))
    for name in trial.store.files.names():
        chunk = trial.store.files.root / name
        mounted.sequential_s(chunk, ByteRange(0, chunk.stat().st_size))
    with store_mount(trial.store.path, trial.store.paths.log, mountpoint):
        trial.series.add_rate(MOUNT_LOCAL, trial.size_bytes, mounted.sequential_s(mountpoint / _LOCAL, trial.whole))


def _mountpoint(trial: _Trial) -> Path:
    mountpoint = trial.directory / "mnt"
    mountpoint.mkdir(exist_ok=True)
    return mountpoint


def _figures(series: Series, *, has_cold: bool) -> tuple[Figure, ...]:
    local = series.figure(MOUNT_LOCAL, [NULL])
    if not has_cold:
        return series.figure(NULL), local
    return (
        series.figure(RAW),
        series.figure(NULL),
        series.figure(MOUNT_COLD, [RAW, NULL]),
        local,
        series.figure(RAW_SMALL),
        series.figure(MOUNT_RANDOM, [RAW_SMALL]),
    )
