"""objects.make: each step may fail or be the last one of a process, and no bytes are linked that are not there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.stores import TestStore
from tierfs.base.bytes.checksum import block_crcs, crc32c
from tierfs.base.words.errors import DataLoss, TierfsError, Unavailable
from tierfs.base.words.types import ObjectId
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage, StoredObject
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.tables import GARBAGE, INTENTS, OBJECTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.tiering import objects
from tierfs.tiering.objects import ChunksMoved, Description, Made

DATA = b"some bytes"
STEPS = ["describe", "write", "verify", "link"]


class Killed(BaseException):
    pass


class Nothing(objects.Recipe[ObjectId]):
    """An object that no chunk refers to; `ends` says how it ends behind which step."""

    def __init__(self, store: TestStore, ends: dict[str, BaseException] | None = None, *, sends: bytes = DATA) -> None:
        super().__init__(crc32c(DATA))
        self.store = store
        self.ends = ends or {}
        self.sends = sends
        self.steps: list[str] = []

    def describe(self, txn: WriteTransaction) -> Description:
        self.end("describe")
        end = f"1/chunk-{0:020d}-{len(DATA):020d}-e1-{self.attempt}"
        return Description(f"segments/a/{end}", len(DATA), {}, beside=(f"segments/b/{end}",))

    def write(self, storage: ChunkStorage, description: Description) -> StoredObject:
        stored = storage.put(description.name, BufferSource(self.sends))
        storage.put(description.beside[0], BufferSource(DATA))
        self.end("write")
        return stored

    def verify(self, storage: ChunkStorage, stored: StoredObject) -> Sequence[int]:
        self.end("verify")
        return block_crcs(DATA)

    def link(self, made: Made) -> ObjectId:
        with self.store.metadata.write() as txn:
            holder = made.record(txn, ObjectId(txn.allocate_id()))
            txn.put(OBJECTS, tables.u64(holder.id), holder)
            self.end("link")
        return holder.id

    def end(self, step: str) -> None:
        self.steps.append(step)
        if step in self.ends:
            raise self.ends[step]


class Doubtful(Nothing):
    """Of an error of its commit nobody knows whether it came."""

    not_linked = (ChunksMoved,)


def rows(store: TestStore) -> tuple[int, int]:
    with store.metadata.read() as txn:
        return txn.count(INTENTS.name), txn.count(GARBAGE.name)


def stored(store: TestStore) -> int:
    return len(list(store.cold.list("segments/")))


def make(store: TestStore, recipe: objects.Recipe[ObjectId]) -> ObjectId:
    return objects.make(store.metadata, store.cold_work().cold, recipe)


def test_the_record_takes_the_place_of_the_intents(store: TestStore) -> None:
    recipe = Nothing(store)
    object_id = make(store, recipe)
    assert recipe.steps == STEPS
    assert rows(store) == (0, 0)
    with store.metadata.read() as txn:
        holder = txn.must_get(OBJECTS, tables.u64(object_id), "the object")
    assert (holder.length, holder.crc32c, holder.attempt) == (len(DATA), crc32c(DATA), recipe.attempt)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("end", [Unavailable("away"), Killed()], ids=["an error", "a crash"])
def test_an_error_makes_the_objects_garbage(store: TestStore, step: str, end: BaseException) -> None:
    """A crash leaves intents to the next holder; of both objects each is deleted once more later."""
    with pytest.raises(type(end)):
        make(store, Nothing(store, {step: end}))
    intents = 0 if step == "describe" or not isinstance(end, Killed) else 2
    assert rows(store) == (intents, 0 if step == "describe" or intents else 4)
    assert objects.abandon_all(store.metadata) == intents
    store.cold_work().collect()
    assert stored(store) == 0


@pytest.mark.parametrize(("error", "left"), [(Unavailable("away"), 2), (ChunksMoved("elsewhere"), 0)])
def test_objects_of_a_doubtful_commit_stay(store: TestStore, error: TierfsError, left: int) -> None:
    with pytest.raises(type(error)):
        make(store, Doubtful(store, {"link": error}))
    assert rows(store)[0] == left
    store.cold_work().collect()
    assert stored(store) == left


def test_an_object_that_is_too_short_is_not_verified(store: TestStore) -> None:
    recipe = Nothing(store, sends=DATA[1:])
    with pytest.raises(DataLoss, match="9 of 10 bytes arrived"):
        make(store, recipe)
    assert recipe.steps == STEPS[:2]
    assert rows(store) == (0, 4)


def test_a_place_that_is_not_ours_gets_nothing(store: TestStore) -> None:
    def refuse() -> None:
        raise Unavailable("nobody can say whose it is")

    cold = objects.ColdTier(store.cold_work().cold.location_id, store.cold, refuse, lambda _: None)
    recipe = Nothing(store)
    with pytest.raises(Unavailable):
        objects.make(store.metadata, cold, recipe)
    assert (recipe.steps, rows(store), stored(store)) == ([], (0, 0), 0)
