"""Rebuild a store's metadata from its bucket's journal: from the newest checkpoint, and every slot after it.

Each part, and some entries together, are one transaction, so that memory is bounded. A checkpoint that proves damaged
half-way is discarded with everything made of it, and the one before it is tried.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Pool
from tierfs.base.bytes.progress import Meter, OnProgress
from tierfs.base.system.clock import Clock
from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.journal import reader, replay
from tierfs.engine.journal.names import is_copy, level_of, part_of, slot_name
from tierfs.engine.journal.reader import JournalListing
from tierfs.engine.metadata import frames, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import LOCATIONS
from tierfs.engine.metadata.transaction import WriteTransaction

log = logging.getLogger(__name__)
# Its metadata have all that is in the journal.
ON_OWNER = "if the owner of the bucket still has its disk, run there: tierfs check --repair"
FROM_OBJECTS = (
    "rebuild the bytes from the objects only, without the changes made to them: tierfs recover --from-objects"
)
# Entries that a replay applies in one transaction: a quarter of the longest entry, so memory stays bounded. A guess.
_TOGETHER_BYTES = MIB

_STORE_ID = re.compile(r"[0-9a-f]{32}")


class _Unusable(DataLoss):
    """A checkpoint that a replay cannot begin with."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Metadata as of the journal's last slot."""

    metadata: MetadataStore
    checkpoint_slot: int
    """0 if no checkpoint was used."""
    entries: int
    warnings: tuple[str, ...]
    checkpoint_sequence: int = 0
    """Last change in the checkpoint."""
    store_epoch: int = 0
    """The epoch in which they own the bucket; 0 while they do not."""


@dataclass(frozen=True, slots=True)
class Rebuilder:
    """One rebuild of metadata in `path`, which must not exist."""

    path: Path
    storage: ChunkStorage
    place: Place
    clock: Clock
    advance: Meter

    def rebuild(self, listing: JournalListing) -> Rebuilt:
        """Replay the journal. The caller closes the metadata.

        Raises NotFound for an empty journal, DataLoss when slots are missing or damaged, and storage errors.
        """
        if not listing.last_slot:
            raise NotFound(
                f"{self.place.record.url} has no journal",
                remedy=f"check the prefix; if the journal is lost, {FROM_OBJECTS}",
            )
        warnings: list[str] = []
        unusable: list[_Unusable] = []
        for slot in [*sorted(listing.checkpoints, reverse=True), 0]:
            try:
                return self._rebuild_from(listing, slot, tuple(warnings))
            except _Unusable as exc:
                unusable.append(exc)
                if slot:
                    warnings.append(f"checkpoint {slot} cannot be used, so the previous one is used: {exc}")
                    log.info("%s", warnings[-1])
        # The newest comes first: if a newer tierfs wrote it, nothing is damaged, whatever older ones lack.
        raise DataLoss("; ".join(map(str, unusable)), remedy=_way_out(unusable[0])) from unusable[0]

    def _rebuild_from(self, listing: JournalListing, slot: int, warnings: tuple[str, ...]) -> Rebuilt:
        """Replay from a checkpoint or the first entry. Raises _Unusable for a bad checkpoint, DataLoss for an entry."""
        try:
            manifest = self._manifest(listing, slot)
            epoch, newest = manifest.store_epoch if manifest else 0, max(listing.checkpoints, default=0)
            items = reader.entries_behind(self.storage, listing, slot, epoch, at_least=newest)
            metadata = self._from_checkpoint(listing, manifest)
        except DataLoss as exc:
            raise _Unusable(str(exc), remedy=exc.remedy) from exc
        try:
            self._replay(metadata, items)
        except DataLoss as exc:
            metadata.close()
            raise DataLoss(str(exc), remedy=_way_out(exc)) from exc
        except BaseException:
            metadata.close()
            raise
        return Rebuilt(metadata, slot, len(items), warnings, manifest.last_sequence if manifest else 0)

    def _manifest(self, listing: JournalListing, slot: int) -> pb.CheckpointManifest | None:
        """Return the checkpoint's manifest; None for slot 0, before the first entry. Raises DataLoss."""
        if slot:
            return reader.read_manifest(self.storage, listing.checkpoints[slot])
        if listing.epoch:
            first = slot_name(min(listing.slots))
            raise DataLoss(f"{first} starts a recovery from objects that has not written its checkpoint")
        return None

    def _from_checkpoint(self, listing: JournalListing, manifest: pb.CheckpointManifest | None) -> MetadataStore:
        """Return metadata as of a checkpoint, or of an empty store. Raises DataLoss, and then leaves no files."""
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
        return reader.read_entry(self.storage, listing.slots[1]).store_id

    def _begin(self, txn: WriteTransaction) -> None:
        """Record the place given to this command; a journal does not contain how this host connects."""
        record = self.place.record
        txn.put(LOCATIONS, tables.u32(record.id), record)
        txn.update_store(cold_location_id=record.id, store_epoch=0)

    def _apply_parts(self, metadata: MetadataStore, listing: JournalListing, manifest: pb.CheckpointManifest) -> None:
        parts = reader.listed_parts(self.storage, listing, manifest)
        is_state = bool(manifest.levels)
        with Pool(reader.READ_AHEAD, "tierfs-recover") as pool:
            messages = pool.in_order(partial(reader.read_part, self.storage), parts, ahead=reader.READ_AHEAD)
            for part, message in zip(parts, messages, strict=True):
                with _unwatched(metadata) as txn:
                    if is_state and part.has_entries:
                        is_state = False
                        replay.finish_state(txn, manifest)
                    replay.apply_part(txn, message, part.names[0], has_entries=part.has_entries)
                self.advance(part.length_bytes, part.names[0], 1)
        if is_state:
            with metadata.write() as txn:
                replay.finish_state(txn, manifest)
        with metadata.write() as txn:
            replay.finish_checkpoint(txn, manifest)
            replay.see_time(txn, manifest.written_ms)

    def _replay(self, metadata: MetadataStore, items: list[StoredObject]) -> None:
        """Apply entries in order, small ones in one transaction: a commit for each would take most of the time."""
        with closing(reader.read_entries(self.storage, items)) as entries:
            for some in _together(zip(items, entries, strict=True)):
                with _unwatched(metadata) as txn:
                    for _, entry in some:
                        replay.apply_entry(txn, entry)
                        replay.see_time(txn, replay.written_ms(entry))
                for item, _ in some:
                    self.advance(item.length_bytes, item.name, 1)


@contextmanager
def _unwatched(metadata: MetadataStore) -> Iterator[WriteTransaction]:
    """Open a write transaction of a store that nobody has opened yet."""
    with metadata.write() as txn:
        txn.notifies = False
        yield txn


def _together(
    entries: Iterable[tuple[StoredObject, pb.JournalEntry]],
) -> Iterator[list[tuple[StoredObject, pb.JournalEntry]]]:
    """Yield entries in order, as many at a time as are applied in one transaction."""
    some: list[tuple[StoredObject, pb.JournalEntry]] = []
    size_bytes = 0
    for item, entry in entries:
        some.append((item, entry))
        size_bytes += item.length_bytes
        if size_bytes >= _TOGETHER_BYTES:
            yield some
            some, size_bytes = [], 0
    if some:
        yield some


def _way_out(error: DataLoss) -> str:
    """Return the remedy of a journal that cannot be replayed."""
    if error.remedy == frames.UPGRADE:
        return frames.UPGRADE
    return f"{ON_OWNER}; else {frames.RESTORE}; without a copy, {FROM_OBJECTS}"


def _checked_id(store_id: str) -> str:
    if not _STORE_ID.fullmatch(store_id):
        raise DataLoss(f"the journal has no valid store id: {printable(store_id)!r}")
    return store_id


def meter_of(report: OnProgress, listing: reader.JournalListing) -> Meter:
    """Return a meter for the bytes of the journal that are to be applied."""
    newest = max(listing.checkpoints, default=0)
    read = [item.length_bytes for slot, item in listing.slots.items() if slot > newest]
    parts = [item.length_bytes for name, item in listing.parts.items() if _is_read(name, newest)]
    return Meter(report, sum(read) + sum(parts), len(read) + len(parts), "journal object")


def _is_read(name: str, newest: int) -> bool:
    """Return whether a replay most likely reads a part: one of the newest checkpoint or of a level, and no copy."""
    place = part_of(name)
    return place is not None and (place[0] == newest or level_of(name) is not None) and not is_copy(name)
