"""Make a replica the owner of its bucket, while mounts and commands read it.

Crash order: metadata made in a directory of their own, of the replica's rows or from the journal -> slot won, which
fences the previous owner -> losses settled and published -> the rows that differ copied over the replica's, which is
the owner from that one commit on. A takeover that is killed before leaves a replica: it follows the bucket, whose owner
is nobody by then, and takes it over once more. The attempt's id, noted by the standby before and by the bucket with the
epoch, shows it that.

Readers keep their files: a replica has shown no byte that was lost, so segments keep their inodes, and none shrinks.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from contextlib import closing

from tierfs.app.recovery.loss import SegmentLoss
from tierfs.app.recovery.recover import owned, reached, require_not_left, settle
from tierfs.app.recovery.replica_rows import become_owner, keep_entries
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import OnProgress, doing, unseen
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal import cold_identity, left, reader, store_mark
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata.store import MetadataStore
from tierfs.tiering.ledgers.entry_rows import EntryRows

# Directory beside the replica's metadata, of which a killed takeover leaves remains.
_STAGING = "metadata.taken"


@dataclass(frozen=True, slots=True)
class Promoted:
    """Result of a takeover, with what the previous owner still had."""

    store_epoch: int
    segments: int
    incomplete: Collection[SegmentLoss]
    """Segments of which the previous owner has bytes that the bucket lacks, or may have."""
    warnings: tuple[str, ...]


def promote(metadata: MetadataStore, place: Place, attempt: str, report: OnProgress = unseen) -> Promoted:
    """Make the replica with these metadata the owner of the bucket in `place`.

    `attempt`: an id that the bucket keeps with the epoch, by which one that is killed half-way is known.

    Raises Fenced when another one was faster, WrongColdTier for a place that a move left, PermissionDenied where the
    key may not write, and storage errors; then the replica goes on following.
    """
    with reached(place) as (place, storage):
        return promote_with(metadata, place, storage, attempt, report)


def promote_with(
    metadata: MetadataStore, place: Place, storage: ChunkStorage, attempt: str, report: OnProgress = unseen
) -> Promoted:
    """Do the same with the storage of a place that was probed."""
    path = metadata.path.with_name(_STAGING)
    shutil.rmtree(path, ignore_errors=True)
    try:
        listing = reader.list_journal(storage)
        if listing.is_left:
            raise left.error(storage, listing.noted, cold_identity.FOLLOW)
        require_not_left(storage, listing)
        there = store_mark.read_store_id(storage)
        if there not in (None, metadata.store_id):
            raise cold_identity.wrong_cold_tier(f"the mark in {storage!r} is of the store {there}")
        rebuilt = owned(
            path, storage, place, metadata.clock, report, listing, standby_attempt=attempt, replica=metadata
        )
        with closing(rebuilt.metadata) as fresh:
            publisher = Publisher(fresh, storage)
            losses = settle(fresh, publisher, rebuilt.checkpoint_sequence, report, keeps_inodes=True)
            keep_entries(metadata, fresh)
            unknown = EntryRows(fresh, storage, fresh.write).restore_all(report)
            report(doing("copying the rows that differ"))
            become_owner(metadata, fresh)
    finally:
        shutil.rmtree(path, ignore_errors=True)
    return Promoted(rebuilt.store_epoch, losses.segments, losses.incomplete, (*rebuilt.warnings, *unknown))
