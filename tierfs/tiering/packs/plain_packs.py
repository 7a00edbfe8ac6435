"""Compress the chunks of plain packs, where the policies of their segments ask for it.

No row leads from a pack to its chunks, and its index does not know what a clone or a concat linked later. So a walk
over the segments finds them, and remembers of each four numbers, by pack. Small neighbours inside a segment are not
among them when they are joined anyway.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Attempts
from tierfs.base.bytes.progress import Meter, OnProgress, doing
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import LocationId, ObjectId, SegmentId, Tier
from tierfs.engine.metadata import chains, directories
from tierfs.engine.metadata.directories import Named
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.policies import PolicyCache
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering.consolidate_command import CompressReport, asked_for
from tierfs.tiering.consolidate_plan import Eligible, asks_to_compress
from tierfs.tiering.objects import ChunksMoved
from tierfs.tiering.packs.repack import Repack, Repacked

# Chunks that are remembered together, 32 bytes each. Packs have up to 20,000.
MOST_CHUNKS = 250_000

# Numbers that are remembered of a chunk.
_FIELDS = 4


@dataclass(frozen=True, slots=True)
class PlainPack:
    """Chunks of one plain pack that are to be compressed."""

    id: ObjectId
    name: str
    _numbers: array[int]

    def add(self, segment_id: SegmentId, chunk: ChunkRecord) -> None:
        """Add a chunk of a segment."""
        self._numbers.extend((segment_id, chunk.start_offset, chunk.object_offset, chunk.length))

    @property
    def chunks(self) -> list[tuple[SegmentId, int]]:
        """The chunks, by segment and start."""
        return [(SegmentId(number), start) for number, start in self._columns(0, 1)]

    @property
    def plain_bytes(self) -> int:
        """Bytes of the pack that they have, each counted once."""
        return sum(length for _, length in set(self._columns(2, 3)))

    def planned(self) -> Repacked:
        """Return what is to become of them."""
        segments = len({number for number, _ in self._columns(0, 1)})
        size_bytes = self.plain_bytes
        return Repacked(len(self), segments, size_bytes, size_bytes, 1)

    def __len__(self) -> int:
        return len(self._numbers) // _FIELDS

    def _columns(self, *columns: int) -> Iterator[tuple[int, ...]]:
        return zip(*(self._numbers[column::_FIELDS] for column in columns), strict=True)


class PackCompression:
    """One run of the command for the packs of the segments below a path."""

    def __init__(
        self,
        metadata: MetadataStore,
        repacker: Repack,
        location_id: LocationId,
        settings: OffloadSettings,
        report: OnProgress,
    ) -> None:
        self._metadata = metadata
        self._repacker = repacker
        self._location_id = location_id
        self._settings = settings
        self._report = report

    def would_do(self, pages: Iterable[Sequence[Named]], done: CompressReport) -> CompressReport:
        """Return `done`, which the same segments were planned to, with what `run` would do then."""
        for pack in self._plain_packs(pages, Attempts(), planned=True):
            done = _plus(done, pack.planned())
        return replace(done, stored_bytes=0)

    def run(
        self, pages: Iterable[Sequence[Named]], publish: Callable[[], int], attempts: Attempts, done: CompressReport
    ) -> CompressReport:
        """Compress the chunks of one pack after another; return `done` with what was done.

        Chunks that moved meanwhile are left to the next command. Keeps errors of damaged ones in `attempts`; the others
        are compressed nevertheless. `publish` is called after each pack.
        """
        self._report(doing("looking for plain packs"))
        meter = Meter(self._report, noun="pack")
        for pack in self._plain_packs(pages, attempts):
            try:
                moved = self._repacker.compress(pack.id, pack.chunks)
            except ChunksMoved:
                continue
            except DataLoss as exc:
                attempts.note(exc)
                continue
            done = _plus(done, moved)
            done = replace(done, journal_entries=done.journal_entries + publish())
            meter(pack.plain_bytes, pack.name, 1)
        return done

    def _plain_packs(
        self, pages: Iterable[Sequence[Named]], attempts: Attempts, *, planned: bool = False
    ) -> Iterator[PlainPack]:
        """Yield the packs; one with chunks in many places perhaps more than once, with others each time."""
        packs: dict[ObjectId, PlainPack] = {}
        cache = PolicyCache()
        for page in pages:
            held: dict[ObjectId, ObjectRecord] = {}
            with self._metadata.read() as txn:
                for _, segment_id in page:
                    try:
                        for placed in self._wanted(txn, segment_id, cache, held, planned=planned):
                            record = placed.object
                            pack = packs.setdefault(record.id, PlainPack(record.id, record.name, array("Q")))
                            pack.add(segment_id, placed.chunk)
                    except DataLoss as exc:
                        attempts.note(exc)
            if sum(map(len, packs.values())) >= MOST_CHUNKS:
                yield from packs.values()
                packs = {}
        yield from packs.values()

    def _wanted(
        self,
        txn: ReadTransaction,
        segment_id: SegmentId,
        cache: PolicyCache,
        held: dict[ObjectId, ObjectRecord],
        *,
        planned: bool,
    ) -> Iterator[PlacedChunk]:
        """Yield a segment's chunks that a policy wants compressed. `planned`: without those that are joined before."""
        segment = directories.living_segment(txn, segment_id)
        if segment is None or not segment.cold.count:
            return
        policy = cache.of(txn, segment).values
        if not policy.compresses:
            return
        joined: Collection[int] = ()
        if planned:
            actions, _ = asked_for(txn, segment, self._location_id, self._settings, compress=True)
            joined = {chunk.start_offset for action in actions for chunk in action.chunks}
        eligible = Eligible(self._location_id, txn.store.journal.published_sequence, foreign=False)
        for chunk in chains.chunks(txn, segment_id, Tier.COLD, segment.start_offset):
            if chunk.lost or chunk.start_offset in joined:
                continue
            record = held.get(chunk.object_id) or chains.object_of(txn, chunk)
            held[record.id] = record
            placed = PlacedChunk(chunk, record)
            if record.packed and asks_to_compress(policy, record) and eligible(placed):
                yield placed


def _plus(done: CompressReport, moved: Repacked) -> CompressReport:
    return replace(
        done,
        segments=done.segments + moved.segments,
        objects_before=done.objects_before + moved.chunks,
        objects_after=done.objects_after + moved.packs,
        bytes=done.bytes + moved.stored_bytes,
        client_bytes=done.client_bytes + moved.stored_bytes,
        compressed_objects=done.compressed_objects + moved.packs,
        plain_bytes=done.plain_bytes + moved.plain_bytes,
        stored_bytes=done.stored_bytes + moved.stored_bytes,
        kept_plain_bytes=done.kept_plain_bytes + moved.kept_plain_bytes,
    )
