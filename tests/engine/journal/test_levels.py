"""Levels of checkpoints: what is written, kept and read again, and that nothing loses any of it."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from tests.app.recovery.recovering import recovered
from tests.app.recovery.test_follow import follower, following
from tests.app.recovery.test_recover import copy_of, damage
from tests.doubles.scripted_storage import ALWAYS, ScriptedStorage, When
from tests.engine.journal.replaying import check_store, checkpoints_of, view
from tests.filled_store import FilledStore
from tests.safety.refused import refused
from tests.stores import IN_MEMORY, LOCATION, TestStore, open_test_store
from tests.upkeep.check.looking import cold_findings
from tierfs.app.recovery.from_journal import Rebuilder
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.bytes.progress import Meter
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.errors import DataLoss, Unavailable
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.engine.frames import zstd
from tierfs.engine.journal import kept_entries, levels, reader
from tierfs.engine.journal.checkpoint import Checkpointer
from tierfs.engine.journal.levels import is_state_due
from tierfs.engine.journal.names import checkpoint_name, level_of, level_part_name, slot_name
from tierfs.engine.journal.objects import read_small
from tierfs.engine.metadata import changes, frames, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.tables import LOCATIONS

POLICY = {"chunk_bytes": "4096", "object_bytes": "65536"}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> FilledStore:
    """A store with 60 segments in the cold tier."""
    cold, path = MemoryStorage(), tmp_path_factory.mktemp("filled") / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(levels, "SMALL_BYTES", 0)
        with open_test_store(path, policy=POLICY, settings=OffloadSettings(grace_s=0), cold=cold) as opened:
            for number in range(60):
                opened.append(f"old/segment {number}", b"abcdefgh", seal=True)
            opened.offload()
        return FilledStore.of(opened, cold)


@pytest.fixture
def store(filled: FilledStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestStore]:
    """Its copy, for which every state is a large one."""
    monkeypatch.setattr(levels, "SMALL_BYTES", 0)
    cold = ScriptedStorage(MemoryStorage(objects=filled.objects))
    with closing(filled.opened(tmp_path / "store", cold, OffloadSettings(grace_s=0))) as opened:
        yield opened


@pytest.fixture
def state_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state so large that nothing outweighs it."""
    monkeypatch.setattr(levels, "MOST_WRITTEN", 0)


def checkpoint(store: TestStore, *, whole: bool = False) -> pb.CheckpointManifest:
    slot = store.cold_work().checkpointer.checkpoint(whole=whole)
    return frames.parse_manifest(read_small(store.cold, checkpoint_name(slot)), "manifest")


def grow(store: TestStore, name: str) -> None:
    store.append(name, b"abcdefgh", seal=True)
    store.offload(name)


def grow_much(store: TestStore, name: str, segments: int = 40) -> None:
    """Make an entry that compression halves."""
    for number in range(segments):
        store.append(f"{name}/segment {number}", b"abcdefgh", seal=True)
    store.offload(name)


def parts_in(cold: ChunkStorage) -> set[tuple[int, str]]:
    return {level for item in cold.list("journal/") if (level := level_of(item.name)) is not None}


def listed_by(manifest: pb.CheckpointManifest) -> set[tuple[int, str]]:
    return {(level.slot, level.attempt) for level in manifest.levels}


def same_as(store: TestStore, path: Path) -> None:
    """Assert that a replay of the bucket gives the owner's view of it."""
    rebuilt = Rebuilder(path, store.cold, IN_MEMORY, store.clock, Meter()).rebuild(reader.list_journal(store.cold))
    with closing(rebuilt.metadata) as metadata, metadata.read() as theirs, store.metadata.read() as ours:
        check_store(theirs)
        assert view(theirs) == view(ours)
    assert rebuilt.warnings == ()


@pytest.mark.usefixtures("state_stays")
def test_the_state_is_written_once_and_then_what_changed(store: TestStore, tmp_path: Path) -> None:
    first = checkpoint(store)
    assert [level.has_entries for level in first.levels] == [False]
    for number in range(4):
        grow(store, f"s{number}")
        newest = checkpoint(store)
        assert newest.levels[0] == first.levels[0]
        assert [level.has_entries for level in newest.levels] == [False, *[True] * (number + 1)]
        assert newest.levels[-1].slot == newest.slot
        same_as(store, tmp_path / str(number))
    assert parts_in(store.cold) == listed_by(newest)
    assert cold_findings(store) == []


def test_a_small_state_is_written_whole_in_the_form_of_older_versions(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "store", settings=OffloadSettings(checkpoint_entries=1)) as store:
        for number in range(3):
            grow(store, f"s{number}")
        newest = frames.parse_manifest(read_small(store.cold, checkpoint_name(checkpoints_of(store.cold)[-1])), "")
        assert (newest.parts, len(newest.levels), parts_in(store.cold)) == (1, 0, set())


def test_an_older_version_refuses_levels_by_their_format(store: TestStore) -> None:
    name = checkpoint_name(checkpoint(store).slot)
    with pytest.raises(DataLoss, match=f"{name} has format version 2") as caught:
        frames.parse_entry(read_small(store.cold, name), name)  # as it is of an object that has no other version
    assert caught.value.remedy == frames.UPGRADE


def test_a_day_takes_three_times_the_bytes_of_its_entries_at_most(
    store: TestStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments change and go, so that what is recorded of them is soon outdated, as it is in a store of any age."""
    written: dict[str, int] = {}
    put = MemoryStorage.put

    def counted(self: MemoryStorage, name: str, *args: object, **more: object) -> object:
        stored = put(self, name, *args, **more)  # type: ignore[arg-type]
        if name.startswith("journal/"):
            written[name] = stored.length_bytes
        return stored

    state_slot = checkpoint(store).slot
    monkeypatch.setattr(MemoryStorage, "put", counted)
    states = set[int]()
    for _ in range(60):
        for each in range(10):
            store.append(f"s{each}", b"abcdefgh")
        store.offload()
        newest = checkpoint(store)
        states.add(newest.levels[0].slot)
        read_bytes = sum(sum(level.part_bytes) for level in newest.levels)
        assert read_bytes < 4 * sum(newest.levels[0].part_bytes)
    entries = sum(size for name, size in written.items() if name[8:].isdigit())
    assert len(states) > 1
    assert min(states) == state_slot
    assert sum(written.values()) <= 3 * entries
    same_as(store, tmp_path / "new")


def described(state_bytes: int, level_bytes: int, *, rows: int = 100) -> pb.CheckpointManifest:
    state = pb.CheckpointLevel(part_bytes=[state_bytes], part_crc32c=[0], copied=[True])
    level = pb.CheckpointLevel(has_entries=True, part_bytes=[level_bytes], part_crc32c=[0], copied=[True])
    manifest = pb.CheckpointManifest(levels=[state, level], state_rows=rows, level_bytes=2 * level_bytes)
    manifest.entry_bytes = 1_000_000
    return manifest


@pytest.mark.parametrize(
    ("manifest", "entry_bytes", "rows", "due"),
    [
        (described(1000, 499), 0, 100, False),  # replays stay below one and a half times the state
        (described(1000, 500), 0, 100, True),
        (described(1000, 500), 0, 101, False),  # it has grown by what came
        (described(1_000_000, 500_000), 0, 100, False),  # three times the bytes of the entries are reached first
        (described(1_000_000, 500_000), 499_999, 100, False),
        (described(1_000_000, 500_000), 500_000, 100, True),
    ],
)
def test_the_state_is_written_again_when_outweighed_and_within_the_bytes(
    manifest: pb.CheckpointManifest, entry_bytes: int, rows: int, due: bool
) -> None:
    assert is_state_due(manifest, entry_bytes, rows) is due


@pytest.mark.usefixtures("state_stays")
@pytest.mark.parametrize("kept_bytes", [0, 1 << 20])
def test_short_levels_are_joined_once_they_fill_a_part(
    store: TestStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_bytes: int
) -> None:
    """With entries of this host's own, or fetched from the bucket; a level that is long enough stays."""
    monkeypatch.setattr(levels, "PART_BYTES", 10_000)
    monkeypatch.setattr(levels, "TAIL_BYTES", 8_000)
    monkeypatch.setattr(kept_entries, "KEPT_BYTES", kept_bytes)
    manifests = [checkpoint(store)]
    for number in range(6):
        grow_much(store, f"s{number}", 20)  # some 5,000 bytes of entries
        manifests.append(checkpoint(store))
    newest = manifests[-1]
    assert [len(manifest.levels) for manifest in manifests] == [1, 2, 2, 3, 3, 4, 4]
    assert sum(level.entry_bytes for level in newest.levels) == newest.entry_bytes
    assert parts_in(store.cold) >= listed_by(newest)
    same_as(store, tmp_path / "new")


@pytest.mark.usefixtures("state_stays")
@pytest.mark.parametrize("harm", ["missing", "damaged"])
@pytest.mark.parametrize("level", [0, 1])
def test_a_part_that_is_lost_is_read_from_its_copy_and_written_again(
    store: TestStore, tmp_path: Path, harm: str, level: int
) -> None:
    checkpoint(store)
    grow_much(store, "s")
    found = checkpoint(store).levels[level]
    name = level_part_name(found.slot, found.attempt, 0)
    store.cold.delete(name) if harm == "missing" else damage(store.cold, name)
    same_as(store, tmp_path / "new")
    assert [finding.subject for finding in cold_findings(store)] == [name]
    grow(store, "t")
    again = checkpoint(store, whole=harm == "damaged")  # what is missing is noticed, damage is found by a check
    assert [each.has_entries for each in again.levels] == [False]
    same_as(store, tmp_path / "again")


def test_a_part_without_a_copy_ends_a_recovery_by_name(store: TestStore, tmp_path: Path) -> None:
    found = checkpoint(store).levels[0]
    grow(store, "s")
    checkpoint(store)
    cold = copy_of(store.cold)
    for copy in (False, True):
        damage(cold, level_part_name(found.slot, found.attempt, 0, copy=copy))
    with pytest.raises(DataLoss, match="0-part") as caught, recovered(tmp_path / "new", cold):
        pass
    assert "--from-objects" in (caught.value.remedy or "")


@pytest.mark.usefixtures("state_stays")
def test_a_new_owner_goes_on_with_the_levels_of_the_one_before(store: TestStore, tmp_path: Path) -> None:
    first = checkpoint(store)
    grow(store, "s")
    cold = copy_of(store.cold)
    with recovered(tmp_path / "new", cold) as found:
        void = pb.JournalEntry(version=1, store_id=store.metadata.store_id, store_epoch=1, attempt="0" * 32)
        with found.store.metadata.read() as txn:
            void.slot = txn.store.journal.next_slot  # of the owner before, which has not noticed yet
        cold.put(slot_name(void.slot), BufferSource(frames.frame(void)))
        with found.store.metadata.write() as txn:
            changes.changed(txn, LOCATIONS, txn.must_get(LOCATIONS, tables.u32(LOCATION), "the place"))
        newest = checkpoint(found.store)
        assert newest.levels[0] == first.levels[0]
        assert newest.slot > void.slot
        same_as(found.store, tmp_path / "third")


def test_a_replica_that_was_away_starts_over_from_levels(store: TestStore, tmp_path: Path) -> None:
    with following(store, tmp_path / "replica") as replica:
        for number in range(3):
            grow(store, f"s{number}")
            checkpoint(store)
        assert follower(replica).refresh().started_over
        with replica.metadata.read() as theirs, store.metadata.read() as ours:
            assert view(theirs).keys() == view(ours).keys()


CRASHES = [
    *[("put", of, when) for of in ("0-part", ".copy", "checkpoint-") for when in (When.BEFORE, When.AFTER)],
    *[("delete", "journal/", when) for when in (When.BEFORE, When.AFTER)],
    ("list", "journal/", When.BEFORE),
]


@pytest.mark.usefixtures("state_stays")
@pytest.mark.parametrize(
    ("whole", "verb", "of", "when"), [*((False, *crash) for crash in CRASHES), (True, *CRASHES[0]), (True, *CRASHES[5])]
)
def test_a_crash_at_any_step_of_a_checkpoint_loses_and_leaves_nothing(
    store: TestStore, tmp_path: Path, whole: bool, verb: str, of: str, when: When
) -> None:
    scripted = store.cold
    assert isinstance(scripted, ScriptedStorage)
    checkpoint(store)
    grow(store, "s")
    checkpoint(store)
    grow_much(store, "t")
    store.cold_work().publisher.publish()
    scripted.fail(verb, Unavailable("killed"), of=of, when=when, on=ALWAYS)
    with pytest.raises(Unavailable):
        checkpoint(store, whole=whole)
    scripted.behave()
    same_as(store, tmp_path / "crashed")
    store.kill()
    store.start()
    for number in range(3):
        grow(store, f"u{number}")
        newest = checkpoint(store)
        same_as(store, tmp_path / str(number))
    assert parts_in(store.cold) == listed_by(newest)
    assert cold_findings(store) == []


class Batches(ScriptedStorage):
    """Removes many objects with one request, and is killed in the midst of each."""

    def __init__(self) -> None:
        super().__init__()
        self.random: random.Random | None = None
        self.batches: list[int] = []

    def delete_many(self, names: Sequence[str]) -> bool:
        self.batches.append(len(names))
        share = 1.0 if self.random is None else self.random.random()
        for name in names:
            if self.random is None or self.random.random() < share:
                self.inner.delete(name)
        if self.random is not None:
            raise Unavailable("killed")
        return True


@pytest.mark.usefixtures("state_stays")
@pytest.mark.parametrize("seed", [1, 2])
def test_a_kill_within_a_batch_of_deletions_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Whichever of its names are gone, recoveries and replicas, near and far behind, find the owner's store."""
    monkeypatch.setattr(levels, "SMALL_BYTES", 0)
    cold = Batches()
    with open_test_store(tmp_path / "store", policy=POLICY, cold=cold) as store:
        grow(store, "first")
        with following(store, tmp_path / "far") as far, following(store, tmp_path / "near") as near:
            cold.random = random.Random(seed)
            for number in range(4):
                for each in range(4):
                    grow(store, f"s{number}/{each}")
                with pytest.raises(Unavailable) if number else nullcontext():
                    checkpoint(store)
                same_as(store, tmp_path / str(number))
                follower(near).refresh()
            cold.random = None
            grow(store, "last")
            newest = checkpoint(store)
            assert min(reader.list_journal(cold).slots) > newest.slot - 10
            same_as(store, tmp_path / "last")
            assert follower(far).refresh().started_over
            follower(near).refresh()
            for replica in (far, near):
                with replica.metadata.read() as theirs, store.metadata.read() as ours:
                    assert view(theirs).keys() == view(ours).keys()
    assert max(cold.batches) > 1


def test_while_a_manifest_cannot_be_read_no_part_is_deleted(store: TestStore) -> None:
    checkpoint(store)
    for number in range(2):
        grow(store, f"s{number}")
        newest = checkpoint(store, whole=True)
    stale = level_part_name(1, "b" * 32, 0)
    store.cold.put(stale, BufferSource(b""))
    work = store.cold_work()
    assert [item.name for item in work.checkpointer.superseded()] == [stale]
    damage(store.cold, checkpoint_name(newest.slot))
    assert list(Checkpointer(store.metadata, store.cold, work.publisher, 1).superseded()) == []


WRONG: dict[str, Callable[[pb.CheckpointManifest], object]] = {
    "nothing": lambda manifest: None,
    "parts too": lambda manifest: setattr(manifest, "parts", 1) or manifest.part_crc32c.append(1),
    "no state": lambda manifest: manifest.levels.pop(0),
    "two states": lambda manifest: setattr(manifest.levels[1], "has_entries", False),
    "order": lambda manifest: setattr(manifest.levels[0], "slot", manifest.slot),
    "another slot": lambda manifest: setattr(manifest.levels[1], "slot", manifest.slot - 1),
    "sizes": lambda manifest: manifest.levels[1].part_bytes.append(1),
    "copies": lambda manifest: manifest.levels[1].copied.append(True),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_levels_that_contradict_each_other_are_refused(store: TestStore, wrong: str) -> None:
    checkpoint(store)
    grow(store, "s")
    manifest = checkpoint(store)
    WRONG[wrong](manifest)
    storage = MemoryStorage()
    item = storage.put(checkpoint_name(manifest.slot), BufferSource(frames.compressed_frame(manifest)))
    with refused(wrong != "nothing", DataLoss, "contradict"):
        assert reader.read_manifest(storage, item) == manifest


FORGED: dict[str, Callable[[pb.CheckpointManifest], object]] = {
    "a gap": lambda manifest: manifest.levels.pop(1),
    "another last change": lambda manifest: setattr(manifest, "last_sequence", manifest.last_sequence + 1),
}


@pytest.mark.parametrize("wrong", FORGED)
def test_a_manifest_that_lists_other_levels_is_not_replayed(store: TestStore, tmp_path: Path, wrong: str) -> None:
    checkpoint(store)
    for number in range(2):
        grow(store, f"s{number}")
        manifest = checkpoint(store)
    FORGED[wrong](manifest)
    cold = copy_of(store.cold)
    cold.delete(checkpoint_name(manifest.slot))
    cold.put(checkpoint_name(manifest.slot), BufferSource(frames.compressed_frame(manifest)))
    with recovered(tmp_path / "new", cold) as found:
        assert found.checkpoint_slot < manifest.slot
        assert len(found.warnings) == 1


@pytest.mark.parametrize("more", [0, 1])
def test_compressed_bytes_that_unpack_to_more_than_an_object_has_are_refused(more: int) -> None:
    plain = pb.CheckpointPart(attempt="a" * (frames.MAX_OBJECT_BYTES - 5 + more)).SerializeToString()
    assert len(plain) == frames.MAX_OBJECT_BYTES + more
    payload = zstd.compressed(plain, 3)
    framed = frames.MAGIC + struct.pack(">IIQ", frames.COMPRESSED_VERSION, crc32c(payload), len(payload)) + payload
    with refused(more, DataLoss, "journal/x is damaged"):
        assert frames.parse_part(framed, "journal/x").attempt
