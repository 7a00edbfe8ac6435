"""The journal as a bucket holds it: its slots and checkpoints, and their contents.

All input is untrusted until its frame and size were checked; reading ahead is bounded.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from functools import partial

from tierfs.base.bytes.checksum import crc32c
from tierfs.base.bytes.parallel import Pool
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.journal.names import (
    JOURNAL_PREFIX,
    MOVING_NAME,
    checkpoint_name,
    checkpoint_slot,
    entry_slot,
    left_slot,
    part_name,
    part_of,
    slot_name,
)
from tierfs.engine.journal.objects import read_parsed
from tierfs.engine.metadata import epoch_numbers, frames
from tierfs.engine.metadata import records_pb2 as pb

# Journal objects read at once: at most 8 MiB each, some 30 MiB decoded, and the round trips are hidden.
READ_AHEAD = 4


@dataclass(slots=True)
class JournalListing:
    """Result of one listing of `journal/`."""

    slots: dict[int, StoredObject] = field(default_factory=dict)
    """Entries by slot, ascending."""
    checkpoints: dict[int, StoredObject] = field(default_factory=dict)
    """Manifests by slot, ascending."""
    parts: dict[str, StoredObject] = field(default_factory=dict)
    """Parts of checkpoints by name."""
    is_moving: bool = False
    """Whether a note says that a move to this place has not finished, or did once."""
    noted: int = 0
    """Newest slot as the place was left by a move, in the last note that tells so; 0 without one."""

    @property
    def is_left(self) -> bool:
        """Whether the store went on in another place, and nothing was added here since."""
        return self.noted >= self.last_slot > 0

    @property
    def last_slot(self) -> int:
        """The newest slot of any entry or checkpoint; 0 in an empty journal."""
        return max([0, *self.slots, *self.checkpoints])

    @property
    def epoch(self) -> int:
        """Epoch in whose range the slots are: 0, or that of the newest recovery from objects."""
        return epoch_numbers.epoch_of(self.last_slot)

    def behind(self, slot: int) -> list[StoredObject]:
        """Return the entries that follow `slot` without a gap."""
        following: list[StoredObject] = []
        while (item := self.slots.get(slot + 1 + len(following))) is not None:
            following.append(item)
        return following


def list_journal(storage: ChunkStorage, *, after_slot: int = 0) -> JournalListing:
    """List the journal: slots after `after_slot`, all checkpoints. Other names are ignored.

    Slots below the range of the newest slot's epoch are void and left out: a recovery from objects began again at that
    range, and an owner before it may still create objects below.
    """
    listing = JournalListing()
    for item in storage.list(JOURNAL_PREFIX, after=slot_name(after_slot) if after_slot else ""):
        slot, checkpoint = entry_slot(item.name), checkpoint_slot(item.name)
        if slot:
            listing.slots[slot] = item
        elif checkpoint:
            listing.checkpoints[checkpoint] = item
        elif part_of(item.name) is not None:
            listing.parts[item.name] = item
        elif item.name == MOVING_NAME:
            listing.is_moving = True
        else:
            listing.noted = max(listing.noted, left_slot(item.name) or 0)
    first = epoch_numbers.first_of(listing.epoch)
    listing.slots = {slot: item for slot, item in listing.slots.items() if slot >= first}
    listing.checkpoints = {slot: item for slot, item in listing.checkpoints.items() if slot >= first}
    return listing


def must_start_over(listing: JournalListing, applied: int) -> bool:
    """Return whether slots after `applied` may be missing or void: below the newest checkpoint but one or its epoch."""
    if listing.epoch > epoch_numbers.epoch_of(applied):
        return True
    newer = [slot for slot in listing.checkpoints if slot > applied]
    return len(newer) > 1 or (bool(newer) and applied + 1 not in listing.slots)


def entries_behind(
    storage: ChunkStorage, listing: JournalListing, slot: int, epoch: int, *, at_least: int = 0
) -> list[StoredObject]:
    """Return the entries that follow `slot`, where the journal's owner has this epoch; `at_least` up to that slot.

    Raises DataLoss when one is missing. Entries beyond a gap are accepted only as void: of a lower epoch than the last
    one before it.
    """
    following = listing.behind(slot)
    missing = slot + len(following) + 1
    beyond = [item for number, item in listing.slots.items() if number > missing]
    if beyond and following:
        epoch = read_entry(storage, following[-1]).store_epoch
    if at_least >= missing or any(read_entry(storage, item).store_epoch >= epoch for item in beyond):
        raise DataLoss(f"{slot_name(missing)} is missing", remedy=frames.RESTORE)
    return following


def read_entry(storage: ChunkStorage, item: StoredObject) -> pb.JournalEntry:
    """Read one entry. Raises DataLoss naming it when it is damaged, or belongs to another slot."""
    entry = read_parsed(storage, item.name, frames.parse_entry, item.length_bytes)
    if entry.slot != entry_slot(item.name):
        raise frames.damaged(item.name, f"it is the entry of slot {entry.slot}")
    return entry


def read_manifest(storage: ChunkStorage, item: StoredObject) -> pb.CheckpointManifest:
    """Read one checkpoint's manifest. Raises DataLoss when it is damaged."""
    manifest = read_parsed(storage, item.name, frames.parse_manifest, item.length_bytes)
    if manifest.slot != checkpoint_slot(item.name) or manifest.parts != len(manifest.part_crc32c):
        raise frames.damaged(item.name, "it contradicts itself")
    return manifest


def part_items(listing: JournalListing, manifest: pb.CheckpointManifest) -> list[StoredObject]:
    """Return the parts of a checkpoint, in order. Raises DataLoss when one is missing."""
    names = [part_name(manifest.slot, manifest.attempt, index) for index in range(manifest.parts)]
    for name in names:
        if name not in listing.parts:
            raise DataLoss(
                f"{checkpoint_name(manifest.slot)} is incomplete: {printable(name)} is missing", remedy=frames.RESTORE
            )
    return [listing.parts[name] for name in names]


def read_part(
    storage: ChunkStorage, item: StoredObject, manifest: pb.CheckpointManifest, index: int
) -> pb.CheckpointPart:
    """Read one part of a checkpoint. Raises DataLoss unless its checksum is that in the manifest."""

    def parse(data: bytes, name: str) -> pb.CheckpointPart:
        if crc32c(data) != manifest.part_crc32c[index]:
            raise frames.damaged(name, "its checksum is not the one in the checkpoint")
        return frames.parse_part(data, name)

    return read_parsed(storage, item.name, parse, item.length_bytes)


def read_entries(storage: ChunkStorage, items: Iterable[StoredObject]) -> Generator[pb.JournalEntry]:
    """Yield entries in order, read ahead. Close the iterator to end early; raises as read_entry."""
    with Pool(READ_AHEAD, "tierfs-recover") as pool:
        yield from pool.in_order(partial(read_entry, storage), items, ahead=READ_AHEAD)
