"""Replay of the bucket's journal into a store's own database: `recover`, replicas and single segments.

Pure over one WriteTransaction. All input is untrusted and checked; a broken change raises DataLoss and leaves the
transaction to be undone. A change that was applied already, by its sequence, is skipped, and one without sequence is
state that may be applied any number of times. The outbox is not touched: replayed changes are in the journal already.

Rules (docs/format.md): a segment keeps the fields that only this host has (local chunks, writer); the cold chain
results from links and unlinks, never from a segment's record; a location is unused until the local settings allow it;
garbage is the owner's business, so a replica takes none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tierfs.base.bytes.recoveries import last
from tierfs.base.options import policy
from tierfs.base.system.clock import ClockReading
from tierfs.base.words.errors import AlreadyExists, DataLoss, InvalidRequest, NotFound
from tierfs.base.words.types import EntryKind, SegmentId, SegmentKind, Tier
from tierfs.engine.journal import replay_links, replay_names
from tierfs.engine.journal.names import checkpoint_name, slot_name
from tierfs.engine.metadata import (
    archive_place,
    batches,
    chains,
    directories,
    empty_ledgers,
    entries,
    frames,
    tables,
    untrusted,
)
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.epoch_numbers import MAX_EPOCH
from tierfs.engine.metadata.records import RECORD_VERSION, LocationRecord, PolicyRecord, SegmentRecord
from tierfs.engine.metadata.tables import GARBAGE, LEDGERS, LOCATIONS, POLICIES, SEGMENTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.metadata.untrusted import require

# Fields of a segment that follow from its chunks here, or that only this host has.
_OF_THIS_HOST = ("local", "cold", "active", "resumable")


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Turn errors about the contents of the journal's object into DataLoss that names it, and says what to do."""
    try:
        yield
    except (DataLoss, NotFound, InvalidRequest, AlreadyExists) as exc:
        # Nothing but records is read here. One that is refused advises a check of this store, which is not damaged.
        remedy = frames.UPGRADE if exc.remedy == frames.UPGRADE else frames.RESTORE
        raise DataLoss(f"{name}: {exc}", remedy=remedy) from exc


def apply(txn: WriteTransaction, change: pb.Change) -> bool:
    """Apply one change; return False when it was applied before. Raises DataLoss."""
    if change.sequence and change.sequence <= applied(txn):
        return False
    _apply(txn, change)
    if change.sequence:
        _move_to(txn, change.sequence)
    return True


def _apply(txn: WriteTransaction, change: pb.Change) -> None:
    """Apply a change that was not applied before."""
    kind = change.WhichOneof("body")
    if kind is None:
        raise DataLoss("unknown change type in the journal (written by a newer tierfs)", remedy=frames.UPGRADE)
    _HANDLERS[kind](txn, getattr(change, kind))


def apply_entry(txn: WriteTransaction, entry: pb.JournalEntry) -> bool:
    """Apply the next slot's entry; return False when it is void, being an older owner's. Raises DataLoss, naming it.

    The caller checked the object's frame. An entry of another store, of another slot than the next, or one whose
    changes do not continue from the last applied one is refused.
    """
    with naming(slot_name(entry.slot)):
        return _apply_entry(txn, entry)


def _apply_entry(txn: WriteTransaction, entry: pb.JournalEntry) -> bool:
    store = txn.uncounted
    require_version(entry.version)
    if entry.store_id != store.store_id:
        raise DataLoss("it belongs to another store")
    if entry.slot != store.journal.next_slot:
        raise DataLoss(f"the previous slot, {store.journal.next_slot}, is missing")
    if entry.store_epoch < store.store_epoch:
        txn.update_store(journal=replace(store.journal, next_slot=entry.slot + 1))
        return False
    _apply_changes(txn, entry, next_slot=entry.slot + 1)
    return True


def _apply_changes(txn: WriteTransaction, entry: pb.JournalEntry, next_slot: int = 0) -> None:
    """Apply the changes of an entry after those that were applied, and its epoch; the slot after it, unless it is 0."""
    before = applied(txn)
    if entry.changes and entry.first_sequence > before + 1:
        raise DataLoss(f"gap: expected change {before + 1}, found {entry.first_sequence}")
    expected = range(entry.first_sequence, entry.first_sequence + len(entry.changes))
    if [change.sequence for change in entry.changes] != list(expected) or entry.store_epoch > MAX_EPOCH:
        raise DataLoss("the sequence numbers of its changes are not consecutive")
    for change in entry.changes:
        if change.sequence > before:
            _apply(txn, change)
    # Once for all of them: to put the superblock together takes as long as most changes.
    last = max([before, *expected[-1:]])
    journal = txn.uncounted.journal
    journal = replace(journal, published_sequence=last, next_slot=next_slot or journal.next_slot)
    txn.update_store(journal=journal, next_outbox=last + 1, store_epoch=entry.store_epoch)


def apply_part(txn: WriteTransaction, part: pb.CheckpointPart, name: str, *, has_entries: bool) -> None:
    """Apply a part of a checkpoint: the state, or entries after it. Raises DataLoss, naming it."""
    with naming(name):
        require(not (part.changes if has_entries else part.entries), "a part of another level")
        for entry in part.entries:
            require(entry.store_epoch >= txn.uncounted.store_epoch, "a level contains a void entry", entry.slot)
            _apply_changes(txn, entry)
    apply_state(txn, part.changes, name)


def finish_state(txn: WriteTransaction, manifest: pb.CheckpointManifest) -> None:
    """Set the position after the state of a checkpoint with levels; entries follow. Raises DataLoss."""
    with naming(checkpoint_name(manifest.slot)):
        replay_names.check_tree(txn)
        require(manifest.levels[0].last_sequence <= untrusted.MAX_ID, "a counter overflows")
    _move_to(txn, manifest.levels[0].last_sequence)


def apply_state(txn: WriteTransaction, state: Iterable[pb.Change], name: str) -> None:
    """Apply the part of a checkpoint that has this name. Raises DataLoss, naming it."""
    with naming(name):
        for change in state:
            require(change.sequence == 0, "a checkpoint contains history")
            if change.HasField("cold_link"):
                _cold_link(txn, change.cold_link, merges=False)
            elif change.HasField("directory"):
                see_id(txn, *replay_names.place_directory(txn, change.directory, parent_may_follow=True))
            else:
                apply(txn, change)


def finish_checkpoint(txn: WriteTransaction, manifest: pb.CheckpointManifest) -> None:
    """Set the position after a checkpoint, all parts of which were applied. Raises DataLoss, naming its manifest."""
    with naming(checkpoint_name(manifest.slot)):
        untrusted.check_id(manifest.slot, "a slot")
        require(manifest.last_sequence <= untrusted.MAX_ID and manifest.store_epoch <= MAX_EPOCH, "a counter overflows")
        if manifest.levels:
            require(applied(txn) == manifest.last_sequence, "its levels end at another change", applied(txn))
        replay_names.check_tree(txn)
        see_id(txn, max(manifest.next_id, 1) - 1)
    journal = replace(txn.store.journal, next_slot=manifest.slot + 1, checkpoint_slot=manifest.slot)
    txn.update_store(store_epoch=manifest.store_epoch, journal=journal)
    _move_to(txn, manifest.last_sequence)


def apply_garbage(txn: WriteTransaction, garbage: Iterable[pb.GarbageRecord], name: str) -> None:
    """Apply what the journal's object with this name says of garbage, and nothing else. Raises DataLoss, naming it."""
    with naming(name):
        for message in garbage:
            _garbage(txn, message)


def written_ms(entry: pb.JournalEntry) -> int:
    """Return the owner's last time at an entry that was not in doubt; of an older tierfs when the owner began, or 0."""
    # An owner that began under a wrong clock says so in `owner_begins`: a recovery under the same clock would trust it.
    return entry.written_ms or max((change.owner_begins.wall_ms for change in entry.changes), default=0)


def see_time(txn: WriteTransaction, written_ms: int) -> None:
    """Compare this machine's clock with the time of what a previous owner wrote, in a store that is rebuilt of it.

    Otherwise a recovery under a clock that is ahead ends all that was removed, or has an age, at once.
    """
    seen = txn.uncounted.clock_seen
    if seen.boot_id or seen.wall_ms < written_ms:
        txn.update_store(clock_seen=ClockReading(wall_ms=max(1, written_ms)))


def applied(txn: WriteTransaction) -> int:
    """Return the sequence of the last change that was applied."""
    return txn.uncounted.journal.published_sequence


def require_version(version: int) -> None:
    """Raise DataLoss for a format version of a newer tierfs."""
    if version > RECORD_VERSION:
        raise DataLoss(f"it has format version {version}", remedy=frames.UPGRADE)


def see_id(txn: WriteTransaction, *ids: int) -> None:
    """Reserve ids, so that they are never allocated again."""
    highest = max(ids)
    require(highest <= untrusted.MAX_ID, "a counter overflows", highest)
    txn.reserve("next_id", highest)


def _move_to(txn: WriteTransaction, sequence: int) -> None:
    journal = replace(txn.uncounted.journal, published_sequence=sequence)
    txn.update_store(journal=journal, next_outbox=sequence + 1)


def _owner_begins(txn: WriteTransaction, message: pb.OwnerBegins) -> None:
    store = txn.store
    if message.store_id != store.store_id:
        raise DataLoss(f"the journal has an owner of another store, {message.store_id!r}")
    require(0 < message.store_epoch <= MAX_EPOCH, "an owner starts with an impossible epoch", message.store_epoch)
    if message.store_epoch > store.store_epoch:
        txn.update_store(store_epoch=message.store_epoch)


def _segment(txn: WriteTransaction, message: pb.SegmentRecord) -> None:
    record = SEGMENTS.codec.from_message(message, without=_OF_THIS_HOST)
    untrusted.check_segment(record)
    recovered = max(last(record.recoveries), record.joins.last_recovery)
    see_id(txn, record.id, record.inode, record.successor_id, record.commit_id, record.unsealed_id, recovered)
    old = directories.segment(txn, record.id)
    new = record if old is None else _merged(old, record)
    replay_names.place_segment(txn, old, new)
    new.check()
    data = record.stored if old is None else SEGMENTS.codec.encode(new)
    txn.put_raw(SEGMENTS.name, tables.u64(new.id), data)
    txn.touch(inode=new.inode if old is None else old.inode, segment_id=new.id)


def _merged(old: SegmentRecord, record: SegmentRecord) -> SegmentRecord:
    """Return the journal's view of a segment with the fields that only this host has."""
    kept = replace(
        record,
        local=old.local,
        cold=old.cold,
        active=old.active and not record.sealed,
        resumable=old.resumable and not record.sealed,
        writer=old.writer,
        generation=max(old.generation, record.generation),
        writer_epoch=max(old.writer_epoch, record.writer_epoch),
    )
    return replace(kept, length=max(old.length, record.length)) if old.local.count else kept


def _segment_removed(txn: WriteTransaction, segment_id: int) -> None:
    segment = _known_segment(txn, segment_id)
    if segment is None:
        return
    editor = Editor(txn, segment)
    for tier, due_ms in ((Tier.COLD, None), (Tier.LOCAL, txn.now_ms)):
        editor.remove(tier, list(chains.chunks(txn, segment.id, tier)), due_ms=due_ms)
    entries.forget(txn, segment)
    txn.delete(SEGMENTS.name, tables.u64(segment.id))
    txn.delete(POLICIES.name, tables.u64(segment.id))
    replay_names.displace(txn, segment.parent_id, segment.name, EntryKind.SEGMENT, segment.id)
    txn.touch(inode=segment.inode, segment_id=segment.id)


def _directory(txn: WriteTransaction, message: pb.DirectoryRecord) -> None:
    see_id(txn, *replay_names.place_directory(txn, message))


def _cold_link(txn: WriteTransaction, message: pb.ColdLink, *, merges: bool = True) -> None:
    link = replay_links.read_link(txn, message, txn.uncounted.cold_location_id)
    see_id(txn, 1, *link.objects)
    _link(txn, message.segment_id, link, merges=merges)


def _link(txn: WriteTransaction, segment_id: int, link: replay_links.CheckedLink, *, merges: bool = True) -> None:
    untrusted.check_id(segment_id, "a segment")
    if replay_links.link_last(txn, SegmentId(segment_id), link):
        return
    segment = directories.segment(txn, SegmentId(segment_id))
    require(segment is not None, "chunks of an unknown segment", segment_id)
    assert segment is not None
    _chain_changed(txn, segment, replay_links.link(txn, segment, link, merges=merges))


def _pack_link(txn: WriteTransaction, message: pb.PackLink) -> None:
    for record in message.segments:
        _segment(txn, record)
    see_id(txn, replay_links.put_pack(txn, message, txn.uncounted.cold_location_id))
    for cold_link in message.links:
        chunks = replay_links.read_chunks(cold_link.chunks)
        _link(txn, cold_link.segment_id, replay_links.CheckedLink(chunks, {}))


def _checksums(txn: WriteTransaction, message: pb.ObjectChecksums) -> None:
    see_id(txn, 1, replay_links.put_checksums(txn, message, txn.uncounted.cold_location_id))


def _cold_unlink(txn: WriteTransaction, message: pb.ColdUnlink) -> None:
    segment = _known_segment(txn, message.segment_id)
    if segment is not None:
        _chain_changed(txn, segment, replay_links.unlink(txn, segment, message.start_offsets))


def _chain_changed(txn: WriteTransaction, before: SegmentRecord, after: SegmentRecord) -> None:
    if after != before:
        txn.put(SEGMENTS, tables.u64(after.id), after)
        txn.touch(inode=after.inode, segment_id=after.id)


def _known_segment(txn: WriteTransaction, segment_id: int) -> SegmentRecord | None:
    untrusted.check_id(segment_id, "a segment")
    return directories.segment(txn, SegmentId(segment_id))


def _location(txn: WriteTransaction, message: pb.LocationRecord) -> None:
    record = LOCATIONS.codec.from_message(message)
    require(record.id > 0, "a location without an id")
    current = txn.get(LOCATIONS, tables.u32(record.id))
    if record.archive:
        known = archive_place.id_of(txn)
        possible = record.writable and record.id != txn.uncounted.cold_location_id and known in (0, record.id)
        require(possible and (current is None or current.archive), "an impossible archive place", record.id)
    elif record.writable and record.id != txn.uncounted.cold_location_id:
        _end_archive(txn, record, current)
        return
    require(record.archive or current is None or not current.archive, "the archive place is another one", record.id)
    if current is not None and not current.from_journal:
        return  # set on this host: a journal does not decide where it connects
    txn.put(LOCATIONS, tables.u32(record.id), replace(record, from_journal=True))


def _end_archive(txn: WriteTransaction, record: LocationRecord, current: LocationRecord | None) -> None:
    """Forget the archive place, also one that this host may use: its owner has brought everything back."""
    require(current is None or current.archive, "an impossible place", record.id)
    if current is None:
        return
    require(not archive_place.objects_in(txn, current.id), "the archive place ends, and has objects", record.id)
    txn.delete(LOCATIONS.name, tables.u32(current.id))
    for key, row in list(txn.scan(GARBAGE)):  # that its owner has deleted
        if row.location_id == current.id:
            txn.delete(GARBAGE.name, key)


def read_policy(message: pb.PolicyRecord) -> PolicyRecord:
    """Return the record of a policy that can be in force. Raises DataLoss."""
    record = POLICIES.codec.from_message(message)
    untrusted.check_id(record.target_id, "a policy")
    try:
        policy.check_stored(record.settings)
        # A chunk of no bytes would never end: values have the bounds of those that a user sets.
        possible = all(policy.parse(key, value) == value for key, value in record.settings.items())
        require(possible, "an impossible policy", record.target_id)
    except (InvalidRequest, ValueError) as exc:
        raise DataLoss(f"the journal contains an impossible policy: {exc}", remedy=frames.UPGRADE) from exc
    return record


def _policy(txn: WriteTransaction, message: pb.PolicyRecord) -> None:
    record = read_policy(message)
    txn.put(POLICIES, tables.u64(record.target_id), record)
    txn.touch(policies=True)


def _garbage(txn: WriteTransaction, message: pb.GarbageRecord) -> None:
    record = GARBAGE.codec.from_message(message)
    require(record.tier is Tier.COLD, "garbage of the local tier", record.name)
    untrusted.check_times(record.due_ms)
    require(max(record.sequence, record.attempts << 32) <= untrusted.MAX_ID, "a counter overflows", record.sequence)
    require(record.length <= untrusted.MAX_OBJECT_BYTES, "an object has an impossible length", record.name)
    untrusted.check_object_name(record.name, owned=True)
    is_own = record.location_id == txn.uncounted.cold_location_id
    if txn.uncounted.replica or not (is_own or archive_place.is_archive(txn, record.location_id)):
        return
    txn.put(GARBAGE, tables.pair(record.due_ms, record.sequence), record)
    txn.reserve("next_garbage", record.sequence)


def _counters(txn: WriteTransaction, message: pb.Counters) -> None:
    see_id(txn, max(message.next_id, 1) - 1)


def _ledger(txn: WriteTransaction, message: pb.LedgerRecord) -> None:
    record = LEDGERS.codec.from_message(message)
    segment = _known_segment(txn, record.segment_id)
    require(segment is not None and segment.kind is SegmentKind.LEDGER, "a ledger without a segment", record.segment_id)
    require(max(record.ledger_id, record.entries, record.bytes) <= untrusted.MAX_ID, "a ledger of impossible numbers")
    untrusted.check_times(record.timestamp_ms, record.offload.timestamp_ms)
    untrusted.check_unchunked(empty_ledgers.find(txn, record), txn.uncounted.cold_location_id)
    txn.put(LEDGERS, tables.u64(record.segment_id), record)


def _directory_removed(txn: WriteTransaction, directory_id: int) -> None:
    untrusted.check_id(directory_id, "a directory")
    replay_names.remove_directory(txn, directory_id)
    txn.delete(POLICIES.name, tables.u64(directory_id))


_HANDLERS: dict[str, Callable[[WriteTransaction, Any], None]] = {
    "owner_begins": _owner_begins,
    "segment": _segment,
    "segment_removed": _segment_removed,
    "directory": _directory,
    "directory_removed": _directory_removed,
    "cold_link": _cold_link,
    "checksums": _checksums,
    "cold_unlink": _cold_unlink,
    "location": _location,
    "policy": _policy,
    "batch": batches.replay,
    "ledger": _ledger,
    "counters": _counters,
    "garbage": _garbage,
    "object": replay_links.adopt_etag,
    "pack_link": _pack_link,
    "object_moved": replay_links.move_object,
}
