"""Checks of a store on this machine: its mounts, disk, clock and owner. Nothing is sent anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tierfs.app.store import Store
from tierfs.base.options import contradictions
from tierfs.base.options.config import Settings
from tierfs.base.system.mounts import SILENT, SILENT_REMEDY, MountState, state_of
from tierfs.base.system.places import Mount
from tierfs.base.words.names import CONTROL_NAME, printable
from tierfs.engine.chunkstore.local_files import DiskBytes
from tierfs.engine.metadata import directories, policies
from tierfs.faces.doctor.clock import clock_finding
from tierfs.faces.doctor.filesystem import check_filesystem
from tierfs.faces.doctor.findings import DoctorFinding, fail, guarded, mebibytes, ok, warn
from tierfs.mount.mountpoint import (
    BDI,
    CONNECTIONS,
    MAX_BACKGROUND,
    MAX_BACKGROUND_FILE,
    READ_AHEAD_FILE,
    READ_AHEAD_KIB,
)
from tierfs.tiering import quota
from tierfs.tiering.garbage.clocks import ACCEPT
from tierfs.tiering.policy import disk_view
from tierfs.upkeep.holder.lock import mounts_of
from tierfs.upkeep.holder.problem import Gravity, ProblemKind
from tierfs.upkeep.holder.problems import problems_of
from tierfs.upkeep.holder.status import StoreStatus, store_status
from tierfs.upkeep.holder.store_warnings import of_place, shared_filesystem_warning

_DAMAGE = "DataLoss"

# Problems of `tierfs status` by the subject of their finding.
_SUBJECTS = {
    ProblemKind.LOST: "lost bytes",
    ProblemKind.SUSPECT: "suspect bytes",
    ProblemKind.NOT_REACHABLE: "bytes not reachable",
    ProblemKind.OVERDUE: "retention",
    ProblemKind.OFFLOAD_LATE: "offload",
    ProblemKind.UNPUBLISHED: "journal",
    ProblemKind.GARBAGE_KEPT: "garbage",
    ProblemKind.GAP: "followed logs",
    ProblemKind.NOT_ALLOWED: "places",
}
_OF_BYTES = {ProblemKind.LOST, ProblemKind.SUSPECT, ProblemKind.NOT_REACHABLE}

# Of a quota: early enough to order more (a guess).
_NEARLY_PERCENT = 90


def cold_quota(status: StoreStatus) -> Iterator[DoctorFinding]:
    """Tell how much of its quota the store has in the cold tier."""
    use, name = status.cold_use, "cold quota"
    if use.room_bytes is None:
        return
    if use.bytes * 100 >= use.quota_bytes * _NEARLY_PERCENT:
        yield warn(name, f"{use}: offloading is paused; the local disk will fill up", quota.REMEDY)
    else:
        yield ok(name, str(use))


def check_store(store: Store) -> Iterator[DoctorFinding]:
    """Yield every check of an open store that needs no cold tier."""
    unknown = store.owner_watch.ask()
    allowed = store.settings.cold.allowed_locations
    status = store_status(store.metadata, store.files, store.paths.holder, store.path, unknown, allowed=allowed)
    if store.settings_error is not None:
        remedy = store.settings_error.remedy or f"change {store.paths.settings}"
        yield fail("settings", str(store.settings_error), remedy)
    yield owner(status)
    yield failures(status)
    yield holder(status)
    yield from hidden(store)
    yield from cold_quota(status)
    yield from problems(status, store.settings.write.free_space_floor_bytes, store.clock.now_ms())
    for text in contradictions.useless_settings(store.settings):
        yield warn("settings", text, f"see {store.paths.settings}")
    yield from overridden(store)
    for mount in mounts_of(store.path):
        yield from mounted(mount)
    yield from disk(store.files.disk_bytes(), status, store.settings)
    yield from guarded("filesystem", lambda: check_filesystem(store.path))
    yield cold_place(store.path, status.cold_url, status.cold_address)
    with store.metadata.read() as txn:
        last_commit_ms = txn.store.last_wall_ms
    yield commit_clock(store.clock.now_ms(), last_commit_ms)


def overridden(store: Store) -> Iterator[DoctorFinding]:
    """Report settings of this host that have no effect, as a policy of the root overrides them."""
    with store.metadata.read() as txn:
        root = policies.at(txn, "")
    for text, remedy in contradictions.overridden_settings(root):
        yield warn("settings", text, f"to use the setting: {remedy}")


def hidden(store: Store) -> Iterator[DoctorFinding]:
    """Report what an older version stored under the name of the directory in which mounts report."""
    with store.metadata.read() as txn:
        is_there = directories.exists(txn, CONTROL_NAME)
    if is_there:
        text = f"mounts hide {CONTROL_NAME}: their own directory has the same name"
        yield warn(
            "names",
            text,
            f"tierfs cat {CONTROL_NAME} | tierfs append ANOTHER-NAME, and so each segment below it; then rm it",
        )


def owner(status: StoreStatus) -> DoctorFinding:
    """Check whether this store still owns its bucket."""
    fenced = status.journal.fenced_by_epoch
    if not fenced:
        return ok("store", f"{printable(status.path)} ({status.store_id}, epoch {status.store_epoch})")
    return fail(
        "store",
        f"another store owns the bucket since epoch {fenced}: this store is read-only",
        f"save the bytes that are only on this disk, then retire the store: tierfs --store {status.path} status",
    )


def failures(status: StoreStatus) -> DoctorFinding:
    """Report work that failed and is tried again; damage does not mend itself."""
    name = "background work"
    if not status.troubles:
        return ok(name, f"no task fails; {status.journal.unpublished:,} changes wait for the journal")
    first: Sequence[str] = [row.error for row in status.troubles if row.error_kind == _DAMAGE]
    tell = fail if first else warn
    error = printable((first or [row.error for row in status.troubles])[0])
    text = f"{len(status.troubles):,} tasks fail and are retried: {error}"
    return tell(name, text, f"fix the causes of the errors; to list them: tierfs --store {status.path} status")


def problems(status: StoreStatus, floor_bytes: int, now_ms: int) -> Iterator[DoctorFinding]:
    """Report the problems of `tierfs status` that no other check looks at, by their subject."""
    listed = problems_of(status, floor_bytes=floor_bytes, now_ms=now_ms)
    for problem in listed:
        if problem.kind in _SUBJECTS:
            tell = fail if problem.gravity is Gravity.CRITICAL else warn
            yield tell(_SUBJECTS[problem.kind], problem.text, problem.remedy)
    if _OF_BYTES.isdisjoint(problem.kind for problem in listed):
        yield ok("bytes", "no lost, suspect or unreachable bytes known")


def mounted(mount: Mount) -> Iterator[DoctorFinding]:
    """Check whether one mount of the store answers, and its kernel settings."""
    state = state_of(mount)
    if state is MountState.DEAD:
        yield dead_mount(mount)
        return
    if state is MountState.COVERED:
        yield covered_mount(mount)
        return
    if mount.root:  # a bind mount: the settings are those of the mount
        return
    if state is MountState.SILENT:
        yield silent_mount(mount)
    yield read_ahead(mount, BDI)
    yield waiting_reads(mount, CONNECTIONS)


def silent_mount(mount: Mount) -> DoctorFinding:
    """Report a mount point whose daemon exists and does not answer."""
    point = printable(str(mount.mountpoint))
    return fail(f"mount of {point}", f"its process {SILENT}", f"{SILENT_REMEDY} {point}")


def covered_mount(mount: Mount) -> DoctorFinding:
    """Report a mount point over which another filesystem was mounted."""
    point = printable(str(mount.mountpoint))
    return warn(f"mount of {point}", "another filesystem is mounted over it", f"see: findmnt {point}; umount {point}")


def dead_mount(mount: Mount) -> DoctorFinding:
    """Report a mount point whose daemon is gone."""
    point = printable(str(mount.mountpoint))
    return fail(f"mount of {point}", "its process has exited: every access below it fails", f"tierfs umount {point}")


def holder(status: StoreStatus) -> DoctorFinding:
    """Check whether any process moves bytes to the cold tier."""
    if status.holder is not None:
        return ok("holder", str(status.holder))
    if status.cold_url is None or not status.not_offloaded_bytes:
        return ok("holder", "none, and nothing to offload")
    return warn(
        "holder",
        f"none: {mebibytes(status.not_offloaded_bytes)} are only on this disk",
        f"tierfs --store {status.path} daemon",
    )


def read_ahead(mount: Mount, bdi: Path) -> DoctorFinding:
    """Check whether the kernel reads enough of a mount at once; `bdi` is the directory of its devices' settings."""
    name = f"read-ahead of {printable(str(mount.mountpoint))}"
    setting = bdi / mount.device / READ_AHEAD_FILE
    remedy = f"as root: echo {READ_AHEAD_KIB} > {setting}"
    current = _number_in(setting)
    if current is None:
        return warn(name, f"{setting} cannot be read", remedy)
    if current == READ_AHEAD_KIB:
        return ok(name, f"{current} KiB")
    return warn(name, f"{current} KiB; {READ_AHEAD_KIB} is fastest", remedy)


def waiting_reads(mount: Mount, connections: Path) -> DoctorFinding:
    """Check whether reads that wait for the cold tier hold up others; `connections` is the directory of the limits."""
    name = f"waiting reads of {printable(str(mount.mountpoint))}"
    setting = connections / mount.device.partition(":")[2] / MAX_BACKGROUND_FILE
    remedy = f"as root: mount -t fusectl fusectl {connections}; echo {MAX_BACKGROUND} > {setting}"
    current = _number_in(setting)
    if current is None:
        return warn(name, f"{setting} cannot be read", remedy)
    if current >= MAX_BACKGROUND:
        return ok(name, f"{current:,} reads can wait without blocking others")
    return warn(name, f"{current:,} reads that wait for the cold tier block all other reads", remedy)


def _number_in(setting: Path) -> int | None:
    """Return the value of a kernel setting; None where it cannot be read."""
    try:
        return int(setting.read_text())
    except (OSError, ValueError):
        return None


def disk(space: DiskBytes, status: StoreStatus, settings: Settings) -> Iterator[DoctorFinding]:
    """Check the store's filesystem against the floor and the watermarks."""
    free, floor = space.free, settings.write.free_space_floor_bytes
    view = disk_view(space, status.local.bytes, floor, settings.background)
    evict = f"tierfs --store {status.path} evict"
    text = f"{mebibytes(free)} free, {space.used * 100 // max(1, space.size)} % used"
    if free < floor:
        yield fail("disk", f"{text}: appends fail below {mebibytes(floor)}", evict)
    elif view.excess_bytes:
        limits = f"{settings.background.high_watermark_percent} % or {mebibytes(view.high_local_bytes)} of chunks"
        near = f"above a high watermark ({limits}) or near the floor for appends ({mebibytes(floor)})"
        yield warn("disk", f"{text}: {near}, cold bytes are evicted at once", evict)
    else:
        yield ok("disk", text)
    if status.cold_url is None:
        return
    waiting = status.not_offloaded_bytes
    text = f"{mebibytes(waiting)}, watermark {mebibytes(view.high_unoffloaded_bytes)}"
    if waiting > view.high_unoffloaded_bytes:
        yield warn("not offloaded", f"{text}: chunks end early", f"tierfs --store {status.path} offload")
    else:
        yield ok("not offloaded", text)


def cold_place(store: Path, cold_url: str | None, address: Mapping[str, str]) -> DoctorFinding:
    """Check whether losing the store's disk loses the cold tier with it."""
    warning = shared_filesystem_warning(store, cold_url)
    if warning is None:
        parts = "".join(f", {name} {value}" for name, value in address.items())
        return ok("cold tier's place", f"{cold_url}{parts}: not on the store's filesystem")
    return warn("cold tier's place", warning, of_place(warning)[1])


def commit_clock(now_ms: int, last_commit_ms: int) -> DoctorFinding:
    """Check whether the clock ran back since the newest commit; times of what is written now would be too late."""
    difference_ms = max(0, last_commit_ms - now_ms)
    finding = clock_finding("clock since last commit", difference_ms, "lag behind the newest commit")
    return (
        replace(finding, remedy=f"{finding.remedy}; if the current time is right: {ACCEPT}")
        if finding.remedy
        else finding
    )
