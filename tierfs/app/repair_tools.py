"""The tools that repair an open store, with a cold tier that was proved to be its own. Part of the composition root."""

from __future__ import annotations

from tierfs.app.store import Store
from tierfs.base.words.errors import Conflict
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal.publish import PROOF_S
from tierfs.engine.metadata import changes, store_ownership, tables
from tierfs.engine.metadata.tables import LOCATIONS
from tierfs.tiering.garbage import ballast
from tierfs.upkeep.check.journal import JournalCheck
from tierfs.upkeep.check.repair.copies import MayLose
from tierfs.upkeep.check.repair.mender import MendTools
from tierfs.upkeep.check.repair.renew import RenewTools


def tools(store: Store, may_lose: MayLose) -> MendTools:
    """Return the tools for one open store. Raises Fenced where the store may change nothing."""
    with store.metadata.read() as txn:
        store_ownership.require_owner(txn.store)
    return MendTools(
        metadata=store.metadata,
        files=store.files,
        storage_of=store.storage_of,
        cold=_RecentlyProved(store),
        checkpoint=lambda: _checkpoint(store),
        renewing=lambda: _renewing(store),
        grace_ms=store.settings.offload.grace_s * 1000,
        may_lose=may_lose,
    )


class _RecentlyProved:
    """The cold tier, proved to be ours in the last PROOF_S: a proof costs a listing, and there may be many mends."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._storage: ChunkStorage | None = None
        self._proved_s: float | None = None

    def __call__(self) -> ChunkStorage | None:
        now_s = self._store.clock.boot_s()
        if self._proved_s is None or not 0 <= now_s - self._proved_s <= PROOF_S:
            self._storage = _proved(self._store)
            self._proved_s = now_s
        return self._storage


def _proved(store: Store) -> ChunkStorage | None:
    """Return the cold tier, None if there is none. A wrong or unmounted one would make every object look lost."""
    location_id = store.cold_location_id
    if location_id is None:
        return None
    storage = store.storage_of(location_id)
    if not JournalCheck(store.metadata, storage).is_ours():
        raise Conflict(
            f"{storage} has no journal of this store, so objects missing there are not counted as lost",
            remedy="check that the cold tier is mounted, and that the bucket is right",
        )
    return storage


def _renewing(store: Store) -> RenewTools:
    work = store.cold_work("check")
    return RenewTools(work.cold.location_id, work.consolidator, work.repacker)


def _checkpoint(store: Store) -> None:
    """Checkpoint all metadata into the journal, whatever it lacks. Without a cold tier there is no journal."""
    location_id = store.cold_location_id
    if location_id is None:
        return
    with store.metadata.write() as txn:  # a checkpoint needs a slot of its own
        location = txn.must_get(LOCATIONS, tables.u32(location_id), f"location {location_id}")
        changes.changed(txn, LOCATIONS, location)
    work = store.cold_work("check")
    # At once: a publish would also write a checkpoint that is due, which refers to earlier ones, and takes the slot.
    ballast.with_half(work.ballast_path, lambda: work.checkpointer.checkpoint(whole=True))
