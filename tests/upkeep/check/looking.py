"""Looking at a test store as the check does."""

from __future__ import annotations

from dataclasses import replace

from tests.stores import LOCATION, TestStore
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.types import Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.metadata import chains, directories
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.upkeep.check.bucket import BucketCheck
from tierfs.upkeep.check.changed_objects import ChangedObjects
from tierfs.upkeep.check.files import FileCheck
from tierfs.upkeep.check.findings import Finding
from tierfs.upkeep.check.journal import JournalCheck
from tierfs.upkeep.check.metadata import check_metadata
from tierfs.upkeep.check.object_table import ObjectTable
from tierfs.upkeep.check.scrub.scrub import Scrubber
from tierfs.upkeep.check.scrub.verify import DeepCheck
from tierfs.upkeep.check.segments import Totals


def findings(store: TestStore) -> list[Finding]:
    """Return the findings of the checks of metadata and local files."""
    table, totals = ObjectTable(), Totals()
    with store.metadata.read() as txn:
        found = list(check_metadata(txn, table, totals))
        found += FileCheck(store.metadata, store.files, table, totals.active).run(txn)
    return found


def cold_findings(store: TestStore, changed: ChangedObjects | None = None) -> list[Finding]:
    """Return the findings of the checks of the journal and of the bucket's objects, `changed` of which are judged."""
    table = ObjectTable()
    with store.metadata.read() as txn:
        list(check_metadata(txn, table, Totals()))
    found = JournalCheck(store.metadata, store.cold).run()
    return found + list(BucketCheck(store.metadata, lambda _: store.cold, LOCATION, table, changed).run())


def scrubber(store: TestStore) -> Scrubber:
    """Return a scrubber over both tiers."""
    return Scrubber(store.metadata, store.files, lambda _: store.cold)


def holder_at(store: TestStore, name: str, tier: Tier, offset: int) -> tuple[ObjectRecord, int]:
    """The object that holds a byte of a segment in one tier, and where in it."""
    with store.metadata.read() as txn:
        chunk = chains.chunk_at(txn, directories.segment_by_name(txn, name).id, tier, offset)
        assert chunk is not None
        return chains.object_of(txn, chunk), offset - chunk.start_offset + chunk.object_offset


def flip_local(store: TestStore, name: str, offset: int) -> None:
    """Flip a bit of one byte in its chunk file."""
    holder, at = holder_at(store, name, Tier.LOCAL, offset)
    path = store.files.root / holder.name
    mode = path.stat().st_mode
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))
    path.chmod(mode)


def flip_cold(store: TestStore, name: str, offset: int) -> None:
    """Flip a bit of one byte in its object, whose etag stays: rot, not a replacement."""
    storage = getattr(store.cold, "inner", store.cold)
    assert isinstance(storage, MemoryStorage)
    holder, at = holder_at(store, name, Tier.COLD, offset)
    held = storage.objects[holder.name]
    data = bytearray(held.data)
    data[at] ^= 0x10
    storage.objects[holder.name] = replace(held, data=bytes(data))


def deep_findings(store: TestStore) -> list[Finding]:
    """Return the findings of reading every byte."""
    return list(DeepCheck(store.metadata, scrubber(store), Meter()).run())
