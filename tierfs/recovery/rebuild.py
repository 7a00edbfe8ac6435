"""Rebuilding metadata from the journal: the newest sound checkpoint, then every slot behind it.

Each part and each entry is one transaction, so that memory is bounded. A checkpoint that turns out to be
damaged half-way is thrown away with all that was made of it, and the one before it is tried.
"""

from __future__ import annotations

import logging
import re
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tierfs.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.clock import Clock
from tierfs.errors import DataLoss, NotFound
from tierfs.metadata import keys, replay
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.records import LocationRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import LOCATIONS
from tierfs.metadata.transaction import WriteTransaction
from tierfs.parallel import Meter, Pool
from tierfs.recovery import bucket
from tierfs.recovery.bucket import JournalListing

log = logging.getLogger(__name__)

FROM_OBJECTS = "rebuild the bytes, without what was done to them, from the objects alone: tierfs recover --from-objects"

_STORE_ID = re.compile(r"[0-9a-f]{32}")


class _Unusable(DataLoss):
    """A checkpoint that is no start."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Metadata that stand behind the journal's last slot."""

    metadata: MetadataStore
    checkpoint_slot: int
    """0: no checkpoint was used."""
    entries: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rebuilder:
    """One rebuilding of metadata in `path`, which must not exist."""

    path: Path
    storage: ChunkStorage
    location: LocationRecord
    clock: Clock
    advance: Meter

    def rebuild(self, listing: JournalListing) -> Rebuilt:
        """Replay the journal. The caller closes the metadata.

        Raises NotFound for an empty journal, DataLoss when slots are missing or damaged, and what the storage
        raises.
        """
        if not listing.last_slot:
            raise NotFound(
                f"{self.location.url} holds no journal",
                remedy=f"check the prefix; if the journal is lost, {FROM_OBJECTS}",
            )
        warnings: list[str] = []
        for slot in sorted(listing.checkpoints, reverse=True):
            try:
                return self._rebuild_from(listing, slot, tuple(warnings))
            except _Unusable as exc:
                warnings.append(f"checkpoint {slot} cannot be used, so the one before it is: {exc}")
                log.info("%s", warnings[-1])
        try:
            return self._rebuild_from(listing, 0, tuple(warnings))
        except _Unusable as exc:
            raise DataLoss("; ".join([str(exc), *warnings]), remedy=exc.remedy or FROM_OBJECTS) from exc

    def _rebuild_from(self, listing: JournalListing, slot: int, warnings: tuple[str, ...]) -> Rebuilt:
        """Raises _Unusable when it is the checkpoint that is damaged, DataLoss when it is an entry."""
        try:
            manifest = self._manifest(listing, slot)
            epoch, newest = manifest.store_epoch if manifest else 0, max(listing.checkpoints, default=0)
            items = bucket.entries_behind(self.storage, listing, slot, epoch, at_least=newest)
            metadata = self._from_checkpoint(listing, manifest)
        except DataLoss as exc:
            raise _Unusable(str(exc), remedy=exc.remedy) from exc
        try:
            self._replay(metadata, items)
        except DataLoss as exc:
            metadata.close()
            raise DataLoss(str(exc), remedy=exc.remedy or FROM_OBJECTS) from exc
        except BaseException:
            metadata.close()
            raise
        return Rebuilt(metadata, slot, len(items), warnings)

    def _manifest(self, listing: JournalListing, slot: int) -> pb.CheckpointManifest | None:
        """The checkpoint's manifest; None for slot 0, before the first entry. Raises DataLoss."""
        if slot:
            return bucket.read_manifest(self.storage, listing.checkpoints[slot])
        if listing.epoch:
            raise DataLoss("the journal begins with a recovery from objects that has not written its checkpoint")
        return None

    def _from_checkpoint(self, listing: JournalListing, manifest: pb.CheckpointManifest | None) -> MetadataStore:
        """Metadata as of a checkpoint, or an empty store. Raises DataLoss, with nothing left behind."""
        store_id = manifest.store_id if manifest is not None else self._store_id(listing)
        metadata = MetadataStore.create(self.path, self.clock, _checked_id(store_id))
        try:
            with metadata.write() as txn:
                self._begin(txn)
            if manifest is not None:
                self._apply_parts(metadata, listing, manifest)
        except BaseException:
            metadata.close()
            shutil.rmtree(self.path)
            raise
        return metadata

    def _store_id(self, listing: JournalListing) -> str:
        return bucket.read_entry(self.storage, listing.slots[1]).store_id

    def _begin(self, txn: WriteTransaction) -> None:
        """The location that was named here; a journal does not say where this host connects."""
        txn.put(LOCATIONS, keys.u32(self.location.id), self.location)
        txn.update_store(cold_location_id=self.location.id, store_epoch=0)

    def _apply_parts(self, metadata: MetadataStore, listing: JournalListing, manifest: pb.CheckpointManifest) -> None:
        def read(one: tuple[int, StoredObject]) -> pb.CheckpointPart:
            return bucket.read_part(self.storage, one[1], manifest, one[0])

        items = bucket.part_items(listing, manifest)
        with Pool(bucket.READ_AHEAD, "tierfs-recover") as pool:
            parts = pool.in_order(read, enumerate(items), ahead=bucket.READ_AHEAD)
            for item, part in zip(items, parts, strict=True):
                with metadata.write() as txn:
                    replay.apply_state(txn, part.changes)
                self.advance(item.length_bytes, item.name)
        with metadata.write() as txn:
            replay.finish_checkpoint(txn, manifest)

    def _replay(self, metadata: MetadataStore, items: list[StoredObject]) -> None:
        """Apply entries in order."""
        with closing(bucket.read_entries(self.storage, items)) as entries:
            for item, entry in zip(items, entries, strict=True):
                _apply_entry(metadata, entry, item.name)
                self.advance(item.length_bytes, item.name)


def _apply_entry(metadata: MetadataStore, entry: pb.JournalEntry, name: str) -> None:
    try:
        with metadata.write() as txn:
            replay.apply_entry(txn, entry)
    except DataLoss as exc:
        raise DataLoss(f"{name}: {exc}", remedy=exc.remedy) from exc


def _checked_id(store_id: str) -> str:
    if not _STORE_ID.fullmatch(store_id):
        raise DataLoss(f"the journal names no store: {store_id!r}")
    return store_id
