"""Verifies segments: every byte of every copy against its checksum, the tables of objects, and the CRC32C of the whole.

`check --read` reads and checks every byte of both tiers, and names each bad range by segment and tier.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from tierfs.base.bytes import ranges
from tierfs.base.bytes.checksum import combine
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.bytes.progress import Meter
from tierfs.base.words import units
from tierfs.base.words.errors import DataLoss, Unavailable
from tierfs.base.words.names import printable
from tierfs.base.words.types import MIB, ByteRange, ChunkState, SegmentId, Tier
from tierfs.engine.metadata import chain_edits, tables
from tierfs.engine.metadata.message_rows import message
from tierfs.engine.metadata.records import ChunkRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.reading.etags import ADOPTED_AT_ONCE
from tierfs.upkeep.check.findings import RECOVER, Finding, FindingPlace, Kind, Mend, Severity
from tierfs.upkeep.check.repair.checksums import copied
from tierfs.upkeep.check.scrub.copy_reader import Checked, Fault
from tierfs.upkeep.check.scrub.pieces import ScrubPiece, pieces
from tierfs.upkeep.check.scrub.scrub import Scrubber
from tierfs.upkeep.check.scrub.tables import ObjectTables, may_have
from tierfs.upkeep.check.segments import segment_name
from tierfs.upkeep.check.unchunked import defect, of_segment

# Objects whose tables were looked at: the segments of a pack are verified one soon after the other.
_KEPT_TABLES = 4096


@dataclass(frozen=True, slots=True)
class BadRange:
    """Bytes that one copy lacks or has wrong."""

    tier: Tier
    range: ByteRange
    why: str
    fault: Fault = Fault.DAMAGED


@dataclass(frozen=True, slots=True)
class BadTable:
    """An object whose seek table or index is damaged."""

    name: str
    why: str


@dataclass(slots=True)
class Verified:
    """Result of verifying a segment."""

    name: str
    start_offset: int
    length: int
    bytes: int = 0
    """Bytes read, of all copies."""
    crc32c: int | None = 0
    """Of the readable bytes; None if the first copy is damaged or bytes are lost."""
    bad: list[BadRange] = field(default_factory=list)
    lost: list[ByteRange] = field(default_factory=list)
    tables: list[BadTable] = field(default_factory=list)
    """No byte is lost with them."""
    objects: int = 0
    """Objects looked for that no chunk refers to, of a ledger without bytes."""
    marked: int = 0
    """Chunks newly marked suspect, and chunks whose suspect or lost mark was cleared."""

    @property
    def ok(self) -> bool:
        """Whether every copy is good, with its tables, and nothing is lost."""
        return not self.bad and not self.lost and not self.tables


class Verifier:
    """Verifies one segment after the other, reading ahead in each."""

    def __init__(self, metadata: MetadataStore, scrubber: Scrubber, meter: Meter, *, marks: bool) -> None:
        """With `marks`, bad chunks become suspect, and suspect ones that are good lose the mark."""
        self._metadata = metadata
        self._scrubber = scrubber
        self._meter = meter
        self._marks = marks
        self._tables = _TableLooks(metadata, scrubber)

    def run(self, segments: Iterable[tuple[str, SegmentId, ByteRange]]) -> Iterator[Verified]:
        """Verify segments given by name, id and readable range. Raises Unavailable when a tier does not answer."""
        for name, segment_id, readable in segments:
            result = Verified(name, readable.start, readable.end)
            judged = _VerifiedChunks()
            for checked in self._scrubber.run(pieces(self._metadata, segment_id, readable)):
                self._take(result, checked)
                judged.take(checked)
                self._tables.take(checked)
            result.tables += self._tables.bad()
            if not readable:
                self._look(result, segment_id)
            if self._marks:
                result.marked = sum(
                    chain_edits.set_state(self._metadata, segment_id, *mark) for mark in judged.to_mark()
                )
                self._scrubber.reader.etags.adopt(ADOPTED_AT_ONCE)
            self._meter(0, name, 1)
            yield result
        if self._marks:
            self._scrubber.reader.etags.adopt()

    def _look(self, result: Verified, segment_id: SegmentId) -> None:
        """Look for the objects of a ledger without bytes."""
        with self._metadata.read() as txn:
            record = of_segment(txn, segment_id)
        if record is None:
            return
        result.objects = 2 if record.index_name else 1
        if (wrong := defect(self._scrubber.storage_of, record)) is not None:
            result.bad.append(BadRange(Tier.COLD, ByteRange(0, 0), wrong.why, wrong.fault))

    def _take(self, result: Verified, checked: Checked) -> None:
        piece = checked.piece
        if piece.placed is None or (piece.placed.chunk.lost and checked.bad):
            if piece.first:  # else another tier has these bytes
                result.lost[:] = ranges.union([*result.lost, *(checked.bad or (piece.range,))])
                result.crc32c = None
            return
        result.bytes += piece.range.length_bytes
        self._meter(piece.range.length_bytes, result.name)
        for bad in checked.bad:
            _join(result.bad, BadRange(piece.placed.object.tier, bad, checked.why, checked.fault))
        if piece.first:
            _combine(result, piece, checked)


def _join(bad: list[BadRange], new: BadRange) -> None:
    """Add a range, joined with the tier's last one if it continues that for the same reason."""
    for index in range(len(bad) - 1, max(-1, len(bad) - 1 - len(Tier)), -1):
        last = bad[index]
        if (last.tier, last.range.end, last.why) == (new.tier, new.range.start, new.why):
            bad[index] = replace(last, range=ByteRange(last.range.start, new.range.end))
            return
    bad.append(new)


def _combine(result: Verified, piece: ScrubPiece, checked: Checked) -> None:
    if checked.bad or result.crc32c is None:
        result.crc32c = None
        return
    result.crc32c = combine(result.crc32c, checked.crc32c, piece.range.length_bytes)


class _VerifiedChunks:
    """The chunks that proved bad, and the suspect or lost ones that proved good."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Tier, int], tuple[ChunkRecord, bool]] = {}

    def take(self, checked: Checked) -> None:
        """Keep chunks that are bad, and suspect or lost ones that may be good. An unreachable place proves nothing."""
        placed = checked.piece.placed
        if placed is None or (not checked.bad and placed.chunk.state is ChunkState.GOOD):
            return
        if checked.away and placed.chunk.state is ChunkState.GOOD:
            return
        key = (placed.object.tier, placed.chunk.start_offset)
        good = self._seen.get(key, (placed.chunk, True))[1] and not checked.bad
        self._seen[key] = (placed.chunk, good)

    def to_mark(self) -> Iterator[tuple[Tier, ChunkRecord, ChunkState]]:
        """Yield the states the chunks should have."""
        for (tier, _), (chunk, good) in self._seen.items():
            yield tier, chunk, ChunkState.GOOD if good else ChunkState.SUSPECT


class _TableLooks:
    """Looks at the tables of the objects of one segment after the other."""

    def __init__(self, metadata: MetadataStore, scrubber: Scrubber) -> None:
        self._doubtful: set[int] = set()
        self._tables = ObjectTables(metadata, scrubber, self._doubtful)
        self._met: dict[int, None] = {}
        self._looked_at: OrderedDict[int, BadTable | None] = OrderedDict()

    def take(self, checked: Checked) -> None:
        """Take note of the object of a piece, unless its place is unreachable."""
        placed = checked.piece.placed
        if placed is None or placed.chunk.lost or checked.away or not may_have(placed.object):
            return
        if checked.bad:
            self._doubtful.add(placed.object.id)
        self._met[placed.object.id] = None

    def bad(self) -> list[BadTable]:
        """Return the damaged tables of the objects that were taken since the last call. Raises Unavailable."""
        new = [number for number in self._met if number not in self._looked_at]
        self._looked_at |= dict.fromkeys(new)
        for record, why in self._tables.damaged_of(new):
            self._looked_at[record.id] = BadTable(record.name, why)
        damaged = [bad for number in self._met if (bad := self._looked_at[number]) is not None]
        self._met.clear()
        while len(self._looked_at) > _KEPT_TABLES:
            self._looked_at.popitem(last=False)
        return damaged


class DeepCheck:
    """Reads and checks a whole store."""

    def __init__(self, metadata: MetadataStore, scrubber: Scrubber, meter: Meter) -> None:
        self._metadata = metadata
        self._scrubber = scrubber
        self._meter = meter
        self._unreadable: list[Finding] = []
        self._named = (SegmentId(0), "")
        self.bytes = 0

    def run(self) -> Iterator[Finding]:
        """Yield every bad range, except extents already recorded as lost, and every damaged table of an object.

        Raises Unavailable at the end for bytes that are in the archive and were not read.
        """
        with self._metadata.read() as txn:
            ids = array("Q", (tables.read_u64(key) for key, _ in txn.scan_raw(SEGMENTS.name)))
        segments = self._meter.each(map(SegmentId, ids), self._name)
        doubtful: set[int] = set()
        archived_bytes = 0
        for checked in self._scrubber.run(piece for segment_id in segments for piece in self._pieces(segment_id)):
            if checked.is_archived:
                archived_bytes += checked.piece.range.length_bytes
            if checked.piece.placed is None or checked.piece.placed.chunk.lost or checked.away:
                continue
            size_bytes = checked.piece.range.length_bytes
            self.bytes += size_bytes
            # A name costs 40 us: for each small segment that would be a tenth of the check.
            shown = self._name(checked.piece.segment_id) if size_bytes >= MIB else self._named[1]
            self._meter(size_bytes, shown)
            if checked.bad:
                doubtful.add(checked.piece.placed.object.id)
            yield from self._findings(checked)
        yield from self._unreadable
        yield from ObjectTables(self._metadata, self._scrubber, doubtful).findings()
        if archived_bytes:
            raise Unavailable(
                f"{units.size(archived_bytes)} are in the archive and were not read",
                remedy="run: tierfs thaw --wait PATH",
            )

    def _pieces(self, segment_id: SegmentId) -> Iterator[ScrubPiece]:
        try:
            yield from pieces(self._metadata, segment_id)
        except DataLoss as exc:
            subject = f"segment {segment_id}"
            self._unreadable.append(Finding(Kind.RECORD, Severity.DAMAGE, subject, str(exc), remedy=RECOVER))

    def _name(self, segment_id: SegmentId) -> str:
        """Return a segment's name; the last one's is kept, as most have many pieces."""
        if segment_id != self._named[0]:
            with self._metadata.read() as txn:
                record = message(txn, SEGMENTS, tables.u64(segment_id))
                name = f"segment {segment_id}" if record is None else segment_name(txn, record)
            self._named = segment_id, name
        return self._named[1]

    def _findings(self, checked: Checked) -> Iterator[Finding]:
        piece = checked.piece
        assert piece.placed is not None
        tier = piece.placed.object.tier
        for bad in checked.bad:
            with self._metadata.read() as txn:
                record = message(txn, SEGMENTS, tables.u64(piece.segment_id))
                name = f"segment {piece.segment_id}" if record is None else segment_name(txn, record)
                other = copied(txn, piece.segment_id, tier, bad)
            yield Finding(
                Kind.BYTES,
                Severity.DAMAGE if other else Severity.LOSS,
                name,
                f"{tier.name.lower()} tier, bytes {bad.start} to {bad.end} of {printable(piece.placed.object.name)}: "
                + checked.why
                + ("" if other else "; no other copy"),
                range=bad,
                mend=Mend.REPLACE_CHUNK,
                place=FindingPlace(piece.segment_id, tier, piece.placed.chunk.start_offset),
                object_id=piece.placed.object.id,
            )
