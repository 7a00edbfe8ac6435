"""The status of a store: tiers, backlog, journal, garbage and the holder, from one snapshot."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.clock import ClockReading
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.stored_size import NOTHING_STORED, StoredSize
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.metadata import directories, followed, store_ownership, tables
from tierfs.engine.metadata.holder_records import FailureRecord, RequestRecord
from tierfs.engine.metadata.journal_state import Fencer
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.sums import Sums, recount
from tierfs.engine.metadata.tables import DIRECTORIES, FAILURES, GARBAGE, INTENTS, LOCATIONS, OUTBOX_NAME, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments.endangered import Endangered, endangered
from tierfs.tiering import quota
from tierfs.upkeep.holder import lock, requests, standby_note
from tierfs.upkeep.holder.failures import QUOTA
from tierfs.upkeep.holder.follow_lag import FollowLag, follow_lag
from tierfs.upkeep.holder.lock import Holder
from tierfs.upkeep.holder.problem import Problem
from tierfs.upkeep.holder.standby_note import NO_STANDBY, StandbyNote
from tierfs.upkeep.holder.store_warnings import (
    as_warning,
    clock_problem,
    quota_problem,
    refused_places,
    standing_problems,
)
from tierfs.upkeep.holder.uncompressed import NOT_COUNTED, Uncompressed, uncompressed
from tierfs.upkeep.holder.waits import BacklogReason, Causes, Wait, any_moves, longest_allowed_s

_MS_PER_S = 1000
_MAX_ERRORS = 5

# Rows of garbage searched for errors: some 80 ms.
_MAX_ROWS = 5000


@dataclass(frozen=True, slots=True)
class TierStatus:
    """The chunks and bytes of one tier."""

    chunks: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class JournalStatus:
    """The position of this store in the bucket's journal."""

    slot: int
    unpublished: int
    checkpoint_slot: int
    fenced_by_epoch: int
    fencer: Fencer
    """Then the bucket's owner."""
    replica: bool
    """Follows the journal and writes nothing to it."""
    old_backup: bool
    """Fenced by its own later entries: the metadata are a copy of the past."""
    published_ms: int = 0
    """When the newest slot was written; 0 when that is not known."""
    queued_ms: int = 0
    """Since when, at the latest, a change waits for the journal; 0 when none does, or it is not known."""


@dataclass(frozen=True, slots=True)
class BacklogStatus:
    """The background writer's work to come, and what it leaves where it is."""

    pending_bytes: int
    """Of complete chunks that wait for their offload."""
    active_bytes: int
    """Of chunks that are still appended to."""
    oldest_ms: int
    """Time since which the oldest byte that waits has been on the local disk alone, or later; 0 when none is, or it is
    not known."""
    kept_bytes: int = 0
    """On the local disk alone too, but no policy moves them: they wait for nothing."""
    reasons: tuple[BacklogReason, ...] = ()
    """All of these bytes by reason, as far as they were asked for."""
    late_s: int = 0
    """Time for which the oldest byte has waited longer than every policy lets it; 0 where some wait without a time."""


def age_s(now_ms: int, backlog: BacklogStatus) -> float:
    """Return the age of the oldest byte that is on the local disk alone; 0 when there is none."""
    return max(0, now_ms - backlog.oldest_ms if backlog.oldest_ms else 0) / _MS_PER_S


@dataclass(frozen=True, slots=True)
class TrashStatus:
    """What was removed and can be restored."""

    removals: int
    segments: int
    bytes: int
    local_bytes: int
    """Of these bytes, `not_offloaded_bytes` are on this disk alone."""
    not_offloaded_bytes: int
    cold_bytes: int
    next_due_ms: int
    """Time at which the next removal ends; 0 for an empty trash."""


@dataclass(frozen=True, slots=True)
class AdoptionStatus:
    """A foreign place that the holder adopts again and again."""

    url: str
    layout: str
    into: str
    """The directory; "" if it was removed."""
    every_s: int
    last_ms: int
    """End of the last adoption."""
    allowed: bool
    """Whether this host may read it: not one that only a journal named."""


@dataclass(frozen=True, slots=True)
class FollowStatus:
    """A path, directory or pattern that the holder follows."""

    path: str
    into: str
    """The directory; "" if it was removed, or is the root."""


@dataclass(frozen=True, slots=True)
class GapStatus:
    """Lines of a followed log that may be missing in its segment."""

    segment: str
    offset: int
    """They would be before this offset."""
    since_ms: int
    why: str


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """One store at one instant."""

    path: str
    store_id: str
    store_epoch: int
    cold_url: str | None
    cold_address: Mapping[str, str]
    """`endpoint_url`, `region` and `profile` of the cold tier, those that are set."""
    segments: int
    directories: int
    bytes: int
    local: TierStatus
    cold: TierStatus
    not_offloaded_bytes: int
    """Upper bound of the bytes that are only on the local disk, without lost ones."""
    endangered: Endangered
    local_free_bytes: int
    cold_use: quota.ColdUse
    backlog: BacklogStatus
    troubles: tuple[FailureRecord, ...]
    """Work that failed and is tried again, the longest-standing first."""
    requests: tuple[RequestRecord, ...]
    """Unfinished work that was requested of the holder."""
    journal: JournalStatus
    uploads_in_flight: int
    uploads_left: int
    """By a process that was killed; the next one to hold the store deletes their objects."""
    garbage: int
    garbage_bytes: int
    garbage_errors: tuple[str, ...]
    holder: Holder | None
    trash: TrashStatus
    next_expiry_ms: int
    """Time at which retention next takes bytes away, as of the holder's last look; 0 when nothing is to go."""
    overdue_bytes: int
    """At least so many bytes are past their retention and wait for their offload, as of the same look."""
    overdue_reason: str
    """Where and why the first of them wait."""
    warnings: tuple[str, ...]
    """`standing`, a line each."""
    standing: tuple[Problem, ...] = ()
    """Problems of the fence, the cold tier and the clock; problems.py has those that the other fields show."""
    adoptions: tuple[AdoptionStatus, ...] = ()
    follows: tuple[FollowStatus, ...] = ()
    gaps: tuple[GapStatus, ...] = ()
    """Of the last week."""
    uncompressed: Uncompressed = NOT_COUNTED
    compressed: StoredSize = NOTHING_STORED
    """The compressed ones of its cold objects, of which some bytes may be dead."""
    archived_objects: int = 0
    """Cold objects that were moved to another storage class."""
    archived_bytes: int = 0
    """Stored bytes of them."""
    archive_url: str | None = None
    """The archive place, to which others of them were moved."""
    follow_lag: FollowLag | None = None
    """Of the followed logs of this host; None if their file system does not answer."""
    standby: StandbyNote = NO_STANDBY
    """Of this store as a standby, or of those that follow it; without the segments that a takeover lists."""
    standby_age_s: float | None = None
    """Age of the last sign of life that this note has; None for none since this machine's start."""

    @property
    def cold_objects(self) -> StoredSize:
        """All of its own cold objects; a ledger's counts as plain."""
        stored_bytes = self.cold_use.object_bytes
        return StoredSize(stored_bytes - self.compressed.stored_bytes + self.compressed.plain_bytes, stored_bytes)


def store_status(
    metadata: MetadataStore,
    files: ChunkFiles,
    holder_path: Path,
    store: Path,
    unknown_owner: TierfsError | None = None,
    *,
    allowed: str,
    brief: bool = False,
) -> StoreStatus:
    """Read the status from the sums; costs the same however many segments there are, once a store has sums.

    `unknown_owner`: why nobody can say now whether the bucket is the store's. `allowed`: cold.allowed_locations.
    `brief`: the backlog has no reasons, and what could be compressed is not counted, for which the records of segments
    may have to be read.
    """
    lag, standby = follow_lag(metadata), standby_note.read(StorePaths(store)).brief
    with metadata.read() as txn:
        totals = totals_of(txn)
        location = txn.get(LOCATIONS, tables.u32(txn.store.cold_location_id)) if txn.store.cold_location_id else None
        holder, use = lock.current(holder_path), quota.use_of(txn, totals)
        in_flight, left = _uploads(txn, is_held=holder is not None)
        standing = (
            *standing_problems(store, location, txn.store, unknown_owner),
            *refused_places((row for _, row in txn.scan(LOCATIONS)), allowed),
            *_passing_problems(txn, use, ClockReading.of(metadata.clock)),
        )
        return StoreStatus(
            path=str(store),
            store_id=txn.store.store_id,
            store_epoch=txn.store.store_epoch,
            cold_url=location.url if location is not None else None,
            cold_address=_address(location),
            segments=txn.count(SEGMENTS.name) - totals.trash_segments,
            directories=txn.count(DIRECTORIES.name) - 1 - totals.trash_directories,
            bytes=max(0, totals.bytes - totals.trash_bytes),
            local=TierStatus(totals.local_chunks, totals.local_bytes),
            cold=TierStatus(totals.cold_chunks, totals.cold_bytes),
            not_offloaded_bytes=totals.not_offloaded_bytes,
            endangered=endangered(txn, totals, store, counted=not brief),
            local_free_bytes=files.free_bytes(),
            cold_use=use,
            backlog=_backlog(txn, totals, metadata.clock.now_ms(), held=holder is not None, brief=brief),
            troubles=_troubles(txn),
            requests=tuple(requests.unfinished(txn)),
            journal=_journal(txn),
            uploads_in_flight=in_flight,
            uploads_left=left,
            garbage=txn.count(GARBAGE.name),
            garbage_bytes=totals.garbage_bytes,
            garbage_errors=tuple(_garbage_errors(txn, totals)),
            holder=holder,
            trash=_trash(txn, totals),
            next_expiry_ms=txn.store.next_expiry_ms,
            overdue_bytes=txn.store.overdue_bytes,
            overdue_reason=txn.store.overdue_reason,
            warnings=tuple(map(as_warning, standing)),
            standing=standing,
            adoptions=tuple(_adoptions(txn)),
            follows=tuple(_follows(txn)),
            gaps=tuple(_gaps(txn)),
            uncompressed=NOT_COUNTED if brief else uncompressed(txn),
            compressed=StoredSize(totals.compressed_bytes, totals.compressed_stored_bytes),
            archived_objects=totals.archived_objects,
            archived_bytes=totals.archived_bytes,
            archive_url=next((place.url for _, place in txn.scan(LOCATIONS) if place.archive), None),
            follow_lag=lag,
            standby=standby,
            standby_age_s=standby.age_s(metadata.clock),
        )


def _passing_problems(txn: ReadTransaction, use: quota.ColdUse, clock: ClockReading) -> Iterator[Problem]:
    yield from quota_problem(use, txn.get(FAILURES, QUOTA.encode()))
    yield from clock_problem(clock, txn.store)


def _troubles(txn: ReadTransaction) -> tuple[FailureRecord, ...]:
    return tuple(sorted((row for _, row in txn.scan(FAILURES)), key=lambda row: row.since_ms))


def _journal(txn: ReadTransaction) -> JournalStatus:
    state = txn.store.journal
    return JournalStatus(
        slot=state.next_slot - 1,
        unpublished=txn.count(OUTBOX_NAME),
        checkpoint_slot=state.checkpoint_slot,
        fenced_by_epoch=state.fenced_by_epoch,
        fencer=state.fencer,
        replica=txn.store.replica,
        old_backup=store_ownership.is_old_backup(txn.store),
        published_ms=state.published_ms,
        queued_ms=state.queued_ms if txn.count(OUTBOX_NAME) else 0,
    )


def _trash(txn: ReadTransaction, totals: Sums) -> TrashStatus:
    return TrashStatus(
        removals=totals.removals,
        segments=totals.trash_segments,
        bytes=totals.trash_bytes,
        local_bytes=totals.trash_local_bytes,
        not_offloaded_bytes=totals.trash_uncovered_bytes,
        cold_bytes=totals.trash_cold_bytes,
        next_due_ms=directories.next_due_ms(txn),
    )


def _adoptions(txn: ReadTransaction) -> Iterator[AdoptionStatus]:
    for _, location in txn.scan(LOCATIONS):
        timer = location.adoption
        if timer.every_s:
            into = _path_of_directory(txn, timer.directory_id)
            yield AdoptionStatus(
                location.url, timer.layout, into, timer.every_s, timer.last_ms, not location.from_journal
            )


def _path_of_directory(txn: ReadTransaction, directory_id: int) -> str:
    directory = txn.get(DIRECTORIES, tables.u64(directory_id))
    is_root = directory is None or not directory.name
    return "" if is_root or directory is None else directories.path_of(txn, directory.parent_id, directory.name)


def _follows(txn: ReadTransaction) -> Iterator[FollowStatus]:
    for row in followed.sources(txn):
        if row.background:
            yield FollowStatus(os.fsdecode(row.path), _path_of_directory(txn, row.directory_id))


def _gaps(txn: ReadTransaction) -> Iterator[GapStatus]:
    for segment, row in followed.gaps(txn):
        yield GapStatus(segment, row.segment_start, row.committed_ms, row.gap)


def totals_of(txn: ReadTransaction) -> Sums:
    """Return the sums of a store, counted now while it has none."""
    return txn.sums or recount(txn.scan_raw)


def backlog_of(txn: ReadTransaction, totals: Sums, now_ms: int, *, held: bool) -> BacklogStatus:
    """Return the bytes that are on the local disk alone, by what they wait for; see Causes.backlog for its cost."""
    reasons = Causes(txn, now_ms, held=held).backlog(totals)
    growing = sum(row.bytes for row in reasons if row.kind is Wait.GROWING)
    kept = sum(row.bytes for row in reasons if not row.kind.moves)
    pending = sum(row.bytes for row in reasons) - growing - kept
    oldest_ms = txn.oldest_local_only_ms if pending or growing else 0
    return BacklogStatus(pending, growing, oldest_ms, kept, reasons, _late_s(txn, oldest_ms, now_ms))


def _backlog(txn: ReadTransaction, totals: Sums, now_ms: int, *, held: bool, brief: bool) -> BacklogStatus:
    return _brief_backlog(txn, totals, now_ms) if brief else backlog_of(txn, totals, now_ms, held=held)


def _brief_backlog(txn: ReadTransaction, totals: Sums, now_ms: int) -> BacklogStatus:
    """Return the same without reasons: where any policy moves bytes, all of them wait."""
    pending, growing = totals.pending_bytes, totals.growing_bytes
    if Causes(txn, now_ms, held=False).of_store() is not None or not any_moves(txn):
        return BacklogStatus(0, 0, 0, pending + growing)
    oldest_ms = txn.oldest_local_only_ms if pending or growing else 0
    return BacklogStatus(pending, growing, oldest_ms, late_s=_late_s(txn, oldest_ms, now_ms))


def _late_s(txn: ReadTransaction, oldest_ms: int, now_ms: int) -> int:
    allowed_s = longest_allowed_s(txn) if oldest_ms else None
    return 0 if allowed_s is None else max(0, (now_ms - oldest_ms) // _MS_PER_S - allowed_s)


def _uploads(txn: ReadTransaction, *, is_held: bool) -> tuple[int, int]:
    """Return the number of uploads that go on, and of those that a killed process left."""
    intents = txn.count(INTENTS.name)
    if is_held or not intents:
        return intents, 0
    from tierfs.tiering import objects  # rarely needed: a process was killed

    jobs = len(objects.jobs(txn))
    return jobs, intents - jobs


def _garbage_errors(txn: ReadTransaction, totals: Sums) -> Iterator[str]:
    """Yield why some deletions failed; look at no row where none did."""
    wanted = min(totals.garbage_failed, _MAX_ERRORS)
    rows = (record for _, record in islice(txn.scan(GARBAGE), _MAX_ROWS) if record.last_error) if wanted else ()
    yield from (record.last_error for record in islice(rows, wanted))


def _address(location: LocationRecord | None) -> dict[str, str]:
    if location is None:
        return {}
    parts = {"endpoint_url": location.endpoint_url, "region": location.region, "profile": location.profile}
    return {name: value for name, value in parts.items() if value}
