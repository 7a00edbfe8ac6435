"""Segments that a look could not read: listed in `status` by name, and looked at again when their pause is over."""

from __future__ import annotations

from tierfs.background.snapshot import Snapshots
from tierfs.background.troubles import Troubles
from tierfs.metadata import directories
from tierfs.metadata.store import MetadataStore
from tierfs.types import SegmentId

_PREFIX = "look "


def try_again(snapshots: Snapshots, troubles: Troubles, now_ms: int) -> None:
    """Queue the segments that failed and whose pause is over."""
    snapshots.try_again(lambda segment_id: troubles.may_try(_trouble_of(segment_id), now_ms))


def note(metadata: MetadataStore, snapshots: Snapshots, troubles: Troubles, *, complete: bool) -> None:
    """List what failed since; forget what works again, also damage, once a look was `complete`."""
    now_ms = metadata.clock.now_ms()
    for segment_id, error in snapshots.failed.items():
        what = _trouble_of(segment_id)
        if troubles.may_try(what, now_ms):
            troubles.failed(what, error, name=name_of(metadata, segment_id))
    if complete:
        failed = {_trouble_of(segment_id) for segment_id in snapshots.failed}
        troubles.retain(_PREFIX, failed.__contains__, keep_damage=False)


def name_of(metadata: MetadataStore, segment_id: SegmentId) -> str:
    """A segment's path, for people; "" when it is gone, or its records are what is damaged."""
    try:
        with metadata.read() as txn:
            segment = directories.segment(txn, segment_id)
            return "" if segment is None else directories.path_of(txn, segment.parent_id, segment.name)
    except Exception:  # the failure that is being listed says more
        return ""


def _trouble_of(segment_id: SegmentId) -> str:
    return f"{_PREFIX}{segment_id}"
