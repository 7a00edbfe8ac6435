"""Whether this store may change anything (invariant 7): asked by every write transaction of a verb."""

from __future__ import annotations

from tierfs.errors import Fenced, PermissionDenied
from tierfs.metadata.records import RECORD_VERSION, StoreRecord


def owns_bucket(store: StoreRecord) -> bool:
    """Whether the store may change its bucket, as far as it knows."""
    return not store.replica and not store.journal.fenced_by_epoch


def require_owner(store: StoreRecord) -> None:
    """Raise Fenced when the store follows a bucket, or another store owns the bucket by now.

    PermissionDenied when a newer tierfs wrote it in a way that this one can only read.
    """
    if store.min_writer_version > RECORD_VERSION:
        raise PermissionDenied(
            f"this store has format version {store.version}, which this tierfs can read but not write",
            remedy="upgrade tierfs",
        )
    if store.replica:
        raise Fenced(
            "this store is a replica: it follows a bucket that another store owns and changes nothing",
            remedy="change it where its owner is, or own the bucket from here: tierfs recover",
        )
    if store.journal.fenced_by_epoch:
        raise fenced(store)


def is_old_backup(store: StoreRecord) -> bool:
    """Whether a fenced store was fenced by its own later entries, so that its metadata is a copy of the past."""
    state = store.journal
    return state.fenced_by_epoch == store.store_epoch and state.fencer.store_id in ("", store.store_id)


def fenced(store: StoreRecord) -> Fenced:
    """The error of a store whose record says that it is fenced."""
    if is_old_backup(store):
        return Fenced(
            "the bucket is ahead of this store's metadata, which must come from an old backup; it may only be read",
            remedy="rebuild the metadata from the bucket with: tierfs recover",
        )
    return Fenced(
        f"another store owns the bucket since epoch {store.journal.fenced_by_epoch}; this one may only be read",
        remedy="see what only this disk holds, and how to save it: tierfs status",
    )
