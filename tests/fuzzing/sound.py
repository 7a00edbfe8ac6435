"""Sound input of every kind that tierfs reads from a bucket, made by tierfs itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.app.batches.batch_writes import Driver
from tests.app.recovery.test_recover import checkpoint
from tests.engine.journal.replaying import checkpoints_of, entries_of
from tests.ledgers import new_ledger, offload
from tests.stores import TestStore, open_test_store
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.journal import reader, store_mark
from tierfs.engine.journal.objects import read_small
from tierfs.engine.metadata import policies
from tierfs.engine.metadata import records_pb2 as pb

POLICY = {"chunk_bytes": "65536", "object_bytes": "65536"}

KINDS = {"segments", "packs"}
"""Of compressed objects, by their prefixes."""


@dataclass(frozen=True)
class Bucket:
    """The objects of one store: segments and packs, plain and compressed, a ledger, a distributed write, a journal."""

    cold: MemoryStorage
    store_id: str
    entries: list[pb.JournalEntry]
    manifest: pb.CheckpointManifest
    parts: list[pb.CheckpointPart]

    def copy(self, without: str = "") -> MemoryStorage:
        """Return the same objects in another storage, without those whose names begin with `without`."""
        kept = self.cold.objects.items()
        objects = {name: held for name, held in kept if not without or not name.startswith(without)}
        return MemoryStorage(objects=objects)

    def names(self, prefix: str) -> list[str]:
        """Return the names of the objects below a prefix."""
        return sorted(item.name for item in self.cold.list(prefix))

    def data(self, name: str) -> bytes:
        """Return the bytes of an object."""
        return self.cold.objects[name].data


@contextmanager
def bucket(path: Path) -> Iterator[Bucket]:
    """Yield a bucket with something of everything."""
    cold = MemoryStorage()
    with open_test_store(path, policy=POLICY, cold=cold) as store:
        _fill(store)
        with store.metadata.read() as txn:
            store_mark.write_mark(cold, store_mark.mark_of(txn.store))
        entries = entries_of(cold)
        checkpoint(store)
        name = max(item.name for item in cold.list("journal/checkpoint-") if ".part-" not in item.name)
        listing = reader.list_journal(cold)
        manifest = reader.read_manifest(cold, listing.checkpoints[checkpoints_of(cold)[-1]])
        items = reader.listed_parts(cold, listing, manifest)
        parts = [reader.read_part(cold, item) for item in items]
        assert read_small(cold, name)
        yield Bucket(cold, store.metadata.store_id, entries, manifest, parts)


def _fill(store: TestStore) -> None:
    store.append("a/large", bytes(range(256)) * 300, seal=True)
    store.append("a/open", b"not cold")
    store.offload("a/large")
    for index in range(5):
        store.append(f"small/{index}", bytes([index]) * (100 + index), seal=True)
    store.offload("small")
    _fill_compressed(store)
    offload(store, new_ledger(store, [bytes([index]) * (index % 40) for index in range(60)], "public/topic"))
    Driver(store).write({"out/0": b"one" * 50, "out/1": b"two"})
    store.engine.delete("small/4", recursive=False, cold_due_ms=store.clock.now_ms())
    store.cold_work().publish()


def _fill_compressed(store: TestStore) -> None:
    store.append("z/large", bytes(range(64)) * 3000, seal=True)
    for index in range(3):
        store.append(f"z/small/{index}", bytes([index, 7]) * (200 + index), seal=True)
    with store.metadata.write() as txn:
        policies.change(txn, "z", put_settings={"compression": "zstd"})
    store.offload("z")
    assert {found.name.partition("/")[0] for found in store.cold.list("") if found.name.endswith(".zst")} == KINDS
