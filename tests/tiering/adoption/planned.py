"""Plans as pictures."""

from __future__ import annotations

from collections.abc import Mapping

from tierfs.engine.chunkstore.protocol import StoredObject
from tierfs.tiering.adoption.plan import AdoptionPlan

Picture = dict[str, tuple[int, list[tuple[str, int]]]]
"""Segment -> its start offset, and the objects with the bytes taken of each."""


def listed(lengths: Mapping[str, int]) -> list[StoredObject]:
    """A listing of objects with these lengths."""
    return [StoredObject(name, length, f"etag of {name}", 1) for name, length in sorted(lengths.items())]


def picture(plan: AdoptionPlan) -> Picture:
    plan.check_names()
    return {
        segment.name: (segment.start_offset, [(extent.object.name, extent.length) for extent in segment.extents])
        for segment in plan.segments
    }


def left_out(plan: AdoptionPlan) -> set[str]:
    return {one.what for one in plan.left_out}


def refused(plan: AdoptionPlan) -> dict[str, str]:
    return {name: type(error).__name__ for name, error in plan.refused}
