"""The invariants of the contract, a check for each, in its words."""

from __future__ import annotations

from tests.simulation.world import World, Wrong, listed
from tierfs.metadata import chains
from tierfs.metadata.layout import PlacedChunk
from tierfs.metadata.tables import CHUNKS
from tierfs.types import ByteRange, ChunkState, Tier

Needed = dict[int, list[ByteRange]]
"""Local ranges by segment id."""


def needed_beside_suspects(world: World) -> Needed:
    """Return the local bytes whose cold copy is suspect."""
    needed: Needed = {}
    for segment in listed(world.store.metadata).values():
        with world.store.metadata.read() as txn:
            cold = [*chains.chunks(txn, segment.id, Tier.COLD)]
            local = [*chains.chunks(txn, segment.id, Tier.LOCAL)]
        for chunk in cold:
            if chunk.state is ChunkState.SUSPECT:
                common = [chunk.range.intersect(other.range) for other in local]
                needed.setdefault(segment.id, []).extend(span for span in common if span)
    return needed


def a_suspect_copy_takes_no_other(world: World, needed: Needed) -> None:
    """Invariant 8: while a copy is suspect, the other copies of its bytes are not removed."""
    after = needed_beside_suspects(world)
    for segment in listed(world.store.metadata).values():
        with world.store.metadata.read() as txn:
            cold = [chunk for chunk in chains.chunks(txn, segment.id, Tier.COLD) if chunk.state is ChunkState.SUSPECT]
        still = [span for span in needed.get(segment.id, []) if any(chunk.range.intersect(span) for chunk in cold)]
        for span in still:
            kept = sum(other.intersect(span).length_bytes for other in after.get(segment.id, []))
            if kept < span.length_bytes:
                raise Wrong(f"segment {segment.name}: {span} was evicted, and its cold copy is suspect")


def an_accusation_needs_proof(world: World) -> None:
    """Invariant 16: a copy is called suspect only if it was harmed."""
    block = world.knobs.constants["CRC_BLOCK_BYTES"]
    with world.store.metadata.read() as txn:
        for _, chunk in txn.scan(CHUNKS):
            if chunk.state is ChunkState.GOOD or not chunk.object_id:
                continue
            placed = PlacedChunk(chunk, chains.object_of(txn, chunk))
            if not world.damages.hurts(placed, chunk.range, block):
                raise Wrong(f"{placed.object.name} is called {chunk.state.name} at {chunk.start_offset}: it is whole")
