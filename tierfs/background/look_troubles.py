"""Segments that a look could not read: listed in `status` by name, and looked at again when their pause is over."""

from __future__ import annotations

from tierfs.background.snapshot import Snapshots
from tierfs.background.troubles import Troubles
from tierfs.metadata import directories
from tierfs.metadata.store import MetadataStore
from tierfs.types import SegmentId

_PREFIX = "look "

_MOST_LISTED = 50
"""Segments listed by name: one damaged policy fails those of all below its directory."""

_OTHERS = f"{_PREFIX}others"


def try_again(snapshots: Snapshots, troubles: Troubles, now_ms: int) -> None:
    """Queue the segments that failed and whose pause is over."""
    snapshots.try_again(lambda segment_id: troubles.may_try(_row_of(segment_id, troubles), now_ms))


def note(metadata: MetadataStore, snapshots: Snapshots, troubles: Troubles, *, complete: bool) -> None:
    """List what failed since; forget what works again, also damage, once a look was `complete`."""
    now_ms = metadata.clock.now_ms()
    listed = sum(troubles.has(_trouble_of(segment_id)) for segment_id in snapshots.failed)
    others: list[Exception] = []
    for segment_id, error in snapshots.failed.items():
        what = _trouble_of(segment_id)
        if not troubles.has(what) and listed >= _MOST_LISTED:
            others.append(error)
        elif troubles.may_try(what, now_ms):
            listed += not troubles.has(what)
            troubles.failed(what, error, name=name_of(metadata, segment_id))
    if others and troubles.may_try(_OTHERS, now_ms):
        troubles.failed(_OTHERS, others[0], name=f"at {len(others):,} other segments")
    if complete:
        failed = {_row_of(segment_id, troubles) for segment_id in snapshots.failed}
        troubles.retain(_PREFIX, failed.__contains__, keep_damage=False)


def name_of(metadata: MetadataStore, segment_id: SegmentId) -> str:
    """A segment's path, for people; "" when it is gone, or its records are what is damaged."""
    try:
        with metadata.read() as txn:
            segment = directories.segment(txn, segment_id)
            return "" if segment is None else directories.path_of(txn, segment.parent_id, segment.name)
    except Exception:  # the failure that is being listed says more
        return ""


def _row_of(segment_id: SegmentId, troubles: Troubles) -> str:
    """The row that a failed segment is listed in: its own, or that of all which are too many for a list."""
    own = _trouble_of(segment_id)
    return own if troubles.has(own) or not troubles.has(_OTHERS) else _OTHERS


def _trouble_of(segment_id: SegmentId) -> str:
    return f"{_PREFIX}{segment_id}"
