"""Replay of changes to cold chains: links, unlinks and the references they count.

The journal records links, not the chunks dropped for them: a linked chunk replaces the bytes it covers, and the rest of
a partly covered chunk stays. A checkpoint names the owner's chunks as they are, and none of them is merged; in changes
a chunk merges with the one that it continues, as owners up to tierfs 0.1 rely on. References are counted again, so that
a repeated replay counts once. An object that loses its last reference is forgotten; the journal names garbage on its
own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import ChunkState, LocationId, ObjectId, SegmentId, Tier
from tierfs.engine.metadata import archive_place, chain, chains, checksums, tables, untrusted
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.tables import CHECKSUMS, CHUNKS, OBJECTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.metadata.untrusted import require


@dataclass(frozen=True, slots=True)
class CheckedLink:
    """A ColdLink message that was checked: chunks, and the objects in it, by id."""

    chunks: Sequence[ChunkRecord]
    objects: dict[ObjectId, ObjectRecord]


def read_link(txn: WriteTransaction, message: pb.ColdLink, own_location: LocationId) -> CheckedLink:
    """Check a message and write its checksum runs. Raises DataLoss."""
    _require_apart([message])
    objects = _read_objects(txn, message.objects, own_location)
    chunks = read_chunks(message.chunks)
    _write_runs(txn, message.checksums, objects, {chunk.object_id for chunk in chunks})
    return CheckedLink(chunks, objects)


def put_pack(txn: WriteTransaction, message: pb.PackLink, own_location: LocationId) -> ObjectId:
    """Write the pack of a message, to which all its links must be, and its checksum runs; return its id. Raises
    DataLoss."""
    _require_apart(message.links)
    objects = _read_objects(txn, (message.object,), own_location)
    used = {ObjectId(chunk.object_id) for cold_link in message.links for chunk in cold_link.chunks}
    require(used == set(objects), "a pack is linked together with other objects", message.object.id)
    _write_runs(txn, message.checksums, objects, used)
    for number, record in objects.items():  # the links that follow count its references
        txn.put(OBJECTS, tables.u64(number), record)
    return ObjectId(message.object.id)


def read_chunks(messages: Iterable[pb.ChunkRecord]) -> tuple[ChunkRecord, ...]:
    """Return the chunks of a link, whose `next` follows from their place in the chain."""
    return tuple(CHUNKS.codec.from_message(message, without=("next",)) for message in messages)


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
        _check(txn, record, own_location)
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


def link_last(txn: WriteTransaction, segment_id: SegmentId, message: CheckedLink) -> bool:
    """Link a single chunk after the last one of its segment, and write that; False, with nothing changed, where it is
    not so simple, as `link` does it then.

    Most chunks are linked so, and it takes a tenth of the time: it changes messages, not records.
    """
    if len(message.chunks) != 1 or message.chunks[0].state is not ChunkState.GOOD:
        return False
    chunk = message.chunks[0]
    key = tables.u64(chunk.object_id)
    sent = message.objects.get(chunk.object_id)
    stored = txn.message(OBJECTS, key) if chunk.object_id <= untrusted.MAX_ID else None
    untrusted.check_chunk(chunk, sent or stored)
    if chains.link_last(txn, segment_id, chunk, changes=False) is None:
        return False
    if sent is not None:
        txn.put(OBJECTS, key, replace(sent, references=1 + (stored.references if stored is not None else 0)))
    elif stored is not None:
        stored.references += 1
        txn.put_equal(OBJECTS.name, key, stored.SerializeToString(deterministic=True))
    return True


def link(txn: WriteTransaction, segment: SegmentRecord, message: CheckedLink, *, merges: bool = True) -> SegmentRecord:
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
    _check(txn, record, txn.store.cold_location_id)
    if txn.get(OBJECTS, tables.u64(record.id)) is not None:
        updated = _counted(txn, record)
        txn.put(OBJECTS, tables.u64(updated.id), updated)


def move_object(txn: WriteTransaction, message: pb.ObjectRecord) -> None:
    """Give an object that is linked its new name, in the cold tier or the archive place; one that was forgotten since
    is success. Raises DataLoss."""
    record = OBJECTS.codec.from_message(message)
    _check(txn, record, txn.store.cold_location_id)
    stored = txn.get(OBJECTS, tables.u64(record.id))
    if stored is None:
        return
    same = (stored.tier, stored.length, stored.foreign, stored.encoding, stored.stored_length)
    moved = (record.tier, record.length, record.foreign, record.encoding, record.stored_length)
    require(same == moved and not record.foreign, "an object moved and became another one", record.id)
    txn.put(OBJECTS, tables.u64(record.id), replace(record, references=stored.references))


def _check(txn: WriteTransaction, record: ObjectRecord, own_location: LocationId) -> None:
    in_place = archive_place.id_for(txn, record.location_id, record.archive_class)
    untrusted.check_object(record, own_location, in_place)


def _counted(txn: WriteTransaction, record: ObjectRecord) -> ObjectRecord:
    """Return the object with the references that are counted here. An id names one object for ever."""
    stored = txn.get(OBJECTS, tables.u64(record.id))
    if stored is None:
        return replace(record, references=0)
    same = (stored.tier, stored.location_id, stored.name, stored.length)
    require(same == (record.tier, record.location_id, record.name, record.length), "two objects have one id", record.id)
    return replace(record, references=stored.references)


def _record_of(txn: WriteTransaction, chunk: ChunkRecord, message: CheckedLink) -> ObjectRecord | None:
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
