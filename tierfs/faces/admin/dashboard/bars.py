"""Bars: parts of a whole as rectangles over a scale, for the pictures of a page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from tierfs.app.segment_map import Mark
from tierfs.base.bytes.frozen import dataclass
from tierfs.engine.chunkstore.local_files import DiskBytes
from tierfs.tiering.policy import DiskView
from tierfs.upkeep.holder.status import StoreStatus

# Units of a bar's length, in which its rectangles are.
SCALE = 1000


@dataclass(frozen=True, slots=True)
class Rect:
    """A part of a bar."""

    start: int
    length: int
    kind: str
    """A class of the style sheet."""


@dataclass(frozen=True, slots=True)
class TierShare:
    """The bytes of a tier, and their share of the fuller one."""

    name: str
    bytes: int
    chunks: int
    share: int


@dataclass(frozen=True, slots=True)
class DiskBar:
    """The disk of the store: what is used, and where limits are."""

    size_bytes: int
    used_bytes: int
    free_bytes: int
    rects: Sequence[Rect]
    high_at: int
    """Above it, cold bytes are evicted."""
    floor_at: int
    """Above it, appends fail: less than `floor_bytes` are free."""
    floor_bytes: int


def part(number: int, whole: int) -> int:
    """Return a part of a whole in units of the scale; a part that is not empty is seen."""
    if number <= 0 or whole <= 0:
        return 0
    return max(1, min(SCALE, number * SCALE // whole))


def shares(report: StoreStatus) -> list[TierShare]:
    """Return the tiers, over one scale."""
    most = max(report.local.bytes, report.cold.bytes)
    tiers = (("local", report.local), ("cold", report.cold))
    return [TierShare(name, tier.bytes, tier.chunks, part(tier.bytes, most)) for name, tier in tiers]


def disk_bar(disk: DiskBytes, limits: DiskView, floor_bytes: int) -> DiskBar:
    """Return the filesystem of the chunks: those of the store, what others use, and the limits."""
    chunks = part(min(limits.local_bytes, disk.used), disk.size)
    others = part(max(0, disk.used - limits.local_bytes), disk.size)
    rects = [Rect(0, chunks, "local"), Rect(chunks, min(others, SCALE - chunks), "other")]
    return DiskBar(
        size_bytes=disk.size,
        used_bytes=disk.used,
        free_bytes=disk.free,
        rects=[rect for rect in rects if rect.length],
        high_at=part(limits.high_used_bytes, disk.size),
        floor_at=part(disk.used + disk.free - floor_bytes, disk.size),
        floor_bytes=floor_bytes,
    )


def map_rects(cells: Iterable[Mark]) -> list[Rect]:
    """Return the cells of a map as rectangles, a cell a unit; a cell without bytes has none."""
    rects: list[Rect] = []
    at = 0
    for mark, run in groupby(cells):
        length = sum(1 for _ in run)
        if mark is not Mark.NOTHING:
            rects.append(Rect(at, length, mark.name.lower()))
        at += length
    return rects
