"""Consolidate: replace neighbouring cold chunks by one, as a ConsolidateAction says.

Crash order as in objects.py: the object is made, and read back once against the checksums of the pieces. The commit
revalidates the pieces, swaps the sublist and queues the change for the journal. The old objects become garbage that is
due after the grace period and not before the journal names the new one: open readers finish, and at every moment the
bucket alone is enough for a recovery.

The server composes it of plain pieces under a policy without compression, and of whole compressed objects that are
large (joined_frames.py). All others are read, proved and put again in the form that the policy asks for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from tierfs.base.bytes.byte_times import ByteTimes
from tierfs.base.bytes.checksum import GridBuilder, Stretch, joined, twice
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.policy import Policy
from tierfs.base.words.errors import Unavailable
from tierfs.base.words.types import CRC_BLOCK_BYTES, Compression, ObjectId, Tier
from tierfs.engine.chunkstore.protocol import ChunkStorage, ComposedObject, EtagDiffers, Source, StoredObject
from tierfs.engine.metadata import chain, chains, changes, chunk_times, directories, policies, tables
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import CHUNKS, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.reading.verified import VerifiedReader, grid_in
from tierfs.reading.view import in_object
from tierfs.tiering import objects
from tierfs.tiering.checked_pieces import CheckedPiece, ProvedSource
from tierfs.tiering.compressed_source import compressed
from tierfs.tiering.consolidate_plan import ConsolidateAction, asks_to_compress
from tierfs.tiering.joined_frames import JoinedFrames, joined_frames, worth_joining
from tierfs.tiering.objects import ChunksMoved, ColdTier, Description, Made, StoredForm
from tierfs.tiering.read_back import Mismatch, StoredDiffers, read_back

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Consolidated:
    """Result of one action."""

    bytes: int = 0
    """Stored bytes of the new object; 0 when no byte had to move."""
    client_bytes: int = 0
    """Bytes of it that were read and uploaded again; the server copied the rest."""
    kept_plain_bytes: int = 0
    """Bytes that stay where they are, as compressing them saves too little; then there is no new object."""


class SeekTableDiffers(Unavailable):
    """The plain bytes of a new object are right, but not all its stored ones: it is not linked."""


class Consolidate:
    """Executor of consolidate actions. Thread-safe."""

    def __init__(self, metadata: MetadataStore, cold: ColdTier, *, grace_ms: int) -> None:
        """Prepare for actions. `grace_ms`: how long replaced objects stay, for readers that hold the old layout."""
        self._metadata = metadata
        self._reader = VerifiedReader(metadata, lambda _: cold.storage)
        self._cold = cold
        self._grace_ms = grace_ms

    def run(self, action: ConsolidateAction, progress: Callable[[int], None]) -> Consolidated:
        """Carry out an action; `progress` is called with the plain bytes that are read back.

        Raises ChunksMoved when the chunks changed since the plan, or the policy that it compresses by, DataLoss when a
        piece is damaged (its chunk is then suspect), Unavailable when the copy is, Fenced, and storage errors; the old
        chunks stay in every case.
        """
        if action.merges:
            self._merge(action)
            return Consolidated()
        self._cold.require_ours()
        try:
            return self._copy(action, progress)
        except EtagDiffers as exc:
            log.info("%s: perhaps copied or restored; retrying with its current etag", exc)
            self._meet_etags(action)
        return self._copy(action, progress)

    def _copy(self, action: ConsolidateAction, progress: Callable[[int], None]) -> Consolidated:
        pieces, policy, form = self._planned(action)
        expected = tuple(stretch for checked in pieces for stretch in checked.stretches(self._reader))

        def make(way: Composed | Rewritten, *, kept_plain: bool = False) -> Consolidated:
            recipe = ConsolidateRecipe(
                self._metadata,
                self._reader,
                action,
                pieces,
                expected,
                way,
                progress,
                self._grace_ms,
                kept_plain=kept_plain,
            )
            return objects.make(self._metadata, self._cold, recipe)

        records = [checked.placed.object for checked in pieces]
        are_plain = all(checked.is_plain for checked in pieces)
        if are_plain and not any(asks_to_compress(policy, record) for record in records):
            return make(Composed(pieces), kept_plain=all(record.kept_plain for record in records))
        if form is not None:
            try:
                return make(Composed(pieces, form))
            except SeekTableDiffers as exc:
                log.info("%s; its bytes are compressed again", exc)
        source = ProvedSource(self._reader, pieces)
        with ExitStack() as stack:
            sent = compressed(source, policy)
            if sent is not None:
                stack.callback(sent.close)
                return make(Rewritten(sent, sent))
            if action.compresses:
                self._keep_plain(action)
                progress(source.length_bytes)
                return Consolidated(kept_plain_bytes=source.length_bytes)
            saves_too_little = policy.compression is Compression.AUTO
            return make(Composed(pieces) if are_plain else Rewritten(source), kept_plain=saves_too_little)

    def _keep_plain(self, action: ConsolidateAction) -> None:
        """Note of an action's objects that compressing them saves too little, so that no plan returns to them."""
        with self._metadata.write() as txn:
            _, placed = _revalidated(txn, action)
            for record in {chunk.object.id: chunk.object for chunk in placed}.values():
                changes.put(txn, OBJECTS, replace(record, kept_plain=True))

    def _planned(self, action: ConsolidateAction) -> tuple[tuple[CheckedPiece, ...], Policy, JoinedFrames | None]:
        """Return the pieces, the policy in force, and what they become if they are joined as they are stored."""
        with self._metadata.read() as txn:
            segment, placed = _revalidated(txn, action)
            policy = policies.effective(txn, segment)
            if action.compresses and policy.compression is Compression.OFF:
                raise ChunksMoved(f"the policy of {segment.name} no longer requires compression")
            pieces = tuple(_piece(txn, action, chunk, self._reader.etags.of(chunk.object)) for chunk in placed)
            records = [chunk.object for chunk in placed]
            joins = len(pieces) > 1 and all(piece.is_whole for piece in pieces) and worth_joining(records)
            return pieces, policy, joined_frames(txn, records) if joins else None

    def _meet_etags(self, action: ConsolidateAction) -> None:
        """Note the objects' current etags. Reading the copy back will show whether their bytes are right."""
        with self._metadata.read() as txn:
            records = [chunk.object for chunk in _revalidated(txn, action)[1]]
        for record in records:
            stored = self._cold.storage.stat(record.name)
            if stored.etag != record.etag:
                self._reader.etags.meet(record, stored.etag, stored.length_bytes)

    def _merge(self, action: ConsolidateAction) -> None:
        """Replace chunks that follow each other in one object by one chunk; no byte moves."""
        with self._metadata.write() as txn:
            segment, placed = _revalidated(txn, action)
            (chunk,) = chain.joined(each.chunk for each in placed)
            _swap(txn, segment, placed, chunk, placed[0].object, self._grace_ms)


class Composed:
    """An object that the server makes of the stored bytes of pieces, as far as it can."""

    def __init__(self, pieces: Sequence[CheckedPiece], form: JoinedFrames | None = None) -> None:
        """`form` is what it has if the pieces are whole compressed objects; None: they are plain."""
        self._pieces = pieces
        self.form: StoredForm | None = form

    def write(self, storage: ChunkStorage, description: Description) -> ComposedObject:
        """Compose the object."""
        pieces = [checked.stored for checked in self._pieces]
        return storage.compose(description.name, pieces, metadata=description.metadata)


class Rewritten:
    """An object whose bytes pass through this machine."""

    def __init__(self, source: Source, form: StoredForm | None = None) -> None:
        """`source` has the stored bytes, `form` is what they are if they are compressed."""
        self._source = source
        self.form = form

    def write(self, storage: ChunkStorage, description: Description) -> ComposedObject:
        """Upload the object."""
        stored = storage.put(description.name, self._source, metadata=description.metadata)
        return ComposedObject.of(stored, stored.length_bytes)


class ConsolidateRecipe(objects.Recipe[Consolidated]):
    """Recipe for the object that replaces an action's chunks."""

    def __init__(
        self,
        metadata: MetadataStore,
        reader: VerifiedReader,
        action: ConsolidateAction,
        pieces: Sequence[CheckedPiece],
        expected: Sequence[Stretch],
        way: Composed | Rewritten,
        progress: Callable[[int], None],
        grace_ms: int,
        *,
        kept_plain: bool,
    ) -> None:
        """Begin an attempt. `expected`: the checksums of the pieces. `kept_plain`: compressing saves too little."""
        super().__init__(joined(expected).crc32c)
        self.compressed = way.form
        self._metadata = metadata
        self._reader = reader
        self._action = action
        self._pieces = pieces
        self._expected = expected
        self._way = way
        self._progress = progress
        self._grace_ms = grace_ms
        self._kept_plain = kept_plain
        self._client_bytes, self._moved = 0, False
        # Of one chunk alone: it is copied out of an object that is mostly dead and ends then.
        self.frees = len(action.chunks) == 1

    def describe(self, txn: WriteTransaction) -> Description:
        segment, _ = _revalidated(txn, self._action)
        path = directories.path_of(txn, segment.parent_id, segment.name)
        stored_bytes = None if self.compressed is None else self.compressed.length_bytes
        held = self._action.range
        return objects.describe_range(txn, path, segment.id, held, self.attempt, self.crc32c, stored_bytes)

    def write(self, storage: ChunkStorage, description: Description) -> ComposedObject:
        made = self._way.write(storage, description)
        self._client_bytes, self._moved = made.client_bytes, made.moved
        return made

    def verify(self, storage: ChunkStorage, stored: StoredObject) -> Sequence[int]:
        """Read the object back and compare it with the checksums of its sources.

        Raises BlockDiffers if a source is damaged, Unavailable if the copy alone is, SeekTableDiffers if none of
        its plain bytes is. Bytes that the place did not copy are not read, if the checksums of the sources are those of
        the new object's blocks.
        """
        grid = _grid_of(self._expected) if self._moved else None
        if grid is not None:
            self._progress(self._action.range.length_bytes)
            return grid
        try:
            return twice(lambda: read_back(storage, stored, self._expected, self._progress, self.compressed)).grid()
        except StoredDiffers as exc:
            raise SeekTableDiffers(f"{exc}; no byte is lost", remedy="retry") from exc
        except Mismatch as exc:
            self._blame(exc.offset)
            raise Unavailable(f"{exc}; the retry succeeded: no byte is lost", remedy="retry") from exc

    def link(self, made: Made) -> Consolidated:
        with self._metadata.write() as txn:
            record = made.record(txn, ObjectId(txn.allocate_id()))
            segment, placed = _revalidated(txn, self._action)
            linked = replace(
                record,
                # The deletion lag counts from when the bytes became cold: copying does not make them new.
                created_ms=max(each.object.created_ms for each in placed),
                written_ms=max(each.object.written_by_ms for each in placed),
                times=ByteTimes.of(chunk_times.of_placed(placed, self._action.range)),
                kept_plain=self._kept_plain,
                linked_sequence=txn.store.next_outbox,
            )
            window = self._action.range
            chunk = ChunkRecord(start_offset=window.start, length=window.length_bytes, object_id=linked.id)
            _swap(txn, segment, placed, chunk, linked, self._grace_ms)
        return Consolidated(made.stored.length_bytes, self._client_bytes)

    def _blame(self, offset: int) -> None:
        """Raise BlockDiffers if the source of a byte is damaged, whose chunk is suspect then; else only the copy is."""
        for checked in self._pieces:
            if offset < checked.range.length_bytes:
                checked.check(self._reader, offset)
                return
            offset -= checked.range.length_bytes


def _grid_of(stretches: Sequence[Stretch]) -> Sequence[int] | None:
    """Return the checksums of the blocks of an object that consists of stretches; None where one crosses a block."""
    builder = GridBuilder()
    for stretch in stretches:
        if builder.length_bytes % CRC_BLOCK_BYTES + stretch.length_bytes > CRC_BLOCK_BYTES:
            return None
        builder.add(stretch)
    return builder.grid()


def _swap(
    txn: WriteTransaction,
    segment: SegmentRecord,
    placed: Sequence[PlacedChunk],
    chunk: ChunkRecord,
    record: ObjectRecord,
    grace_ms: int,
) -> None:
    """Replace chunks by one, in the chain and the journal.

    One change names the new chunk, without an unlink: between two changes the bucket would show a gap.
    """
    linked = changes.cold_linked(txn, segment.id, (chunk,), (replace(record, references=1),))
    editor, replaced = Editor(txn, segment), [each.chunk for each in placed]
    made, due_ms = replace(record, linked_sequence=linked), txn.now_ms + grace_ms
    editor.swap(Tier.COLD, replaced, (chunk,), made=made, due_ms=due_ms, after_sequence=linked)
    changes.rewrite(txn, editor.segment)


def _revalidated(txn: ReadTransaction, action: ConsolidateAction) -> tuple[SegmentRecord, list[PlacedChunk]]:
    """Return the segment and its placed chunks. Raises ChunksMoved if they changed since the action's plan."""
    segment = directories.segment(txn, action.segment_id)
    if segment is None:
        raise ChunksMoved(f"segment {action.segment_id} was deleted meanwhile")
    placed: list[PlacedChunk] = []
    for chunk in action.chunks:
        current = txn.get(CHUNKS, tables.chunk(action.segment_id, Tier.COLD, chunk.start_offset))
        if current is None or _bytes_of(current) != _bytes_of(chunk):
            raise ChunksMoved(f"segment {segment.name}: its cold chunk at {chunk.start_offset} changed meanwhile")
        placed.append(PlacedChunk(current, chains.object_of(txn, current)))
    if segment.start_offset >= action.range.end:
        raise ChunksMoved(f"segment {segment.name}: its bytes up to {segment.start_offset} were cut off meanwhile")
    return segment, placed


def _bytes_of(chunk: ChunkRecord) -> tuple[object, ...]:
    """Return the fields that identify a planned chunk, independent of its neighbours."""
    return chunk.object_id, chunk.object_offset, chunk.length, chunk.state


def _piece(txn: ReadTransaction, action: ConsolidateAction, placed: PlacedChunk, etag: str) -> CheckedPiece:
    held = in_object(placed.range.intersect(action.range), placed)
    return CheckedPiece(action.segment_id, placed, held, etag, grid_in(txn, placed.object, held))
