"""Ledgers and managed ledgers from Python, and the offloaders that a program gives them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from uuid import UUID, uuid4

import pytest

import tierfs
from tests.commands import tierfs as command
from tierfs.base.words.errors import Conflict, DataLoss, InvalidRequest, NotFound, Unavailable
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.ledger.offloader import Offloader, ReadableLedger
from tierfs.engine.segments.positions import Position
from tierfs.faces.python.ledger import ManagedLedger
from tierfs.tiering.ledgers.object_offloader import ObjectOffloader

ENTRIES = [b"", b"one", b"\0" * 300, b"two", *(os.urandom(900) for _ in range(40)), b""]


class Kept:
    """An offloader that somebody else wrote: it keeps entries in a dictionary, and fails when told to."""

    def __init__(self) -> None:
        self.ledgers: dict[tuple[int, UUID], tuple[list[bytes], Mapping[str, str]]] = {}
        self.fails_after: int | None = None

    def offload(self, ledger: ReadableLedger, uuid: UUID, extra_metadata: Mapping[str, str]) -> None:
        entries = list(ledger.read(0, ledger.last_entry_id))
        if self.fails_after is not None:
            self.ledgers[ledger.ledger_id, uuid] = entries[: self.fails_after], extra_metadata
            raise Unavailable("their disk is away")
        self.ledgers[ledger.ledger_id, uuid] = entries, extra_metadata

    def read_offloaded(self, ledger_id: int, uuid: UUID) -> ReadableLedger:
        if (ledger_id, uuid) not in self.ledgers:
            raise NotFound(f"ledger {ledger_id}")
        return InMemory(ledger_id, self.ledgers[ledger_id, uuid][0])

    def delete_offloaded(self, ledger_id: int, uuid: UUID) -> None:
        self.ledgers.pop((ledger_id, uuid), None)


class InMemory:
    """A read handle of somebody else."""

    def __init__(self, ledger_id: int, entries: list[bytes]) -> None:
        self.ledger_id = ledger_id
        self._entries = entries
        self.last_entry_id = len(entries) - 1
        self.length = sum(map(len, entries))

    def read(self, first: int, last: int) -> Iterator[bytes]:
        return iter(self._entries[first : last + 1])


def test_entries_are_read_by_their_ids_in_either_tier(store: tierfs.Store) -> None:
    with store.managed_ledger("topic") as managed:
        added = managed.add(ENTRIES)
        managed.roll()
        (ledger,) = managed.ledgers()
        assert (ledger.last_entry_id, len(ledger), ledger.closed) == (len(ENTRIES) - 1, len(ENTRIES), True)
        assert str(managed.end()) == f"{added[0].ledger_id}:{len(ENTRIES)}"
        assert managed.offload_prefix(managed.end() or "") == managed.end()
    store.evict("topic", force=True)
    assert list(store.ledger(added[0].segment)) == ENTRIES
    assert list(ledger.read(1, 3)) == ENTRIES[1:4]
    for first, last in ((-1, 0), (3, 2), (0, len(ENTRIES)), (len(ENTRIES), len(ENTRIES))):
        with pytest.raises(InvalidRequest):
            ledger.read(first, last)
    assert isinstance(ledger, ReadableLedger)


def test_an_empty_ledger_has_no_entry(store: tierfs.Store) -> None:
    command("ledger", "create", "topic", store=Path(store.path))
    with store.managed_ledger("topic") as managed:
        (ledger,) = managed.ledgers()
        assert (list(ledger), ledger.last_entry_id, ledger.length) == ([], -1, 0)


def test_a_managed_ledger_offloads_with_the_offloader_it_is_given(store: tierfs.Store) -> None:
    kept = Kept()
    assert isinstance(kept, Offloader)
    with store.managed_ledger("topic", offloader=kept) as managed:
        first, second = (rolled(managed, entries) for entries in ([b"one", b"two"], [b"three"]))
        managed.add([b"open"])
        assert managed.offload_prefix(f"{second}:0") == Position(second, 0)
        assert list(kept.ledgers.values()) == [([b"one", b"two"], {"ManagedLedgerName": "topic"})]
        end = managed.end()
        assert end is not None
        assert managed.offload_prefix(end) == Position(end.ledger_id, 0)
        assert len(kept.ledgers) == 2
        assert managed.offload_prefix(end).entry_id == 0  # again: nothing to do
        assert len(kept.ledgers) == 2
        assert list(managed.read_offloaded(first).read(0, 1)) == [b"one", b"two"]
        with pytest.raises(NotFound):
            managed.read_offloaded(end.ledger_id)
        assert store.info(managed.ledgers()[0].name).local_bytes == 6, "a copy more: the tiers keep every byte"
        managed.trim(f"{second}:0")
        assert len(kept.ledgers) == 1
        managed.delete_offloaded(second)
        assert kept.ledgers == {}
        with pytest.raises(NotFound):
            managed.read_offloaded(second)


def rolled(managed: tierfs.ManagedLedger, entries: list[bytes]) -> int:
    """A closed ledger of these entries; its id."""
    (added,) = managed.add(entries)
    managed.roll()
    return added.ledger_id


def test_an_attempt_that_failed_is_deleted_by_the_next(store: tierfs.Store) -> None:
    kept = Kept()
    with store.managed_ledger("topic", offloader=kept) as managed:
        ledger_id = rolled(managed, [b"one", b"two"])
        kept.fails_after = 1
        with pytest.raises(Unavailable):
            managed.offload_prefix(f"{ledger_id}:2")
        with pytest.raises(NotFound):
            managed.read_offloaded(ledger_id)
        kept.fails_after = None
        (half,) = kept.ledgers
    with store.managed_ledger("topic", offloader=kept) as managed:  # as another program would
        assert managed.offload_prefix(f"{ledger_id}:2") == Position(ledger_id, 2)
        assert list(kept.ledgers.values()) == [([b"one", b"two"], {"ManagedLedgerName": "topic"})]
        assert half not in kept.ledgers


def test_the_tiers_own_offload_and_a_program_s_do_not_meet(store: tierfs.Store) -> None:
    kept = Kept()
    with store.managed_ledger("topic", offloader=kept) as managed:
        ledger_id = rolled(managed, [b"one"])
        managed.offload_prefix(f"{ledger_id}:1")
    store.offload("topic")
    store.evict("topic", force=True)
    with store.managed_ledger("topic", offloader=kept) as managed:
        assert list(managed.read_offloaded(ledger_id).read(0, 0)) == [b"one"]
        assert list(managed.ledgers()[0]) == [b"one"]


def test_two_programs_do_not_offload_one_ledger(store: tierfs.Store) -> None:
    class Meddled(Kept):
        def offload(self, ledger: ReadableLedger, uuid: UUID, extra_metadata: Mapping[str, str]) -> None:
            elsewhere = managed._require_elsewhere()
            elsewhere._record(elsewhere._find(ledger.ledger_id)[0], uuid, other)
            super().offload(ledger, uuid, extra_metadata)

    from tierfs.engine.metadata.ledger_records import OffloadProgress

    other = OffloadProgress.begun(uuid4(), "another")
    with store.managed_ledger("topic", offloader=Meddled()) as managed:
        ledger_id = rolled(managed, [b"one"])
        with pytest.raises(Conflict, match=f"another program offloads ledger {ledger_id} of topic"):
            managed.offload_prefix(f"{ledger_id}:1")


@pytest.mark.parametrize("block_bytes", [1200, 64 << 20])
def test_objects_hold_any_read_handle(block_bytes: int) -> None:
    uuid, storage = uuid4(), MemoryStorage()
    offloader = ObjectOffloader(storage, block_bytes=block_bytes)
    metadata = {"ManagedLedgerName": "tenant/ns/persistent/topic", "Software Version": "3.0 ü"}
    offloader.offload(InMemory(42, ENTRIES), uuid, metadata)
    stored = storage.stat(f"{uuid}-ledger-42-index").metadata
    assert (stored["managedledgername"], stored["software-version"]) == ("tenant/ns/persistent/topic", "3.0 %C3%BC")
    held = offloader.read_offloaded(42, uuid)
    assert (held.ledger_id, held.last_entry_id, held.length) == (42, len(ENTRIES) - 1, sum(map(len, ENTRIES)))
    for first, last in ((0, held.last_entry_id), (5, 5), (len(ENTRIES) - 1, len(ENTRIES) - 1), (2, 30)):
        assert list(held.read(first, last)) == ENTRIES[first : last + 1]
    with pytest.raises(InvalidRequest):
        list(held.read(0, len(ENTRIES)))
    for _ in range(2):
        offloader.delete_offloaded(42, uuid)
    assert list(storage.list("")) == []
    with pytest.raises(NotFound):
        offloader.read_offloaded(42, uuid)


def test_what_cannot_be_offloaded_leaves_nothing() -> None:
    storage = MemoryStorage()
    offloader = ObjectOffloader(storage, block_bytes=1000)

    class Short(InMemory):
        def read(self, first: int, last: int) -> Iterator[bytes]:
            return iter([b"on"])

    for ledger, metadata, kind in (
        (InMemory(1, []), {}, InvalidRequest),
        (InMemory(1, [b"x" * 1000]), {}, InvalidRequest),
        (Short(1, [b"one"]), {}, DataLoss),
        (InMemory(1, [b"one"]), {"Role": "king"}, InvalidRequest),
        (InMemory(1, [b"one"]), {"a b": "1", "a-b": "2"}, InvalidRequest),
        (InMemory(1, [b"one"]), {"!": "1"}, InvalidRequest),
    ):
        with pytest.raises(kind):
            offloader.offload(ledger, uuid4(), metadata)
    assert list(storage.list("")) == []


def test_another_store_adopts_what_a_program_offloaded(store: tierfs.Store, path: Path, tmp_path: Path) -> None:
    with (
        closing(DirectoryStorage.create(tmp_path / "theirs")) as storage,
        store.managed_ledger("topic", offloader=ObjectOffloader(storage)) as managed,
    ):
        ledger_id = rolled(managed, ENTRIES)
        managed.offload_prefix(f"{ledger_id}:{len(ENTRIES)}")
        for stored in list(storage.list("")):
            (tmp_path / "theirs" / f"{stored.name}.json").write_text(
                json.dumps(dict(storage.stat(stored.name).metadata))
            )
    command("adopt", tmp_path / "theirs", "--as", "pulsar", "--into", "adopted", store=path)
    (adopted,) = store.segments("adopted/topic")
    assert list(store.ledger(adopted.name)) == ENTRIES


class Failing(Kept):
    """An offloader whose own library raises its own errors for some ledgers."""

    def __init__(self, error: type[Exception], bad: set[int] | None = None, *, deletes: bool = True) -> None:
        super().__init__()
        self.error, self.bad, self.deletes = error, bad or set(), deletes

    def offload(self, ledger: ReadableLedger, uuid: UUID, extra_metadata: Mapping[str, str]) -> None:
        super().offload(ledger, uuid, extra_metadata)
        if ledger.ledger_id in self.bad:
            raise self.error(f"no room for ledger {ledger.ledger_id}")

    def delete_offloaded(self, ledger_id: int, uuid: UUID) -> None:
        if not self.deletes and ledger_id in self.bad:
            raise self.error(f"ledger {ledger_id} is locked")
        super().delete_offloaded(ledger_id, uuid)

    @property
    def ids(self) -> list[int]:
        return sorted(ledger_id for ledger_id, _ in self.ledgers)


def filled(managed: ManagedLedger, count: int = 4) -> list[int]:
    """Closed ledgers of one entry each."""
    for number in range(count):
        managed.add([b"entry %d" % number])
        managed.roll()
    return [ledger.ledger_id for ledger in managed.ledgers() if len(ledger)]


def end_of(managed: ManagedLedger) -> Position:
    end = managed.end()
    assert end is not None
    return end


@pytest.mark.parametrize("error", [Unavailable, RuntimeError, OSError, KeyError])
@pytest.mark.parametrize("deletes", [True, False])
def test_an_offload_that_fails_delays_no_other_ledger(
    store: tierfs.Store, error: type[Exception], deletes: bool
) -> None:
    """It delays no other ledger; its next attempt begins with the deletion of the last one."""
    kept = Failing(error, deletes=deletes)
    with store.managed_ledger("topic", offloader=kept) as managed:
        ids = filled(managed)
        kept.bad = {ids[1]}
        for said in ("no room", "no room" if deletes else "locked"):
            with pytest.raises(error, match=said):
                managed.offload_prefix(end_of(managed))
            assert set(kept.ids) == set(ids)
        kept.bad = set()
        assert managed.offload_prefix(end_of(managed)) == end_of(managed)
        assert kept.ids == ids, "each once"


def test_the_copy_of_a_ledger_that_is_deleted_while_it_is_copied_is_deleted(store: tierfs.Store) -> None:
    class Slow(Kept):
        def offload(self, ledger: ReadableLedger, uuid: UUID, extra_metadata: Mapping[str, str]) -> None:
            super().offload(ledger, uuid, extra_metadata)
            if ledger.ledger_id == ids[0]:
                store.delete(f"topic/{ids[0]:020d}", now=True)

    kept = Slow()
    with store.managed_ledger("topic", offloader=kept) as managed:
        ids = filled(managed)
        managed.offload_prefix(end_of(managed))
        assert sorted(ledger_id for ledger_id, _ in kept.ledgers) == ids[1:]
        assert not command("status", "--json", store=store.path).json["troubles"]


def test_copies_of_ledgers_that_retention_deletes_are_deleted_by_the_next_run(store: tierfs.Store) -> None:
    kept = Failing(OSError)
    with store.managed_ledger("topic", offloader=kept) as managed:
        ids = filled(managed)
        managed.offload_prefix(end_of(managed))
    for ledger_id in ids[:2]:
        store.delete(f"topic/{ledger_id:020d}", now=True)
    assert kept.ids == ids
    stuck = command("status", "--json", store=store.path).json["troubles"]
    assert [row["name"] for row in stuck] == ["topic", "topic"]
    assert f"ledger {ids[0]} was deleted, and Failing has a copy of it" in stuck[0]["error"]
    with store.managed_ledger("other", offloader=Failing(OSError)) as other:
        filled(other, 1)
        other.offload_prefix(end_of(other))
    assert kept.ids == ids, "its copies are of another managed ledger"
    kept.bad, kept.deletes = {ids[0]}, False
    with store.managed_ledger("topic", offloader=kept) as managed:
        with pytest.raises(OSError, match="is locked"):
            managed.offload_prefix(end_of(managed))
        assert kept.ids == [ids[0], *ids[2:]]
        kept.bad = set()
        managed.offload_prefix(end_of(managed))
    assert kept.ids == ids[2:]
    assert not command("status", "--json", store=store.path).json["troubles"]


def test_trim_goes_on_after_a_copy_that_cannot_be_deleted(store: tierfs.Store) -> None:
    kept = Failing(OSError, deletes=False)
    with store.managed_ledger("topic", offloader=kept) as managed:
        ids = filled(managed)
        managed.offload_prefix(end_of(managed))
        kept.bad = {ids[0]}
        with pytest.raises(OSError, match="is locked"):
            managed.trim(f"{ids[3]}:0")
        assert [ledger.ledger_id for ledger in managed.ledgers()][:1] == ids[3:]
        assert kept.ids == [ids[0], ids[3]]
        kept.bad = set()
        managed.trim(f"{ids[3]}:0")
        assert kept.ids == ids[3:]


def test_errors_of_what_an_offloader_reads_and_writes_stay_what_they_are() -> None:
    class Torn(InMemory):
        def read(self, first: int, last: int) -> Iterator[bytes]:
            yield b"one"
            raise OSError(5, "their disk")

    with pytest.raises(OSError, match="their disk") as caught:
        ObjectOffloader(MemoryStorage()).offload(Torn(1, [b"one", b"two"]), uuid4())
    assert type(caught.value) is OSError


def test_policies_take_numbers(store: tierfs.Store) -> None:
    store.set_policy("topic", ledger_entries=3, retention_needs_offload=False, seal_age=60)
    with store.managed_ledger("topic") as managed:
        managed.add([b"x"] * 7)
        assert [len(ledger) for ledger in managed.ledgers()] == [3, 3, 1]
    for wrong in ([3], {}, object()):
        with pytest.raises(InvalidRequest, match="for policy ledger_entries"):
            store.set_policy("topic", ledger_entries=wrong)  # type: ignore[arg-type]
