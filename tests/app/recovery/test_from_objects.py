"""Journal and checkpoints are lost too: the objects say of themselves what they are."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.app.recovery.recovering import lose_journal, recovered
from tests.copied import copy_tier
from tests.doubles.gathering import Gathering
from tests.doubles.manual_clock import ManualClock
from tests.engine.journal.replaying import check_store
from tests.stores import IN_MEMORY, TestStore, open_test_store, quiet
from tierfs.app.found_objects import Storages
from tierfs.app.recovery import from_objects, inventory, ledgers
from tierfs.app.recovery.from_objects import Rebuilding, RebuiltStore
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.errors import NotFound, WrongColdTier
from tierfs.base.words.types import AttemptId, ByteRange, SegmentId, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.engine.chunkstore.validate import MARK_NAME
from tierfs.engine.journal import reader
from tierfs.engine.journal.names import JOURNAL_PREFIX
from tierfs.engine.metadata.store import MetadataStore, new_id
from tierfs.tiering.garbage.orphans import chunk_objects
from tierfs.tiering.objects import object_name

STORE = "5" * 32
AT_ONCE = 16
"""Objects that are read at once far from the server."""


def put(
    cold: ChunkStorage,
    path: str,
    start: int,
    data: bytes,
    said: dict[str, str] | None = None,
    *,
    number: int = 10,
    epoch: int = 1,
    named: bool = True,
) -> str:
    """An object as offload makes it; `said` says something else of it. Not `named`: as older versions made it."""
    attempt, span = new_id(), ByteRange(start, start + len(data))
    crc = crc32c(data) if named else None
    name = object_name(path, SegmentId(number), span, epoch, AttemptId(attempt), crc)
    truth = {
        "format": "1",
        "store": STORE,
        "segment": str(number),
        "name": base64.urlsafe_b64encode(path.encode()).decode(),
        "start": str(span.start),
        "end": str(span.end),
        "epoch": str(epoch),
        "attempt": attempt,
        "crc32c": f"{crc32c(data):08x}",
    }
    cold.put(name, BufferSource(data), metadata={**truth, **(said or {})})
    return name


@dataclass(slots=True)
class Found:
    store: TestStore
    rebuilt: dict[str, RebuiltStore]
    left: dict[str, str]
    unproven: list[str]


@contextmanager
def rebuilt(path: Path, cold: ChunkStorage) -> Iterator[Found]:
    """Rebuild from the objects of `cold`, of which none may go."""
    path.mkdir()
    before = [item.name for item in chunk_objects(cold)]
    with closing(inventory.take(Storages(cold), path / "objects")) as found:
        offloaded = ledgers.find(cold, found.store_id, found.left)
        past = from_objects._past(cold, reader.list_journal(cold), found, offloaded)
        with closing(MetadataStore.create(path / "metadata", ManualClock(), found.store_id)) as metadata:
            rebuilding = Rebuilding(metadata, Storages(cold), IN_MEMORY, quiet)
            made = [*rebuilding.rebuild(found, past), *rebuilding.rebuild_ledgers(found, offloaded)]
            found.close()
            rebuilding.own()
            with metadata.read() as txn:
                check_store(txn)
            store = TestStore.around(path, metadata, cold, OffloadSettings())
            assert [item.name for item in chunk_objects(cold)] == before
            yield Found(
                store, {one.segment: one for one in made}, {one.name: one.why for one in found.left}, found.unproven
            )
            store.engine.close()
            store.files.close()


def test_as_many_objects_are_read_at_once_as_fill_the_link(tmp_path: Path, cold: MemoryStorage) -> None:
    parts = [bytes([number]) * 1000 for number in range(AT_ONCE + 4)]
    for number, part in enumerate(parts):
        put(cold, "s", number * 1000, part)
    far = Gathering(cold, AT_ONCE)
    with rebuilt(tmp_path / "new", far) as found:
        assert found.store.read("s", Tier.COLD) == b"".join(parts)
    assert far.most == AT_ONCE


@dataclass(frozen=True, slots=True)
class Object:
    """An object of four bytes or more of segment `s`, unless it says otherwise, and what a rebuilding says of it."""

    start: int
    data: bytes
    left: str | None = None
    path: str = "s"
    said: dict[str, str] | None = None
    number: int = 10
    epoch: int = 1
    named: bool = True

    def put(self, cold: MemoryStorage) -> str:
        return put(
            cold, self.path, self.start, self.data, self.said, number=self.number, epoch=self.epoch, named=self.named
        )


DAMAGED = {"crc32c": "00000000"}
OTHER = {"store": "6" * 32}

REBUILDS: dict[str, tuple[list[Object], dict[str, bytes]]] = {
    "the larger object wins and its pieces are listed": (
        [Object(0, b"abcd", left=""), Object(4, b"efgh", left=""), Object(0, b"abcdefgh")],
        {"s": b"abcdefgh"},
    ),
    "a damaged object makes room for what it was made of": (
        [Object(0, b"abcd"), Object(4, b"efgh"), Object(0, b"abcdefgh", "damaged", said=DAMAGED, named=False)],
        {"s": b"abcdefgh"},
    ),
    "the newest owner's bytes win": (
        [Object(0, b"abcd"), Object(4, b"XXXXXXXX", left=""), Object(4, b"efgh", epoch=2)],
        {"s": b"abcdefgh"},
    ),
    "of two segments of one name the newer has it, and a file where a directory is gets a number": (
        [
            Object(0, b"old!", path="a/s", number=9),
            Object(0, b"new!", path="a/s"),
            Object(0, b"a file", path="a", number=20),
        ],
        {"a/s": b"new!", "a/s.9": b"old!", "a.20": b"a file"},
    ),
    "of one name the newest owner's segment has it": (
        [Object(0, b"old!", number=12), Object(0, b"new!", number=11, epoch=2)],
        {"s": b"new!", "s.12": b"old!"},
    ),
    # Owners before ids jumped with every epoch could do that.
    "of one id in two names the newer segment keeps it": (
        [
            Object(0, b"dead", path="a/unpublished"),
            Object(0, b"live", path="b/acknowledged", epoch=2),
            Object(4, b"more", path="b/acknowledged"),
        ],
        {"a/unpublished": b"dead", "b/acknowledged": b"livemore"},
    ),
    "objects of another store between those of a segment do not split it": (
        [Object(0, b"abcd"), Object(2, b"xxxx", "another store", said=OTHER, epoch=7), Object(4, b"efgh")],
        {"s": b"abcdefgh"},
    ),
}


@pytest.mark.parametrize(("objects", "segments"), REBUILDS.values(), ids=REBUILDS)
def test_of_objects_that_contradict_each_other_the_proven_ones_are_linked(
    cold: MemoryStorage, tmp_path: Path, objects: list[Object], segments: dict[str, bytes]
) -> None:
    names = {each.put(cold): each for each in objects}
    with rebuilt(tmp_path / "new", cold) as found:
        assert {name: found.store.read(name, Tier.COLD) for name in found.rebuilt} == segments
        assert found.left.keys() == {name for name, each in names.items() if each.left is not None}
        assert all(names[name].left in why for name, why in found.left.items())
        assert found.unproven == []
        for name, record in found.rebuilt.items():
            assert (name == record.wanted) is (name.rpartition(".")[0] not in segments and name != "a.20")
        linked = [len(found.store.layout(name).cold) for name in segments]
        assert sum(linked) == len(objects) - len(found.left)
        if "b/acknowledged" in segments:
            assert found.store.segment("b/acknowledged").id == 10
        with found.store.metadata.read() as txn:
            assert txn.store.store_epoch > max(each.epoch for each in objects if each.said is not OTHER)


STORE_IDS = {
    "its mark": lambda cold: cold.put(MARK_NAME, BufferSource(b'{"store": "%s"}' % (b"6" * 32))),
    "an object that kept its metadata": lambda cold: put(cold, "t", 0, b"abcd", number=999),
}


@pytest.mark.parametrize("told_by", [*STORE_IDS, "its journal", "nothing"])
def test_names_of_objects_are_enough_to_rebuild_a_store(tmp_path: Path, told_by: str) -> None:
    """Of a plain copy nothing else is left; the store is the one that the mark names, or what else tells it."""
    with open_test_store(tmp_path / "store") as store:
        store.append("a/s", b"abcdefgh" * 5, seal=True)
        store.append("b/1/x", b"0123456789")
        store.offload()
        store.evict()
        store.consolidate()
        store.collect()
        copy_tier(store.cold)
        store.cold.delete(MARK_NAME)
        told = {"its mark": "6" * 32, "an object that kept its metadata": STORE, "its journal": store.metadata.store_id}
        if told_by in STORE_IDS:
            STORE_IDS[told_by](store.cold)
        if told_by != "its journal":
            lose_journal(store.cold)
        with rebuilt(tmp_path / "new", store.cold) as found:
            assert found.store.read("a/s", Tier.COLD) == b"abcdefgh" * 5
            assert found.store.read("b/1/x", Tier.COLD) == b"0123456789"
            assert found.store.metadata.store_id == told.get(told_by, found.store.metadata.store_id)
            assert found.unproven == []
        with recovered(tmp_path / "again", store.cold) as again:
            assert again.store.read("b/1/x") == b"0123456789"


def test_a_name_proves_bytes_that_nothing_else_does(cold: MemoryStorage, tmp_path: Path) -> None:
    put(cold, "s", 0, b"abcd")
    wrong = put(cold, "s", 4, b"efgh")
    cold.put(wrong, BufferSource(b"eFgh"), create_only=False)
    copy_tier(cold)
    with rebuilt(tmp_path / "new", cold) as found:
        assert found.store.read("s") == b"abcd"
        assert "damaged" in found.left[wrong]


def test_an_older_object_that_nothing_proves_is_linked_and_listed(cold: MemoryStorage, tmp_path: Path) -> None:
    name = put(cold, "s", 0, b"abcd", named=False)
    put(cold, "s", 4, b"efgh")
    copy_tier(cold)
    with rebuilt(tmp_path / "new", cold) as found:
        assert found.store.read("s") == b"abcdefgh"
        assert (found.unproven, found.left) == ([name], {})


def test_what_is_missing_is_marked_and_a_cut_head_stays_cut(cold: MemoryStorage, tmp_path: Path) -> None:
    put(cold, "s", 100, b"abcd")
    put(cold, "s", 110, b"efgh")
    broken = put(cold, "s", 104, b"gone", {"crc32c": "00000000"}, named=False)
    with rebuilt(tmp_path / "new", cold) as found:
        assert found.rebuilt["s"].lost == (ByteRange(104, 110),)
        segment = found.store.segment("s")
        assert (segment.start_offset, segment.length, segment.cold.count) == (100, 114, 3)
        assert set(found.left) == {broken}


def test_what_does_not_fit_is_listed(cold: MemoryStorage, tmp_path: Path) -> None:
    put(cold, "s", 0, b"abcd")
    put(cold, "t", 0, b"abcd", number=11)
    wrong = {
        put(cold, "s", 4, b"efgh", {"store": "6" * 32}): "another store",
        put(cold, "s", 8, b"efgh", {"segment": "11"}, named=False): "contradicts its name",
        put(cold, "s", 12, b"efgh", {"end": "15"}, named=False): "it has 4 bytes",
        put(cold, "s", 16, b"efgh", {"start": "x"}, named=False): "damaged",
        put(cold, "s", 20, b"efgh", {"epoch": "4294967296"}, named=False): "impossible",
        put(cold, "s", 24, b"efgh", {"name": "Li4="}, named=False): "impossible segment",
    }
    cold.put("segments/stranger", BufferSource(b"x"))
    wrong["segments/stranger"] = "nor its metadata are of tierfs"
    with rebuilt(tmp_path / "new", cold) as found:
        assert set(found.left) == set(wrong)
        for name, why in wrong.items():
            assert why in found.left[name]
        assert found.store.read("s") == b"abcd"


@pytest.mark.parametrize("said", [{"segment": "11"}, {"end": "15"}, {"start": "x"}, {"name": "Li4="}, {"crc32c": "0"}])
def test_a_name_with_a_crc_decides_where_a_copy_altered_the_metadata(
    cold: MemoryStorage, tmp_path: Path, said: dict[str, str]
) -> None:
    put(cold, "s", 0, b"abcd", said)
    alien = put(cold, "s", 4, b"efgh", {**said, "store": "6" * 32})
    put(cold, "t", 0, b"abcd", number=11)
    with rebuilt(tmp_path / "new", cold) as found:
        assert found.store.read("s") == found.store.read("t") == b"abcd"
        assert set(found.left) == {alien}


def test_the_mark_decides_against_the_store_of_most_objects(cold: MemoryStorage, tmp_path: Path) -> None:
    ours = "6" * 32
    put(cold, "s", 0, b"ours", {"store": ours})
    others = {put(cold, f"t{number}", 0, b"abcd", number=20 + number) for number in range(3)}
    cold.put(MARK_NAME, BufferSource(b'{"store": "%s"}' % ours.encode()))
    with rebuilt(tmp_path / "new", cold) as found:
        assert found.store.metadata.store_id == ours
        assert found.store.read("s") == b"ours"
        assert set(found.left) == others


def test_a_mark_of_which_there_is_no_object_stops_a_recovery_before_anything_is_written(
    cold: MemoryStorage, tmp_path: Path
) -> None:
    put(cold, "s", 0, b"abcd")
    cold.put(MARK_NAME, BufferSource(b'{"store": "%s"}' % (b"6" * 32)))
    wrong = pytest.raises(WrongColdTier, match="no object there belongs to that store")
    with wrong as refused, rebuilt(tmp_path / "new", cold):
        pass
    assert "remove tierfs-store" in (refused.value.remedy or "")
    assert list(cold.list(JOURNAL_PREFIX)) == []


@pytest.mark.parametrize("recover", [rebuilt, recovered])
def test_an_empty_bucket_is_nothing_to_recover(
    cold: MemoryStorage, tmp_path: Path, recover: Callable[[Path, ChunkStorage], AbstractContextManager[object]]
) -> None:
    with pytest.raises(NotFound), recover(tmp_path / "new", cold):
        pass
