"""`tierfs check` of one store: the checks in their order, and the repair of the results. Part of the composition root.

`verify` reads every byte below a path, from every tier that holds it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path

from tierfs.app.repair_tools import tools
from tierfs.app.store import Store, open_store
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.bytes.progress import Meter, OnProgress, Progress, doing
from tierfs.base.system.store_paths import StorePaths, require_trusted
from tierfs.base.words import names
from tierfs.base.words.errors import DataLoss, NotFound, PermissionDenied, Unavailable
from tierfs.base.words.types import ByteRange, SegmentId, Tier
from tierfs.engine.metadata import directories
from tierfs.reading.etags import ADOPTED_AT_ONCE
from tierfs.tiering.garbage.strays import MetadataMark
from tierfs.upkeep.check.bucket import BucketCheck, unreachable
from tierfs.upkeep.check.changed_objects import ChangedObjects
from tierfs.upkeep.check.files import FileCheck, FileTotals
from tierfs.upkeep.check.findings import RECOVER, Finding, Kind, Severity
from tierfs.upkeep.check.journal import JournalCheck
from tierfs.upkeep.check.metadata import check_metadata
from tierfs.upkeep.check.metadata_probe import probe
from tierfs.upkeep.check.object_table import ObjectTable
from tierfs.upkeep.check.places import Places
from tierfs.upkeep.check.repair.copies import MayLose, Mended
from tierfs.upkeep.check.repair.mender import Mender
from tierfs.upkeep.check.scrub.scrub import Scrubber
from tierfs.upkeep.check.scrub.verify import DeepCheck, Verified, Verifier
from tierfs.upkeep.check.segments import Totals
from tierfs.upkeep.holder.lock import hold

# A mend may expose the next: a chunk dropped, then its object unused. More than this were never needed.
_PASSES = 4

Tell = Callable[["CheckOutcome"], None]


@dataclass(frozen=True, slots=True)
class Options:
    """Options of `tierfs check`."""

    deep: bool = False
    repair: bool = False
    may_lose: MayLose = lambda *_: False
    """Asked before --repair records bytes as lost."""


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """A finding, and whether it was mended."""

    finding: Finding
    mended: bool = False
    lost_bytes: int = 0
    """Recorded as lost by the mend."""
    left: str | None = None
    """The reason it was not mended, where a repair was tried."""


@dataclass(slots=True)
class Summary:
    """Counts of what was checked, durations, and results."""

    seconds: dict[str, float] = field(default_factory=dict)
    """Stage -> its duration."""
    segments: int = 0
    chunks: int = 0
    objects: int = 0
    """Of the cold tier."""
    files: int = 0
    """Of the chunk directory."""
    bytes: int = 0
    notes: int = 0
    mended: int = 0
    damaged: int = 0
    """Findings that remain."""
    lost: int = 0
    """Findings of bytes that no copy has, mended (recorded as lost) or not."""
    lost_bytes: int = 0
    """Recorded as lost now."""
    read_bytes: int = 0
    """By --read."""
    unchecked: str = ""
    """The part that could not be checked now, and the reason."""

    def count(self, outcome: CheckOutcome) -> None:
        """Count one more finding."""
        self.lost_bytes += outcome.lost_bytes
        if outcome.finding.severity is Severity.NOTE and not outcome.mended:
            self.notes += 1
            return
        self.lost += outcome.finding.severity is Severity.LOSS or outcome.lost_bytes > 0
        if outcome.mended:
            self.mended += 1
        else:
            self.damaged += 1


class Checking:
    """One check of the store in a directory."""

    def __init__(self, path: Path, options: Options, tell: Tell, show: OnProgress) -> None:
        self._show = show
        self._path = path
        self._options = options
        self._tell = tell
        self.summary = Summary()

    def run(self) -> Summary:
        """Check, and mend what was asked to be; findings are reported as they are made.

        Raises Conflict when something is to be mended while a holder lives, NotFound where there is no store.
        """
        paths = StorePaths(self._path.absolute())
        if not paths.settings.is_file():
            raise NotFound(f"{self._path} is not a tierfs store")
        require_trusted(paths.root)
        unreadable = probe(paths.metadata)
        if unreadable is not None:
            self._report(CheckOutcome(unreadable))
            return self.summary
        try:
            store = open_store(self._path, looks=True)
        except DataLoss as exc:
            text = str(exc)
            finding = Finding(Kind.METADATA_UNREADABLE, Severity.DAMAGE, "metadata", text, remedy=RECOVER)
            self._report(CheckOutcome(finding))
            return self.summary
        with store, hold(paths.holder, store.clock) if self._options.repair else nullcontext():
            self._check(store)
        return self.summary

    def _check(self, store: Store) -> None:
        mender = None
        if self._options.repair:
            # A repair may leave files without a record, for people to look at.
            MetadataMark(store.metadata.path).remove()
            mender = Mender(tools(store, self._options.may_lose))
        table, totals = self._metadata(store, mender)
        with store.metadata.read() as txn:
            check = FileCheck(store.metadata, store.files, table, totals.active, self._show)
            self._stage(store, "files", check.run(txn), mender)
        self._total(table, totals, check.totals)
        try:
            self._stage(store, "bucket", self._bucket(store, table), mender)
            if self._options.deep:
                self._stage(store, "bytes", self._deep(store, totals), mender)
        except (Unavailable, PermissionDenied) as exc:
            self.summary.unchecked = str(exc)

    def _metadata(self, store: Store, mender: Mender | None) -> tuple[ObjectTable, Totals]:
        """Check the metadata and repair until stable: one repair can expose the next."""
        mended: dict[tuple[str, str, str], CheckOutcome] = {}
        reasons: dict[tuple[str, str, str], str] = {}
        for last in [False] * (0 if mender is None else _PASSES) + [True]:
            started = store.clock.monotonic_s()
            table, totals = ObjectTable(), Totals()
            with store.metadata.read() as txn:
                checked = check_metadata(txn, table, totals, self._show)
                findings = self._reported_or_kept(checked, kept=mender is not None)
            self._add_seconds("metadata", store.clock.monotonic_s() - started)
            if last or mender is None or not any(finding.mend for finding in findings):
                break
            results = list(mender.run(findings))
            mended.update(
                {
                    _name(finding): _outcome(finding, done)
                    for finding, done in results
                    if finding.mend and done.left is None
                }
            )
            reasons = {_name(finding): done.left for finding, done in results if done.left is not None}
            if all(done.left is not None for finding, done in results if finding.mend):
                break
        if mender is not None:
            for finding in findings:
                mended.pop(_name(finding), None)
                self._report(CheckOutcome(finding, left=reasons.get(_name(finding))))
            for outcome in mended.values():
                self._report(outcome)
        return table, totals

    def _reported_or_kept(self, findings: Iterator[Finding], *, kept: bool) -> list[Finding]:
        """Return the findings if any may be mended; else report them at once and keep none, however many they are."""
        if kept:
            return list(findings)
        for finding in findings:
            self._report(CheckOutcome(finding))
        return []

    def _bucket(self, store: Store, table: ObjectTable) -> Iterator[Finding]:
        location_id = store.cold_location_id
        places = Places(store.metadata, store.storage_of)
        if location_id is not None:
            away = places.away(location_id)
            if away is not None:
                yield unreachable(location_id, away)
                return
            self._show(doing("checking the journal"))
            yield from JournalCheck(store.metadata, store.storage_of(location_id)).run()
        options = self._options
        changed = ChangedObjects(store.metadata, store.storage_of, adopts=options.repair, reads=not options.deep)
        check = BucketCheck(store.metadata, store.storage_of, location_id, table, changed, places, self._show)
        yield from check.run()

    def _deep(self, store: Store, totals: Totals) -> Iterator[Finding]:
        scrubber = Scrubber(store.metadata, store.files, store.storage_of)

        def report(progress: Progress) -> None:
            self._show(progress)
            if self._options.repair:
                scrubber.reader.etags.adopt(ADOPTED_AT_ONCE)

        check = DeepCheck(store.metadata, scrubber, Meter(report, totals.bytes, totals.segments))
        yield from check.run()
        if self._options.repair:
            scrubber.reader.etags.adopt()
        self.summary.read_bytes = check.bytes

    def _stage(self, store: Store, name: str, findings: Iterator[Finding], mender: Mender | None) -> None:
        started = store.clock.monotonic_s()
        if mender is None:
            for finding in findings:
                self._report(CheckOutcome(finding))
        else:
            listed = list(findings)
            mended = Meter(self._show, total_items=len(listed), noun="finding")
            for finding, done in mender.run(listed):
                self._report(_outcome(finding, done))
                mended(0, finding.subject, 1)
        self._add_seconds(name, store.clock.monotonic_s() - started)

    def _add_seconds(self, stage: str, seconds: float) -> None:
        self.summary.seconds[stage] = self.summary.seconds.get(stage, 0.0) + seconds

    def _report(self, outcome: CheckOutcome) -> None:
        self.summary.count(outcome)
        self._tell(outcome)

    def _total(self, table: ObjectTable, totals: Totals, files: FileTotals) -> None:
        self.summary.segments, self.summary.chunks = totals.segments, totals.chunks
        self.summary.objects, self.summary.files = len(table.names[Tier.COLD]), files.files
        self.summary.bytes = totals.bytes


def _outcome(finding: Finding, done: Mended) -> CheckOutcome:
    return CheckOutcome(finding, finding.mend is not None and done.left is None, done.lost_bytes, done.left)


def _name(finding: Finding) -> tuple[str, str, str]:
    return finding.kind, finding.subject, finding.message


def verify(store: Store, path: str, show: OnProgress) -> Iterator[Verified]:
    """Verify every segment below a path, one after the other.

    Bad chunks become suspect, and suspect ones that are good lose the mark, unless this store may change nothing (a
    replica, or fenced). Raises NotFound, and Unavailable when a tier does not answer.
    """
    ids, total = array("Q"), 0
    with store.metadata.read() as txn:
        listed = Meter(show, noun="listed segment")
        for _, segment in listed.each(directories.segments_at(txn, path), lambda named: named[0]):
            ids.append(segment.id)
            total += segment.local.bytes + segment.cold.bytes
        marks = not txn.store.replica and not txn.store.journal.fenced_by_epoch
    scrubber = Scrubber(store.metadata, store.files, store.storage_of)
    verifier = Verifier(store.metadata, scrubber, Meter(show, total, len(ids)), marks=marks)
    yield from verifier.run(_present(store, map(SegmentId, ids)))


def _present(store: Store, segment_ids: Iterable[SegmentId]) -> Iterator[tuple[str, SegmentId, ByteRange]]:
    """Yield name, id and readable range of those segments that have not been removed meanwhile."""
    for segment_id in segment_ids:
        with store.metadata.read() as txn:
            segment = directories.segment(txn, segment_id)
            name = "" if segment is None else directories.path_of(txn, segment.parent_id, segment.name)
        if segment is not None and not names.is_removed(name):
            yield name, segment.id, segment.range
