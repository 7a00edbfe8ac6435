"""Cold work of the store's holder: the same for a command and for the background writer.

Thread-safe: the background writer runs several of these at once. Publishing is one at a time. The caller holds the
store (lock.py).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from tierfs.base.bytes.parallel import Attempts
from tierfs.base.bytes.progress import Meter, OnProgress, doing, unseen
from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.base.words.types import Tier
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.journal.checkpoint import Checkpointer
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata import directories, policies, store_ownership, tables
from tierfs.engine.metadata.message_rows import message
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.segments import trash
from tierfs.engine.segments.positions import Position
from tierfs.tiering import evict, objects
from tierfs.tiering.archive.command import ArchiveCommand, ArchiveReport
from tierfs.tiering.archive.due import ArchiveAction, ArchiveTarget
from tierfs.tiering.archive.leftovers import ArchiveSweep
from tierfs.tiering.archive.move import ArchiveMove, ArchiveTier, no_archive, require_possible
from tierfs.tiering.backup.segment import DumpSource, SegmentRestore, SegmentRestored
from tierfs.tiering.candidates import OffloadAction, PackAction, sealed_local_chunks, up_to
from tierfs.tiering.consolidate import Consolidate
from tierfs.tiering.consolidate_command import CompressReport, ConsolidateReport, Consolidation
from tierfs.tiering.evict import Evicted, Outcome
from tierfs.tiering.evict_command import EvictCommand, EvictReport, of_bytes
from tierfs.tiering.extra_metadata import NO_EXTRA, Extra
from tierfs.tiering.garbage import ballast
from tierfs.tiering.garbage.collect import Collected
from tierfs.tiering.garbage.dead_uploads import DeadUpload, DeadUploads
from tierfs.tiering.garbage.orphans import Orphan, OrphanFinder
from tierfs.tiering.ledgers.entry_rows import EntryRows
from tierfs.tiering.ledgers.managed import ManagedOffload, PrefixOffloaded
from tierfs.tiering.ledgers.offload import LedgerOffloader
from tierfs.tiering.objects import ColdTier
from tierfs.tiering.offload import Offload
from tierfs.tiering.offload_command import LocalBytes, OffloadReport, Upload
from tierfs.tiering.packs.packing import Packed, PackOffload
from tierfs.tiering.packs.plain_packs import PackCompression
from tierfs.tiering.packs.repack import Repack
from tierfs.tiering.part import MovedPart, PartEnds
from tierfs.tiering.policy import EvictAction, missing_bytes
from tierfs.upkeep.holder.local_work import LocalWork
from tierfs.upkeep.holder.switch import PlaceSwitch, Switched

_MS_PER_S = 1000


@dataclass(eq=False)
class ColdWork(LocalWork):
    """Offload, consolidate, evict, publish and collect on one store."""

    cold: ColdTier
    publisher: Publisher
    connect: Callable[[LocationRecord], ChunkStorage]
    """Connects to a place that is not the store's yet; the caller closes it."""
    in_class: Callable[[str], ChunkStorage]
    """The store's place, whose new objects get a storage class; "": that of the settings."""
    archive_tier: Callable[[], ArchiveTier | None] = no_archive
    """The archive place of now."""

    tiers = tuple(Tier)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._publishing = threading.Lock()
        files, cold, settings = self.engine.files, self.cold, self.settings
        self.checkpointer = Checkpointer(self.metadata, cold.storage, self.publisher, settings.checkpoint_entries)
        self.offloader = Offload(self.metadata, files, cold)
        self.ledgers = LedgerOffloader(self.metadata, files, cold, settings.ledger_block_bytes)
        self.repacker = Repack(self.metadata, cold, settings)
        self.managed = ManagedOffload(self.metadata, self.ledgers)
        self.packs = PackOffload(self.metadata, files, cold)
        self.consolidator = Consolidate(self.metadata, cold, grace_ms=settings.grace_s * _MS_PER_S)
        self.archiver = ArchiveMove(
            self.metadata, cold, self.in_class, self.archive_tier, grace_ms=settings.grace_s * _MS_PER_S
        )

    def resolve_crashed(self) -> None:
        """Make garbage of what a dead holder had in flight; the first action of a new holder. Raises Fenced."""
        with self.metadata.read() as txn:
            store_ownership.require_owner(txn.store)
        objects.abandon_all(self.metadata)
        self._dismantle()
        self._place_switch().finish()

    def offload(
        self, path: str, report: OnProgress, part: MovedPart | None = None, extra: Extra = NO_EXTRA
    ) -> OffloadReport:
        """Make every byte below `path` that is acknowledged now, or the `part`, cold and named by the journal.

        Rolls active chunks first; ledgers that are open stay. Raises NotFound, Fenced, what MovedPart.check raises, and
        the first error of an upload after all others were done; successful uploads stay.
        """
        return ballast.with_half(self.ballast_path, lambda: self._offload(path, report, part, extra))

    def _offload(self, path: str, report: OnProgress, part: MovedPart | None, extra: Extra) -> OffloadReport:
        self.publisher.require_ownership()  # else objects are made that no journal will ever name
        if part is not None:
            with self.metadata.read() as txn:
                part.check(path, directories.segments_at(txn, path))
        attempts = Attempts()
        local = LocalBytes.end_active(self.metadata, self.engine.roll, path, report, attempts, part)
        ends = None if part is None else self._ends(part, path)
        meter = Meter(report, local.bytes if ends is None else self._moving_bytes(ends, path), local.segments)
        upload = Upload(self.metadata, partial(self._make, extra=extra), self.packs, self.settings, meter, ends, extra)
        done = OffloadReport()
        with attempts.step():
            done = upload.run(partial(self._pages, path))
        return replace(done, journal_entries=self._publish_after(attempts, report), ledger_bytes=local.ledger_bytes)

    def _publish_after(self, attempts: Attempts, report: OnProgress) -> int:
        """Publish what the attempts have done, collect, and raise the first error; return the entries written."""
        # In this order: an object that the journal does not name is lost with this disk, though its bytes are stored.
        entries = 0
        with attempts.step():
            entries = self.publish(report)
        with attempts.step():
            self.collect(report)
        attempts.end()
        return entries

    def upload(self, action: OffloadAction) -> None:
        """Make one object, or a ledger's; see Offload.run and LedgerOffloader.offload."""
        ballast.with_half(self.ballast_path, lambda: self._make(action))

    def _make(self, action: OffloadAction, extra: Extra = NO_EXTRA) -> int:
        """Make one object, or a ledger's; return the number of bytes that became cold."""
        if action.ledger:
            return self.managed.offload_one(action.segment_id, extra)
        return self.offloader.run(action, extra)

    def offload_prefix(
        self, path: str, before: Position | None, report: OnProgress, extra: Extra = NO_EXTRA
    ) -> PrefixOffloaded:
        """Make ledgers before a position cold and named by the journal; see ManagedOffload.offload_prefix."""

        def work() -> PrefixOffloaded:
            self.publisher.require_ownership()
            attempts, done = Attempts(), PrefixOffloaded("")
            with attempts.step():
                done = self.managed.offload_prefix(path, before, report, extra)
            return replace(done, journal_entries=self._publish_after(attempts, report))

        return ballast.with_half(self.ballast_path, work)

    def pack(self, action: PackAction) -> Packed:
        """Make one object of many small ones; see PackOffload.run."""
        return ballast.with_half(self.ballast_path, lambda: self.packs.run(action))

    def consolidate(self, path: str, *, dry_run: bool, report: OnProgress) -> ConsolidateReport:
        """Make few large cold objects of many small or mostly dead ones below `path`; repeating it does nothing.

        Raises NotFound, Fenced, and the first error after all else was done; the successful part stays.
        """
        return self._consolidate(path, dry_run=dry_run, compress=False, report=report).without_compression()

    def compress(self, path: str, *, dry_run: bool, report: OnProgress) -> CompressReport:
        """Do the same, and compress cold chunks that are plain although the policy of their segment asks for it."""
        return self._consolidate(path, dry_run=dry_run, compress=True, report=report)

    def _consolidate(self, path: str, *, dry_run: bool, compress: bool, report: OnProgress) -> CompressReport:
        if not dry_run:
            self.publisher.require_ownership()
        pages = partial(directories.pages, self.metadata.read, path)
        settings, location_id = self.settings, self.cold.location_id
        run = Consolidation(self.metadata, self.consolidator, location_id, settings, report, compress=compress)
        packs = PackCompression(self.metadata, self.repacker, location_id, settings, report)
        if dry_run:
            planned = run.would_do(pages())
            return packs.would_do(pages(), planned) if compress else planned
        attempts, done = Attempts(), CompressReport()
        with attempts.step():
            done = run.run(pages(), partial(self.publish, report))
        if compress:
            with attempts.step():
                done = packs.run(pages(), self.publish, attempts, done)
        report(doing("looking for packs that are mostly dead"))
        with attempts.step():
            self._repack(attempts, report)
        self._publish_after(attempts, report)
        return done

    def archive_one(self, action: ArchiveAction) -> None:
        """Move one object to another storage class; see ArchiveMove.run. Raises InvalidRequest where that cannot be."""
        with self.metadata.read() as txn:
            require_possible(txn, policies.location(txn, self.cold.location_id), action.storage_class)
        ballast.with_half(self.ballast_path, lambda: self.archiver.run(action))

    def archive(self, path: str, storage_class: str, *, dry_run: bool, report: OnProgress) -> ArchiveReport:
        """Move the cold objects at or below a path to a storage class, now; "" moves them back to that of new ones.

        Repeating it does nothing. Raises NotFound, InvalidRequest where that cannot be, Fenced, and the first error
        after all else was done; the successful part stays.
        """
        with self.metadata.read() as txn:
            require_possible(txn, policies.location(txn, self.cold.location_id), storage_class)
        if not dry_run:
            self.publisher.require_ownership()
        wanted = ArchiveTarget(storage_class, self.metadata.clock.now_ms())
        run = ArchiveCommand(self.metadata, self.archiver, self.cold.location_id, wanted, report)
        pages = directories.pages(self.metadata.read, path)
        if dry_run:
            return run.would_do(pages)
        attempts, done = Attempts(), ArchiveReport()
        with attempts.step():
            done = run.run(pages, partial(self.publish, report))
        self._publish_after(attempts, report)
        return done

    def _repack(self, attempts: Attempts, report: OnProgress) -> None:
        """Repack all packs that are mostly dead, past damaged ones. Raises what concerns all of them."""
        repacked = Meter(report, noun="pack")
        live_bytes: int | None = 0
        while live_bytes is not None:
            try:
                live_bytes = self.repacker.step()
            except DataLoss as exc:
                attempts.note(exc)
                continue
            if live_bytes:
                repacked(live_bytes, "repacking", 1)
            self.publish()

    def _ends(self, part: MovedPart, path: str) -> PartEnds:
        """Return up to where each segment's chunks move, by records of now: those that were appended to have ended."""
        return part.ends(self.metadata.read, partial(self._rows, path))

    def _rows(self, path: str) -> Iterator[Any]:
        """Yield the rows of the segments at or below a path, as messages; not those that are gone or damaged."""
        for page in self._pages(path):
            with self.metadata.read() as txn:
                rows = [message(txn, SEGMENTS, tables.u64(segment_id)) for _, segment_id in page]
            yield from (row for row in rows if row is not None)

    def _moving_bytes(self, ends: PartEnds, path: str) -> int:
        """Return the bytes of the local chunks before these ends."""
        moving = 0
        for page in self._pages(path):
            with self.metadata.read() as txn:
                known = (directories.segment(txn, segment_id) for _, segment_id in page)
                parts = (up_to(ends.of(each), sealed_local_chunks(txn, each)) for each in known if each is not None)
                moving += sum(chunk.length for part in parts for chunk in part)
        return moving

    def evict(
        self, path: str, *, force: bool, dry_run: bool, report: OnProgress, part: MovedPart | None = None
    ) -> EvictReport:
        """Drop the local bytes below `path`, or the `part`, that are safely cold, whatever the deletion lag says.

        Segments under an effective `local-only` priority are kept unless `force`. Raises the first error of a segment
        after all others were done.
        """
        if not dry_run:
            self.publish(report)
            self.publisher.require_ownership()
        ends, attempts = None if part is None else self._ends(part, path), Attempts()
        run = EvictCommand(self.metadata, self.engine.roll, attempts, force=force, ends=ends)
        seen, result = run.meter(path, report), EvictReport()
        with attempts.step():
            for page in directories.pages(self.metadata.read, path):
                local = run.look(page)
                done = run.succeeded(run.would_do(local) if dry_run else self.evict_segments(run.actions(local)))
                for each in local:
                    result = result.plus(each.local_bytes, done.get(each.id, Evicted()), each.why_kept)
                    seen(each.local_bytes, each.name, 1)
                seen(0, page[-1][0] if page else path, len(page) - len(local))
        if not dry_run:
            with attempts.step():
                self.collect(report)
        attempts.end()
        return result

    def evict_segments(self, actions: Iterable[EvictAction]) -> Iterator[tuple[EvictAction, Outcome]]:
        """Drop the local chunks that were cold at each action's time; yield what became of each, in order.

        Many share a commit, after which their files are deleted. An error of one segment is its outcome. Raises Fenced,
        StorageFull, WrongColdTier, and what the storage raises, unless the cold tier was seen to be ours in the last
        PROOF_S: an object is no copy while the owner of its place cannot be confirmed.
        """
        source, waiting = iter(actions), deque[EvictAction]()
        before = Evicted()  # of the first that waits, whose chunks may take several commits
        files, file_bytes = 0, 0
        while True:
            waiting.extend(islice(source, evict.MOST_SEGMENTS - len(waiting)))
            if not waiting or files >= evict.MOST_SEGMENTS or file_bytes >= evict.BATCH_BYTES:
                ballast.with_room(self.ballast_path, partial(self.collector.collect, tiers=(Tier.LOCAL,)))
                files, file_bytes = 0, 0
            if not waiting:
                return
            self.cold.require_ours()
            evict_some = partial(evict.evict_some, self.metadata, counts_archive=self._is_archive_proved())
            outcomes = ballast.with_room(self.ballast_path, partial(evict_some, tuple(waiting)))
            files += sum(outcome.chunks for _, outcome in outcomes if isinstance(outcome, Evicted))
            file_bytes += sum(outcome.bytes for _, outcome in outcomes if isinstance(outcome, Evicted))
            for action, outcome in outcomes:
                if isinstance(outcome, Evicted) and outcome.more:
                    before = before.plus(outcome)
                    break
                waiting.popleft()
                yield action, before.plus(outcome) if isinstance(outcome, Evicted) else outcome
                before = Evicted()

    def _is_archive_proved(self) -> bool:
        """Return whether the archive place is proved; True while nothing is there."""
        with self.metadata.read() as txn:
            is_used = txn.sums is None or txn.sums.placed_objects > 0
        archive = self.archive_tier() if is_used else None
        return archive is None or archive.why_not() is None

    def make_room(self, first: str) -> int:
        """Evict cold bytes whatever their lag until appends have room: of the trash first, then of segment `first`.

        Returns the number of bytes. Raises what `evict` raises, unless there is room without those that failed.
        """
        self.publish()
        self.publisher.require_ownership()
        engine, freed, attempts = self.engine, 0, Attempts()
        run = EvictCommand(self.metadata, engine.roll, attempts)
        order = (segment for page in self._room_order(first) for segment in run.look(page))
        while missing := missing_bytes(engine.files.disk_bytes(), max(1, engine.free_space_floor_bytes)):
            wanted = list(of_bytes(order, missing))
            if not wanted:
                attempts.end()
                break
            done = run.succeeded(self.evict_segments(run.actions(wanted)))
            freed += sum(dropped.bytes for dropped in done.values())
        return freed

    def _room_order(self, first: str) -> Iterator[list[directories.Named]]:
        """Yield segments in the order in which they make room: the trash, the oldest removal first, `first`, others."""
        begin = self.metadata.read
        with begin() as txn:
            in_trash = sorted(trash.removed(txn), key=lambda each: each.removal.removed_ms)
            wanted = directories.find(txn, first)
        for entry in [*(each.entry for each in in_trash), *([wanted] if wanted else [])]:
            yield from directories.pages_below(begin, entry, "")
        yield from directories.pages(begin, "")

    def publish(self, report: OnProgress = unseen) -> int:
        """Publish what is queued, with a checkpoint when one is due; return the number of entries written."""
        return ballast.with_half(self.ballast_path, lambda: self._publish(report))

    def _publish(self, report: OnProgress) -> int:
        with self._publishing:
            entries = self.publisher.publish(report=report)
            self.checkpointer.checkpoint_if_due(report)
            return entries

    def load_segment(self, wanted: str, *, accept_loss: bool, report: OnProgress) -> SegmentRestored:
        """Bring a segment back from its dump in the bucket; see SegmentRestore.restore."""
        source = DumpSource(self.metadata, self.cold.storage, self.collector.storage_of)
        with self.collector.deleting:
            restored = SegmentRestore(source).restore(wanted, accept_loss=accept_loss, report=report)
        with self.metadata.read() as txn:
            segment_id = directories.segment_by_name(txn, restored.segment).id
        attempts = Attempts()
        with attempts.step():
            unknown = EntryRows(self.metadata, self.cold.storage, self.metadata.write).restore([segment_id])
            restored = replace(restored, warnings=unknown)
        with attempts.step():
            self.publish()
        attempts.end()
        return restored

    def switch(self, place: LocationRecord, report: OnProgress) -> Switched:
        """Copy what another place of the cold tier still lacks, and record it as the store's; see PlaceSwitch.run.

        Nothing is published meanwhile, and the caller uploads nothing.
        """
        with self._publishing:
            return self._place_switch().run(place, report)

    def _place_switch(self) -> PlaceSwitch:
        return PlaceSwitch(self.metadata, self.cold, self.publisher, self.connect)

    def orphans(self, *, grace_s: int, report: OnProgress = unseen) -> list[Orphan]:
        """Return files and objects older than the grace period that no record names. Raises Fenced in a replica.

        A replica cannot tell: they may be in the records of its owner.
        """
        with self.metadata.read() as txn:
            if txn.store.replica:
                store_ownership.require_owner(txn.store)
        sweep = self._archive_sweep()
        orphans = self._orphan_finder().find(grace_ms=grace_s * _MS_PER_S, report=report)
        return orphans if sweep is None else [*orphans, *sweep.orphans(grace_ms=grace_s * _MS_PER_S, report=report)]

    def dead_uploads(self, *, grace_s: int, report: OnProgress = unseen) -> list[DeadUpload]:
        """Return uploads older than the grace period that will not be finished."""
        report(doing("looking for dead uploads"))
        sweep, dead = self._archive_sweep(), self._dead_uploads().find(grace_ms=grace_s * _MS_PER_S)
        return dead if sweep is None else [*dead, *sweep.dead_uploads(grace_ms=grace_s * _MS_PER_S)]

    def collect_all(self, *, grace_s: int, report: OnProgress = unseen) -> Collected:
        """Delete the garbage that is due or failed before, and orphans; abort dead uploads.

        Raises ClockDisagrees while the clock is not trusted: by it, what is in use is old enough to be dead.
        """
        self.clocks.require()
        self.publish(report)
        self.collector.retry_failed()
        unlinked = self._orphan_finder().discard(self.orphans(grace_s=grace_s, report=report), report)
        uploads, sweep = self._dead_uploads(), self._archive_sweep()
        aborted = uploads.abort(uploads.find(grace_ms=grace_s * _MS_PER_S))
        if sweep is not None:
            aborted = aborted.plus(sweep.abort(grace_ms=grace_s * _MS_PER_S)).plus(sweep.failure())
        return self.collect(report).plus(unlinked).plus(aborted).plus(self._delete_superseded())

    def superseded(self) -> list[StoredObject]:
        """Return objects of the journal that are superseded and could not be deleted."""
        return self.checkpointer.kept()

    def _delete_superseded(self) -> Collected:
        """Try again to delete what could not be deleted, as the key may have got the right."""
        kept = self.superseded()
        refused = self.checkpointer.delete_superseded() if kept else None
        return Collected() if refused is None else Collected.failure(kept[0].name, refused)

    def _dead_uploads(self) -> DeadUploads:
        cold = self.cold
        return DeadUploads(self.metadata, cold.storage, cold.location_id)

    def _archive_sweep(self) -> ArchiveSweep | None:
        archive = self.archive_tier()
        return None if archive is None else ArchiveSweep(self.metadata, self.engine.files, archive)

    def _orphan_finder(self) -> OrphanFinder:
        return OrphanFinder(self.metadata, self.engine.files, self.cold.storage, self.cold.location_id)

    def _pages(self, path: str) -> Iterator[list[directories.Named]]:
        """Yield the segments below a path; none when it is gone by now."""
        with suppress(NotFound):
            yield from directories.pages(self.metadata.read, path)
