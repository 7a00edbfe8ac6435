"""Makes an object with a damaged seek table or index anew: its bytes, each proved right, go to new objects.

A chunk alone is replaced as consolidation does it, those of a pack as a repack does. So at every moment the bucket is
enough for a recovery, and the old object stays through the grace period. Two segments that share bytes of an object,
which is no pack, have an object each then.
"""

from __future__ import annotations

from collections.abc import Callable

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import ByteRange, ChunkState, LocationId, SegmentId, Tier
from tierfs.engine.metadata import directories, tables
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.tiering.consolidate import Consolidate
from tierfs.tiering.consolidate_plan import ConsolidateAction
from tierfs.tiering.packs.format import parse_name
from tierfs.tiering.packs.repack import Repack
from tierfs.upkeep.check.repair.checksums import Located, locate
from tierfs.upkeep.check.scrub.tables import ObjectTables


@dataclass(frozen=True, slots=True)
class RenewTools:
    """Executors that move bytes of a cold tier to new objects."""

    location_id: LocationId
    consolidator: Consolidate
    repacker: Repack


class Renewer:
    """Makes objects anew. The caller holds the store."""

    def __init__(
        self,
        metadata: MetadataStore,
        objects: ObjectTables,
        tools: Callable[[], RenewTools],
        checkpoint: Callable[[], None],
    ) -> None:
        """`checkpoint` brings all changes to the journal; only what it names may be replaced."""
        self._metadata = metadata
        self._objects = objects
        self._tools = tools
        self._checkpoint = checkpoint

    def renew(self, object_id: int) -> str | None:
        """Move the good chunks of an object to new ones, if its table is damaged still; return why some stay.

        Raises ChunksMoved, DataLoss if a chunk is damaged (it is then suspect), and what the storage raises; what did
        not move by then stays in the old object.
        """
        with self._metadata.read() as txn:
            record, published = txn.get(OBJECTS, tables.u64(object_id)), txn.store.journal.published_sequence
        if record is None or self._objects.defect(record) is None:
            return None
        tools = self._tools()
        if record.location_id != tools.location_id:
            return "it is in another place than the cold tier"
        if record.linked_sequence > published:
            self._checkpoint()
        if parse_name(record.name) is not None:
            places = ((SegmentId(each.place.segment_id), each.place.start_offset) for each in self._good(record))
            tools.repacker.renew(record.id, places)
        else:
            for located in self._good(record):
                self._move(tools.consolidator, located)
        return "some of its chunks are suspect, or are being removed: they stay in it" if self._good(record) else None

    def _good(self, record: ObjectRecord) -> list[Located]:
        """Return the chunks of an object that are not lost."""
        with self._metadata.read() as txn:
            return [each for each in locate(txn, Tier.COLD, {record.id}) if not each.chunk.lost]

    def _move(self, consolidator: Consolidate, located: Located) -> None:
        if located.chunk.state is not ChunkState.GOOD:
            return
        segment_id = SegmentId(located.place.segment_id)
        with self._metadata.read() as txn:
            segment = directories.segment(txn, segment_id)
        readable = ByteRange(0, 0) if segment is None else located.range.intersect(segment.range)
        if readable:
            consolidator.run(ConsolidateAction(segment_id, (located.chunk,), readable), lambda _: None)
