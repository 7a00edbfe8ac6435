"""A week in the life of a store, in simulated time: what metadata and garbage take of the data held.

Everything runs that a holder runs: the background writer's own plan, uploads, the journal with its checkpoints,
eviction after the lag, consolidation, sealing and retention by policy, collection after the grace period. Only time is
simulated, the uploads happen one after the other, and the cold tier is in memory: a week takes 3 GiB of it.

The bytes are 1/64 of a real store's, chunks included (1 MiB for 64 MiB): as many records for 1/64 of the data, so
the metadata's share is many times what a real store has.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.doubles.manual_clock import ManualClock
from tests.stores import LOCATION, TestStore, open_test_store
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.types import MIB, Tier
from tierfs.engine.metadata import environment
from tierfs.engine.metadata.tables import ALL_NAMES, GARBAGE, SEGMENTS
from tierfs.tiering.consolidation_watch import ConsolidationWatch
from tierfs.tiering.offload_queue import key_of
from tierfs.tiering.planner import Planner
from tierfs.tiering.policy import DiskView
from tierfs.tiering.snapshot import Snapshots
from tierfs.upkeep.holder.work import ColdWork

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
STEP_S = 15 * MINUTE_S
"""Between two looks of the holder: as long as it takes a slow stream's chunk (chunk_age, 10 min) to be due."""

SHARE_LIMIT = 0.01
"""Design §5."""

FIRST_HOURS = 4
"""Of a new store."""

POLICY = {
    "chunk_bytes": str(MIB),
    "object_bytes": str(MIB),
    "seal_bytes": str(64 * MIB),
    "seal_age": str(DAY_S),
    "retention_age": str(6 * DAY_S),
}
"""The rest are defaults. Garbage is what retention took within the grace period of 1 h: 1/144 of six days."""

RATES = {"fast": 320 * MIB, "middle": 64 * MIB, "slow": 4 * MIB, "trickle": MIB // 2}
"""Bytes per day; together as a real store's 24 GiB a day."""

ROOMY = DiskView(0, 0, high_used_bytes=1 << 50, high_local_bytes=1 << 50, high_unoffloaded_bytes=1 << 50)


@dataclass(frozen=True, slots=True)
class Hour:
    """The store at the end of one simulated hour."""

    hour: int
    data_bytes: int
    """What can be read."""
    lmdb_bytes: int
    """Pages in use; the file is larger, and sparse."""
    journal_bytes: int
    """Entries and checkpoints in the bucket."""
    garbage_bytes: int
    """Files and objects that wait to be deleted."""
    segments: int
    cold_chunks: int

    @property
    def share(self) -> float:
        """Metadata and garbage of the data held."""
        return (self.lmdb_bytes + self.journal_bytes + self.garbage_bytes) / max(1, self.data_bytes)


def live(directory: Path, hours: int, policy: dict[str, str] | None = None) -> Iterator[Hour]:
    """Run a store for so many simulated hours; yields how it stands after each."""
    clock = ManualClock()
    settings = OffloadSettings(checkpoint_entries=200)  # a fifth: a day's entries are a fifth of a busy store's
    with open_test_store(directory, policy=policy or POLICY, settings=settings, clock=clock) as store:
        work, planner = store.cold_work(), Planner()
        snapshots = Snapshots(store.metadata, planner)
        watch = ConsolidationWatch(store.metadata, LOCATION, settings)
        writers = {name: store.engine.open_writer(f"streams/{name}") for name in RATES}
        block = bytes(range(256)) * 4096
        for hour in range(hours):
            for _ in range(HOUR_S // STEP_S):
                for name, rate in RATES.items():
                    size = rate * STEP_S // DAY_S
                    for at in range(0, size, len(block)):
                        writers[name].append(block[: size - at])
                clock.advance(STEP_S)
                hold(store, work, planner, snapshots, watch)
            yield measure(store, hour + 1)


def hold(store: TestStore, work: ColdWork, planner: Planner, snapshots: Snapshots, watch: ConsolidationWatch) -> None:
    """What a holder does in between: one look, then all that is due."""
    work.end_lifetimes()
    for _ in range(2):  # what rolls in the first is offloaded in the second
        snapshots.refresh()
        todo = planner.next(ROOMY, store.clock.now_ms())
        for segment_id in todo.rolls:
            store.engine.roll(segment_id)
        done = []
        while taken := planner.take_offloads():
            for pending in taken:
                work.offloader.run(pending.action)
                done.append(key_of(pending))
        for key in done:
            planner.offloads.release(key)
        list(work.evict_segments(todo.evictions))
    work.publish()
    while (action := watch.next(lambda _: True)) is not None:
        work.consolidator.run(action, lambda _: None)
        work.publish()
    work.collect()


def measure(store: TestStore, hour: int) -> Hour:
    """Everything there is besides the data."""
    with store.metadata.read() as txn:
        segments = [segment for _, segment in txn.scan(SEGMENTS)]
        return Hour(
            hour,
            data_bytes=sum(segment.range.length_bytes for segment in segments),
            lmdb_bytes=lmdb_bytes(store.metadata.path),
            journal_bytes=sum(found.length_bytes for found in store.cold.list("journal/")),
            garbage_bytes=sum(row.length for _, row in txn.scan(GARBAGE)),
            segments=len(segments),
            cold_chunks=sum(segment.tier_state(Tier.COLD).count for segment in segments),
        )


def lmdb_bytes(path: Path) -> int:
    """Pages of all databases that hold rows."""
    opened = environment.open_environment(path)
    with opened.lmdb.begin() as txn:
        stats = [txn.stat(db=opened.databases[name]) for name in ALL_NAMES]
    return sum(one["psize"] * (one["branch_pages"] + one["leaf_pages"] + one["overflow_pages"]) for one in stats)


COLUMNS = ("hour", "data", "LMDB", "journal", "garbage", "segments", "cold chunks", "share")


def report(hours: list[Hour]) -> str:
    """The table that `python -m tests.benchmarks week` prints: every twelfth hour, and the worst one."""
    worst = max(hours, key=lambda one: one.share)
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    shown = hours[11::12]
    for one in shown if worst in shown else [*shown, worst]:
        sizes = (one.data_bytes, one.lmdb_bytes, one.journal_bytes, one.garbage_bytes)
        cells = [f"{size / MIB:,.1f} MiB" for size in sizes]
        mark = " (worst)" if one is worst else ""
        row = [f"{one.hour}{mark}", *cells, str(one.segments), str(one.cold_chunks), f"{one.share:.2%}"]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def bench_week(hours: int = 7 * 24) -> str:
    """Run the week; raises AssertionError where metadata and garbage exceed their share after the first hours.

    In those there is hardly any data: the first consolidation of a slow stream is 1.5 % of it.
    """
    with tempfile.TemporaryDirectory(prefix="tierfs-week-") as directory:
        found = list(live(Path(directory) / "store", hours))
    assert max(one.share for one in found[FIRST_HOURS:]) < SHARE_LIMIT, report(found)
    return report(found)
