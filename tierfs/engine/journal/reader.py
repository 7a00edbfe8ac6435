"""The journal as a bucket holds it: its slots and checkpoints, and their contents.

All input is untrusted until its frame and size were checked; reading ahead is bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

from tierfs.base.bytes.checksum import crc32c
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.bytes.parallel import Pool
from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.journal.names import (
    JOURNAL_PREFIX,
    MOVING_NAME,
    checkpoint_name,
    checkpoint_slot,
    entry_slot,
    left_slot,
    level_part_name,
    part_name,
    part_of,
    slot_name,
)
from tierfs.engine.journal.objects import read_parsed
from tierfs.engine.metadata import epoch_numbers, frames
from tierfs.engine.metadata import records_pb2 as pb

log = logging.getLogger(__name__)

# Journal objects read at once: at most 8 MiB each, some 30 MiB decoded, and the round trips are hidden.
READ_AHEAD = 4


@dataclass(frozen=True, slots=True)
class ListedPart:
    """One part of a checkpoint, as its manifest lists it."""

    names: tuple[str, ...]
    """Of the object, and of its copy if there is one."""
    crc32c: int
    length_bytes: int = 0
    """Size of the object; 0 if the manifest does not contain it."""
    attempt: str = ""
    """Of the level to which it belongs; empty without levels."""
    has_entries: bool = False
    """Whether it contains entries, and not the state."""


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
    if manifest.levels and not _are_levels(manifest):
        raise frames.damaged(item.name, "its levels contradict each other")
    return manifest


def _are_levels(manifest: pb.CheckpointManifest) -> bool:
    """Return whether the levels are a state and entries after it, up to the slot of the manifest."""
    levels = manifest.levels
    slots = [level.slot for level in levels]
    return (
        not manifest.parts
        and [level.has_entries for level in levels] == [number > 0 for number in range(len(levels))]
        and slots == sorted(set(slots))
        and slots[-1] == manifest.slot
        and all(len(level.part_crc32c) == len(level.part_bytes) == len(level.copied) for level in levels)
    )


def parts_of(manifest: pb.CheckpointManifest) -> Iterator[ListedPart]:
    """Yield the parts of a checkpoint, in the order of the replay."""
    for index, sum_ in enumerate(manifest.part_crc32c):
        yield ListedPart((part_name(manifest.slot, manifest.attempt, index),), sum_)
    for level in manifest.levels:
        for index, (sum_, length_bytes, copied) in enumerate(
            zip(level.part_crc32c, level.part_bytes, level.copied, strict=True)
        ):
            copies = range(1 + copied)
            names = tuple(level_part_name(level.slot, level.attempt, index, copy=bool(copy)) for copy in copies)
            yield ListedPart(names, sum_, length_bytes, level.attempt, level.has_entries)


def listed_parts(storage: ChunkStorage, listing: JournalListing, manifest: pb.CheckpointManifest) -> list[ListedPart]:
    """Return the parts of a checkpoint, with the names that are there. Raises DataLoss when one is missing.

    A listing passes the names of levels long before their checkpoint, so it may show a new one without its new parts:
    those are asked for.
    """
    listed: list[ListedPart] = []
    for part in parts_of(manifest):
        if not any(name in listing.parts for name in part.names):
            for name in part.names:
                with suppress(NotFound):
                    listing.parts[name] = storage.stat(name)
        names = tuple(name for name in part.names if _is_listed(listing, name, part.length_bytes))
        if not names:
            raise DataLoss(
                f"{checkpoint_name(manifest.slot)} is incomplete: {printable(part.names[0])} is missing",
                remedy=frames.RESTORE,
            )
        listed.append(replace(part, names=names, length_bytes=listing.parts[names[0]].length_bytes))
    return listed


def _is_listed(listing: JournalListing, name: str, length_bytes: int) -> bool:
    item = listing.parts.get(name)
    return item is not None and length_bytes in (0, item.length_bytes)


def read_part(storage: ChunkStorage, part: ListedPart) -> pb.CheckpointPart:
    """Read one part of a checkpoint, or its copy. Raises DataLoss unless its checksum is that in the manifest."""

    def parse(data: bytes, name: str) -> pb.CheckpointPart:
        if crc32c(data) != part.crc32c:
            raise frames.damaged(name, "its checksum is not the one in the checkpoint")
        return frames.parse_part(data, name)

    for name in part.names[:-1]:
        try:
            return read_parsed(storage, name, parse, part.length_bytes or None)
        except (DataLoss, NotFound) as exc:
            log.info("the copy of %s is read: %s", printable(name), exc)
    return read_parsed(storage, part.names[-1], parse, part.length_bytes or None)


def read_entries(storage: ChunkStorage, items: Iterable[StoredObject]) -> Generator[pb.JournalEntry]:
    """Yield entries in order, read ahead. Close the iterator to end early; raises as read_entry."""
    with Pool(READ_AHEAD, "tierfs-recover") as pool:
        yield from pool.in_order(partial(read_entry, storage), items, ahead=READ_AHEAD)
