"""Segments that could not be evicted: listed in `status` by name, passed over until their pause is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tierfs.background.look_troubles import name_of
from tierfs.background.policy import EvictAction
from tierfs.background.troubles import Troubles
from tierfs.background.work import ColdWork
from tierfs.errors import Fenced, StorageFull, TierfsError, Unavailable
from tierfs.metadata.store import MetadataStore
from tierfs.types import SegmentId

_PREFIX = "evict "


def may_evict(troubles: Troubles, now_ms: int) -> Callable[[SegmentId], bool]:
    """Tells of a segment whether its eviction never failed, or its pause is over."""
    return lambda segment_id: troubles.may_try(_trouble_of(segment_id), now_ms)


def retain(troubles: Troubles, has_copies: Callable[[SegmentId], bool]) -> None:
    """Forget the segments that have nothing to evict any more, damage as well."""
    troubles.retain(_PREFIX, lambda what: has_copies(_segment_of(what)), keep_damage=False)


def evict_each(work: ColdWork, metadata: MetadataStore, troubles: Troubles, evictions: Sequence[EvictAction]) -> None:
    """Evict one segment after another; what is wrong with one is listed and keeps no other.

    Raises what concerns all of them: Fenced, StorageFull, Unavailable as while the cold tier is away, and why the cold
    tier cannot be proved ours, as without credentials.
    """
    for action in evictions:
        what = _trouble_of(action.segment_id)
        work.tools.cold.require_ours()
        try:
            work.evict_segment(action.segment_id, cold_before_ms=action.cold_before_ms)
        except (Fenced, StorageFull, Unavailable):
            raise
        except TierfsError as exc:
            troubles.failed(what, exc, name=name_of(metadata, action.segment_id))
        else:
            troubles.passed(what)


def _trouble_of(segment_id: SegmentId) -> str:
    return f"{_PREFIX}{segment_id}"


def _segment_of(what: str) -> SegmentId:
    return SegmentId(int(what.removeprefix(_PREFIX)))
