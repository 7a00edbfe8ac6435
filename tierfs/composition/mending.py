"""What `fsck --repair` mends a store with. Part of the composition root."""

from __future__ import annotations

from tierfs.app import Store
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import Conflict
from tierfs.fsck.journal import JournalCheck
from tierfs.fsck.mend_bytes import MayLose
from tierfs.fsck.mender import MendTools
from tierfs.metadata import fence, journal, keys
from tierfs.metadata.tables import LOCATIONS


def tools(store: Store, may_lose: MayLose) -> MendTools:
    """The tools for one open store. Raises Fenced where the store may change nothing."""
    with store.metadata.read() as txn:
        fence.require_owner(txn.store)
    return MendTools(
        metadata=store.metadata,
        files=store.files,
        storage_of=store.storage_of,
        cold=lambda: _proved(store),
        checkpoint=lambda: _checkpoint(store),
        grace_ms=store.settings.offload.grace_s * 1000,
        may_lose=may_lose,
    )


def _proved(store: Store) -> ChunkStorage | None:
    """The cold tier, None if there is none. A wrong or unmounted one would make every object look lost."""
    location_id = store.cold_location_id
    if location_id is None:
        return None
    storage = store.storage_of(location_id)
    if not JournalCheck(store.metadata, storage).is_ours():
        raise Conflict(
            f"{storage} holds no journal of this store, so what is missing there is not taken for lost",
            remedy="is the cold tier mounted? is it the right bucket?",
        )
    return storage


def _checkpoint(store: Store) -> None:
    """All metadata into the journal anew, whatever it lacks. Without a cold tier there is no journal."""
    location_id = store.cold_location_id
    if location_id is None:
        return
    with store.metadata.write() as txn:  # a checkpoint needs a slot of its own
        journal.location_changed(txn, txn.must_get(LOCATIONS, keys.u32(location_id), f"location {location_id}"))
    work = store.cold_work("fsck")
    work.publish()
    work.tools.checkpointer.checkpoint()
