"""Rebuild ledgers from their objects alone: those that this store offloaded, as their metadata say.

A data object without its index object was not offloaded, as for Pulsar. Where a copy of the bucket dropped user
metadata, the copy of a ledger's entries has the store and the name in its bytes. Objects that a Pulsar cluster keeps in
the same place are not touched, and listed: `tierfs adopt --as pulsar` reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from uuid import UUID

from tierfs.app.found_objects import LeftOver
from tierfs.base.bytes.checksum import twice
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Pool
from tierfs.base.bytes.progress import Meter
from tierfs.base.words import names, units
from tierfs.base.words.errors import AlreadyExists, DataLoss, NotDirectory, NotFound
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.chunkstore.sequential_read import ObjectFile
from tierfs.engine.ledger import keys as object_keys
from tierfs.engine.ledger.deviations import Deviations
from tierfs.engine.ledger.index import LedgerIndex
from tierfs.engine.ledger.keys import Role
from tierfs.engine.metadata import entries_object
from tierfs.engine.metadata.epoch_numbers import MAX_EPOCH
from tierfs.engine.metadata.store import MetadataStore
from tierfs.reading.ledger_objects import Pieces, read_index
from tierfs.tiering.adoption.ledger_link import LedgerLinker
from tierfs.tiering.adoption.ledger_read import LedgerReader
from tierfs.tiering.adoption.ledger_standing import Standing
from tierfs.tiering.adoption.plan import LedgerPart, LedgerPlan
from tierfs.tiering.ledgers.owners import copy_of, ledger_objects, uuid_of

# Parts of an object that are read in parallel (a guess).
_AT_ONCE = 4

# Objects whose metadata are read in parallel.
_LOOKS = 16

_INDEX = "-index"
_NO_UUID = UUID(int=0)
_NOT_OURS = "no sign that this store wrote it; if a Pulsar cluster wrote it: tierfs adopt --as pulsar"


@dataclass(frozen=True, slots=True)
class OffloadedLedger:
    """A data object of a ledger, its metadata, and its index object."""

    data: StoredObject
    index: StoredObject
    uuid: UUID
    path: str
    ledger_id: int
    epoch: int


def find(storage: ChunkStorage, store_id: str, left: list[LeftOver]) -> list[OffloadedLedger]:
    """Find a store's ledgers by their objects; of several attempts the newest. Append the other objects to `left`."""
    listed = {stored.name: stored for stored in ledger_objects(storage)}
    copies = {copy[0]: stored for stored in listed.values() if (copy := copy_of(stored.name)) is not None}
    data = [name for name in listed if uuid_of(name) is not None and not name.endswith(_INDEX)]
    newest: dict[str, OffloadedLedger] = {}

    def look(name: str) -> OffloadedLedger | LeftOver | None:
        try:
            stored = storage.stat(name)
            if not stored.metadata and (copy := copies.get(uuid_of(name) or _NO_UUID)) is not None:
                stored = replace(stored, metadata=_metadata_of(storage, copy))
            if stored.metadata.get("store") != store_id:
                return LeftOver(name, _NOT_OURS)
            return _parsed(stored, listed)
        except NotFound:
            return None
        except DataLoss as exc:
            return LeftOver(name, str(exc))

    with Pool(_LOOKS, "tierfs-recover") as pool:
        for looked in pool.in_order(look, data):
            if isinstance(looked, LeftOver):
                left.append(looked)
            elif looked is not None:
                older, *newer = sorted(filter(None, (newest.get(looked.path), looked)), key=_age)
                newest[looked.path] = newer[0] if newer else older
                if newer:
                    left.append(LeftOver(older.data.name, f"another attempt at {names.printable(looked.path)}"))
    return list(newest.values())


def _metadata_of(storage: ChunkStorage, copy: StoredObject) -> dict[str, str]:
    """Return the metadata that an object of a ledger had, by the copy of its entries; empty for an adopted ledger."""
    part, named = entries_object.first_part(ObjectFile(storage, copy), copy.name), copy_of(copy.name)
    if not part.path or named is None:
        return {}
    ours = {"store": part.store_id, "epoch": str(named[1]), object_keys.NAME_KEY: object_keys.encoded_path(part.path)}
    return {**ours, object_keys.VERSION_KEY: object_keys.FORMAT_VERSION, object_keys.ROLE_KEY: Role.DATA.value}


def _age(ledger: OffloadedLedger) -> tuple[int, int]:
    """Return the sort key of attempts; the greatest is chosen."""
    return ledger.epoch, ledger.data.modified_ms


def _parsed(data: StoredObject, listed: Mapping[str, StoredObject]) -> OffloadedLedger:
    index = listed.get(data.name + _INDEX)
    if index is None:
        raise DataLoss("not offloaded: its index object is missing")
    metadata = {key.lower(): value for key, value in data.metadata.items()}
    object_keys.check_version(metadata, data.name)
    key = names.ledger_key(data.name)
    epoch = units.decimal(metadata.get("epoch", ""), MAX_EPOCH)
    path = object_keys.path_of(metadata)
    if not path or key is None or key.ledger_id is None or epoch is None or metadata.get("role") != Role.DATA.value:
        raise DataLoss(f"{names.printable(data.name)} does not contain its ledger id")
    return OffloadedLedger(data, index, key.uuid, path, key.ledger_id, epoch)


class LedgerRebuilding:
    """Maker of ledgers from their objects. Every byte is read once, twice if it seems damaged."""

    def __init__(
        self,
        metadata: MetadataStore,
        storage: ChunkStorage,
        place: Place,
        advance: Meter,
    ) -> None:
        self._storage = storage
        self._advance = advance
        self._linker = LedgerLinker(metadata, place.record, None, owned=True)

    def run(self, offloaded: list[OffloadedLedger], left: list[LeftOver]) -> Iterator[LedgerPlan]:
        """Yield each ledger that was made; append failed ones to `left`. Raises storage errors."""
        pieces = Pieces(self._storage, _AT_ONCE, 1)
        try:
            reader = LedgerReader(self._storage, pieces, self._advance)
            for ledger in offloaded:
                try:
                    plan = twice(partial(self._make, ledger, reader))
                except (DataLoss, AlreadyExists, NotDirectory, NotFound) as exc:
                    left.append(LeftOver(ledger.data.name, str(exc)))
                else:
                    yield plan
        finally:
            pieces.close()

    def _plan(self, ledger: OffloadedLedger) -> LedgerPlan:
        index = read_index(self._storage, ledger.index, Deviations())
        if not isinstance(index, LedgerIndex):
            raise DataLoss(f"{names.printable(ledger.index.name)} has a format that tierfs does not write")
        part = LedgerPart(ledger.data, ledger.index, ledger.uuid, 0, ledger.data.length_bytes)
        entries = index.metadata.readable_last_entry_id + 1
        return LedgerPlan(ledger.path, ledger.ledger_id, (part,), entries, max(0, index.metadata.length))

    def _make(self, ledger: OffloadedLedger, reader: LedgerReader) -> LedgerPlan:
        """Read a ledger, then link it. Raises DataLoss before anything is linked."""
        plan = self._plan(ledger)
        if self._linker.standing(plan) is not Standing.NEW:
            raise AlreadyExists(f"{names.printable(plan.name)} exists already")
        with self._linker.rows(plan) as rows:
            self._linker.link(plan, reader.read(plan, rows.take), rows)
        return plan
