"""Whether a store may change anything (invariant 7): it owns its bucket, and this tierfs may write its format."""

from __future__ import annotations

from tierfs.base.words.errors import Fenced, PermissionDenied
from tierfs.engine.metadata.records import RECORD_VERSION, StoreRecord


def owns_bucket(store: StoreRecord) -> bool:
    """Return whether the store may change its bucket, as far as it knows."""
    return not store.replica and not store.journal.fenced_by_epoch


def require_owner(store: StoreRecord) -> None:
    """Raise Fenced when the store follows a bucket, or another store owns the bucket now.

    PermissionDenied when a newer tierfs wrote it in a format that this one can only read.
    """
    if store.min_writer_version > RECORD_VERSION:
        raise PermissionDenied(
            f"this store has format version {store.version}, which this tierfs can read but not write",
            remedy="upgrade tierfs",
        )
    if store.replica:
        raise Fenced(
            "this store is a replica: it follows a bucket that another store owns and changes nothing",
            remedy="make the change at its owner; to take over the bucket: tierfs standby --now",
        )
    if store.journal.fenced_by_epoch:
        raise fenced(store)


def is_old_backup(store: StoreRecord) -> bool:
    """Return whether a fenced store was fenced by its own later entries: it is an old copy, or a copy of it is in use.

    Two recoveries never have the same epoch (journal/epochs.py).
    """
    state = store.journal
    return state.fenced_by_epoch == store.store_epoch and state.fencer.store_id in ("", store.store_id)


def fenced(store: StoreRecord) -> Fenced:
    """Return the error of a store whose record says that it is fenced."""
    if store.journal.fencer.moved_to:
        return Fenced(
            f"the store's cold tier was moved to {store.journal.fencer.moved_to}, and this is an earlier copy of the "
            "store, or an old backup; it is read-only",
            remedy="continue with the store that was moved; if it is lost, rebuild it from there with: tierfs recover",
        )
    if is_old_backup(store):
        return Fenced(
            "the bucket is ahead of this store's metadata: they are an old backup, or a copy of them is in use; "
            "this store is read-only",
            remedy="rebuild the metadata from the bucket with: tierfs recover",
        )
    return Fenced(
        f"another store owns the bucket since epoch {store.journal.fenced_by_epoch}; this store is read-only",
        remedy="to see and save the data that is only on this disk: tierfs status",
    )
