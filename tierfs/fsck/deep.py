"""--deep: every byte of both tiers read and checked; each bad range named by segment and tier."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from tierfs.errors import DataLoss
from tierfs.fsck.chains import segment_name
from tierfs.fsck.copy_reader import Checked
from tierfs.fsck.findings import RECOVER, Finding, Kind, Mend, Place, Severity
from tierfs.fsck.located import copied
from tierfs.fsck.pieces import Piece, pieces
from tierfs.fsck.scrub import Scrubber
from tierfs.metadata import keys
from tierfs.metadata.messages import message
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import SEGMENTS
from tierfs.names import printable
from tierfs.parallel import Meter
from tierfs.types import SegmentId


class DeepCheck:
    """Reads a whole store."""

    def __init__(self, metadata: MetadataStore, scrubber: Scrubber, meter: Meter) -> None:
        self._metadata = metadata
        self._scrubber = scrubber
        self._meter = meter
        self._unreadable: list[Finding] = []
        self.bytes = 0

    def run(self) -> Iterator[Finding]:
        """Everything that is bad. Extents that are recorded as lost are not named again."""
        with self._metadata.read() as txn:
            ids = array("Q", (keys.read_u64(key) for key, _ in txn.scan_raw(SEGMENTS.name)))
        for checked in self._scrubber.run(piece for number in ids for piece in self._pieces(SegmentId(number))):
            if checked.piece.placed is None or checked.piece.placed.chunk.lost or checked.away:
                continue
            size_bytes = checked.piece.range.length_bytes
            self.bytes += size_bytes
            self._meter(size_bytes, f"segment {checked.piece.segment_id}")
            yield from self._findings(checked)
        yield from self._unreadable

    def _pieces(self, segment_id: SegmentId) -> Iterator[Piece]:
        try:
            yield from pieces(self._metadata, segment_id)
        except DataLoss as exc:
            subject = f"segment {segment_id}"
            self._unreadable.append(Finding(Kind.RECORD, Severity.DAMAGE, subject, str(exc), remedy=RECOVER))

    def _findings(self, checked: Checked) -> Iterator[Finding]:
        piece = checked.piece
        assert piece.placed is not None
        tier = piece.placed.object.tier
        for bad in checked.bad:
            with self._metadata.read() as txn:
                record = message(txn, SEGMENTS, keys.u64(piece.segment_id))
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
                place=Place(piece.segment_id, tier, piece.placed.chunk.start_offset),
                object_id=piece.placed.object.id,
            )
