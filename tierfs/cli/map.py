"""tierfs map: which bytes of a segment are in which tier."""

from __future__ import annotations

import shutil
import sys
from typing import Any

import click

from tierfs.cli.lazy import command
from tierfs.cli.map_drawing import Mark, Row, Run, draw, offset
from tierfs.cli.session import Session
from tierfs.metadata import chains, directories, policies
from tierfs.metadata.records import ChunkRecord, SegmentRecord
from tierfs.metadata.transaction import ReadTransaction
from tierfs.names import join, split
from tierfs.types import ChunkState, Tier

_PIPE_COLUMNS = 72
"""Where no terminal says how wide it is: fits into a mail and beside a pager's line numbers."""

_MARKS_BY_STATE = {ChunkState.GOOD: Mark.GOOD, ChunkState.SUSPECT: Mark.SUSPECT, ChunkState.LOST: Mark.LOST}


@command("map")
@click.argument("segment")
def map_(session: Session, segment: str) -> None:
    """Show which bytes of a segment are in which tier.

    A blank is a gap: those bytes are not in that tier. Bytes that are there are drawn however few they are.
    """
    data: dict[str, Any] = {}
    lines: list[str] = []
    with session.open_store() as store, store.metadata.read() as txn:
        name = store.segment_of_path(segment)
        record = directories.segment_by_name(txn, name)
        if session.json:
            data = _data(txn, join(split(name)), record)
        else:
            lines = _lines(txn, record, _columns())
    session.result(data, "\n".join(lines))


def _columns() -> int:
    return shutil.get_terminal_size((_PIPE_COLUMNS, 0)).columns if sys.stdout.isatty() else _PIPE_COLUMNS


def _lines(txn: ReadTransaction, record: SegmentRecord, columns: int) -> list[str]:
    sealed = "sealed" if record.sealed else "unsealed"
    priority = policies.effective(txn, record).read_priority
    header = f"bytes {offset(record.start_offset)} … {offset(record.length)}, {sealed}, reads {priority}"
    return [header, *draw(record.range, [_row(txn, record, tier) for tier in Tier], columns)]


def _row(txn: ReadTransaction, record: SegmentRecord, tier: Tier) -> Row:
    # The cold tier is counted in objects, which are what a bucket lists; a local chunk is a file anyway.
    noun = "object" if tier is Tier.COLD else "chunk"
    runs = (
        Run(chunk.range, _mark(record, tier, chunk), chunk.object_id if tier is Tier.COLD else chunk.start_offset)
        for chunk in chains.chunks(txn, record.id, tier, record.start_offset)
    )
    return Row(tier.name.lower(), noun, record.tier_state(tier).count, runs)


def _mark(record: SegmentRecord, tier: Tier, chunk: ChunkRecord) -> Mark:
    if chunk.state is ChunkState.GOOD and _is_active(record, tier, chunk):
        return Mark.ACTIVE
    return _MARKS_BY_STATE[chunk.state]


def _is_active(record: SegmentRecord, tier: Tier, chunk: ChunkRecord) -> bool:
    return tier is Tier.LOCAL and record.active and chunk.start_offset == record.local.last_chunk


def _data(txn: ReadTransaction, name: str, record: SegmentRecord) -> dict[str, Any]:
    return {
        "segment": name,
        "start_offset": record.start_offset,
        "length": record.length,
        "sealed": record.sealed,
        "chunks": [
            _chunk_data(txn, record, tier, chunk)
            for tier in Tier
            for chunk in chains.chunks(txn, record.id, tier, record.start_offset)
        ],
    }


def _chunk_data(txn: ReadTransaction, record: SegmentRecord, tier: Tier, chunk: ChunkRecord) -> dict[str, Any]:
    return {
        "tier": tier.name.lower(),
        "start": chunk.start_offset,
        "end": chunk.end_offset,
        "object": chains.object_of(txn, chunk).name if chunk.object_id else None,
        "object_offset": chunk.object_offset,
        "state": chunk.state.name.lower(),
        "active": _is_active(record, tier, chunk),
    }
