"""Every alarm of docs/alerts.yml fires: its cause is made, metrics are scraped, and promtool evaluates the rules."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.doubles.manual_clock import ManualClock
from tests.mount.conftest import Mount, Mounted, mounts_of
from tests.structure.monitoring import OTHERS
from tests.upkeep.holder.alarms import INSTANCE, SAMPLES, alert_of, assert_fires, of_kind, series
from tierfs.app.store import Store, open_store
from tierfs.base.system.metrics import MetricName
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import DataLoss, Unavailable
from tierfs.base.words.types import ROOT_DIRECTORY, ByteRange, Tier
from tierfs.engine.metadata import followed
from tierfs.engine.metadata.followed_range import FollowedRange
from tierfs.engine.metadata.records import GarbageRecord
from tierfs.engine.metadata.tables import GARBAGE, LOCATIONS, u64
from tierfs.upkeep.holder import standby_note
from tierfs.upkeep.holder.failures import CLOCKS, LOOK, OWNER, Failures
from tierfs.upkeep.holder.lock import Hold
from tierfs.upkeep.holder.problem import ProblemKind
from tierfs.upkeep.holder.samples import samples_of
from tierfs.upkeep.holder.standby_note import Phase

K = ProblemKind
HOUR_S = 3600


@dataclass
class World:
    """A store with 100 cold bytes in `a`, and the places around it."""

    root: Path
    later_s: float = 0
    """Time that has passed when the store is scraped."""
    until_scraped: ExitStack = field(default_factory=ExitStack)

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def cold(self) -> Path:
        return self.root / "cold"

    def run(self, *words: object, stdin: bytes = b"") -> None:
        tierfs("-q", *words, store=self.store, stdin=stdin, check=False)

    def opened(self, change: Callable[[Store], object]) -> None:
        with open_store(self.store) as store:
            change(store)

    def scraped(self) -> str:
        clock = ManualClock(round((time.time() + self.later_s) * 1000))
        with self.until_scraped, open_store(self.store, clock) as store:
            watched, metrics = store.watched, store.metrics
            metrics.sample_with(lambda: samples_of(watched, holds=False, backlog=None, uptime_s=1))
            return metrics.exposition().decode()


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.cold.mkdir()
    world.run("init", "--cold-dir", world.cold)
    world.run("append", "a", "--seal", stdin=b"x" * 100)
    world.run("offload")
    world.run("evict", "--force")
    return world


def cold_object(world: World) -> Path:
    (chunk,) = world.cold.glob("segments/a/*/chunk-*")
    return chunk


def lost(world: World) -> None:
    cold_object(world).unlink()
    world.run("check", "--repair", "--yes")


def suspect(world: World) -> None:
    cold_object(world).unlink()
    world.run("cat", "a")


def fenced(world: World) -> None:
    tierfs("-q", "recover", "--cold-dir", world.cold, store=world.root / "second", check=False)
    world.run("status")


def old_copy(world: World) -> None:
    shutil.copytree(world.store, world.root / "copy")
    world.run("append", "b", "--seal", stdin=b"y")
    world.run("offload")
    world.store.rename(world.root / "first")
    (world.root / "copy").rename(world.store)
    world.run("status")


def wrong_cold_tier(world: World) -> None:
    shutil.rmtree(world.cold / "journal")
    world.run("append", "b", "--seal", stdin=b"y")
    world.run("offload")


def failing(what: str, error: Exception) -> Callable[[World], None]:
    def cause(world: World) -> None:
        world.opened(lambda store: Failures(store.metadata, store.settings.background).failed(what, error))

    return cause


def away(world: World) -> None:
    world.cold.rename(world.root / "away")


def full(world: World) -> None:
    world.run("config", "write.free_space_floor_bytes=1PiB")


def waits(world: World) -> None:
    world.run("append", "b", "--seal", stdin=b"y")


def late(world: World) -> None:
    waits(world)
    world.later_s = 2 * HOUR_S


def unpublished(world: World) -> None:
    waits(world)
    hold = Hold(world.store / "locks/holder", ManualClock(round(time.time() * 1000)))
    world.until_scraped.callback(hold.release)
    world.later_s = HOUR_S


def over_quota(world: World) -> None:
    world.run("config", "cold.quota_bytes=1")


def overdue(world: World) -> None:
    def note(store: Store) -> None:
        with store.metadata.write_notes() as txn:
            txn.update_store(overdue_bytes=7, overdue_reason="a: offload_after = off")

    world.opened(note)


def garbage(world: World) -> None:
    def note(store: Store) -> None:
        record = GarbageRecord(due_ms=1, tier=Tier.COLD, name="x", attempts=1, last_error="denied")
        with store.metadata.write() as txn:
            txn.put(GARBAGE, u64(999), record)

    world.opened(note)


def gap(world: World) -> None:
    def note(store: Store) -> None:
        read = FollowedRange(path=b"/var/log/b", file_end=1, gap="a rotated file was deleted")
        with store.metadata.write() as txn:
            followed.note(txn, ROOT_DIRECTORY, "b", read, ByteRange(0, 1))

    waits(world)
    world.opened(note)


def read_budget_spent(world: World) -> None:
    world.run("config", "read.hourly_bytes=50")
    world.run("cat", "a")


def standing_by(**known: object) -> Callable[[World], None]:
    def note(world: World) -> None:
        standby_note.report(StorePaths(world.store), **known)

    return note


def unheld_standby(world: World) -> None:
    shutil.rmtree(world.store)
    world.run("replica", "--standby", "--takeover-after", "1min", "--cold-dir", world.cold)


def place(**changes: bool) -> Callable[[World], None]:
    def note(store: Store) -> None:
        with store.metadata.write() as txn:
            ((key, record),) = txn.scan(LOCATIONS)
            txn.put(LOCATIONS, key, replace(record, **changes))  # type: ignore[arg-type]

    return lambda world: world.opened(note)


def alone(world: World) -> None:
    shutil.rmtree(world.store)
    world.run("init", "--cold", "none")


def nothing(world: World) -> None:
    """Leave it: the fixture's cold tier is on the filesystem of the store."""


CAUSES: dict[ProblemKind, Callable[[World], None]] = {
    K.LOST: lost,
    K.FENCED: fenced,
    K.OLD_COPY: old_copy,
    K.WRONG_COLD_TIER: wrong_cold_tier,
    K.DAMAGED: failing("offload 2 0", DataLoss("bytes 0 to 4 differ")),
    K.SUSPECT: suspect,
    K.NOT_REACHABLE: away,
    K.DISK_FULL: full,
    K.NO_HOLDER: waits,
    K.UNREADABLE_RECORDS: failing(f"{LOOK} 2", DataLoss("its records")),
    K.STUCK: failing("offload 2 0", Unavailable("no answer")),
    K.COLD_TIER_AWAY: away,
    K.QUOTA: over_quota,
    K.OFFLOAD_LATE: late,
    K.UNPUBLISHED: unpublished,
    K.OWNER_SILENT: standing_by(phase=Phase.OWNER, after_s=60, other_host="b"),
    K.STANDBY_BLOCKED: unheld_standby,
    K.OWNER_UNKNOWN: failing(OWNER, Unavailable("no answer")),
    K.NOT_ALLOWED: place(from_journal=True),
    K.CLOCK: failing(CLOCKS, Unavailable("the clock was set")),
    K.OVERDUE: overdue,
    K.GARBAGE_KEPT: garbage,
    K.GAP: gap,
    K.READ_BUDGET: read_budget_spent,
    K.WEAK_FENCE: place(create_only_put=False),
    K.NO_DELETIONS: place(keeps_objects=True),
    K.NO_COLD_TIER: alone,
    K.SAME_DISK: nothing,
}
OF_MOUNTS = {K.STALE_MOUNT, K.SILENT_MOUNT, K.COVERED_MOUNT}
OF_READS = {K.READS_WAIT}
"""tests/mount/test_outage.py makes them."""


def test_every_alarm_is_made_here_or_by_mounts() -> None:
    assert set(CAUSES) | OF_MOUNTS | OF_READS == set(ProblemKind)
    assert not set(CAUSES) & (OF_MOUNTS | OF_READS)


@pytest.mark.parametrize("kind", CAUSES)
def test_an_alarm_fires_from_its_cause_and_not_before(
    world: World, kind: ProblemKind, tmp_path: Path, expected_warnings: list[str]
) -> None:
    expected_warnings.append(r"(offload 2 0|look 2|owner|timed deletions) failed: ")
    before = world.scraped()
    CAUSES[kind](world)
    after = world.scraped()
    shown = f'\ntierfs_problems{{kind="{kind}"}} '
    assert f"{shown}1.0\n" in after
    assert (f"{shown}0.0\n" in before) or kind is K.SAME_DISK
    assert_fires(tmp_path, of_kind(kind), list(series(after)), {"kind": str(kind)})


def test_a_place_that_the_settings_allow_is_no_alarm(world: World) -> None:
    place(from_journal=True)(world)
    world.run("config", f"cold.allowed_locations=file:{world.cold}")
    assert '\ntierfs_problems{kind="not-allowed"} 0.0\n' in world.scraped()


@pytest.fixture
def mount(world: World, tmp_path: Path) -> Iterator[Mount]:
    (tmp_path / "mounts").mkdir()
    with open_store(world.store) as store, mounts_of(store, tmp_path / "mounts") as start:
        yield start


@pytest.mark.mount
def test_alarms_of_mounts_fire_from_their_causes(world: World, mount: Mount, tmp_path: Path) -> None:
    def stopped(mounted: Mounted) -> None:
        mounted.process.send_signal(signal.SIGSTOP)

    def continued_and_covered(mounted: Mounted) -> None:
        mounted.process.send_signal(signal.SIGCONT)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", mounted.path], check=True)

    def uncovered_and_killed(mounted: Mounted) -> None:
        subprocess.run(["umount", mounted.path], check=True)
        mounted.process.kill()
        mounted.process.wait(30)

    mounted = mount()
    causes = {K.SILENT_MOUNT: stopped, K.COVERED_MOUNT: continued_and_covered, K.STALE_MOUNT: uncovered_and_killed}
    assert set(causes) == OF_MOUNTS
    for kind, cause in causes.items():
        cause(mounted)
        after = world.scraped()
        assert f'\ntierfs_problems{{kind="{kind}"}} 1.0\n' in after
        assert_fires(tmp_path, of_kind(kind), list(series(after)), {"kind": str(kind)})


def test_a_process_without_an_answer_is_an_alarm(tmp_path: Path) -> None:
    up = {"series": f'up{{job="tierfs",instance="{INSTANCE}"}}', "values": f"0x{SAMPLES}"}
    assert_fires(tmp_path, alert_of("TierfsDown"), [up], {})


def test_a_disk_that_is_almost_full_is_an_alarm(world: World, tmp_path: Path) -> None:
    full(world)
    assert_fires(tmp_path, alert_of("TierfsDiskLow"), list(series(world.scraped())), {})


def test_wrong_checksums_and_a_disk_cache_that_fails_are_alarms(world: World, tmp_path: Path) -> None:
    with open_store(world.store) as store:
        store.metrics.count(MetricName.CHECKSUM_FAILURES, source="cold")
        store.metrics.count(MetricName.CACHE_ERRORS, cache="disk")
        text = store.metrics.exposition().decode()
    assert_fires(tmp_path, alert_of("TierfsChecksumFailures"), list(series(text, "+1")), {})
    assert_fires(tmp_path, alert_of("TierfsDiskCacheOff"), list(series(text)), {"cache": "disk"})
    assert len(OTHERS) == 5


def test_a_followed_log_that_nobody_reads_is_an_alarm(world: World, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("a line\n" * 2)

    def note(store: Store) -> None:
        status = log.stat()
        read = FollowedRange(path=bytes(log), device=status.st_dev, inode=status.st_ino, file_end=7)
        with store.metadata.write() as txn:
            followed.note(txn, ROOT_DIRECTORY, "b", read, ByteRange(0, 7))

    world.opened(note)
    world.later_s = 2 * HOUR_S
    assert_fires(tmp_path, alert_of("TierfsFollowLag"), list(series(world.scraped())), {})
