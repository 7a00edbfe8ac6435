"""Compare an adopted segment with what its place holds now, and link the difference in one commit.

The foreign system appends to its last object or creates further ones, joins objects (RocketMQ seals a file segment's
chunks into one object, Pravega concatenates chunks), and deletes the first ones. So the same bytes may be in other
objects than before. Bytes that are linked are proved: an object that is new, longer or has another etag is read, and
each block of 128 KiB that was linked before must have the CRC32C that was recorded then. New bytes at the end are
growth, a missing head is a truncation; anything else is refused, naming the object.

An object's id names one content for ever, in the journal too: a longer object gets a record of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from tierfs.base.bytes import ranges
from tierfs.base.bytes.checksum import Stretch, joined
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names
from tierfs.base.words.errors import AlreadyExists, Conflict
from tierfs.base.words.names import printable
from tierfs.base.words.types import (
    CRC_BLOCK_BYTES,
    ByteRange,
    ChunkState,
    DirectoryId,
    EntryKind,
    SegmentId,
    SegmentKind,
    Tier,
)
from tierfs.engine.metadata import chains, checksums, directories, policies, tables
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.records import ChunkRecord, LocationRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.engine.segments import seal, truncate
from tierfs.tiering.adoption.plan import ForeignExtent, SegmentPlan, offset
from tierfs.tiering.adoption.prove import Proof
from tierfs.tiering.adoption.read import ExtentRead, PartSums

_CRC_BYTES = 4


def other_segment(name: str, what: str) -> AlreadyExists:
    """Return the error for a name that is taken by something else."""
    return AlreadyExists(
        f"{printable(name)} already exists and is {what}", remedy="choose another --into, or remove it"
    )


def segment_of(txn: ReadTransaction, record: ObjectRecord | None, place: LocationRecord) -> str:
    """Return what a segment is whose bytes are in such an object, and not in one of `place` as they were adopted."""
    if record is None or not record.foreign:
        return "a segment of this store's own bytes"
    linked = policies.location(txn, record.location_id)
    if policies.same_place(linked, place):
        return f"a segment of another object: {printable(record.name)}"
    return f"a segment of the objects in {policies.told(linked)}, not of those in {policies.told(place)}"


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes that make a segment what its place holds now."""

    plan: SegmentPlan
    segment: SegmentRecord | None
    """As it is; None for one to be made."""
    start_offset: int
    """Its start afterwards."""
    reads: tuple[ExtentRead, ...]
    """Extents to link, whose objects have to be read before."""

    @property
    def nothing(self) -> bool:
        """Whether the segment is what its place holds."""
        return self.segment is not None and not self.reads and not self.removed_bytes

    @property
    def new_bytes(self) -> int:
        """Bytes that the segment gains at its end."""
        return self.plan.end_offset - (self.plan.start_offset if self.segment is None else self.segment.length)

    @property
    def removed_bytes(self) -> int:
        """Bytes that it loses at its head."""
        return 0 if self.segment is None else self.start_offset - self.segment.start_offset

    @property
    def read_bytes(self) -> int:
        """Bytes to read."""
        return sum(read.extent.object.length_bytes - read.start for read in self.reads)


@dataclass(frozen=True, slots=True)
class _Linked:
    """A run of a segment's bytes in one adopted object."""

    range: ByteRange
    object: ObjectRecord
    object_offset: int
    good: bool

    @property
    def object_offset_end(self) -> int:
        """Offset in the object just past the run."""
        return self.object_offset + self.range.length_bytes


def compare(txn: ReadTransaction, plan: SegmentPlan, place: LocationRecord, *, thorough: bool) -> Difference:
    """Return what adopting `plan` changes.

    `thorough`: an object that only became longer is read again from its first byte, not from its last block.

    Raises AlreadyExists when the name stands for anything else, or when linked bytes are gone or are not in one object
    as they were; NotDirectory when it runs through a segment.
    """
    entry = directories.find(txn, plan.name)
    if entry is None:
        return Difference(plan, None, plan.start_offset, tuple(map(ExtentRead, plan.extents)))
    segment = directories.segment(txn, SegmentId(entry.id)) if entry.kind is EntryKind.SEGMENT else None
    if segment is None:
        raise other_segment(plan.name, "a directory")
    linked = _linked(txn, segment, plan, place)
    start = max(segment.start_offset, plan.start_offset)
    _require_end(segment, plan, linked, start)
    known = {part.range.start: part for part in linked}
    # What retention or a truncation removed here stays removed.
    changed = [
        extent
        for extent in plan.extents
        if extent.end_offset > start and not _is_linked(known.get(extent.start_offset), extent)
    ]
    if changed and not segment.sealed and not segment.grows_from:
        raise other_segment(plan.name, "unsealed, so it accepts appends of this store; seal it first")
    reads = _reads(txn, plan, changed, [part for part in linked if part.range.end > start], thorough=thorough)
    return Difference(plan, segment, start, reads)


def _linked(txn: ReadTransaction, segment: SegmentRecord, plan: SegmentPlan, place: LocationRecord) -> list[_Linked]:
    """Return the cold chain by objects: one has several chunks if a part of it was recorded as lost."""
    if segment.kind is not SegmentKind.BYTES:
        raise other_segment(plan.name, "a ledger")
    if segment.local.count:
        raise other_segment(plan.name, segment_of(txn, None, place))
    known = policies.foreign_at(txn, place)
    parts: list[_Linked] = []
    chunks = chains.chunks(txn, segment.id, Tier.COLD, segment.start_offset)
    for object_id, run in groupby(chunks, key=lambda chunk: chunk.object_id):
        pieces: list[ChunkRecord] = list(run)
        record = txn.get(tables.OBJECTS, tables.u64(object_id))
        if record is None or not record.foreign or known is None or record.location_id != known.id:
            raise other_segment(plan.name, segment_of(txn, record, place))
        held = ByteRange(pieces[0].start_offset, pieces[-1].end_offset)
        good = all(piece.state is ChunkState.GOOD for piece in pieces)
        parts.append(_Linked(held, record, pieces[0].object_offset, good))
    return parts


def _require_end(segment: SegmentRecord, plan: SegmentPlan, linked: Sequence[_Linked], start: int) -> None:
    """Raise AlreadyExists unless the place still holds the segment's last bytes, and continues them."""
    if start > segment.length:
        raise other_segment(plan.name, f"shorter: its place starts at byte {start}, after its end")
    if plan.end_offset >= segment.length:
        return
    missing = next((part.object.name for part in linked if part.range.end > plan.end_offset), "")
    where = f", once in {printable(missing)}," if missing else ""
    gone = f"longer: its bytes {plan.end_offset} to {segment.length}{where} are no longer in its place"
    last = plan.extents[-1] if plan.extents else None
    if last is not None and any(extent.object.name == missing != last.object.name for extent in plan.extents):
        cut = f"{printable(last.object.name)} starts at byte {last.start_offset}, in the middle of it"
        raise AlreadyExists(
            f"{printable(plan.name)} already exists and is {gone}: {cut}",
            remedy="wait until the other system has written them again, or remove it and adopt it again",
        )
    raise other_segment(plan.name, gone)


def _is_linked(part: _Linked | None, extent: ForeignExtent) -> bool:
    """Return whether an extent is linked as it is; a record may hold more of its object than the extent has."""
    if part is None or not part.good or (part.range, part.object_offset) != (extent.range, 0):
        return False
    held, listed = part.object, extent.object
    return (held.name, held.etag) == (listed.name, listed.etag) and held.length >= listed.length_bytes


def _reads(
    txn: ReadTransaction,
    plan: SegmentPlan,
    changed: Sequence[ForeignExtent],
    linked: Sequence[_Linked],
    *,
    thorough: bool,
) -> tuple[ExtentRead, ...]:
    """Return how the objects of extents are read, and what their bytes are compared with."""
    reads: list[ExtentRead] = []
    proofs: list[Proof] = []
    for part in linked:
        held_by = [extent for extent in changed if extent.range.intersect(part.range)]
        if held_by:
            proofs.extend(_proof(txn, plan, part, held_by))
    for extent in changed:
        same = next((part for part in linked if _has_grown(part, extent)), None)
        read = ExtentRead(extent)
        if same is not None and not thorough:
            read = _from_last_block(txn, extent, same)
        wanted = ByteRange(extent.start_offset + read.start, extent.end_offset)
        reads.append(replace(read, proofs=tuple(_within(proofs, wanted, from_last_block=bool(read.start)))))
    return tuple(reads)


def _within(proofs: Sequence[Proof], wanted: ByteRange, *, from_last_block: bool) -> Iterator[Proof]:
    """Yield the proofs of bytes in `wanted`: of one whose first blocks are not read again, the others."""
    for proof in proofs:
        if not proof.range.intersect(wanted):
            continue
        skipped = (wanted.start - proof.range.start) // CRC_BLOCK_BYTES if from_last_block else 0
        if skipped <= 0:
            yield proof
        else:
            rest = ByteRange(proof.range.start + skipped * CRC_BLOCK_BYTES, proof.range.end)
            yield Proof(proof.name, rest, proof.packed[skipped * _CRC_BYTES :])


def _has_grown(part: _Linked, extent: ForeignExtent) -> bool:
    """Return whether an object is the one that was linked, and has become longer."""
    held = part.object
    begins = part.range.start - part.object_offset
    return (
        part.good
        and (held.name, begins) == (extent.object.name, extent.start_offset)
        and part.range.end == begins + held.length < extent.end_offset
    )


def _proof(txn: ReadTransaction, plan: SegmentPlan, part: _Linked, held_by: Sequence[ForeignExtent]) -> Iterator[Proof]:
    """Yield the proof of the whole blocks of a linked part that the plan has.

    Where the plan begins inside a block, its system has deleted the first bytes of it, and copied the others: they
    cannot be compared any more, and the copy is taken. That is less than a block at the head. Raises AlreadyExists
    where only a part of the last block is linked.
    """
    begins = part.range.start - part.object_offset
    ends = begins + part.object.length
    if part.range.end < ends and part.object_offset_end % CRC_BLOCK_BYTES:
        # Records of earlier versions hold what a successor cut off: it is compared if the object has it still.
        same = held_by[-1].object.name == part.object.name and held_by[-1].end_offset >= ends
        if not same:
            raise _moved(plan, part, held_by[-1])
    else:
        ends = part.range.end
    before = max(0, plan.start_offset - begins)
    first = -(-before // CRC_BLOCK_BYTES) * CRC_BLOCK_BYTES
    if begins + first < ends:
        yield Proof(part.object.name, ByteRange(begins + first, ends), _packed(txn, part.object, first, ends - begins))


def _moved(plan: SegmentPlan, part: _Linked, extent: ForeignExtent) -> AlreadyExists:
    bytes_of = f"its bytes {part.range.start} to {part.range.end} were those of {printable(part.object.name)}"
    return other_segment(
        plan.name, f"made of other bytes: {bytes_of}, and the place now has {printable(extent.object.name)}"
    )


def _packed(txn: ReadTransaction, record: ObjectRecord, start: int, end: int) -> bytes:
    """Return the CRCs of an object's blocks; `start` is the first byte of one."""
    first, packed = checksums.PackedChecksums(txn).covering(record.id, ByteRange(start, end))
    skipped = (start - first) // CRC_BLOCK_BYTES * _CRC_BYTES
    return packed[skipped : skipped + -(-(end - start) // CRC_BLOCK_BYTES) * _CRC_BYTES]


def _from_last_block(txn: ReadTransaction, extent: ForeignExtent, part: _Linked) -> ExtentRead:
    """Return a read of a longer object from the block on that its recorded bytes end in.

    The blocks before were proved when they were linked, and are at each read and by the scrub.
    """
    begin = part.object.length - part.object.length % CRC_BLOCK_BYTES
    packed = _packed(txn, part.object, 0, begin) if begin else b""
    blocks = (packed[at : at + _CRC_BYTES] for at in range(0, len(packed), _CRC_BYTES))
    whole = joined(Stretch(CRC_BLOCK_BYTES, int.from_bytes(crc, "big")) for crc in blocks)
    return ExtentRead(extent, begin, PartSums(packed, whole.crc32c))


def apply(
    txn: WriteTransaction,
    difference: Difference,
    location: LocationRecord,
    made: Iterator[list[tuple[ByteRange, ObjectRecord]]],
) -> None:
    """Cut the head that is gone, and link new objects in place of those whose bytes they hold, and after them.

    `made`: the extents with their objects, in groups of which each fits into one change of the journal. A segment that
    grows is unsealed if it was sealed, which gives it a new inode: cached handles never see growth. Raises Conflict if
    the segment is not any more as it was compared.
    """
    before = difference.segment
    assert before is not None
    segment = directories.segment(txn, before.id)
    if segment is None or _version(segment) != _version(before):
        raise Conflict(f"{printable(difference.plan.name)} was changed meanwhile", remedy="adopt it again")
    if difference.removed_bytes:
        truncate.cut(txn, segment, difference.start_offset, cold_due_ms=txn.now_ms)
        segment = txn.must_get(tables.SEGMENTS, tables.u64(segment.id), "segment")
    if difference.new_bytes:
        segment = seal.opened(txn, segment) if segment.sealed else segment
        newest_ms = max(extent.object.modified_ms for extent in difference.plan.extents)
        segment = replace(
            segment,
            length=difference.plan.end_offset,
            grows_from=location.id,
            modified_ms=max(segment.modified_ms, newest_ms),
        )
    if not difference.reads:
        return
    editor = Editor(txn, segment)
    for window in ranges.union(read.extent.range for read in difference.reads):
        replaced = list(chains.overlapping(txn, segment.id, Tier.COLD, window))
        # Not journaled: the links below cover them, and a replay puts a link in place of what it covers.
        editor.remove(Tier.COLD, replaced, due_ms=txn.now_ms)
    for first, group in enumerate(made):
        editor.link_objects(group, segment_first=not first)
    editor.put(journaled=True)


def _version(segment: SegmentRecord) -> tuple[object, ...]:
    return (segment.generation, segment.start_offset, segment.length, segment.status, segment.grows_from)


def stored_name(txn: ReadTransaction, plan: SegmentPlan) -> str:
    """Return the name of the segment that holds, or ends at, the first byte of a run of `plan.stem`.

    A hole begins a segment that is named by its offset; when its system has deleted all before the hole, what was the
    second run is the first.
    """
    stem = names.join(names.split(plan.stem))
    parent, _, last = stem.rpartition("/")
    entry = directories.find(txn, parent)
    if not stem or entry is None or entry.kind is not EntryKind.DIRECTORY:
        return plan.name
    own = directories.lookup(txn, DirectoryId(entry.id), last)
    if own is None:
        return plan.name
    siblings = [own, *_numbered(txn, entry, last)]
    for sibling in siblings:
        segment = directories.segment(txn, SegmentId(sibling.id)) if sibling.kind is EntryKind.SEGMENT else None
        if segment is not None and segment.first_offset <= plan.start_offset <= segment.length:
            return f"{parent}/{sibling.name}" if parent else sibling.name
    return plan.name if plan.name != stem else f"{stem}.{plan.start_offset}"


def _numbered(txn: ReadTransaction, parent: directories.Entry, stem: str) -> Iterator[directories.Entry]:
    """Yield the entries `stem.<offset>` of a directory."""
    for entry in directories.entries(txn, DirectoryId(parent.id), after=f"{stem}."):
        if not entry.name.startswith(f"{stem}."):
            return
        if offset(entry.name[len(stem) + 1 :]) is not None:
            yield entry
