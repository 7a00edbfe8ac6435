"""adopt objects: every object is a segment of its own."""

from __future__ import annotations

from collections.abc import Iterable

from tierfs.adoption.plan import Extent, Plan, SegmentPlan, readable
from tierfs.chunkstore.protocol import StoredObject


def plan_objects(plan: Plan, found: Iterable[StoredObject], into: str) -> None:
    """The object `a/b` becomes the segment INTO/a/b; an empty one an empty segment."""
    for one in readable(plan, found):
        extents = (Extent(0, one.length_bytes, one),) if one.length_bytes else ()
        plan.add(SegmentPlan(f"{into}/{one.name}", 0, extents, one.modified_ms), one.name)
