"""Give a segment, a stream or a directory another name, in one commit; no byte is moved, in either tier.

All rows but those of names are found by id. So chunks, objects, policies, ledgers, repeated adoptions, readers and
writers stay as they are. The journal says it as it says every move.
"""

from __future__ import annotations

from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import ROOT_DIRECTORY, DirectoryId, EntryKind, SegmentId, SegmentKind
from tierfs.engine.metadata import changes, directories, policies
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.record_parts import Removal
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.engine.segments import create, streams, trash

# Members of a stream that one commit renames: some 100 ms, the longest wait of an append (a guess).
_MOST_MEMBERS = 1000

# Time in the trash of a directory whose journal was cut inside of its move, as a recovery finds it.
_LEAST_IN_TRASH_S = 24 * 3600


@dataclass(frozen=True, slots=True)
class Renamed:
    """A change of names."""

    source: str
    target: str
    segments: int
    """Of a stream, its members; 0 for a directory, in which no name changes."""


def rename(metadata: MetadataStore, source: str, target: str) -> Renamed:
    """Give the entry at `source` the name `target`, or its own name in `target` if that is a directory.

    Directories above it are made. A segment takes the later segments of its stream along. Raises NotFound,
    AlreadyExists, NotDirectory below a segment, and InvalidRequest: for a part of a stream or of a managed ledger, for
    a directory into itself, for a name that is too long, and for policies that contradict each other there.
    """
    with metadata.write() as txn:
        entry = directories.must_find(txn, source)
        old = names.join(names.split(source))
        if not old:
            raise InvalidRequest("the whole store cannot be renamed")
        new = _target(txn, old, target)
        parts = names.split(old)
        above = directories.must_find(txn, names.join(parts[:-1]))
        named = Entry(parts[-1], entry.kind, entry.id)
        if entry.kind is EntryKind.DIRECTORY:
            _move_directory(txn, DirectoryId(above.id), named, old, new)
            count = 0
        else:
            count = _move_stream(txn, named, old, new)
        policies.check_below(txn, directories.must_find(txn, new))
        return Renamed(old, new, count)


def _target(txn: ReadTransaction, old: str, typed: str) -> str:
    """Return the new name. Raises AlreadyExists, and InvalidRequest for a name at or below the old one."""
    new, last = names.join(names.split(typed)), names.split(old)[-1]
    if new.startswith(f"{old}/"):
        raise InvalidRequest(f"{names.printable(old)} cannot be moved into itself, to {names.printable(new)}")
    if old in (new, names.join((*names.split(new), last))):
        raise InvalidRequest(f"{names.printable(old)} has this name already")
    return create.name_at(txn, new, last)


def _move_directory(txn: WriteTransaction, parent_id: DirectoryId, entry: Entry, old: str, new: str) -> None:
    if len(new.encode()) > len(old.encode()):
        directories.check_names(txn, entry, new)
    to_parent_id, name = create.make_parent(txn, new)
    # A reader of the journal takes a directory that moves for damage, unless it moves to the trash or from there: with
    # both in one commit, older versions follow it too.
    age_s = max(_LEAST_IN_TRASH_S, trash.age_s(txn, entry))
    due_ms = txn.now_ms + age_s * 1000
    removal = Removal(path=old, removed_ms=txn.now_ms, due_ms=due_ms, sequence=txn.store.next_outbox)
    hidden = Entry(names.in_trash(due_ms, entry.id), entry.kind, entry.id)
    directories.move(txn, parent_id, entry, ROOT_DIRECTORY, hidden.name, removal)
    directories.move(txn, ROOT_DIRECTORY, hidden, to_parent_id, name)
    txn.touch(policies=True)  # the holder looks at every segment below, whose policy may be another now


def _move_stream(txn: WriteTransaction, entry: Entry, old: str, new: str) -> int:
    """Rename a segment and the later ones of its stream; return their number."""
    first = directories.segment_by_id(txn, SegmentId(entry.id))
    members = _members(txn, first, old)
    to_parent_id, last = create.make_parent(txn, new)
    for member in members:
        name = last + member.name.removeprefix(entry.name)
        names.split(directories.path_of(txn, to_parent_id, name))  # which raises if it is too long
        named = Entry(member.name, EntryKind.SEGMENT, member.id)
        moved = directories.move(txn, member.parent_id, named, to_parent_id, name)
        assert isinstance(moved, SegmentRecord)
        if member is not first:
            changes.rewrite(txn, replace(moved, stream_name=last))
    # Their writers look at the segment again before they append more: the name is a part of an append's key.
    txn.update_store(removals=txn.store.removals + 1)
    txn.touch(policies=True)
    return len(members)


def _members(txn: ReadTransaction, first: SegmentRecord, shown: str) -> list[SegmentRecord]:
    """Return a segment and the later ones of its stream. Raises InvalidRequest for what cannot be moved alone."""
    shown = names.printable(shown)
    above = names.as_word(shown.rpartition("/")[0] or "/")
    whole = f"move the directory that it is in: tierfs mv {above} TARGET"
    if first.kind is SegmentKind.LEDGER:
        raise InvalidRequest(f"{shown} is a ledger of a managed ledger", remedy=whole)
    if first.stream_name:
        before = streams.predecessor(txn, first)
        stream = names.printable(first.stream)
        if before is None:
            raise InvalidRequest(
                f"{shown} is a part of the stream {stream}, of which the first was removed", remedy=whole
            )
        raise InvalidRequest(f"{shown} is a part of the stream {stream}", remedy=f"move the first segment: {stream}")
    members = [first]
    while (following := streams.successor(txn, members[-1])) is not None:
        if following.parent_id != first.parent_id or not following.name.startswith(f"{first.name}."):
            path = directories.path_of(txn, following.parent_id, following.name)
            raise InvalidRequest(f"{shown} continues in {names.printable(path)}, which has a name of its own")
        members.append(following)
        if len(members) > _MOST_MEMBERS:
            raise InvalidRequest(f"{shown} continues in more than {_MOST_MEMBERS} segments", remedy=whole)
    return members
