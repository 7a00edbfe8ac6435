"""--repair: each finding to the function that mends it, each mend its own commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tierfs.background import ledger_beside
from tierfs.background.entry_rows import EntryRows
from tierfs.chunkstore.chunkfiles import ChunkFiles
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import TierfsError
from tierfs.fsck import mend_rows
from tierfs.fsck.findings import RECOVER, Finding, Kind, Mend, Place
from tierfs.fsck.mend_bytes import CopyMender, MayLose, Mended
from tierfs.fsck.mend_checksums import ChecksumMender
from tierfs.fsck.scrub import Scrubber
from tierfs.fsck.unrecorded import Unrecorded
from tierfs.metadata import keys
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import OBJECTS
from tierfs.metadata.transaction import WriteTransaction
from tierfs.types import LocationId, ObjectId, SegmentId, Tier


@dataclass(frozen=True, slots=True)
class MendTools:
    """What mending uses; made by the composition root."""

    metadata: MetadataStore
    files: ChunkFiles
    storage_of: Callable[[LocationId], ChunkStorage]
    cold: Callable[[], ChunkStorage | None]
    """The cold tier once it has proved to be ours; raises otherwise."""
    checkpoint: Callable[[], None]
    grace_ms: int
    may_lose: MayLose


_OF_BYTES = (Mend.REPLACE_CHUNK, Mend.CLEAR_SUSPECT, Mend.RESTORE)
"""Mends that read copies."""


class Mender:
    """Mends findings. Whoever calls holds the store."""

    def __init__(self, tools: MendTools) -> None:
        self._tools = tools
        self._metadata = tools.metadata
        self._scrubber = Scrubber(tools.metadata, tools.files, tools.storage_of)
        self._copies = CopyMender(tools.metadata, tools.files, self._scrubber, tools.grace_ms, tools.may_lose)
        self._checksums = ChecksumMender(tools.metadata, tools.files, tools.storage_of)
        self._unrecorded = Unrecorded(tools.metadata, tools.files)
        self._wants_checkpoint = self._has_checkpointed = False
        self._replaced: set[Place] = set()
        """Chunks that this run has mended."""
        self._row_mends: dict[Mend, Callable[[WriteTransaction, Finding], str | None]] = {
            Mend.RAISE_COUNTERS: lambda txn, _: mend_rows.raise_counters(txn),
            Mend.DROP_ROW: lambda txn, found: mend_rows.drop_row(txn, *_row(found)),
            Mend.ADD_DIRENT: lambda txn, found: mend_rows.add_dirent(txn, *_row(found)),
            Mend.RELINK_CHAIN: lambda txn, found: mend_rows.relink_chain(txn, _place(found)),
            Mend.CLEAR_ACTIVE: lambda txn, found: mend_rows.clear_active(txn, _place(found)),
            Mend.DROP_CHUNKS: lambda txn, found: mend_rows.drop_chunks(txn, _place(found)),
        }

    def run(self, findings: list[Finding]) -> Iterator[tuple[Finding, Mended]]:
        """Each finding with what came of mending it. Raises what the checkpoint at the end does."""
        recount = {found.object_id for found in findings if found.mend is Mend.RECOUNT_REFERENCES}
        unused = {found.object_id for found in findings if found.mend is Mend.COLLECT_OBJECT}
        said = self._count(recount, unused)
        self._has_checkpointed = False
        self._replaced.clear()
        self._unrecorded.expect(_place(found).segment_id for found in findings if found.kind is Kind.HOLE)
        for found in findings:
            if found.object_id in said and found.mend in (Mend.RECOUNT_REFERENCES, Mend.COLLECT_OBJECT):
                yield found, Mended(said[found.object_id])
            elif found.mend is not None:
                yield found, self._mend(found)
            else:
                yield found, Mended(f"only by another copy: {RECOVER}" if found.remedy == RECOVER else None)
        self._scrubber.etags.adopt()
        if self._wants_checkpoint:
            self._wants_checkpoint = False
            self._tools.checkpoint()

    def _count(self, recount: set[int], unused: set[int]) -> dict[int, str | None]:
        """References and unused objects: the only mends that go through all chunks, so each kind is one commit."""
        said: dict[int, str | None] = {}
        for ids, mend in ((recount, self._recount), (unused, self._collect)):
            try:
                said.update(mend(ids) if ids else {})
            except TierfsError as exc:
                said.update(dict.fromkeys(ids, _with_remedy(exc)))
        return said

    def _recount(self, object_ids: set[int]) -> dict[int, str | None]:
        with self._metadata.write() as txn:
            mend_rows.recount(txn, object_ids)
        return dict.fromkeys(object_ids)

    def _collect(self, object_ids: set[int]) -> dict[int, str | None]:
        self._tools.cold()
        proved = {object_id for object_id in object_ids if self._is_elsewhere(object_id)}
        with self._metadata.write() as txn:
            said = mend_rows.collect_unused(txn, object_ids, proved)
        self._wants_checkpoint = True  # so that the journal does not name them either
        return said

    def _is_elsewhere(self, object_id: int) -> bool:
        """Whether other copies of all bytes that an object was made for prove right now."""
        with self._metadata.read() as txn:
            found = mend_rows.made_for(txn, object_id)
        if found is None:
            return False
        segment_id, span = found
        return self._scrubber.has_all(segment_id, span, *Tier)

    def _mend(self, found: Finding) -> Mended:
        try:
            if found.mend in _OF_BYTES:
                return self._replace(found)
            return Mended(self._apply(found))
        except TierfsError as exc:
            return Mended(_with_remedy(exc))

    def _checkpoint_once(self) -> None:
        """One checkpoint mends all that is wrong with the journal. Raises what keeps it from being written."""
        if not self._has_checkpointed:
            self._tools.cold()
            self._tools.checkpoint()
            self._has_checkpointed = True

    def _apply(self, found: Finding) -> str | None:
        assert found.mend is not None
        row_mend = self._row_mends.get(found.mend)
        if row_mend is not None:
            with self._metadata.write() as txn:
                return row_mend(txn, found)
        if found.mend is Mend.RECOUNT_SUMS:
            self._metadata.count_sums(anew=True)
            return None
        if found.mend is Mend.WRITE_CHECKPOINT:
            self._checkpoint_once()
            return None
        if found.mend is Mend.SET_MODE:
            return self._set_mode(found)
        if found.mend is Mend.WRITE_AGAIN:
            return self._write_again(found)
        if found.mend is Mend.RESTORE_ENTRIES:
            return self._restore_entries(found)
        assert found.mend is Mend.REBUILD_CHECKSUMS, found.mend
        return self._checksums.mend(ObjectId(found.object_id))

    def _replace(self, found: Finding) -> Mended:
        """A chunk with a bad copy, or a hole. What is in the bucket counts only if the bucket is ours."""
        place = _place(found)
        storage = self._tools.cold()
        if found.kind is Kind.HOLE:
            assert found.range is not None
            left = self._unrecorded.copy_of(SegmentId(place.segment_id), found.range, storage)
            if left:
                return Mended(left)
            return self._copies.lose(SegmentId(place.segment_id), found.subject, found.range)
        if found.kind in (Kind.CHUNK_OBJECT, Kind.CHUNK_RANGE):
            return Mended(self._unlink(found))
        if found.kind is Kind.BYTES and place in self._replaced:
            return Mended()  # the whole chunk was mended by the finding of another piece
        done = self._copies.mend(place, found.subject)
        if done.left is None:
            self._replaced.add(place)
        return done

    def _unlink(self, found: Finding) -> str | None:
        """A chunk whose object is not what it says: it goes if the other tier has all of its bytes."""
        place = _place(found)
        assert place.tier is not None
        assert found.range is not None
        other = Tier.COLD if place.tier is Tier.LOCAL else Tier.LOCAL
        if not self._scrubber.has_all(SegmentId(place.segment_id), found.range, other):
            return f"the {other.name.lower()} tier has no good copy: tierfs recover, tierfs load"
        with self._metadata.write() as txn:
            return mend_rows.unlink(txn, place)

    def _write_again(self, found: Finding) -> str | None:
        """An object beside a ledger's data object."""
        storage = self._tools.cold()
        with self._metadata.read() as txn:
            holder = txn.get(OBJECTS, keys.u64(found.object_id))
        if holder is not None and storage is not None:
            ledger_beside.write_missing(self._metadata, storage, holder)
        return None

    def _restore_entries(self, found: Finding) -> str | None:
        storage = self._tools.cold()
        if storage is None:
            return RECOVER
        rows = EntryRows(self._metadata, storage, self._metadata.write)
        return next(iter(rows.restore([SegmentId(_place(found).segment_id)])), None)

    def _set_mode(self, found: Finding) -> str | None:
        with self._metadata.read() as txn:
            holder = txn.get(OBJECTS, keys.u64(found.object_id))
        if holder is not None:
            self._tools.files.seal(holder.name)
        return None


def _with_remedy(error: TierfsError) -> str:
    return f"{error}; {error.remedy}" if error.remedy else str(error)


def _row(found: Finding) -> tuple[bytes, bytes]:
    assert found.row is not None
    return found.row


def _place(found: Finding) -> Place:
    assert found.place is not None
    return found.place
