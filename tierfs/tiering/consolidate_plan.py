"""Choose the cold chunks of a segment that become one object: pure functions from chunks in offset order to actions.

Nothing here reads a database or a clock. The executor checks a plan again; carrying one out twice is harmless.

The background writer joins chunks of a growing segment once enough small neighbours make an object at least twice as
long as each of them. So a byte is copied at most once per doubling of its object, and never again once that is half of
object_bytes. A segment that is sealed and all cold is joined once more, all its small chunks, as it cannot grow.

A command may also ask for the chunks that are plain although the policy of their segment asks for compression. Their
bytes pass through this machine in any case, so neighbours of any length are joined as long as they fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.config import OffloadSettings
from tierfs.base.options.policy import MAX_OBJECT_BYTES, Policy
from tierfs.base.words.types import (
    ByteRange,
    ChunkState,
    Compression,
    LocationId,
    ObjectId,
    PayloadEncoding,
    SegmentId,
)
from tierfs.engine.metadata.chain import continues
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord

# Chunks joined in one object: half of the parts an upload may have, and one commit of some 50 ms.
MAX_PIECES = 5000


@dataclass(frozen=True, slots=True)
class ConsolidateAction:
    """Replace neighbouring chunks by one."""

    segment_id: SegmentId
    chunks: tuple[ChunkRecord, ...]
    range: ByteRange
    """The segment's bytes that the new chunk holds: the still readable ones of the chunks."""
    merges: bool = False
    """Whether the chunks follow each other in one object, so that no byte has to move."""
    compresses: bool = False
    """Whether the new object is compressed, by the policy in force when it is made."""


@dataclass(frozen=True, slots=True)
class JoinLimits:
    """Limits for joining chunks. Lengths count the bytes that can still be read."""

    object_bytes: int
    """Largest object made."""
    largest_bytes: int
    """Chunks longer than this stay as they are."""
    fewest: int = 2
    """Smallest number of neighbours that is worth a new object."""
    doubling: bool = False
    """Whether the new object must be at least twice as long as each of its chunks: then a byte is copied at most
    once per doubling of its object, independent of how the segment grows."""


@dataclass(frozen=True, slots=True)
class RelocateLimits:
    """Limits for copying the live bytes out of mostly dead objects."""

    dead_percent: int
    """Smallest dead share of such an object."""
    min_bytes: int
    """Smallest such object: smaller ones waste too little."""
    max_bytes: int


@dataclass(frozen=True, slots=True)
class SegmentChunks:
    """Some or all of a segment's cold chunks, in offset order."""

    segment_id: SegmentId
    readable: ByteRange
    chunks: tuple[PlacedChunk, ...]
    """Without lost extents: like a gap they end a run."""

    def live(self, placed: PlacedChunk) -> ByteRange:
        """Return the bytes of a chunk that can still be read."""
        return placed.range.intersect(self.readable)


@dataclass(frozen=True, slots=True)
class Eligible:
    """Filter of the chunks that may be changed at all."""

    location_id: LocationId
    """Location of eligible objects: a server copies only inside the location it writes to."""
    published_sequence: int
    """Newest change that the journal names; only chunks linked up to it are eligible."""
    foreign: bool
    """Whether bytes of adopted objects may be copied. Those objects stay, so the bytes then exist twice."""

    def __call__(self, placed: PlacedChunk) -> bool:
        """Return whether a chunk is eligible."""
        return (
            placed.chunk.state is ChunkState.GOOD
            and not placed.object.encoding.is_ledger
            and placed.object.location_id == self.location_id
            and not placed.object.archive_class  # to read it costs a fee, or is not possible at once
            and placed.object.linked_sequence <= self.published_sequence
            and (self.foreign or not placed.object.foreign)
        )


def plan(
    cold: SegmentChunks,
    eligible: Callable[[PlacedChunk], bool],
    join: JoinLimits,
    relocate: RelocateLimits,
    wanted: Policy | None = None,
) -> Iterator[ConsolidateAction]:
    """Yield the actions in the order of execution: merges first, as the others build on them.

    `wanted`: the policy by which plain chunks are compressed; None: they stay plain.
    """
    merged = list(_merged(cold.chunks))
    yield from merge_actions(cold)
    cold = replace(cold, chunks=tuple(merged))
    taken: set[int] = set()
    if wanted is not None:
        for group in _uncompressed(cold, eligible, wanted):
            taken.update(placed.chunk.start_offset for placed in group)
            yield replace(_action(cold, group), compresses=True)
    for run in _runs(
        cold, lambda placed: placed.chunk.start_offset not in taken and eligible(placed), join.largest_bytes
    ):
        for group in groups(run, [cold.live(placed).length_bytes for placed in run], join):
            taken.update(placed.chunk.start_offset for placed in group)
            yield _action(cold, group)
    dead = mostly_dead(cold, relocate)
    for placed in cold.chunks:
        if placed.object.id in dead and placed.chunk.start_offset not in taken and eligible(placed):
            yield _action(cold, [placed])


def merge_actions(cold: SegmentChunks) -> Iterator[ConsolidateAction]:
    """Yield the merges of chunks that follow each other in one object."""
    for run in _continued(cold.chunks):
        if len(run) > 1:
            chunks = tuple(placed.chunk for placed in run)
            window = ByteRange(chunks[0].start_offset, chunks[-1].end_offset)
            yield ConsolidateAction(cold.segment_id, chunks, window, merges=True)


def asks_to_compress(wanted: Policy, record: ObjectRecord) -> bool:
    """Return whether a policy asks for the compressed form of an object that has its plain one."""
    if record.encoding is not PayloadEncoding.RAW or record.foreign:
        return False
    return wanted.compression is Compression.ZSTD or (wanted.compression is Compression.AUTO and not record.kept_plain)


def _uncompressed(
    cold: SegmentChunks, eligible: Callable[[PlacedChunk], bool], wanted: Policy
) -> Iterator[Sequence[PlacedChunk]]:
    """Yield the groups of neighbours that a policy wants to be one compressed object each.

    Without chunks of objects that other segments have parts of, a clone or those in a pack: such an object would stay,
    beside a new one for each segment.
    """
    limits = JoinLimits(wanted.object_bytes, largest_bytes=MAX_OBJECT_BYTES, fewest=1)
    own = _references(cold)

    def fits(placed: PlacedChunk) -> bool:
        record = placed.object
        return eligible(placed) and asks_to_compress(wanted, record) and record.references == own[record.id]

    for run in _runs(cold, fits, limits.largest_bytes):
        yield from groups(run, [cold.live(placed).length_bytes for placed in run], limits)


def groups(run: Sequence[PlacedChunk], lengths: Sequence[int], limits: JoinLimits) -> Iterator[Sequence[PlacedChunk]]:
    """Cut a run of neighbours into groups of one new object each; chunks that stay are in none."""
    for start, end in cuts(lengths, limits):
        yield run[start:end]


def cuts(lengths: Sequence[int], limits: JoinLimits) -> Iterator[tuple[int, int]]:
    """Cut a run by lengths alone; yield half-open ranges of indices, ascending.

    Each takes as many as fit, from left to right, so that two neighbouring results never fit into one object.
    """
    start = total = 0
    for index, length in enumerate(lengths):
        if index > start and (total + length > limits.object_bytes or index - start >= MAX_PIECES):
            yield from _worth_it(lengths, start, index, limits)
            start, total = index, 0
        total += length
    yield from _worth_it(lengths, start, len(lengths), limits)


def _worth_it(lengths: Sequence[int], start: int, end: int, limits: JoinLimits) -> Iterator[tuple[int, int]]:
    """Yield the whole stretch if it is worth an object; else try the parts on both sides of its largest chunk."""
    pending = [(start, end)]
    while pending:
        start, end = pending.pop()
        if end - start < limits.fewest:
            continue
        part = lengths[start:end]
        if not limits.doubling or sum(part) >= 2 * max(part):
            yield start, end
            continue
        largest = start + part.index(max(part))
        pending += [(largest + 1, end), (start, largest)]


def mostly_dead(cold: SegmentChunks, limits: RelocateLimits) -> set[ObjectId]:
    """Return the objects with only a few live bytes, which would be freed by copying those elsewhere.

    Objects that chunks of other segments hold parts of, and adopted ones, are excluded: they would stay.
    """
    live_bytes: Counter[ObjectId] = Counter()
    for placed in cold.chunks:
        live_bytes[placed.object.id] += cold.live(placed).length_bytes
    own = _references(cold)
    return {
        record.id
        for record in (placed.object for placed in cold.chunks)
        if not record.foreign
        and record.references == own[record.id]
        and live_bytes[record.id]
        and limits.min_bytes <= record.length <= limits.max_bytes
        and 100 * (record.length - live_bytes[record.id]) >= limits.dead_percent * record.length
    }


def _references(cold: SegmentChunks) -> Mapping[ObjectId, int]:
    """Return how many chunks of the segment each object has."""
    return Counter(placed.object.id for placed in cold.chunks)


def _action(cold: SegmentChunks, group: Sequence[PlacedChunk]) -> ConsolidateAction:
    window = ByteRange(cold.live(group[0]).start, cold.live(group[-1]).end)
    return ConsolidateAction(cold.segment_id, tuple(placed.chunk for placed in group), window)


def _runs(
    cold: SegmentChunks, eligible: Callable[[PlacedChunk], bool], largest_bytes: int
) -> Iterator[list[PlacedChunk]]:
    """Cut the chunks into runs of eligible neighbours without gaps, none longer than `largest_bytes`."""
    fitting = (
        placed for placed in cold.chunks if eligible(placed) and 0 < cold.live(placed).length_bytes <= largest_bytes
    )
    return ranges.runs(fitting, lambda run, placed: run[-1].chunk.end_offset == placed.chunk.start_offset)


def _continued(chunks: Iterable[PlacedChunk]) -> Iterator[list[PlacedChunk]]:
    return ranges.runs(chunks, lambda run, placed: len(run) < MAX_PIECES and continues(run[-1].chunk, placed.chunk))


def _merged(chunks: Iterable[PlacedChunk]) -> Iterator[PlacedChunk]:
    """Yield the chunks as they are after the merges."""
    for run in _continued(chunks):
        length = sum(placed.chunk.length for placed in run)
        record = replace(run[0].object, references=run[0].object.references - len(run) + 1)
        yield PlacedChunk(replace(run[0].chunk, length=length, next=run[-1].chunk.next), record)


def largest_small_bytes(object_bytes: int) -> int:
    """Return the largest length of a small chunk: two longer ones do not fit into one object."""
    return (object_bytes - 1) // 2


def when_asked(object_bytes: int) -> JoinLimits:
    """Return the limits of a command: it joins all small chunks."""
    return JoinLimits(object_bytes, largest_small_bytes(object_bytes))


def unasked(segment: SegmentRecord, object_bytes: int, settings: OffloadSettings) -> JoinLimits:
    """Return the limits of the background writer for a segment."""
    if segment.sealed and segment.cold.bytes >= segment.length - segment.start_offset:
        return when_asked(object_bytes)
    small = largest_small_bytes(object_bytes)
    return JoinLimits(object_bytes, small, fewest=settings.consolidate_chunks, doubling=True)


def relocation(settings: OffloadSettings) -> RelocateLimits:
    """Return the limits for copying the live bytes out of mostly dead objects."""
    return RelocateLimits(settings.relocate_dead_percent, settings.relocate_min_bytes, settings.relocate_max_bytes)


def may_have_work(segment: SegmentRecord) -> bool:
    """Return whether a segment's chunks are worth loading; reads only its record."""
    cold = segment.cold
    return cold.count > 1 or (cold.count == 1 and segment.start_offset > cold.first_chunk)
