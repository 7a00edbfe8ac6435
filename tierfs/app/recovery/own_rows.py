"""The metadata of a bucket's next owner, made of the rows of a replica that has applied its journal.

A replica applies each slot by the replay that a recovery uses. So of the rows only those differ that it changed for its
readers, segments that end where their cold bytes do, and the garbage, which it does not take: that is read from the
newest checkpoint that it has applied, and from the slots after it. Nothing else of them is replayed, which takes most
of the time of a recovery.

The rows are a copy: a takeover that fails or is killed leaves the replica as it was.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from tierfs.app.recovery.from_journal import Rebuilt
from tierfs.app.recovery.replica_rows import show_as_owner
from tierfs.base.bytes.parallel import Pool
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.errors import DataLoss
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.journal import reader, replay
from tierfs.engine.journal.names import slot_name
from tierfs.engine.journal.reader import JournalListing
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import LOCATIONS

log = logging.getLogger(__name__)


def owner_rows(
    replica: MetadataStore, path: Path, storage: ChunkStorage, place: Place, listing: JournalListing, advance: Meter
) -> Rebuilt | None:
    """Return metadata in `path`, which must not exist, as of the replica's last slot; None where they have to be
    rebuilt: slots after it may be missing or void, or what has the garbage is gone or damaged.

    The caller closes the metadata. Raises NotFound for an object that is deleted meanwhile, and storage errors.
    """
    with replica.read() as txn:
        applied = txn.store.journal.next_slot - 1
    newest = max((slot for slot in listing.checkpoints if slot <= applied), default=0)
    items = [item for item in listing.behind(newest) if item.name <= slot_name(applied)]
    if reader.must_start_over(listing, applied) or len(items) < applied - newest or (listing.epoch and not newest):
        return None
    metadata = replica.copied(path)
    try:
        manifest = _prepare(metadata, storage, place, listing, newest)
        _take_garbage(metadata, storage, listing, manifest, items, advance)
        show_as_owner(metadata)
    except DataLoss as exc:
        log.info("the replica's rows are not used, and all are rebuilt: %s", exc)
        metadata.close()
        shutil.rmtree(path)
        return None
    except BaseException:
        metadata.close()
        raise
    return Rebuilt(metadata, newest, 0, (), manifest.last_sequence)


def _prepare(
    metadata: MetadataStore, storage: ChunkStorage, place: Place, listing: JournalListing, slot: int
) -> pb.CheckpointManifest:
    """Set what a rebuild from the checkpoint at a slot begins with; return its manifest, an empty one for slot 0."""
    manifest = reader.read_manifest(storage, listing.checkpoints[slot]) if slot else pb.CheckpointManifest()
    with metadata.write_replayed() as txn:
        txn.put(LOCATIONS, tables.u32(place.record.id), place.record)
        journal = replace(txn.store.journal, checkpoint_slot=slot)
        txn.update_store(replica=False, cold_location_id=place.record.id, journal=journal)
        replay.see_time(txn, manifest.written_ms)
    return manifest


def _take_garbage(
    metadata: MetadataStore,
    storage: ChunkStorage,
    listing: JournalListing,
    manifest: pb.CheckpointManifest,
    items: list[StoredObject],
    advance: Meter,
) -> None:
    """Apply what a checkpoint and the entries after it say of garbage."""
    parts = reader.listed_parts(storage, listing, manifest)
    with Pool(reader.READ_AHEAD, "tierfs-recover") as pool:
        messages = pool.in_order(partial(reader.read_part, storage), parts, ahead=reader.READ_AHEAD)
        for part, message in zip(parts, messages, strict=True):
            _apply(metadata, [message.changes, *(entry.changes for entry in message.entries)], part.names[0])
            advance(part.length_bytes, part.names[0], 1)
    epoch = manifest.store_epoch
    with closing(reader.read_entries(storage, items)) as entries:
        for item, entry in zip(items, entries, strict=True):
            advance(item.length_bytes, item.name, 1)
            if entry.store_epoch < epoch:
                continue  # void
            epoch = entry.store_epoch
            _apply(metadata, [entry.changes], item.name, replay.written_ms(entry))


def _apply(metadata: MetadataStore, changes: list[Iterable[pb.Change]], name: str, written_ms: int = 0) -> None:
    garbage = list(_garbage_of(changes))
    if garbage or written_ms:
        with metadata.write() as txn:
            replay.apply_garbage(txn, garbage, name)
            replay.see_time(txn, written_ms)


def _garbage_of(changes: list[Iterable[pb.Change]]) -> Iterator[pb.GarbageRecord]:
    for some in changes:
        for change in some:
            if change.HasField("garbage"):
                yield change.garbage
