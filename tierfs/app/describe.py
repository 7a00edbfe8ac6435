"""Describe names and segments as data: what `--json` prints and what the admin API answers. Part of the root."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from stat import S_IMODE
from typing import TYPE_CHECKING, Any

from tierfs.app.store import Store
from tierfs.base.words.json_data import checksum, fields, plain, timestamp
from tierfs.base.words.types import SegmentKind, SegmentStatus, Tier
from tierfs.engine.metadata import chains
from tierfs.engine.metadata.records import ChunkRecord, SegmentRecord, TierState
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments import endangered, stat
from tierfs.engine.segments.endangered import UnreachablePlace
from tierfs.engine.segments.stat import Listed, SegmentStat
from tierfs.engine.segments.writer_locks import WriterLocks

if TYPE_CHECKING:
    from tierfs.base.words.stored_size import StoredSize
    from tierfs.upkeep.holder.problem import Problem
    from tierfs.upkeep.holder.status import StoreStatus
    from tierfs.upkeep.holder.why import Reason

_NS_PER_MS = 1_000_000


def listed(name: str, item: Listed) -> dict[str, Any]:
    """Return one line of a listing; `name` is the item's own, or its path."""
    data: dict[str, Any] = {"name": name, "kind": item.kind.name.lower()}
    if item.segment is not None:
        data |= {
            "start_offset": item.segment.start_offset,
            "length": item.segment.length,
            "sealed": item.segment.sealed,
            "successor": item.successor,
            "local_bytes": item.segment.local.bytes,
            "cold_bytes": item.segment.cold.bytes,
            "modified": timestamp(stat.modified_ns(item.segment) // _NS_PER_MS),
        }
    elif item.directory is not None:
        data["modified"] = timestamp(item.directory.modified_ms)
    return data


def segment(
    shown: SegmentStat, writer: str | None, kept: Sequence[Reason], away: Sequence[UnreachablePlace]
) -> dict[str, Any]:
    """Return a segment's facts: `writer`, `kept` and `away` are what the functions below tell of it."""
    record, file = shown.record, shown.record.file
    times = "created=created_ms modified=modified_ms sealed_at=sealed_ms recovered_at=recovered_ms"
    copied = {"mode": f"{S_IMODE(file.mode):04o}", "modified_ns": file.modified_ns, "length": file.length}
    return {
        "segment": shown.name,
        **fields(record, "id inode start_offset length sealed"),
        "status": status_of(record),
        "successor": shown.successor,
        "tiers": {"local": _tier(record.local), "cold": _tier(record.cold) | _stored(shown.cold)},
        "archive": [fields(each, "storage_class bytes objects must_be_restored") for each in shown.archived],
        "crc32c": checksum(shown.crc32c),
        "read_priority": shown.read_priority.value,
        "read_priority_origin": str(shown.read_priority.origin),
        "compression": shown.compression.value.value,
        "compression_level": shown.compression_level,
        "compression_origin": str(shown.compression.origin),
        **fields(record, times),
        "lost": shown.lost,
        "suspect": [{"tier": plain(tier), **fields(suspect)} for tier, suspect in shown.suspect],
        "writer": writer,
        "file": copied if file.mode else None,
        "unreachable": away,
        "local_because": reasons_data(kept),
    }


def _tier(state: TierState) -> dict[str, Any]:
    return fields(state, "chunks=count bytes")


def _stored(size: StoredSize | None) -> dict[str, Any]:
    return {"stored_bytes": None, "ratio": None} if size is None else fields(size, "stored_bytes ratio")


def segment_now(store: Store, txn: ReadTransaction, name: str) -> dict[str, Any]:
    """Return the facts of a segment, of a ledger those of its entries too. Raises NotFound, IsDirectory."""
    shown = stat.stat(txn, name)
    writer = living_writer(store, shown.record)
    kept = reasons(store, txn, shown.record, writer)
    data = segment(shown, writer, kept, endangered.unreachable_of(txn, shown.record, store.path))
    if shown.record.kind is SegmentKind.LEDGER:
        data["ledger"] = ledger(store, txn, name)
    return data


def ledger(store: Store, txn: ReadTransaction, name: str) -> dict[str, Any]:
    """Return a ledger's entries and their offload. Raises NotFound, InvalidRequest for another segment."""
    from tierfs.engine.metadata import entries
    from tierfs.engine.segments import ledgers, positions, pulsar_info

    record, described = ledgers.find(txn, name, held=store.is_held)
    placed = entries.find(txn, record.id)
    offload = placed.offload
    return {
        **fields(described, "ledger_id managed_ledger entries last_entry_id state offload"),
        "offload_uuid": None if offload.uuid is None else str(offload.uuid),
        "offloaded": timestamp(offload.timestamp_ms if offload.complete else 0),
        "local_deleted": positions.is_local_deleted(record, placed),
        "pulsar": pulsar_info.ledger_info(txn, record).as_json(),
    }


def chunks(txn: ReadTransaction, record: SegmentRecord) -> Iterator[dict[str, Any]]:
    """Yield the chunks of a segment, tier by tier, in the order of offsets."""
    for tier in Tier:
        yield from chunks_of(txn, record, tier, record.start_offset)


def chunks_of(txn: ReadTransaction, record: SegmentRecord, tier: Tier, start: int) -> Iterator[dict[str, Any]]:
    """Yield the chunks of one tier from the one that has an offset on, in the order of offsets."""
    from tierfs.engine.metadata import stored_shares  # a listing needs none

    for chunk in chains.chunks(txn, record.id, tier, start):
        held = chains.object_of(txn, chunk) if chunk.object_id else None
        yield {
            "tier": plain(tier),
            **fields(chunk, "start=start_offset end=end_offset"),
            "object": held.name if held is not None else None,
            **fields(chunk, "object_offset state"),
            "stored_bytes": 0 if held is None else stored_shares.of_chunk(held, chunk),
            "archive_class": held.archive_class or None if held is not None else None,
            "active": is_active(record, tier, chunk),
        }


def chunk_map(store: Store, txn: ReadTransaction, name: str, record: SegmentRecord) -> dict[str, Any]:
    """Return which bytes of a segment are in which tier, and why."""
    kept = reasons(store, txn, record, living_writer(store, record))
    data = {"segment": name, **fields(record, "start_offset length sealed"), "chunks": [*chunks(txn, record)]}
    return {**data, "local_because": reasons_data(kept)}


def is_active(record: SegmentRecord, tier: Tier, chunk: ChunkRecord) -> bool:
    """Return whether a chunk is the one that receives appends."""
    return tier is Tier.LOCAL and record.active and chunk.start_offset == record.local.last_chunk


def status_of(record: SegmentRecord) -> str:
    """Return a segment's status as a word."""
    return SegmentStatus(record.status).name.lower().replace("_", "-")


def living_writer(store: Store, record: SegmentRecord) -> str | None:
    """Return the process that is appending now, by its lock."""
    if record.sealed:
        return None
    with closing(WriterLocks(store.paths.writers)) as locks:
        alive = locks.is_alive_elsewhere(record.id, record.writer_epoch)
    return str(record.writer) if alive else None


def reasons(store: Store, txn: ReadTransaction, record: SegmentRecord, writer: str | None) -> list[Reason]:
    """Return what keeps a segment's bytes on the local disk; what is cold only needs none of this."""
    if not record.local.count:
        return []
    from tierfs.upkeep.holder import lock, why

    held = lock.current(store.paths.holder) is not None
    return why.reasons(txn, record, now_ms=store.clock.now_ms(), held=held, writer=writer)


def reasons_data(kept: Sequence[Reason]) -> list[dict[str, Any]]:
    """Return the same as data."""
    return [fields(reason, "start=range.start end=range.end cold kind why until=until_ms") for reason in kept]


def store_status(report: StoreStatus, problems: Iterable[Problem]) -> dict[str, Any]:
    """Return the status of a store as data."""
    data = fields(report)
    del data["standing"]  # they are among the problems
    data["problems"] = [
        {"severity": problem.gravity.label, "kind": problem.kind.value, **fields(problem, "text remedy")}
        for problem in problems
    ]
    if report.holder is not None:
        data["holder"] = fields(report.holder, "pid host command since=since_ms")
    data["compressed"] = fields(report.compressed, "plain_bytes stored_bytes saved_bytes ratio")
    data["trash"]["next_due"] = timestamp(data["trash"].pop("next_due_ms"))
    data["next_expiry"] = timestamp(data.pop("next_expiry_ms"))
    fencer = fields(report.journal.fencer, "store_id host since=since_ms")
    data["journal"]["fencer"] = fencer if report.journal.fenced_by_epoch else None
    data["adoptions"] = [
        {**fields(row, "url layout into every_s allowed"), "last": timestamp(row.last_ms)} for row in report.adoptions
    ]
    data["requests"] = [{**fields(row), "state": int(row.state)} for row in report.requests]
    return data
