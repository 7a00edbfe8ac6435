"""Runs --repair: passes each finding to the function that mends it, each mend its own commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.types import LocationId, ObjectId, SegmentId, Tier
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.tiering.ledgers import copies
from tierfs.tiering.ledgers.entry_rows import EntryRows
from tierfs.upkeep.check.findings import RECOVER, Finding, FindingPlace, Kind, Mend
from tierfs.upkeep.check.repair import rows
from tierfs.upkeep.check.repair.checksums import mend_checksums
from tierfs.upkeep.check.repair.copies import CopyMender, MayLose, Mended
from tierfs.upkeep.check.repair.renew import Renewer, RenewTools
from tierfs.upkeep.check.repair.unrecorded import Unrecorded
from tierfs.upkeep.check.scrub.scrub import Scrubber
from tierfs.upkeep.check.scrub.tables import ObjectTables

# Mends that read copies.
_OF_BYTES = (Mend.REPLACE_CHUNK, Mend.CLEAR_SUSPECT, Mend.RESTORE)


@dataclass(frozen=True, slots=True)
class MendTools:
    """Resources of a mender; made by the composition root."""

    metadata: MetadataStore
    files: ChunkFiles
    storage_of: Callable[[LocationId], ChunkStorage]
    cold: Callable[[], ChunkStorage | None]
    """The cold tier once it has proved to be ours; raises otherwise."""
    checkpoint: Callable[[], None]
    renewing: Callable[[], RenewTools]
    """Returns the executors that move bytes of the cold tier; called once it has proved to be ours."""
    grace_ms: int
    may_lose: MayLose


class Mender:
    """Mends findings. The caller holds the store."""

    def __init__(self, tools: MendTools) -> None:
        self._tools = tools
        self._metadata = tools.metadata
        self._scrubber = Scrubber(tools.metadata, tools.files, tools.storage_of)
        self._copies = CopyMender(tools.metadata, tools.files, self._scrubber, tools.grace_ms, tools.may_lose)
        self._unrecorded = Unrecorded(tools.metadata, tools.files)
        objects = ObjectTables(tools.metadata, self._scrubber)
        self._renewer = Renewer(tools.metadata, objects, tools.renewing, tools.checkpoint)
        self._wants_checkpoint = self._has_checkpointed = False
        self._replaced: set[FindingPlace] = set()
        """Chunks mended by this run."""
        self._row_mends: dict[Mend, Callable[[WriteTransaction, Finding], str | None]] = {
            Mend.RAISE_COUNTERS: lambda txn, _: rows.raise_counters(txn),
            Mend.DROP_ROW: lambda txn, finding: rows.drop_row(txn, *_row(finding)),
            Mend.ADD_DIRENT: lambda txn, finding: rows.add_dirent(txn, *_row(finding)),
            Mend.RELINK_CHAIN: lambda txn, finding: rows.relink_chain(txn, _place(finding)),
            Mend.CLEAR_ACTIVE: lambda txn, finding: rows.clear_active(txn, _place(finding)),
            Mend.OFFLOAD_AGAIN: lambda txn, finding: rows.forget_offload(txn, _place(finding)),
            Mend.DROP_CHUNKS: lambda txn, finding: rows.drop_chunks(txn, _place(finding)),
        }

    def run(self, findings: list[Finding]) -> Iterator[tuple[Finding, Mended]]:
        """Yield each finding with the result of its mend. Raises what the checkpoint at the end raises."""
        recount = {finding.object_id for finding in findings if finding.mend is Mend.RECOUNT_REFERENCES}
        unused = {finding.object_id for finding in findings if finding.mend is Mend.COLLECT_OBJECT}
        results = self._count(recount, unused)
        self._has_checkpointed = False
        self._replaced.clear()
        self._unrecorded.expect(_place(finding).segment_id for finding in findings if finding.kind is Kind.HOLE)
        for finding in findings:
            if finding.object_id in results and finding.mend in (Mend.RECOUNT_REFERENCES, Mend.COLLECT_OBJECT):
                yield finding, Mended(results[finding.object_id])
            elif finding.mend is not None:
                yield finding, self._mend(finding)
            else:
                yield (
                    finding,
                    Mended(f"only another copy can repair it: {RECOVER}" if finding.remedy == RECOVER else None),
                )
        self._scrubber.reader.etags.adopt()
        if self._wants_checkpoint:
            self._wants_checkpoint = False
            self._tools.checkpoint()

    def _count(self, recount: set[int], unused: set[int]) -> dict[int, str | None]:
        """Recount references and collect unused objects: the mends that pass over all chunks, one commit per kind."""
        results: dict[int, str | None] = {}
        for ids, mend in ((recount, self._recount), (unused, self._collect)):
            try:
                results.update(mend(ids) if ids else {})
            except TierfsError as exc:
                results.update(dict.fromkeys(ids, _with_remedy(exc)))
        return results

    def _recount(self, object_ids: set[int]) -> dict[int, str | None]:
        with self._metadata.write() as txn:
            rows.recount(txn, object_ids)
        return dict.fromkeys(object_ids)

    def _collect(self, object_ids: set[int]) -> dict[int, str | None]:
        self._tools.cold()
        proved = {object_id for object_id in object_ids if self._is_elsewhere(object_id)}
        with self._metadata.write() as txn:
            results = rows.collect_unused(txn, object_ids, proved)
        self._wants_checkpoint = True  # so that the journal does not name them either
        return results

    def _is_elsewhere(self, object_id: int) -> bool:
        """Return whether other copies of all bytes that an object was made for prove right now."""
        with self._metadata.read() as txn:
            origin = rows.made_for(txn, object_id)
        if origin is None:
            return False
        segment_id, made_for = origin
        return self._scrubber.has_all(segment_id, made_for, *Tier)

    def _mend(self, finding: Finding) -> Mended:
        try:
            if finding.mend in _OF_BYTES:
                return self._replace(finding)
            return Mended(self._apply(finding))
        except TierfsError as exc:
            return Mended(_with_remedy(exc))

    def _checkpoint_once(self) -> None:
        """Write one checkpoint, which mends every defect of the journal. Raises what keeps it from being written."""
        if not self._has_checkpointed:
            self._tools.cold()
            self._tools.checkpoint()
            self._has_checkpointed = True

    def _apply(self, finding: Finding) -> str | None:
        assert finding.mend is not None
        row_mend = self._row_mends.get(finding.mend)
        if row_mend is not None:
            with self._metadata.write() as txn:
                return row_mend(txn, finding)
        if finding.mend is Mend.RECOUNT_SUMS:
            self._metadata.count_sums(anew=True)
            return None
        if finding.mend is Mend.WRITE_CHECKPOINT:
            self._checkpoint_once()
            return None
        if finding.mend is Mend.SET_MODE:
            return self._set_mode(finding)
        if finding.mend is Mend.WRITE_AGAIN:
            return self._write_again(finding)
        if finding.mend is Mend.RESTORE_ENTRIES:
            return self._restore_entries(finding)
        if finding.mend is Mend.RENEW_OBJECT:
            self._tools.cold()
            self._wants_checkpoint = True  # so that the journal names the new object, and the old one may go
            return self._renewer.renew(finding.object_id)
        assert finding.mend is Mend.REBUILD_CHECKSUMS, finding.mend
        return mend_checksums(self._metadata, self._scrubber, ObjectId(finding.object_id))

    def _replace(self, finding: Finding) -> Mended:
        """Mend a chunk with a bad copy, or a hole. The bucket counts only if it is ours."""
        place = _place(finding)
        storage = self._tools.cold()
        if finding.kind is Kind.HOLE:
            assert finding.range is not None
            candidate = self._unrecorded.copy_of(SegmentId(place.segment_id), finding.range, storage)
            if candidate:
                return Mended(candidate)
            return self._copies.lose(SegmentId(place.segment_id), finding.subject, finding.range)
        if finding.kind in (Kind.CHUNK_OBJECT, Kind.CHUNK_RANGE):
            return Mended(self._unlink(finding))
        if finding.kind is Kind.BYTES and place in self._replaced:
            return Mended()  # the whole chunk was mended by the finding of another piece
        done = self._copies.mend(place, finding.subject)
        if done.left is None:
            self._replaced.add(place)
        return done

    def _unlink(self, finding: Finding) -> str | None:
        """Remove a chunk that does not match its object, if the other tier has all of its bytes."""
        place = _place(finding)
        assert place.tier is not None
        assert finding.range is not None
        other = Tier.COLD if place.tier is Tier.LOCAL else Tier.LOCAL
        if not self._scrubber.has_all(SegmentId(place.segment_id), finding.range, other):
            return f"the {other.name.lower()} tier has no valid copy: tierfs recover, tierfs restore"
        with self._metadata.write() as txn:
            return rows.unlink(txn, place)

    def _write_again(self, finding: Finding) -> str | None:
        """Write an object that is missing beside a ledger's data object."""
        storage = self._tools.cold()
        with self._metadata.read() as txn:
            record = txn.get(OBJECTS, tables.u64(finding.object_id))
        if record is not None and storage is not None:
            copies.write_missing(self._metadata, storage, record)
        return None

    def _restore_entries(self, finding: Finding) -> str | None:
        storage = self._tools.cold()
        if storage is None:
            return RECOVER
        rows = EntryRows(self._metadata, storage, self._metadata.write)
        return next(iter(rows.restore([SegmentId(_place(finding).segment_id)])), None)

    def _set_mode(self, finding: Finding) -> str | None:
        with self._metadata.read() as txn:
            record = txn.get(OBJECTS, tables.u64(finding.object_id))
        if record is not None:
            self._tools.files.seal(record.name)
        return None


def _with_remedy(error: TierfsError) -> str:
    return f"{error}; {error.remedy}" if error.remedy else str(error)


def _row(finding: Finding) -> tuple[bytes, bytes]:
    assert finding.row is not None
    return finding.row


def _place(finding: Finding) -> FindingPlace:
    assert finding.place is not None
    return finding.place
