"""Make many segments with all their bytes, in one transaction; each directory is looked up and changed once."""

from __future__ import annotations

from collections.abc import Callable

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names
from tierfs.base.words.types import (
    EntryKind,
    Inode,
    SegmentId,
    SegmentStatus,
)
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.record_parts import IngestedFile
from tierfs.engine.metadata.records import DirectoryRecord, SegmentRecord, TierState
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.segments.create import make_parent


@dataclass(slots=True)
class Parent:
    """A directory of a batch, looked up once."""

    record: DirectoryRecord
    chunk_bytes: int = 0
    """By policy, once it was looked up."""
    gained: bool = False


class SegmentBuilder:
    """Makes many segments with all their bytes, in one transaction; each directory is looked up and changed once."""

    def __init__(self, txn: WriteTransaction, *, seal: bool) -> None:
        self._txn = txn
        self._seal = seal
        self._parents: dict[tuple[str, ...], Parent] = {}
        self.store_epoch = txn.store.store_epoch

    def parent(self, name: str) -> Parent:
        """Return the directory of a segment, made if it is missing. Raises NotDirectory or InvalidRequest."""
        parts = names.split(name)[:-1]
        parent = self._parents.get(parts)
        if parent is not None and parts:
            return parent
        parent_id, _ = make_parent(self._txn, name)  # of the root each time: it refuses reserved names there
        if parent is None:
            parent = self._parents[parts] = Parent(directories.directory(self._txn, parent_id))
        return parent

    def make(
        self, number: SegmentId, name: str, length: int, file: IngestedFile, chain: Callable[[], TierState] = TierState
    ) -> SegmentRecord:
        """Put a segment into its directory, and return its record, which the caller writes with its chains.

        `chain` makes the local one. Raises as `parent`, and AlreadyExists.
        """
        parent, last, now_ms = self.parent(name), names.split(name)[-1], self._txn.now_ms
        directories.put_entry(self._txn, parent.record.id, Entry(last, EntryKind.SEGMENT, number))
        parent.gained = True
        self._txn.touch(parent_inode=parent.record.inode, name=last, segment_id=number)
        return SegmentRecord(
            id=number,
            parent_id=parent.record.id,
            name=last,
            inode=Inode(self._txn.allocate_id()),
            length=length,
            status=SegmentStatus.SEALED if self._seal else SegmentStatus.OPEN,
            local=chain(),
            created_ms=now_ms,
            modified_ms=now_ms,
            changed_ms=now_ms,
            sealed_ms=now_ms if self._seal else 0,
            first_byte_ms=now_ms if length else 0,
            commit_id=self._txn.allocate_id(),  # the id was reserved before, while others committed
            file=file,
        )

    def end(self) -> None:
        """Change the directories."""
        for parent in self._parents.values():
            if parent.gained:
                directories.modify(self._txn, parent.record)
