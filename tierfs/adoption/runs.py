"""Extents in offset order, cut into runs that touch: each run is a segment. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tierfs import ranges
from tierfs.adoption.plan import Extent, Plan, SegmentPlan
from tierfs.errors import InvalidRequest
from tierfs.names import printable


@dataclass(frozen=True, slots=True)
class Run:
    """Extents without a hole between them; empty when only empty objects lie there."""

    start_offset: int
    extents: tuple[Extent, ...]

    @property
    def end_offset(self) -> int:
        """Offset just past the last byte."""
        return self.extents[-1].end_offset if self.extents else self.start_offset


def add_runs(plan: Plan, name: str, extents: Iterable[Extent], into: str) -> None:
    """Add INTO/name to the plan, and behind each hole INTO/name.<offset>, with a warning.

    Refuses all of it when two objects hold the same byte.
    """
    try:
        found = runs(extents)
    except InvalidRequest as exc:
        plan.refused.append((f"{into}/{name}", exc))
        return
    for index, run in enumerate(found):
        if index:
            hole = f"bytes {found[index - 1].end_offset} to {run.start_offset} are nowhere"
            plan.warnings.append(f"{name}: {hole}; what follows becomes a segment of its own")
        segment = f"{into}/{name}.{run.start_offset}" if index else f"{into}/{name}"
        plan.add(SegmentPlan(segment, run.start_offset, run.extents), segment)


def runs(extents: Iterable[Extent]) -> list[Run]:
    """The runs of extents, which may come in any order; empty ones hold no bytes and break nothing.

    Raises InvalidRequest naming two objects that hold the same byte.
    """
    placed = sorted(extents, key=lambda one: (one.start_offset, one.length))
    found = ranges.runs(filter(_has_bytes, placed), _touches)
    return [Run(run[0].start_offset, tuple(run)) for run in found] or [Run(one.start_offset, ()) for one in placed[:1]]


def _has_bytes(extent: Extent) -> bool:
    return extent.length > 0


def _touches(run: Sequence[Extent], extent: Extent) -> bool:
    last = run[-1]
    if extent.start_offset < last.end_offset:
        one, other = printable(last.object.name), printable(extent.object.name)
        raise InvalidRequest(f"{one} and {other} both hold byte {extent.start_offset}")
    return extent.start_offset == last.end_offset
