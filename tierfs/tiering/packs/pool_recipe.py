"""The recipe for the pack of a pool: appends that are committed together with their links to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from tierfs.base.bytes import ranges
from tierfs.base.bytes.checksum import Buffer, crc32c
from tierfs.base.options.policy import Policy
from tierfs.base.system import deadlines
from tierfs.base.words.errors import NotFound, TierfsError
from tierfs.base.words.names import printable
from tierfs.base.words.types import ObjectId
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.metadata import changes, directories, tables
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.engine.segments.append import PendingAppend
from tierfs.engine.segments.group_commit import AppendCall, PendingCommit
from tierfs.engine.segments.writer import SegmentWriter
from tierfs.tiering import objects
from tierfs.tiering.objects import ChunksMoved, ColdTier, Description, Made
from tierfs.tiering.packs import pack_policy
from tierfs.tiering.packs.format import PackEntry, PackIndex, pack_name
from tierfs.tiering.packs.links import PackLinks
from tierfs.tiering.packs.pack_bytes import PackBytes


class Committer(Protocol):
    """Commits a pool: AppendPool."""

    metadata: MetadataStore

    def sync_beside(self, group: Sequence[PendingCommit], upload: Callable[[], StoredObject]) -> StoredObject:
        """Sync the files of a group while `upload` runs; return its result."""
        ...

    def commit_with(self, recipe: PoolRecipe, group: Sequence[PendingCommit]) -> None:
        """Commit the changes of a group together with the links to a pack that was stored."""
        ...


class PoolRecipe(objects.Recipe[None]):
    """Recipe for the pack of a pool. Close it."""

    def __init__(
        self, pool: Committer, group: Sequence[PendingCommit], appends: Sequence[PendingAppend], cold: ColdTier
    ) -> None:
        """Join the bytes of `appends`, those of the group that have any; segments that are gone are left out."""
        super().__init__(0)
        self._pool = pool
        self._group = group
        self._cold = cold
        self._object_id = ObjectId(0)
        self._made: Made | None = None
        self._entries: dict[PendingCommit, PackEntry] = {}
        parts: list[Buffer] = []
        with pool.metadata.read() as txn:
            self._store = txn.store
            at = 0
            for pending in appends:
                try:
                    path = _path_of(txn, pending)
                except TierfsError as exc:
                    pending.error = exc
                    continue
                held, crc = pending.range, 0
                for call in pending.calls:
                    crc = crc32c(call.data, crc)
                    parts.append(call.data)
                entry = PackEntry(pending.segment_id, path, held.start, held.length_bytes, at, crc)
                self._entries[pending] = entry
                at += held.length_bytes
        now_ms, entries = pool.metadata.clock.now_ms(), tuple(self._entries.values())
        index = PackIndex(self._store.store_id, self._store.store_epoch, self.attempt, now_ms, entries, True)
        policy = pack_policy.of_pack(policy_of(pending.calls[0]) for pending in self._entries)
        self._bytes = PackBytes(parts, index, policy)
        self.compressed, self.crc32c = self._bytes.compressed, self._bytes.crc32c

    def close(self) -> None:
        """Free the memory of compressed frames; idempotent."""
        self._bytes.close()

    @property
    def is_empty(self) -> bool:
        """Whether every append was left out."""
        return not self._entries

    def describe(self, txn: WriteTransaction) -> Description:
        """See Recipe.describe; the appends are revalidated when they are linked."""
        self._object_id = ObjectId(txn.allocate_id())
        epoch, is_compressed = self._store.store_epoch, self.compressed is not None
        name = pack_name(self._object_id, epoch, self.attempt, self.crc32c, is_compressed=is_compressed)
        metadata = objects.pack_metadata(self._store, self.attempt, self.crc32c)
        return Description(name, self._bytes.length_bytes, metadata)

    def write(self, storage: ChunkStorage, description: Description) -> StoredObject:
        def upload() -> StoredObject:
            return storage.put(description.name, self._bytes.source, metadata=description.metadata)

        return self._pool.sync_beside(self._group, upload)

    def verify(self, storage: ChunkStorage, stored: StoredObject) -> Sequence[int]:
        """Return the checksums of the bytes that were sent; the server checked those that arrived."""
        return self._bytes.grid.grid()

    def link(self, made: Made) -> None:
        """Commit the appends together with their links. Raises Unavailable after the deadline: none is in then."""
        deadlines.require_time("the object is stored, but not linked")
        self._made = made
        self._pool.commit_with(self, self._group)

    def link_in(self, txn: WriteTransaction, changed: Sequence[PendingCommit]) -> None:
        """Link the bytes of the changes to the pack, in their transaction.

        Raises Conflict when the cold tier has another place by now, and ChunksMoved when there is nothing to link, or
        the intent is gone.
        """
        assert self._made is not None
        self._cold.require_place(txn)
        entries = [self._entries[pending] for pending in changed if pending in self._entries]
        if not entries:
            raise ChunksMoved("no append of the pool could be committed")
        pack = replace(self._made.record(txn, self._object_id), kept_plain=self._bytes.kept_plain)
        for some in ranges.groups(entries, lambda _: 0, 0, changes.PACKED_PER_CHANGE):
            links = PackLinks(txn, txn.get(OBJECTS, tables.u64(self._object_id)) or pack)
            for entry in sorted(some, key=lambda entry: entry.object_offset):
                links.append(entry)
            links.end()


def policy_of(call: AppendCall) -> Policy:
    """Return the policy of the segment of an append."""
    assert isinstance(call.appender, SegmentWriter)
    return call.appender.policy


def _path_of(txn: ReadTransaction, pending: PendingAppend) -> str:
    """Return the full name of a segment now. Raises NotFound when it was removed."""
    segment = directories.living_segment(txn, pending.segment_id)
    if segment is None:
        raise NotFound(f"segment {printable(pending.name)} was deleted")
    return directories.path_of(txn, segment.parent_id, segment.name)
