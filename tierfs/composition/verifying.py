"""verify: every byte below a path, from every tier that holds it. Part of the composition root."""

from __future__ import annotations

from collections.abc import Iterator

from tierfs.app import Store
from tierfs.fsck.scrub import Scrubber
from tierfs.fsck.verify import Verified, Verifier
from tierfs.metadata import directories
from tierfs.parallel import Meter, OnProgress


def verify(store: Store, path: str, show: OnProgress) -> Iterator[Verified]:
    """Verify every segment below a path, one after the other.

    Bad chunks become suspect, and suspect ones that are good lose the mark, unless this store may change
    nothing (a replica, or fenced). Raises NotFound, and Unavailable when a tier does not answer.
    """
    with store.metadata.read() as txn:
        found = list(directories.segments_at(txn, path))
        marks = not txn.store.replica and not txn.store.journal.fenced_by_epoch
    total = sum(segment.local.bytes + segment.cold.bytes for _, segment in found)
    scrubber = Scrubber(store.metadata, store.files, store.storage_of)
    verifier = Verifier(store.metadata, scrubber, Meter(show, total), marks=marks)
    yield from verifier.run((name, segment.id, segment.range) for name, segment in found)
