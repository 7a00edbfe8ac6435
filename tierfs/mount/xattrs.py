"""Extended attributes `user.tierfs.*` of segments: readable by name, but not listed. Pure."""

from __future__ import annotations

from collections.abc import Callable

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.precedence import Effective
from tierfs.base.words.types import ReadPriority, Tier
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.stored_shares import StoredShares
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments.archived import ArchivedShares, InClass
from tierfs.engine.segments.stat import segment_crc

PREFIX = b"user.tierfs."

# Most chunks that are looked at for a value: of a CRC32C 13 microseconds each (measured), on the loop.
_MOST_CHUNKS = 1000


@dataclass(frozen=True, slots=True)
class XattrContext:
    """The inputs of the values: one segment as one mount sees it."""

    txn: ReadTransaction
    segment: SegmentRecord
    priority_of: Callable[[ReadTransaction, SegmentRecord], Effective[ReadPriority]]
    """The mount's answer."""
    served_from: Tier | None
    budget: str
    """The caller's hourly budget, and how much of it is spent."""


def _crc(context: XattrContext) -> str | None:
    segment = context.segment
    if segment.local.count + segment.cold.count > _MOST_CHUNKS:
        return None
    crc = segment_crc(context.txn, segment)
    return None if crc is None else f"{crc:08x}"


def _cold_stored(context: XattrContext) -> str | None:
    segment = context.segment
    return str(StoredShares(context.txn).of(segment).stored_bytes) if segment.cold.count <= _MOST_CHUNKS else None


def _archived(context: XattrContext) -> tuple[InClass, ...] | None:
    segment = context.segment
    return ArchivedShares(context.txn).of(segment) if segment.cold.count <= _MOST_CHUNKS else None


def _archived_bytes(context: XattrContext) -> str | None:
    held = _archived(context)
    return None if held is None else str(sum(each.bytes for each in held))


def _archive_class(context: XattrContext) -> str | None:
    """Return the storage classes, and whether their bytes must be restored before they can be read."""
    held = _archived(context)
    if held is None:
        return None
    return ", ".join(
        f"{each.storage_class}{': restore first, with tierfs thaw' if each.must_be_restored else ''}" for each in held
    )


def _read_priority(context: XattrContext) -> Effective[ReadPriority]:
    return context.priority_of(context.txn, context.segment)


_VALUES: dict[bytes, Callable[[XattrContext], str | None]] = {
    b"segment": lambda context: directories.path_of(context.txn, context.segment.parent_id, context.segment.name),
    b"start_offset": lambda context: str(context.segment.start_offset),
    b"length": lambda context: str(context.segment.length),
    b"sealed": lambda context: "1" if context.segment.sealed else "0",
    b"chunks": lambda context: str(context.segment.local.count + context.segment.cold.count),
    b"local_bytes": lambda context: str(context.segment.local.bytes),
    b"cold_bytes": lambda context: str(context.segment.cold.bytes),
    b"cold_stored_bytes": _cold_stored,
    b"archived_bytes": _archived_bytes,
    b"archive_class": _archive_class,
    b"crc32c": _crc,
    b"read_priority": lambda context: _read_priority(context).value.value,
    b"read_priority_origin": lambda context: str(_read_priority(context).origin),
    b"read_budget": lambda context: context.budget,
    b"served_from": lambda context: "none" if context.served_from is None else context.served_from.name.lower(),
}


def value_of(context: XattrContext, name: bytes) -> bytes | None:
    """Return the attribute's value, or None for an unknown name, and for what takes a look at too many chunks."""
    find = _VALUES.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
    value = find(context) if find is not None else None
    return None if value is None else value.encode()
