"""Whole buckets that somebody else wrote to: each way to read one ends typed, and changes nothing but its own."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from google.protobuf.message import Message

from tests.app.recovery.recovering import recovered
from tests.app.recovery.test_follow import follower
from tests.app.recovery.test_from_objects import rebuilt
from tests.doubles.manual_clock import ManualClock
from tests.doubles.mutations import edits, mutations, times
from tests.fuzzing.sound import Bucket, bucket
from tests.fuzzing.test_formats import framed, tried
from tests.stores import IN_MEMORY, TestStore
from tests.upkeep.check.looking import cold_findings, deep_findings, findings
from tierfs.app.recovery import replica_rows
from tierfs.app.recovery.from_journal import Rebuilder
from tierfs.base.bytes.progress import Meter
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words import object_names
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.journal import reader

OURS = ("journal/", "epochs/", "tierfs-store")
"""Objects that a recovery may write."""

_COMPRESSED = 0.3
"""Share of the buckets whose compressed objects somebody changed."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with bucket(tmp_path_factory.mktemp("sound") / "store") as made:
        yield made


@pytest.fixture(autouse=True)
def warnings(expected_warnings: list[str]) -> None:
    """Damage is warned of."""
    expected_warnings.append("")


def recover(cold: MemoryStorage, path: Path) -> None:
    with recovered(path, cold) as found:
        look(found.store)


def recover_from_objects(cold: MemoryStorage, path: Path) -> None:
    for name in [item.name for item in cold.list("journal/")]:
        cold.delete(name)
    with rebuilt(path, cold) as found:
        look(found.store)


def follow(cold: MemoryStorage, path: Path) -> None:
    path.mkdir()
    clock = ManualClock()
    metadata = Rebuilder(path / "metadata", cold, IN_MEMORY, clock, Meter()).rebuild(reader.list_journal(cold)).metadata
    try:
        replica_rows.become_replica(metadata)
        files = ChunkFiles.create(path / "chunks")
        store = TestStore(path, clock, metadata, files, cold, OffloadSettings())
        follower(store).refresh()
        look(store)
        store.engine.close()
        files.close()
    finally:
        metadata.close()


def look(store: TestStore) -> None:
    """Read the state as commands do."""
    for finding in (*findings(store), *cold_findings(store), *deep_findings(store)):
        assert printable(f"{finding.subject} {finding.message}").isprintable()


def forged(sound: Bucket, chance: random.Random) -> tuple[MemoryStorage, str]:
    """Return the bucket with one object of which somebody changed something, and what."""
    cold = sound.copy(without=chance.choice(("", "journal/checkpoint-")))  # with one, entries before it are not read
    names = [item.name for item in cold.list("")]
    if chance.random() < _COMPRESSED:
        names = [name for name in names if name.endswith(object_names.COMPRESSED)]
    name = chance.choice(names)
    data, seed = sound.data(name), chance.randrange(2**32)
    if name.startswith("journal/") and chance.random() < 0.7:
        message = _message(sound, name)
        data = framed(next(edits(message, seed, 1, also=sound.entries)).SerializeToString())
    else:
        data = next(mutations(data, seed, 1))
    metadata = dict(cold.stat(name).metadata)
    if metadata and chance.random() < 0.3:
        key = chance.choice(list(metadata))
        metadata[key] = chance.choice(["", "-1", "9" * 30, "x" * 300, "../..", metadata[key][:-1], "L3ByZWNpb3Vz"])
    cold.put(name, BufferSource(data), metadata=metadata, create_only=False)
    return cold, f"{name}: {metadata} {data!r}"


def _message(sound: Bucket, name: str) -> Message:
    if ".part-" in name:
        return sound.parts[0]
    if "checkpoint-" in name:
        return sound.manifest
    return sound.entries[int(name.rpartition("/")[2]) - 1]


@pytest.mark.parametrize("read", [recover, recover_from_objects, follow])
def test_a_forged_bucket_is_read_or_refused_and_nothing_else_changes(
    sound: Bucket, tmp_path: Path, read: Callable[[MemoryStorage, Path], None]
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_bytes(b"precious")
    chance = random.Random(read.__name__)
    for number in range(3 * times()):
        cold, what = forged(sound, chance)
        before = dict(cold.objects)
        tried(lambda cold=cold, path=tmp_path / f"store{number}": read(cold, path), what)
        gone = {name for name in before if name not in cold.objects and not name.startswith(OURS)}
        changed = {name for name, held in cold.objects.items() if before.get(name) != held}
        assert gone == {name for name in changed if not name.startswith(OURS)} == set(), what
        shutil.rmtree(tmp_path / f"store{number}", ignore_errors=True)
        assert [path.name for path in precious.iterdir()] == ["file"]
        assert (precious / "file").read_bytes() == b"precious"
