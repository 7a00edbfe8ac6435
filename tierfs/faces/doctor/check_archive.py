"""Check of the archive place: whether it is there, and the store's."""

from __future__ import annotations

from collections.abc import Iterator

from tierfs.app.store import Store
from tierfs.engine.journal import archive_mark
from tierfs.engine.metadata import archive_place, policies
from tierfs.faces.doctor.findings import DoctorFinding, ok


def check_archive(store: Store) -> Iterator[DoctorFinding]:
    """Yield the check of the archive place, if there is one. Raises what is wrong with it."""
    with store.metadata.read() as txn:
        place, store_id = archive_place.find(txn), txn.store.store_id
    if place is not None:
        archive_mark.require(store.locations.tried_once_at(place), store_id)
        yield ok("archive place", f"{policies.told(place)}: marked as this store's")
