"""The job `scrub`: executors compare every byte of every copy, local and cold, with its checksums."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial

from pyspark.sql import SparkSession

from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import OnProgress, unseen
from tierfs.base.words.errors import Archived, NotFound, Unavailable
from tierfs.base.words.names import printable
from tierfs.base.words.storage_classes import is_restored_first
from tierfs.base.words.types import MIB, ByteRange, Tier
from tierfs.engine.chunkstore.located import same_place
from tierfs.engine.metadata import policies, tables
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.pipeline.reader.extents import ScannedStore
from tierfs.pipeline.reader.scrub_waves import PARTITION_BYTES, WAVE_PARTITIONS, Wanted, wanted_segments, waves
from tierfs.pipeline.reader.scrubbing import CopyChecks, CopyFault, CopyPiece, CopyReport, joined, report_of
from tierfs.pipeline.reader.selection import place_of
from tierfs.pipeline.spark.jobs.result import Result
from tierfs.pipeline.spark.jobs.tasks import Counter, Tasks, slots_of
from tierfs.pipeline.spark.partitions import connections
from tierfs.upkeep.check.places import Places
from tierfs.upkeep.check.scrub.copy_reader import Fault
from tierfs.upkeep.check.unchunked import defect, unchunked

COLUMNS = {
    "segment": "string",
    "tier": "string",
    "object": "string",
    "offset": "long",
    "length": "long",
    "fault": "string",
    "why": "string",
}


_TASKS_PER_SLOT = 4
_MOST_PARTITION_BYTES = 512 * MIB


@dataclass(slots=True)
class ScrubSums:
    """Sums of a scrub."""

    segments: int = 0
    local_bytes: int = 0
    cold_bytes: int = 0
    damaged_bytes: int = 0
    """Wrong or missing."""
    unseen_bytes: int = 0
    """Of copies in directories that executors do not see: they may be good or bad."""
    unreachable_bytes: int = 0
    absent_objects: int = 0
    """Of ledgers without bytes: missing, or of another size."""
    unreachable_objects: int = 0
    seconds: float = 0.0


def scrub(
    spark: SparkSession,
    store: Store,
    paths: Sequence[str] = (),
    *,
    show: OnProgress = unseen,
    partition_bytes: int | None = None,
) -> Result:
    """Check all copies of the segments at and below `paths`, by default of all; return a row for each run of bad bytes.

    Raises NotFound for a path, Unavailable when the cold tier does not answer.
    """
    started_s = time.monotonic()
    segments, total_bytes = wanted_segments(store.metadata, paths)
    tasks = Tasks(spark, show, total_bytes)
    judge = _Judge(store)
    sums = ScrubSums(segments=len(segments))
    faults: list[CopyFault] = []
    slots = slots_of(spark)
    if partition_bytes is None:
        # Each task begins and ends without others in its process: four a slot, but not too many to begin again.
        partition_bytes = min(max(total_bytes // (_TASKS_PER_SLOT * slots), PARTITION_BYTES), _MOST_PARTITION_BYTES)
    wave_partitions = max(WAVE_PARTITIONS, 16 * slots)
    for wave in waves(store.metadata, segments, partition_bytes, wave_partitions):
        with store.metadata.read() as txn:
            place = place_of(txn, str(store.path), store.settings.cold)
        reports = tasks.run(partial(check_copies, place), wave.partitions)
        for report in reports:
            sums.local_bytes += report.local_bytes
            sums.cold_bytes += report.cold_bytes
            sums.unseen_bytes += report.unseen_bytes
        faults += [*wave.faults, *judge.judged(place, (fault for report in reports for fault in report.faults))]
    faults += _without_bytes(store, segments)
    merged = list(joined(faults))
    for fault in merged:
        _count(sums, fault)
    sums.seconds = round(time.monotonic() - started_s, 3)
    return Result(COLUMNS, [_row(fault) for fault in merged], asdict(sums))


def check_copies(place: ScannedStore, wanted: tuple[CopyPiece, ...], done: Counter) -> CopyReport:
    """Check the copies of one task, on an executor."""
    report = report_of(CopyChecks(place, connections(), wanted).run())
    done.add(sum(copy.piece.range.length_bytes for copy in wanted))
    return report


def _without_bytes(store: Store, segments: Sequence[Wanted]) -> Iterator[CopyFault]:
    """Look, from the driver, for the objects of ledgers that have no byte to read."""
    names = {segment.id: segment.name for segment in segments}
    places = Places(store.metadata, store.storage_of)
    with store.metadata.read() as txn:
        wanted = [(names[segment_id], record) for segment_id, record in unchunked(txn) if segment_id in names]
    for name, record in wanted:
        if (wrong := defect(store.storage_of, record)) is not None:
            away = places.away(record.location_id)
            fault, why = (wrong.fault, wrong.why) if away is None else (Fault.AWAY, away)
            yield CopyFault(name, Tier.COLD, record, ByteRange(0, 0), fault, why)


class _Judge:
    """Checks faults again from the driver, which sees moved bytes and unreachable places."""

    def __init__(self, store: Store) -> None:
        self._metadata = store.metadata
        self._storage_of = store.storage_of
        self._places = Places(store.metadata, store.storage_of)

    def judged(self, place: ScannedStore, faults: Iterable[CopyFault]) -> Iterator[CopyFault]:
        """Return the faults, found at `place`, that still count.

        Raises Unavailable when the store's own cold tier does not answer, or was moved meanwhile.
        """
        for fault in faults:
            if not self._is_there(fault):
                continue
            if fault.tier is Tier.LOCAL or fault.fault is Fault.DAMAGED:
                if fault.tier is Tier.COLD:
                    self._require_at(place, fault)
                yield fault
                continue
            yield self._out_of_reach(fault)

    def _out_of_reach(self, fault: CopyFault) -> CopyFault:
        """Return the fault with its cause: the place is away, the object is gone, or only executors do not find it."""
        away = self._places.away(fault.object.location_id)
        if away is not None:
            return replace(fault, fault=Fault.AWAY, why=away)
        try:
            stored = self._storage_of(fault.object.location_id).stat(fault.object.name)
        except NotFound:
            return replace(fault, fault=Fault.MISSING)
        if fault.fault is Fault.AWAY and is_restored_first(stored.storage_class):
            raise Archived(fault.why, remedy="run: tierfs thaw --wait /, and then this job again")
        if fault.fault is Fault.AWAY:
            raise Unavailable(f"{printable(fault.object.name)} is not reachable: {fault.why}", remedy="run it again")
        return replace(fault, fault=Fault.UNSEEN, why="this machine can read it, but an executor cannot")

    def _require_at(self, place: ScannedStore, fault: CopyFault) -> None:
        """Raise Unavailable if a location has another place by now: executors that do not see the store stay behind."""
        location_id = fault.object.location_id
        with self._metadata.read() as txn:
            now = policies.location(txn, location_id)
        if not same_place(now, place.location(location_id)):
            name = printable(fault.object.name)
            raise Unavailable(f"{name} was read from a place that the store no longer uses", remedy="run it again")

    def _is_there(self, fault: CopyFault) -> bool:
        """Return whether the object is still one of the store's: eviction and consolidation continue meanwhile."""
        with self._metadata.read() as txn:
            return txn.get(OBJECTS, tables.u64(fault.object.id)) is not None


def _count(sums: ScrubSums, fault: CopyFault) -> None:
    if not fault.range and fault.object.name:
        sums.unreachable_objects += fault.fault is Fault.AWAY
        sums.absent_objects += fault.fault is not Fault.AWAY
    elif fault.fault is Fault.AWAY:
        sums.unreachable_bytes += fault.range.length_bytes
    elif fault.fault is Fault.UNSEEN and fault.tier is Tier.COLD:  # tasks have counted local ones
        sums.unseen_bytes += fault.range.length_bytes
    elif fault.fault is not Fault.UNSEEN:
        sums.damaged_bytes += fault.range.length_bytes


def _row(fault: CopyFault) -> tuple[object, ...]:
    tier = fault.tier.name.lower() if fault.object.id else "-"
    bad = fault.range
    return fault.segment, tier, fault.object.name, bad.start, bad.length_bytes, fault.fault.value, fault.why
