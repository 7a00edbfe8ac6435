"""Two stores and one bucket: the second becomes the owner, as on another host, and the first is not notified."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.stores import TestStore
from tierfs.base.system.clock import Clock
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal.names import JOURNAL_PREFIX, entry_slot
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata import changes
from tierfs.engine.metadata.store import MetadataStore


def copy_metadata(source: Path, target: Path) -> None:
    """The files of a backup: the records, not the locks."""
    target.mkdir(parents=True)
    shutil.copyfile(source / "data.mdb", target / "data.mdb")


@contextmanager
def opened_copy(store: TestStore, path: Path) -> Iterator[TestStore]:
    """The store's metadata and chunk files as they are now, opened in another directory."""
    copy_metadata(store.path / "metadata", path / "metadata")
    shutil.copytree(store.path / "chunks", path / "chunks", copy_function=shutil.copy)
    metadata = MetadataStore(path / "metadata", store.clock)
    files = ChunkFiles(path / "chunks")
    opened = TestStore(path, store.clock, metadata, files, store.cold, store.settings)
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def new_owner(store: TestStore, path: Path) -> Iterator[TestStore]:
    """A copy that owns the bucket from now on, as `recover` makes one on another host."""
    with opened_copy(store, path) as owner:
        become_owner(owner.metadata, owner.cold)
        yield owner


def become_owner(metadata: MetadataStore, storage: ChunkStorage) -> None:
    """Move one epoch on, to the next free slot, with none of the old owner's changes left to publish."""
    slots = [slot for found in storage.list(JOURNAL_PREFIX) if (slot := entry_slot(found.name)) is not None]
    with metadata.write() as txn:
        state = replace(txn.store.journal, next_slot=max(slots, default=0) + 1)
        txn.update_store(store_epoch=txn.store.store_epoch + 1, journal=state)
        changes.owner_begins(txn, "another-host")
    Publisher(metadata, storage).publish()


def bucket(storage: ChunkStorage) -> dict[str, bytes]:
    """Every object with its bytes."""
    found = {}
    for listed in storage.list(""):
        buffer = bytearray(listed.length_bytes)
        storage.read_into(listed.name, 0, memoryview(buffer))
        found[listed.name] = bytes(buffer)
    return found


def fast(clock: Clock, seconds: float) -> None:
    """Let time pass on a clock that only tests move."""
    clock.advance(seconds)  # type: ignore[attr-defined]
