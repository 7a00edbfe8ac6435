"""The trash: what a person removed keeps its rows and the bytes of both tiers for `trash_age`, and can be restored.

A removal is one move of the name into the root, as `.tierfs-trash-<due time>-<id>`; the moved record holds the name
before and the times. So a directory of any size goes and comes back in one commit, the journal says it as it says every
move, and what is below keeps its own policies. A removal that is due joins the queue of what is taken apart
(directories.queue, delete.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, takewhile

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names
from tierfs.base.words.errors import AlreadyExists, InvalidRequest, NotFound
from tierfs.base.words.types import ROOT_DIRECTORY, DirectoryId, EntryKind
from tierfs.engine.metadata import changes, directories, policies, tables
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.record_parts import Removal
from tierfs.engine.metadata.records import DirectoryRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import DIRECTORIES, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.engine.segments import create, streams

# Removals that one commit ends: some 10 ms, so that appends hardly wait (a guess).
_TOGETHER = 100


_WHENEVER_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class Removed:
    """A segment or directory in the trash."""

    entry: Entry
    removal: Removal

    @property
    def id(self) -> int:
        """The number by which a command names it."""
        return self.entry.id


def age_s(txn: ReadTransaction, entry: Entry) -> int:
    """Return how long an entry that is removed now stays in the trash, by its nearest policy."""
    segment = txn.get(SEGMENTS, tables.u64(entry.id)) if entry.kind is EntryKind.SEGMENT else None
    if segment is not None:
        return policies.effective(txn, segment).trash_age_s
    return policies.of_directory(txn, DirectoryId(entry.id)).values.trash_age_s


def put(txn: WriteTransaction, parent_id: DirectoryId, entry: Entry, sums: Removal, age_s: int) -> Removal:
    """Move an entry into the trash; `sums` are those of all that is at and below it."""
    if entry.kind is EntryKind.SEGMENT:
        streams.unlink(txn, txn.must_get(SEGMENTS, tables.u64(entry.id), f"segment {names.printable(entry.name)}"))
    path = directories.path_of(txn, parent_id, entry.name)
    due_ms, sequence = txn.now_ms + age_s * 1000, txn.store.next_outbox
    removal = replace(sums, path=path, removed_ms=txn.now_ms, due_ms=due_ms, sequence=sequence)
    _move(txn, parent_id, entry, ROOT_DIRECTORY, names.in_trash(removal.due_ms, entry.id), removal)
    return removal


def removed(txn: ReadTransaction) -> Iterator[Removed]:
    """Yield all that is in the trash, in the order in which it falls due."""
    for entry in directories.in_trash(txn):
        yield Removed(entry, _record(txn, entry).removal)


def end_due(metadata: MetadataStore, *, all_of_them: bool = False) -> int:
    """End the removals that are due: they are taken apart then. Return their number. Idempotent.

    A caller asks the clocks first, unless a person wants all of them to end. Leaves a replica and a fenced store as
    they are.
    """
    ended, until_ms = 0, _WHENEVER_MS if all_of_them else metadata.clock.now_ms()
    while _is_due(metadata, until_ms):
        with metadata.write() as txn:
            first = islice(directories.in_trash(txn), _TOGETHER)
            batch = list(takewhile(lambda entry: names.trash_due_ms(entry.name) <= until_ms, first))
            for entry in batch:
                directories.queue(txn, ROOT_DIRECTORY, entry)
        ended += len(batch)
    return ended


def is_due(txn: ReadTransaction, now_ms: int) -> bool:
    """Return whether a removal's time in the trash is over, in a store that may end it."""
    may_change = not (txn.store.replica or txn.store.journal.fenced_by_epoch)
    return may_change and 0 < directories.next_due_ms(txn) <= now_ms


def _is_due(metadata: MetadataStore, until_ms: int) -> bool:
    with metadata.read() as txn:
        return is_due(txn, until_ms)


def find(txn: ReadTransaction, path: str, removal_id: int | None = None) -> Removed:
    """Return the newest removal of a name, or the one with an id.

    Raises NotFound, and InvalidRequest naming the removal of a directory that was above the name.
    """
    wanted = names.join(names.split(path))
    all_removed = list(removed(txn))
    same = [each for each in all_removed if each.removal.path == wanted]
    chosen = [each for each in same if removal_id in (None, each.id)]
    if chosen:
        # Not by their times: a clock may have been set back between them, or another host's be behind.
        return max(chosen, key=lambda each: (each.removal.sequence, each.removal.removed_ms))
    shown = names.printable(wanted) or "/"
    if same:
        raise NotFound(f"the trash has no {shown} with id {removal_id}", remedy="list them: tierfs ls --removed")
    for each in all_removed:
        if wanted.startswith(f"{each.removal.path}/") and each.entry.kind is EntryKind.DIRECTORY:
            above = each.removal.path
            raise InvalidRequest(
                f"{shown} was removed as part of {names.printable(above)}",
                remedy=f"tierfs restore {names.as_word(above)}",
            )
    raise NotFound(f"the trash has no {shown}", remedy="list it: tierfs ls --removed")


def restore(metadata: MetadataStore, path: str, *, to: str = "", removal_id: int | None = None) -> tuple[str, Removed]:
    """Move the newest removal of a name, or the one with an id, back to its name or to `to`; return that name.

    Directories above it are made again. Raises what `find` raises, AlreadyExists for a name that is taken, NotDirectory
    below a segment.
    """
    with metadata.write() as txn:
        chosen = find(txn, path, removal_id)
        old = chosen.removal.path
        target = names.join(names.split(to)) or old
        if directories.find(txn, target) is not None:
            way = f"tierfs restore --as OTHER {names.as_word(old)}"
            raise AlreadyExists(f"{names.printable(target)} exists", remedy=f"use another name: {way}")
        _require_short(txn, chosen, target)
        parent_id, name = create.make_parent(txn, target)
        moved = _move(txn, ROOT_DIRECTORY, chosen.entry, parent_id, name)
        if isinstance(moved, SegmentRecord):
            if not moved.sealed:
                # A stream of Spark that went on meanwhile counts it as finished: what is appended now has to be told,
                # as after an unseal, also once it is sealed. Those below a directory are not: there may be 100,000.
                moved = changes.rewrite(txn, replace(moved, unsealed_id=txn.allocate_id()))
            streams.relink(txn, moved)
        return target, chosen


def note_evicted(txn: WriteTransaction, segment: SegmentRecord, local_bytes: int) -> None:
    """Subtract local bytes that the disk's pressure took from the sums of a segment's removal, if it is in the trash.

    Call it once the segment is written.
    """
    record = directories.top(txn, segment)
    if not names.is_in_trash(record.name):
        return
    removal = replace(record.removal, local_bytes=max(0, record.removal.local_bytes - local_bytes))
    _write(txn, replace(record, removal=removal))


def recount(txn: WriteTransaction, entry: Entry, sums: Removal) -> None:
    """Replace the sums of a removal, as after a loss."""
    record = _record(txn, entry)
    old = record.removal
    new = replace(sums, path=old.path, removed_ms=old.removed_ms, due_ms=old.due_ms, sequence=old.sequence)
    if new != old:
        _write(txn, replace(record, removal=new))


def date_all_anew(metadata: MetadataStore) -> int:
    """Make removals from the future ones of now, due as long after it; return how many there were. Idempotent."""
    with metadata.read() as txn:
        entries = list(directories.in_trash(txn))
    count = 0
    for first in range(0, len(entries), _TOGETHER):
        with metadata.write() as txn:
            still_there = [entry for entry in entries[first : first + _TOGETHER] if _is_there(txn, entry)]
            count += sum([_date_anew(txn, entry) for entry in still_there])
    return count


def _is_there(txn: ReadTransaction, entry: Entry) -> bool:
    return directories.lookup(txn, ROOT_DIRECTORY, entry.name) is not None


def _date_anew(txn: WriteTransaction, entry: Entry) -> bool:
    removal = _record(txn, entry).removal
    ahead_ms = removal.removed_ms - txn.now_ms
    if ahead_ms <= 0:
        return False
    dated = replace(removal, removed_ms=txn.now_ms, due_ms=removal.due_ms - ahead_ms)
    directories.move(txn, ROOT_DIRECTORY, entry, ROOT_DIRECTORY, names.in_trash(dated.due_ms, entry.id), dated)
    return True


def _move(
    txn: WriteTransaction, parent_id: DirectoryId, entry: Entry, to_parent_id: DirectoryId, name: str, *removal: Removal
) -> SegmentRecord | DirectoryRecord:
    moved = directories.move(txn, parent_id, entry, to_parent_id, name, *removal)
    if entry.kind is EntryKind.DIRECTORY:
        txn.touch(policies=True)  # the holder looks at every segment below, whose policy is another now
    return moved


def _record(txn: ReadTransaction, entry: Entry) -> SegmentRecord | DirectoryRecord:
    if entry.kind is EntryKind.DIRECTORY:
        return directories.directory(txn, entry.id)
    return txn.must_get(SEGMENTS, tables.u64(entry.id), f"segment {names.printable(entry.name)}")


def _write(txn: WriteTransaction, record: SegmentRecord | DirectoryRecord) -> None:
    if isinstance(record, SegmentRecord):
        changes.put_segment(txn, record)
    else:
        changes.put(txn, DIRECTORIES, record)


def _require_short(txn: ReadTransaction, chosen: Removed, target: str) -> None:
    """Raise InvalidRequest where a longer name would make one below it longer than a name may be."""
    if len(target.encode()) > len(chosen.removal.path.encode()):
        directories.check_names(txn, chosen.entry, target)
