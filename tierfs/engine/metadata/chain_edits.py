"""Edits of chains in the database: link, unlink and cut chunks, lose and restore bytes, move a whole chain.

A lost extent keeps the object it was lost from, so that its bytes can come back. The journal receives the chain as it
is afterwards, including neighbours that a change merges with the chunk, or that an older tierfs left beside it: a
replay reaches the same chunks whether it merged them or not.

`append_chain` moves a whole chain to another segment (concat) by editing the stored messages. The codec decodes and
encodes a record in some 15 µs; parsing, shifting and writing the message itself takes a fifth of that, so that 100,000
chunks are one commit that hardly delays appends. Objects are not touched: each chunk takes its reference along.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from tierfs.base.bytes import ranges
from tierfs.base.words.types import ByteRange, ChunkState, ObjectId, SegmentId, Tier
from tierfs.engine.metadata import chain, chains, changes, checksums, directories, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.chain import ChainEdit
from tierfs.engine.metadata.records import ChunkRecord, GarbageRecord, ObjectRecord, SegmentRecord, TierState, require
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import CHUNKS, OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction

# A range of a chunk, and its new state.
Part = tuple[ByteRange, ChunkState]

# Of one segment: with 64 MiB each their checksums fit into their link.
_OBJECTS_PER_CHANGE = 1000


class Editor:
    """Edits the chains of one segment in one transaction, and counts the references of their objects.

    Beside it stand only new chains made in bulk (`begin`), growth of the active chunk by messages (`chains.grow`),
    concat (`append_chain`) and copies (`chain_copies`), packs, which count their own references, and the check's repair
    of links and counts.

    `segment` is the changed record, which `put` or the caller writes. An object that loses its last reference is
    forgotten; it becomes garbage at `due_ms`, and not before the journal has published `after_sequence`. A replay gives
    no time (None), as the journal names garbage on its own.
    """

    def __init__(self, txn: WriteTransaction, segment: SegmentRecord) -> None:
        self._txn = txn
        self.segment = segment

    def insert(self, tier: Tier, new: ChunkRecord, made: ObjectRecord | None = None) -> Editor:
        """Link a chunk. `made`: its object as it is to be written, with the references before this one."""
        gained = self.link(tier, new)
        if new.object_id:  # a lost extent may have no object
            count_references(self._txn, new.object_id, gained, made)
        return self

    def remove(
        self, tier: Tier, removed: Sequence[ChunkRecord], *, due_ms: int | None, after_sequence: int = 0
    ) -> Editor:
        """Unlink neighbouring chunks."""
        return self.swap(tier, removed, (), due_ms=due_ms, after_sequence=after_sequence)

    def swap(
        self,
        tier: Tier,
        removed: Sequence[ChunkRecord],
        added: Sequence[ChunkRecord],
        *,
        made: ObjectRecord | None = None,
        merges: bool = True,
        due_ms: int | None,
        after_sequence: int = 0,
    ) -> Editor:
        """Replace neighbouring chunks by others; the last one may merge with the chunk before it, which it continues.

        References are counted once, by their sum: the object of a chunk that is replaced may have a single one.
        """
        if removed:
            first, last = removed[0].start_offset, removed[-1].end_offset
            state, previous, following = self.segment.tier_state(tier), None, None
            if len(removed) < state.count:
                previous = chains.chunk_at(self._txn, self.segment.id, tier, first - 1) if first else None
                following = next(chains.starting_from(self._txn, self.segment.id, tier, last), None)
            self._apply(tier, chain.remove(state, removed, previous=previous, following=following))
        gained: dict[ObjectId, int] = {}
        for chunk in removed:  # in the order in which objects lose their last chunk
            gained[chunk.object_id] = gained.pop(chunk.object_id, 0) - 1
        for number, chunk in enumerate(added, 1):
            count = self.link(tier, chunk, merges=merges and number == len(added))
            gained[chunk.object_id] = gained.get(chunk.object_id, 0) + count
        gained.pop(ObjectId(0), None)  # a lost extent may have no object
        for object_id, references in gained.items():
            own = made if made is not None and made.id == object_id else None
            if own is not None or references:
                gone = count_references(self._txn, object_id, references, own)
                if gone is not None and due_ms is not None:
                    _discard(self._txn, gone, due_ms, after_sequence)
        return self

    def link(self, tier: Tier, new: ChunkRecord, *, merges: bool = True) -> int:
        """Link a chunk; return how many references its object gained, which the caller counts. Raises DataLoss where
        it overlaps another."""
        state = self.segment.local if tier is Tier.LOCAL else self.segment.cold
        previous = following = None
        if state.count:
            previous = chains.chunk_at(self._txn, self.segment.id, tier, new.start_offset)
            following = next(chains.starting_from(self._txn, self.segment.id, tier, new.start_offset), None)
        edit = chain.insert(state, new, previous=previous, following=following, merges=merges)
        self._apply(tier, edit)
        return 0 if edit.merged else 1

    def link_objects(self, made: Iterable[tuple[ByteRange, ObjectRecord]], *, segment_first: bool = False) -> Editor:
        """Link new objects into the cold chain, each as the range that its first bytes are, and journal them.

        `segment_first`: write and journal the segment before its links, as a replay takes a chunk beyond its length for
        that of a crashed concat.
        """
        txn, linked = self._txn, []
        first_link = txn.store.next_outbox + (1 if segment_first else 0)
        for number, (held, record) in enumerate(made):
            chunk = ChunkRecord(start_offset=held.start, length=held.length_bytes, object_id=record.id)
            stored = replace(record, linked_sequence=first_link + number // _OBJECTS_PER_CHANGE)
            self.insert(Tier.COLD, chunk, stored)
            linked.append((chunk, replace(stored, references=1)))
        if segment_first:
            self.segment = replace(self.segment, changed_ms=txn.now_ms)
            changes.put_segment(txn, self.segment)
        for at in range(0, len(linked), _OBJECTS_PER_CHANGE):
            chunks, records = zip(*linked[at : at + _OBJECTS_PER_CHANGE], strict=True)
            changes.cold_linked(txn, self.segment.id, chunks, records)
        return self

    def grow_last(self, last: ChunkRecord, length: int) -> Editor:
        """Grow the active chunk by `length` bytes."""
        return self._apply(Tier.LOCAL, chain.grow_last(self.segment.local, last, length), moved=False)

    def cut_head(self, tier: Tier) -> Editor:
        """Let the tier's first chunk begin where the segment does."""
        start = self.segment.start_offset
        first = chains.chunk_at(self._txn, self.segment.id, tier, start)
        if first is None or not first.start_offset < start < first.end_offset:
            return self
        return self._apply(tier, chain.cut_first(self.segment.tier_state(tier), first, start))

    def cut_end(self, last: ChunkRecord) -> Editor:
        """Let the cold chain's last chunk end where the segment does, and journal it; it keeps its reference."""
        shorter = replace(last, length=self.segment.length - last.start_offset, next=0)
        held = self.segment.cold.bytes - last.held_bytes + shorter.held_bytes
        self._apply(Tier.COLD, ChainEdit(replace(self.segment.cold, bytes=held), (shorter,)), moved=False)
        records = (chains.object_of(self._txn, last),) if last.object_id else ()
        changes.cold_linked(self._txn, self.segment.id, (shorter,), records)
        return self

    def lose(self, gone: ByteRange) -> Editor:
        """Mark every byte of `gone` lost in the cold chain, and journal it; idempotent.

        Chunks are cut around it; the lost part of a chunk keeps its object.
        """
        while chunk := next((other for other in self._overlapping(gone) if not other.lost), None):
            bad = chunk.range.intersect(gone)
            kept = [(rest, chunk.state) for rest in ranges.gaps(chunk.range, (bad,))]
            self.cut(Tier.COLD, chunk, [*kept, (bad, ChunkState.LOST)])
        return self.fill_gaps(list(ranges.gaps(gone, (chunk.range for chunk in self._overlapping(gone)))))

    def fill_gaps(self, gaps: Iterable[ByteRange], *, journaled: bool = True) -> Editor:
        """Link a lost extent into each gap of the cold chain (invariant 3). Raises DataLoss for one with a chunk."""
        for gap in gaps:
            extent = ChunkRecord(
                start_offset=gap.start, length=gap.length_bytes, object_id=ObjectId(0), state=ChunkState.LOST
            )
            self.insert(Tier.COLD, extent)
            if journaled:
                extent = self._txn.must_get(
                    CHUNKS, tables.chunk(self.segment.id, Tier.COLD, gap.start), "a lost extent"
                )
                changes.cold_linked(self._txn, self.segment.id, (extent,), ())
        return self

    def take_out(self, dropped: ByteRange, *, due_ms: int) -> Editor:
        """Remove `dropped`, which the local tier has, from the cold chain; other bytes keep their chunks.

        Lost extents are removed too, so that the bytes are offloaded again.
        """
        while chunk := next(self._overlapping(dropped), None):
            kept = [(rest, chunk.state) for rest in ranges.gaps(chunk.range, (dropped,))]
            self.cut(Tier.COLD, chunk, kept, due_ms=due_ms)
        return self

    def take_out_lost(self, window: ByteRange, *, due_ms: int) -> Editor:
        """Remove only the lost extents of `window` from the cold chain, as take_out does: a good copy there stays."""
        for extent in list(self._overlapping(window)):
            if extent.lost:
                self.take_out(extent.range.intersect(window), due_ms=due_ms)
        return self

    def restore(self, tier: Tier, chunk: ChunkRecord) -> Editor:
        """Mark a chunk good whose bytes were all read and verified, and journal it.

        It merges with the neighbours that it continues; beside a suspect one, the result is suspect. Bytes of a local
        chunk that the cold tier has lost are taken out there, so that they are offloaded.
        """
        self.cut(tier, chunk, [(chunk.range, ChunkState.GOOD)])
        return self.take_out_lost(chunk.range, due_ms=self._txn.now_ms) if tier is Tier.LOCAL else self

    def restore_cold(self, window: ByteRange) -> Editor:
        """Mark the cold chunks of a range good, as `restore`; each merges with its neighbours, so one after another."""
        while bad := next((chunk for chunk in self._overlapping(window) if chunk.state is not ChunkState.GOOD), None):
            self.restore(Tier.COLD, bad)
        return self

    def cut(self, tier: Tier, chunk: ChunkRecord, parts: Iterable[Part], *, due_ms: int = 0) -> Editor:
        """Replace a chunk by parts of it, in the same object, and journal it; bytes in no part are dropped.

        Parts merge with neighbours that they continue.
        """
        txn, cut = self._txn, [chain.part(chunk, *part) for part in sorted(parts)]
        before, after = self._neighbours(tier, [chunk, *cut])
        key = tables.chunk(self.segment.id, tier, chunk.start_offset)
        removed = [*before, txn.must_get(CHUNKS, key, "a chunk"), *after]
        records, sequence = chain.joined([*before, *cut, *after]), 0
        hull = ByteRange(removed[0].start_offset, removed[-1].end_offset)
        # The link of one chunk replaces all that it covers in the journal.
        if tier is Tier.COLD and [record.range for record in records] != [hull]:
            sequence = changes.cold_unlinked(txn, self.segment.id, [each.start_offset for each in removed])
        self.swap(tier, removed, records, due_ms=due_ms, after_sequence=sequence)
        if records and tier is Tier.COLD:
            objects = (announce(txn, records[0]),) if chunk.object_id else ()
            changes.cold_linked(txn, self.segment.id, records, objects)
        return self

    def put(self, *, journaled: bool) -> None:
        """Write the segment, and notify its readers."""
        segment = replace(self.segment, generation=self.segment.generation + 1, changed_ms=self._txn.now_ms)
        self._txn.put(SEGMENTS, tables.u64(segment.id), segment)
        if journaled:
            changes.segment_changed(self._txn, segment)
        self._txn.touch(inode=segment.inode, segment_id=segment.id)

    def _apply(self, tier: Tier, edit: ChainEdit, *, moved: bool = True) -> Editor:
        for record in edit.put:
            self._txn.put(CHUNKS, tables.chunk(self.segment.id, tier, record.start_offset), record)
        for start_offset in edit.remove:
            self._txn.delete(CHUNKS.name, tables.chunk(self.segment.id, tier, start_offset))
        generation = self.segment.generation + (1 if moved else 0)
        if tier is Tier.LOCAL:
            self.segment = replace(self.segment, local=edit.state, generation=generation)
        else:
            self.segment = replace(self.segment, cold=edit.state, generation=generation)
        return self

    def _overlapping(self, window: ByteRange) -> Iterator[ChunkRecord]:
        return chains.overlapping(self._txn, self.segment.id, Tier.COLD, window)

    def _neighbours(self, tier: Tier, edges: Sequence[ChunkRecord]) -> tuple[list[ChunkRecord], list[ChunkRecord]]:
        """Return the chunks before and after one that it continues, as it is or as its parts will be; in order."""
        before: list[ChunkRecord] = []
        after: list[ChunkRecord] = []
        while (start := before[0].start_offset if before else edges[0].start_offset) and (
            neighbour := chains.chunk_at(self._txn, self.segment.id, tier, start - 1)
        ):
            if not any(chain.continues(neighbour, edge) for edge in before[:1] or edges):
                break
            before.insert(0, neighbour)
        for neighbour in chains.chunks(self._txn, self.segment.id, tier, edges[0].end_offset):
            if not any(chain.continues(edge, neighbour) for edge in after[-1:] or edges):
                break
            after.append(neighbour)
        return before, after


def count_references(
    txn: WriteTransaction, object_id: ObjectId, change: int, record: ObjectRecord | None = None
) -> ObjectRecord | None:
    """Count references of an object; return it if it lost its last one, and is forgotten. `record`: to be written.

    Raises DataLoss if it had fewer than it loses: the count is wrong, and another chunk may still need it.
    """
    record = chains.object_by_id(txn, object_id) if record is None else record
    left = record.references + change
    if left > 0:
        txn.put(OBJECTS, tables.u64(object_id), replace(record, references=left))
        return None
    require(left == 0, "an object without references loses a reference", object_id)
    txn.delete(OBJECTS.name, tables.u64(object_id))
    checksums.delete(txn, object_id)
    return record


def announce(txn: WriteTransaction, chunk: ChunkRecord) -> ObjectRecord:
    """Return a chunk's object, which the next change of the journal names."""
    record = replace(chains.object_of(txn, chunk), linked_sequence=txn.store.next_outbox)
    txn.put(OBJECTS, tables.u64(record.id), record)
    return record


def _discard(txn: WriteTransaction, gone: ObjectRecord, due_ms: int, after_sequence: int) -> None:
    """Make the stored objects garbage that are ours to delete; a companion's size is unknown."""
    stored = [(gone.location_id, gone.name, gone.stored_bytes), (gone.location_id, gone.index_name, 0)]
    owned = [] if gone.foreign else stored
    entries = [(txn.store.cold_location_id, gone.entries_name, 0)] if gone.entries_name else []
    for location_id, name, length in (*owned, *entries):
        if name:
            garbage = GarbageRecord(
                due_ms=due_ms,
                tier=gone.tier,
                location_id=location_id,
                name=name,
                length=length,
                after_sequence=after_sequence,
                object_id=gone.id,
            )
            chains.add_garbage(txn, garbage)


def begin(
    txn: WriteTransaction, segment_id: SegmentId, tier: Tier, first: ChunkRecord, record: ObjectRecord
) -> TierState:
    """Write the first chunk of an empty chain, and its object with that one reference; return the chain's head."""
    txn.put(OBJECTS, tables.u64(record.id), record)
    txn.put(CHUNKS, tables.chunk(segment_id, tier, first.start_offset), first)
    at = first.start_offset
    return TierState(first_chunk=at, last_chunk=at, count=1, bytes=first.held_bytes)


def set_state(
    metadata: MetadataStore, segment_id: SegmentId, tier: Tier, chunk: ChunkRecord, state: ChunkState
) -> bool:
    """Set a chunk's state unless it moved; return whether that changed anything. One commit.

    The other copies of a suspect chunk's bytes stay, as its own failed (invariant 8). A lost chunk stays lost until it
    is marked good, after every byte of it was read and verified.
    """
    if not changes_state(metadata, segment_id, tier, chunk, state):
        return False
    key = tables.chunk(segment_id, tier, chunk.start_offset)
    with metadata.write() as txn:
        current, segment = txn.get(CHUNKS, key), directories.segment(txn, segment_id)
        if current is None or segment is None or not _changes(current, tier, chunk, state):
            return False
        if current.lost:
            Editor(txn, segment).restore(tier, current).put(journaled=True)
            return True
        txn.put(CHUNKS, key, replace(current, state=state))
        txn.touch(segment_id=segment_id)
    return True


def changes_state(
    metadata: MetadataStore, segment_id: SegmentId, tier: Tier, chunk: ChunkRecord, state: ChunkState
) -> bool:
    """Return whether `set_state` would change anything now."""
    with metadata.read() as view:
        return _changes(view.get(CHUNKS, tables.chunk(segment_id, tier, chunk.start_offset)), tier, chunk, state)


def _changes(current: ChunkRecord | None, tier: Tier, chunk: ChunkRecord, state: ChunkState) -> bool:
    if current is None:
        return False
    # Bytes joined to it since then are unverified; but a local chunk that is not lost only grows by appends.
    grows = state is not ChunkState.GOOD or (tier is Tier.LOCAL and not current.lost)
    return (
        (not current.lost or (chunk.lost and state is ChunkState.GOOD))
        and current.object_id == chunk.object_id
        and (current.length == chunk.length or (grows and current.length > chunk.length))
        and current.state is not state
    )


def append_chain(txn: WriteTransaction, target: SegmentRecord, source: SegmentRecord, tier: Tier) -> TierState:
    """Move one tier's chunks from `source` to `target`'s end; return the head of the target's chain.

    The source's chunks begin at or after its start offset and the target has no active chunk. Chunks moved in the cold
    tier are journaled; both segments' records are the caller's to write.
    """
    head, taken = target.tier_state(tier), source.tier_state(tier)
    if not taken.count:
        return head
    messages = _messages(txn, source, tier)
    _shift(messages, target.length - source.start_offset)
    merged = _join(txn, target, tier, messages)
    txn.delete_prefix(CHUNKS.name, tables.chunk_prefix(source.id, tier))
    rows = [
        (tables.chunk(target.id, tier, message.start_offset), message.SerializeToString(deterministic=True))
        for message in messages
    ]
    txn.put_ascending(CHUNKS.name, rows)
    if tier is Tier.COLD:
        changes.cold_relinked(txn, target.id, messages)
    return TierState(
        first_chunk=head.first_chunk if head.count else messages[0].start_offset,
        last_chunk=messages[-1].start_offset,
        count=head.count + taken.count - merged,
        bytes=head.bytes + taken.bytes,
    )


def _messages(txn: ReadTransaction, segment: SegmentRecord, tier: Tier) -> list[pb.ChunkRecord]:
    """Return the chain's records. Raises DataLoss where they disagree with each other or with the chain's head."""
    prefix = tables.chunk_prefix(segment.id, tier)
    messages = [pb.ChunkRecord.FromString(data) for _, data in txn.scan_raw(CHUNKS.name, prefix, prefix=prefix)]
    state = segment.tier_state(tier)
    held = sum(message.length for message in messages if message.state != ChunkState.LOST)
    require((len(messages), held) == (state.count, state.bytes), "a chain and its head differ", segment.id, tier.name)
    require(messages[0].start_offset >= segment.start_offset, "a chunk before the start", segment.id, tier.name)
    for left, right in pairwise(messages):
        require(left.next == right.start_offset, "chunks are not neighbours", segment.id, left.start_offset)
    return messages


def _shift(messages: Sequence[pb.ChunkRecord], distance: int) -> None:
    for message in messages:
        message.start_offset += distance
        if message.next:
            message.next += distance


def _join(txn: WriteTransaction, target: SegmentRecord, tier: Tier, messages: list[pb.ChunkRecord]) -> bool:
    """Link the first moved chunk after the target's last one; return True when both became one chunk."""
    last = chains.chunk_at(txn, target.id, tier, target.length)
    if last is None:
        return False
    require(last.next == 0 and last.end_offset <= target.length, "chunks after the end", target.id, last.start_offset)
    first: ChunkRecord = CHUNKS.codec.from_message(messages[0])
    grown, *rest = chain.joined([last, first])
    if rest:
        txn.put(CHUNKS, tables.chunk(target.id, tier, last.start_offset), replace(last, next=first.start_offset))
        return False
    messages[0] = pb.ChunkRecord.FromString(CHUNKS.codec.encode(grown))
    count_references(txn, last.object_id, -1)
    return True
