"""Replay of changes to cold chains: links, unlinks and the references they count.

The journal records links, not the chunks dropped for them: a linked chunk replaces the bytes it covers, and the rest of
a partly covered chunk stays. A checkpoint names the owner's chunks as they are, and none of them is merged; in changes
a chunk merges with the one that it continues, as owners up to tierfs 0.1 rely on. References are counted again, so that
a repeated replay counts once. An object that loses its last reference is forgotten; the journal names garbage on its
own.

Replay of changes to the tree of names: entries, moves and the shape of the tree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.types import ROOT_DIRECTORY, DirectoryId, EntryKind, LocationId, ObjectId, Tier
from tierfs.engine.metadata import chain, chains, checksums, directories, tables, untrusted
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.records import ChunkRecord, DirectoryRecord, DirentRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.tables import CHECKSUMS, CHUNKS, DIRECTORIES, DIRENTS, OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.metadata.untrusted import require


@dataclass(frozen=True, slots=True)
class Link:
    """A checked ColdLink message: chunks, and the objects in it, by id."""

    chunks: Sequence[ChunkRecord]
    objects: dict[ObjectId, ObjectRecord]


def read_link(txn: WriteTransaction, message: pb.ColdLink, own_location: LocationId) -> Link:
    """Check a message and write its checksum runs. Raises DataLoss."""
    _require_apart([message])
    objects = _read_objects(txn, message.objects, own_location)
    chunks = read_chunks(message.chunks)
    _write_runs(txn, message.checksums, objects, {chunk.object_id for chunk in chunks})
    return Link(chunks, objects)


def read_pack(txn: WriteTransaction, message: pb.PackLink, own_location: LocationId) -> dict[ObjectId, ObjectRecord]:
    """Check the pack of a message, to which all its links must be, and write its checksum runs. Raises DataLoss."""
    _require_apart(message.links)
    objects = _read_objects(txn, (message.object,), own_location)
    used = {ObjectId(chunk.object_id) for cold_link in message.links for chunk in cold_link.chunks}
    require(used == set(objects), "a pack is linked together with other objects", message.object.id)
    _write_runs(txn, message.checksums, objects, used)
    return objects


def read_chunks(messages: Iterable[pb.ChunkRecord]) -> tuple[ChunkRecord, ...]:
    """Return the chunks of a link, whose `next` follows from their place in the chain."""
    return tuple(replace(CHUNKS.codec.from_message(message), next=0) for message in messages)


def _require_apart(links: Iterable[pb.ColdLink]) -> None:
    """Raise DataLoss where chunks of one change overlap: a later one would cut what the first has just linked."""
    places = sorted((link.segment_id, chunk.start_offset, chunk.length) for link in links for chunk in link.chunks)
    for (number, start, length), (other, begins, _) in pairwise(places):
        require(number != other or start + length <= begins, "chunks overlap", number, begins)


def _read_objects(
    txn: WriteTransaction, messages: Iterable[pb.ObjectRecord], own_location: LocationId
) -> dict[ObjectId, ObjectRecord]:
    objects: dict[ObjectId, ObjectRecord] = {}
    for message in messages:
        record = OBJECTS.codec.from_message(message)
        untrusted.check_object(record, own_location)
        objects[record.id] = _counted(txn, record)
    return objects


def _write_runs(
    txn: WriteTransaction,
    messages: Iterable[pb.ChecksumRun],
    objects: dict[ObjectId, ObjectRecord],
    used: Collection[ObjectId],
) -> None:
    for message in messages:
        record = objects.get(ObjectId(message.object_id))
        require(record is not None, "checksums of an object that is not linked", message.object_id)
        assert record is not None
        run = CHECKSUMS.codec.from_message(message)
        untrusted.check_run(run, record)
        if record.id in used:
            checksums.put_run(txn, record.id, replace(run, object_id=0))


def put_checksums(txn: WriteTransaction, message: pb.ObjectChecksums, own_location: LocationId) -> ObjectId:
    """Write checksum runs of an object that a later link names; return its id. Raises DataLoss."""
    objects = _read_objects(txn, (message.object,), own_location)
    _write_runs(txn, message.runs, objects, objects.keys())
    return ObjectId(message.object.id)


def link(txn: WriteTransaction, segment: SegmentRecord, message: Link, *, merges: bool = True) -> SegmentRecord:
    """Link chunks in place of the bytes they cover; return the changed segment, not yet written."""
    editor = Editor(txn, segment)
    for chunk in message.chunks:
        record = _record_of(txn, chunk, message) if chunk.object_id else None
        untrusted.check_chunk(chunk, record)
        _link_one(txn, editor, chunk, record, merges)
    return editor.segment


def unlink(txn: WriteTransaction, segment: SegmentRecord, start_offsets: Sequence[int]) -> SegmentRecord:
    """Unlink the chunks that begin at these offsets; missing ones are success. Returns the segment, not yet written."""
    editor = Editor(txn, segment)
    for start in start_offsets:
        chunk = txn.get(CHUNKS, tables.chunk(segment.id, Tier.COLD, start)) if start <= untrusted.MAX_OFFSET else None
        if chunk is not None:
            editor.remove(Tier.COLD, [chunk], due_ms=None)
    return editor.segment


def adopt_etag(txn: WriteTransaction, message: pb.ObjectRecord) -> None:
    """Replace the etag of an object that is linked; one that was forgotten since is success. Raises DataLoss."""
    record = OBJECTS.codec.from_message(message)
    untrusted.check_object(record, txn.store.cold_location_id)
    if txn.get(OBJECTS, tables.u64(record.id)) is not None:
        updated = _counted(txn, record)
        txn.put(OBJECTS, tables.u64(updated.id), updated)


def _counted(txn: WriteTransaction, record: ObjectRecord) -> ObjectRecord:
    """Return the object with the references that are counted here. An id names one object for ever."""
    stored = txn.get(OBJECTS, tables.u64(record.id))
    if stored is None:
        return replace(record, references=0)
    same = (stored.tier, stored.location_id, stored.name, stored.length)
    require(same == (record.tier, record.location_id, record.name, record.length), "an id names two objects", record.id)
    return replace(record, references=stored.references)


def _record_of(txn: WriteTransaction, chunk: ChunkRecord, message: Link) -> ObjectRecord | None:
    """Return the chunk's object and its present count: the database's when an earlier chunk of the message wrote it."""
    sent = message.objects.get(chunk.object_id)
    stored = txn.get(OBJECTS, tables.u64(chunk.object_id)) if chunk.object_id <= untrusted.MAX_ID else None
    if sent is None or stored is None:
        return sent or stored
    return replace(sent, references=stored.references)


def _link_one(
    txn: WriteTransaction, editor: Editor, chunk: ChunkRecord, record: ObjectRecord | None, merges: bool
) -> None:
    covered = list(chains.overlapping(txn, editor.segment.id, Tier.COLD, chunk.range))
    if len(covered) == 1 and _holds(covered[0], chunk) and (merges or covered[0].length == chunk.length):
        return
    rests = [rest for other in covered for rest in _rests(editor.segment, other, chunk)]
    editor.swap(Tier.COLD, covered, [*rests, chunk], made=record, merges=merges, due_ms=None)


def _rests(segment: SegmentRecord, other: ChunkRecord, chunk: ChunkRecord) -> list[ChunkRecord]:
    """Return the parts of a chunk that a new one does not cover: replays may have merged two chunks of the owner.

    Bytes before the segment's start may be missing in the new chunk: they are never read.
    """
    rests = [rest for rest in ranges.gaps(other.range, (chunk.range,)) if rest.end > segment.start_offset]
    return [chain.part(other, rest, other.state) for rest in rests]


def _holds(other: ChunkRecord, chunk: ChunkRecord) -> bool:
    """Return whether `other` is this very chunk, or one that it became part of."""
    return (
        other.range.contains(chunk.range)
        and (other.object_id, other.state) == (chunk.object_id, chunk.state)
        and (not other.object_id or _shift(other) == _shift(chunk))
    )


def _shift(chunk: ChunkRecord) -> int:
    """Return the distance from offsets in the object to those in the segment."""
    return chunk.start_offset - chunk.object_offset


# Components of the longest name, each with its slash.
_MAX_DEPTH = names.MAX_NAME_BYTES // 2 + 1

# Paths of directories whose lengths are kept: some 5 MB.
_MOST_PATHS = 50_000


def place_segment(txn: WriteTransaction, old: SegmentRecord | None, new: SegmentRecord) -> None:
    """Give a segment its name; a moved one loses its old name. Raises DataLoss."""
    if old is not None and (old.parent_id, old.name, old.inode) == (new.parent_id, new.name, new.inode):
        return
    require(txn.get(DIRECTORIES, tables.u64(new.id)) is None, "a segment has a directory's id", new.id)
    check_path(txn, new.parent_id, new.name)
    if old is not None:
        displace(txn, old.parent_id, old.name, EntryKind.SEGMENT, old.id)
    _enter(txn, new.parent_id, new.name, EntryKind.SEGMENT, new.id, new.created_ms)


def place_directory(
    txn: WriteTransaction, message: pb.DirectoryRecord, *, parent_may_follow: bool = False
) -> tuple[int, int]:
    """Write a directory and give it its name; return its id and inode. Raises DataLoss.

    `parent_may_follow`: a checkpoint is in the order of ids. `check_tree` then checks the paths that were not.
    A directory moves only when it is removed or restored: a longer path to it makes longer ones of all below it.
    """
    record = DIRECTORIES.codec.from_message(message)
    key = tables.u64(record.id)
    old = txn.get(DIRECTORIES, key)
    if record.id == ROOT_DIRECTORY:
        assert old is not None
        kept = replace(old, created_ms=record.created_ms, modified_ms=record.modified_ms, mode=record.mode)
        txn.put(DIRECTORIES, key, kept)
        txn.touch(inode=old.inode)
        return old.id, old.inode
    untrusted.check_directory(record)
    require(txn.get(SEGMENTS, key) is None, "a directory has a segment's id", record.id)
    txn.put(DIRECTORIES, key, record)
    if old is None or (old.parent_id, old.name) != (record.parent_id, record.name):
        restored = old is not None and old.parent_id == ROOT_DIRECTORY and names.is_in_trash(old.name)
        if old is not None:
            moves = restored or directories.is_removed(record.parent_id, record.name)
            require(moves, "a directory moves", record.id)
            displace(txn, old.parent_id, old.name, EntryKind.DIRECTORY, old.id)
            txn.path_bytes.clear()
        _enter(txn, record.parent_id, record.name, EntryKind.DIRECTORY, record.id, record.created_ms)
        if not parent_may_follow or txn.get_raw(DIRECTORIES.name, tables.u64(record.parent_id)) is not None:
            check_path(txn, record.parent_id, record.name)
        if old is not None and restored:
            _check_restored(txn, old, record)
    txn.touch(inode=record.inode)
    return record.id, record.inode


def _check_restored(txn: WriteTransaction, old: DirectoryRecord, record: DirectoryRecord) -> None:
    """Raise DataLoss where a directory is restored to a path that makes a name below it too long."""
    path = directories.path_of(txn, record.parent_id, record.name)
    if len(path.encode()) > len(old.removal.path.encode()):  # what was not too long before is none after it, either
        entry = directories.Entry(record.name, EntryKind.DIRECTORY, record.id)
        try:
            directories.check_names(txn, entry, path)
        except InvalidRequest as exc:
            raise DataLoss(f"a directory is restored to a name that is too long: {exc}") from exc


def remove_directory(txn: WriteTransaction, directory_id: int) -> None:
    """Remove an empty directory; a missing one is success. Raises DataLoss for one with entries."""
    record = txn.get(DIRECTORIES, tables.u64(directory_id))
    if record is None:
        return
    require(record.id != ROOT_DIRECTORY, "it removes the root directory")
    require(directories.is_empty(txn, record.id), "it removes a directory that is not empty", record.id)
    txn.delete(DIRECTORIES.name, tables.u64(directory_id))
    txn.path_bytes.pop(directory_id, None)
    displace(txn, record.parent_id, record.name, EntryKind.DIRECTORY, record.id)
    txn.touch(inode=record.inode)


def displace(txn: WriteTransaction, parent_id: DirectoryId, name: str, kind: EntryKind, entry_id: int) -> None:
    """Remove the name of an entry, unless it stands for another one now."""
    entry = directories.lookup(txn, parent_id, name)
    if entry is not None and (entry.kind, entry.id) == (kind, entry_id):
        txn.delete(DIRENTS.name, tables.dirent(parent_id, name))
        _touch_parent(txn, parent_id, name, txn.now_ms)


def check_tree(txn: WriteTransaction) -> None:
    """Raise DataLoss unless every directory is below the root, by a name that is allowed."""
    txn.path_bytes.clear()
    for _, record in txn.scan(DIRECTORIES):
        if record.id != ROOT_DIRECTORY:
            check_path(txn, record.parent_id, record.name)


def check_path(txn: WriteTransaction, parent_id: DirectoryId, name: str) -> None:
    """Raise DataLoss unless the path up from an entry ends at the root and is not too long; its parts are checked."""
    _append(txn, parent_id, name, _bytes_of(txn, parent_id))


def _append(txn: WriteTransaction, parent_id: DirectoryId, name: str, parent_bytes: int) -> int:
    """Return the bytes of the path of an entry, given those of its directory's. Raises DataLoss."""
    if directories.is_removed(parent_id, name):
        return 0  # it may be longer than the name it replaced
    length_bytes = parent_bytes + bool(parent_bytes) + len(name.encode())
    require(length_bytes <= names.MAX_NAME_BYTES, "an impossible name: it is too long", length_bytes)
    return length_bytes


def _bytes_of(txn: WriteTransaction, directory_id: DirectoryId) -> int:
    """Return the bytes of a directory's path, which the transaction keeps: a path is climbed once, not once per entry
    below it. Raises DataLoss."""
    known, climbed = txn.path_bytes, list[DirectoryRecord]()
    at = directory_id
    while at != ROOT_DIRECTORY and at not in known:
        record = txn.get(DIRECTORIES, tables.u64(at))
        require(record is not None, "an unknown directory", at)
        assert record is not None
        climbed.append(record)
        require(len(climbed) <= _MAX_DEPTH, "directories are nested too deep or in a circle", at)
        at = record.parent_id
    length_bytes = known.get(at, 0)
    if len(known) > _MOST_PATHS:
        known.clear()
    for record in reversed(climbed):
        length_bytes = known[record.id] = _append(txn, record.parent_id, record.name, length_bytes)
    return length_bytes


def _enter(
    txn: WriteTransaction, parent_id: DirectoryId, name: str, kind: EntryKind, entry_id: int, created_ms: int
) -> None:
    entry = directories.lookup(txn, parent_id, name)
    if entry is not None and (entry.kind, entry.id) != (kind, entry_id):
        require(False, f"two entries have one name: {names.printable(name)}", entry.id, entry_id)
    txn.put(DIRENTS, tables.dirent(parent_id, name), DirentRecord(kind=kind, id=entry_id))
    _touch_parent(txn, parent_id, name, created_ms)


def _touch_parent(txn: WriteTransaction, parent_id: DirectoryId, name: str, now_ms: int) -> None:
    parent: DirectoryRecord | None = txn.get(DIRECTORIES, tables.u64(parent_id))
    if parent is None:
        return  # follows later in a checkpoint
    if now_ms > parent.modified_ms:
        txn.put(DIRECTORIES, tables.u64(parent_id), replace(parent, modified_ms=now_ms))
    txn.touch(parent_inode=parent.inode, name=name)
