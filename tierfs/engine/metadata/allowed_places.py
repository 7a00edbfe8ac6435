"""Places that only a bucket's journal names: whoever can write to the bucket could name any (design §11, security)."""

from __future__ import annotations

from tierfs.base.words.errors import PermissionDenied
from tierfs.base.words.names import printable
from tierfs.engine.metadata.records import LocationRecord


def refusal(place: LocationRecord, allowed: str) -> PermissionDenied | None:
    """Return why nothing is read in a place; None for one that may be read. `allowed`: cold.allowed_locations."""
    named = f"{place.url}@{place.endpoint_url}" if place.endpoint_url else place.url
    if not place.from_journal or named in allowed.split():
        return None
    shown = printable(named)
    if place.archive:
        return PermissionDenied(
            f"the archive place {shown} is only in the bucket's journal, not allowed here, so nothing is read",
            remedy=f"to allow it: tierfs config archive.place={printable(place.url)}; in Spark, or without a "
            f'store: [cold] allowed_locations = "{shown}"',
        )
    return PermissionDenied(
        f"{shown} is only in the bucket's journal, not allowed here, so nothing is read there",
        remedy=f'to allow it, add it in store.toml: [cold] allowed_locations = "{shown}"',
    )
