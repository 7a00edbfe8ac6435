"""Checks of a Spark cluster: whether each executor can read a store, by path or by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tierfs import __version__
from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.mounts import SILENT, SILENT_REMEDY, MountState
from tierfs.base.words.names import printable
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.tables import LOCATIONS
from tierfs.faces.doctor.cluster import Cluster
from tierfs.faces.doctor.findings import DoctorFinding, fail, ok, warn
from tierfs.pipeline.spark.executor_probe import DRIVER, FORBIDDEN, PART, UNTOLD
from tierfs.pipeline.spark.executors import ColdPlace, ExecutorReport, MountReport, check_executors

# The wheel that `make wheel` builds.
_INSTALL = f"-m pip install 'tierfs-{__version__}-py3-none-any.whl[spark]'"

_HOSTS_SHOWN = 5
_OTHER_PYTHON = "or use a Python that has it: export PYSPARK_PYTHON=PATH"


@dataclass(frozen=True, slots=True)
class KnownStore:
    """The store that executors are compared with."""

    store_id: str
    slot: int
    cold: ColdPlace | None


def known_store(store: Store) -> KnownStore:
    """Return what executors are compared with, of an open store."""
    with store.metadata.read() as txn:
        record, location_id = txn.store, txn.store.cold_location_id
        location = txn.get(LOCATIONS, tables.u32(location_id)) if location_id else None
    cold = None if location is None else ColdPlace(store.path, location, store.settings.cold)
    return KnownStore(record.store_id, max(0, record.journal.next_slot - 1), cold)


def check_cluster(cluster: Cluster, known: KnownStore | None) -> Iterator[DoctorFinding]:
    """Start a session there, ask every executor, and judge the answers."""
    reports = check_executors(cluster.master, cluster.mounts, known.cold if known else None)
    yield from judge(cluster.master, reports, known)


def judge(master: str, reports: Sequence[ExecutorReport], known: KnownStore | None) -> Iterator[DoctorFinding]:
    """Yield the findings of all reports."""
    running = [report for report in reports if report.executor != DRIVER] or reports
    hosts = sorted({printable(report.host) for report in running})
    more = f" and {len(hosts) - _HOSTS_SHOWN:,} more" if len(hosts) > _HOSTS_SHOWN else ""
    yield ok("executors", f"{len(running):,} of {printable(master)}, on {', '.join(hosts[:_HOSTS_SHOWN])}{more}")
    for report in reports:
        name = f"executor {report.executor} ({printable(report.host)})" if report in running else "driver"
        if report in running:
            yield python(name, report)
        if report in running and report.cold_error is not None:
            yield cold(name, report.cold_error)
        for mount in report.mounts:
            yield mounted(f"{name}: {printable(mount.path)}", mount, *_wanted(mount, reports, known))


def _wanted(mount: MountReport, reports: Sequence[ExecutorReport], known: KnownStore | None) -> tuple[str, int]:
    """Return the store that should be at the mount's path, and the newest slot that a mount there has.

    Of the named store, else of the first mount found there: the driver's, as it goes first.
    """
    same_path = [other for report in reports for other in report.mounts if other.path == mount.path]
    ids = [other.store_id for other in same_path if other.store_id]
    wanted = known.store_id if known is not None else next(iter(ids), "")
    slots = [other.slot for other in same_path if other.store_id == wanted]
    return wanted, max([*slots, known.slot if known is not None else 0])


def python(name: str, report: ExecutorReport) -> DoctorFinding:
    """Check whether an executor's Python has this tierfs, and pyarrow."""
    text = f"Python {report.python} ({printable(report.program)})"
    install = f"there: {printable(report.program)} {_INSTALL}"
    if report.tierfs is None:
        return fail(name, f"{text} has no tierfs: {printable(report.missing)}", f"{install}, {_OTHER_PYTHON}")
    if report.tierfs != __version__:
        return fail(name, f"{text} has tierfs {report.tierfs}, this machine has {__version__}", install)
    if report.pyarrow is None:
        return warn(name, f"{text} has no pyarrow, so it can read paths but not format('tierfs')", install)
    return ok(name, f"{text}, tierfs {report.tierfs}, pyarrow {report.pyarrow}")


def cold(name: str, error: str) -> DoctorFinding:
    """Check whether an executor reaches the store's cold tier with its own means."""
    name = f"{name}: cold tier"
    if not error:
        return ok(name, "the journal can be listed")
    return fail(
        name,
        f"cannot be listed: {printable(error)}",
        "give its machine network access and credentials: format('tierfs') needs them, a mount does not",
    )


def mounted(name: str, mount: MountReport, store_id: str, newest_slot: int) -> DoctorFinding:
    """Check whether a path is a mount of the wanted store, and as new as the others."""
    path = printable(mount.path)
    if mount.state == MountState.SILENT.value:
        return fail(name, f"its process {SILENT}", f"{SILENT_REMEDY} {path}")
    if mount.state == MountState.DEAD.value:
        return fail(name, "its process has exited: every access below it fails", f"there: tierfs umount {path}")
    if mount.state == FORBIDDEN:
        return fail(
            name, "Spark's user has no permission to read this mount", f"there: tierfs mount -o allow_other {path}"
        )
    if mount.state == UNTOLD:
        text = "readable, but its store is unknown: only the user who mounted it can read .tierfs"
        return warn(name, text, f"there: tierfs mount -o allow_other,allow_other_control {path}")
    if mount.state == PART:
        text = "a bind mount of a directory of a mount: its store is unknown"
        return warn(name, text, "check the mount itself there: tierfs doctor")
    if mount.state != MountState.ALIVE.value:
        return fail(name, f"no tierfs mount there ({mount.state})", f"there: tierfs --store DIR mount {path}")
    if mount.store_id != store_id:
        text = f"it is a mount of store {mount.store_id}, not of {store_id}"
        return fail(name, text, f"there: tierfs umount {path}, then mount the store or a replica of it")
    kind = "replica of store" if mount.replica else "store"
    text = f"{kind} {mount.store_id}, journal slot {mount.slot:,}"
    if mount.slot < newest_slot:
        remedy = (
            "wait for its refresh (background.replica_refresh_s); if it does not catch up, run there: tierfs status"
        )
        return warn(name, f"{text}, {newest_slot - mount.slot:,} slots older than the newest", remedy)
    return ok(name, text)
