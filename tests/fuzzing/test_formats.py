"""Every format that tierfs reads, damaged and forged by a seed: a result or one typed error, in time, and no write.

`TIERFS_TEST_MUTATIONS` multiplies the number of mutations.
"""

from __future__ import annotations

import io
import random
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from google.protobuf.message import Message

from tests.doubles.mutations import NAMES, edits, mutations, times
from tests.engine.journal.replaying import check_store, empty_copy
from tests.engine.ledger.test_hostile import DECODERS
from tests.engine.ledger.test_messages_hostile import VALID
from tests.fuzzing.sound import KINDS, Bucket, bucket
from tests.tiering.adoption.pulsar import offloaded
from tierfs.app.found_objects import Storages
from tierfs.app.recovery import inventory, ledgers
from tierfs.app.recovery.described_object import parsed_pack
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.options import settings
from tierfs.base.words import object_names
from tierfs.base.words.errors import DataLoss, TierfsError
from tierfs.base.words.types import SegmentId
from tierfs.engine.chunkstore.directory.metadata import parse_metadata
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource, StoredObject
from tierfs.engine.frames.seek_table import FrameSize, read_sections, seek_table
from tierfs.engine.journal import reader, replay, store_mark
from tierfs.engine.journal.names import checkpoint_name, slot_name
from tierfs.engine.ledger.messages import decode
from tierfs.engine.metadata import entries_object, frames
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.pipeline.reader.stream_plan import StreamOffset
from tierfs.reading import compressed_objects
from tierfs.reading.ledger_objects import metadata_beside
from tierfs.tiering.adoption.plan import AdoptionPlan, plan_objects
from tierfs.tiering.adoption.pravega import plan_pravega
from tierfs.tiering.adoption.pulsar import Reading, plan_pulsar
from tierfs.tiering.adoption.rocketmq import plan_rocketmq
from tierfs.tiering.backup import segment as segment_dump
from tierfs.tiering.backup import store as dump
from tierfs.tiering.garbage.orphans import chunk_objects
from tierfs.tiering.packs import format as packs

SLOWEST_S = 3.0
MOST_KIB = 400 * 1024
"""By which the memory of this process may grow."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with bucket(tmp_path_factory.mktemp("sound")) as made:
        yield made


@pytest.fixture(scope="module")
def metadata(sound: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetadataStore]:
    with empty_copy(tmp_path_factory.mktemp("copy") / "metadata", sound.store_id) as copy:
        yield copy


@pytest.fixture(autouse=True)
def bounded_memory(expected_warnings: list[str]) -> Iterator[None]:
    expected_warnings.append("")  # what is damaged may be warned of
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_KIB


def tried(read: Callable[[], object], data: object, kind: type[TierfsError] = TierfsError) -> None:
    """Read once: a result or a typed, printable error, soon."""
    began_s = time.thread_time()
    error: TierfsError | None = None
    try:
        read()
    except kind as exc:
        error = exc
    except BaseException as exc:
        raise AssertionError(f"{type(exc).__name__} for {data!r}"[:2000]) from exc
    assert time.thread_time() - began_s < SLOWEST_S, repr(data)[:2000]
    assert error is None or (str(error).isprintable() and (error.remedy or "").isprintable()), repr(data)[:2000]


class _Undo(Exception):
    """Ends a transaction without its changes."""


def undone(metadata: MetadataStore, apply: Callable[..., object]) -> None:
    """Apply changes as a replay does, up to the commit, and take them back."""
    try:
        with metadata.write() as txn:
            apply(txn)
            txn.finish()
            check_store(txn)
            raise _Undo
    except _Undo:
        return


def framed(payload: bytes) -> bytes:
    """Frame any bytes as an object of the journal is, so that its checksum lets them pass."""
    return frames._HEADER.pack(frames.MAGIC, 1, crc32c(payload), len(payload)) + payload


def forms(message: Message, seed: int, count: int, *also: Message) -> Iterator[bytes]:
    """Yield framed copies: forged ones whose checksum is right, by field and by byte, and damaged ones."""
    for forged in edits(message, seed, 4 * count * times(), also=also):
        yield framed(forged.SerializeToString())
    for payload in mutations(message.SerializeToString(), seed, 2 * count * times()):
        yield framed(payload)
    yield from mutations(framed(message.SerializeToString()), seed, count * times())


def test_entries_of_a_journal(sound: Bucket, metadata: MetadataStore) -> None:
    for seed, entry in enumerate(sound.entries):
        for data in forms(entry, seed, 8, *sound.entries):

            def apply(txn: WriteTransaction, data: bytes = data, before: int = entry.slot - 1) -> None:
                for earlier in sound.entries[:before]:
                    replay.apply_entry(txn, earlier)
                replay.apply_entry(txn, frames.parse_entry(data, slot_name(before + 1)))

            tried(partial(undone, metadata, apply), data, DataLoss)


def test_damaged_checkpoints_are_refused_or_read(sound: Bucket, metadata: MetadataStore) -> None:
    (part,) = sound.parts

    def apply(part_data: bytes, manifest_data: bytes) -> None:
        def apply_all(txn: WriteTransaction) -> None:
            name = checkpoint_name(sound.manifest.slot)
            replay.apply_state(txn, frames.parse_part(part_data, name).changes, name)
            replay.finish_checkpoint(txn, frames.parse_manifest(manifest_data, name))

        undone(metadata, apply_all)

    whole = framed(part.SerializeToString()), framed(sound.manifest.SerializeToString())
    apply(*whole)
    for data in forms(part, 1, 25, *sound.entries):
        tried(partial(apply, data, whole[1]), data, DataLoss)
    for data in forms(sound.manifest, 2, 10):
        tried(partial(apply, whole[0], data), data, DataLoss)


def put(name: str, data: bytes, metadata: Mapping[str, str] | None = None) -> MemoryStorage:
    storage = MemoryStorage()
    storage.put(name, BufferSource(data), metadata=metadata)
    return storage


def test_copies_of_entries(sound: Bucket) -> None:
    (name,) = sound.names("ledgers/")
    file = io.BytesIO(sound.data(name))
    part = entries_object.first_part(file, name)
    for data in forms(part, 3, 60):
        for segment_id in (part.segment_id, 1):
            read = partial(entries_object.decode, io.BytesIO(data), name, SegmentId(segment_id))
            tried(lambda read=read: list(read()), data)


def test_damaged_packs_are_refused_or_read(sound: Bucket) -> None:
    (name,) = (name for name in sound.names("packs/") if not name.endswith(object_names.COMPRESSED))
    whole = sound.data(name)
    trailer = packs.parse_trailer(whole[-packs.TRAILER_BYTES :], len(whole), name)
    index = pb.PackIndex.FromString(whole[trailer.index.start : trailer.index.end])
    payloads = whole[: trailer.index.start]

    def read(data: bytes) -> None:
        parsed_pack(storage := put(name, data), storage.stat(name))

    read(whole)
    for forged in edits(index, 4, 300 * times()):
        data = _pack(payloads, forged.SerializeToString())
        tried(partial(read, data), forged)
    for payload in mutations(index.SerializeToString(), 4, 100 * times()):
        tried(partial(read, _pack(payloads, payload)), payload)
    for data in mutations(whole, 5, 100 * times()):
        tried(partial(read, data), data)
    for end in mutations(whole[-packs.TRAILER_BYTES :], 6, 100 * times()):
        tried(partial(read, payloads + whole[trailer.index.start : trailer.index.end] + end), end)


def _pack(payloads: bytes, index: bytes) -> bytes:
    checked = packs._TRAILER.pack(packs.MAGIC, 1, len(payloads), len(index), crc32c(index), 0)[: packs._CHECKED]
    return payloads + index + checked + crc32c(checked).to_bytes(4, "big")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_damaged_compressed_objects_are_refused_or_read(sound: Bucket, kind: str) -> None:
    name = next(name for name in sound.names(f"{kind}/") if name.endswith(object_names.COMPRESSED))
    whole = sound.data(name)
    (section,) = read_sections(lambda start, end: whole[start:end], len(whole), len(whole))
    held, table = whole[: section.table_offset], whole[section.table_offset :]

    def read(data: bytes) -> None:
        storage = put(name, data)
        if kind == "packs":
            parsed_pack(storage, storage.stat(name))
        compressed_objects.summed(storage, storage.stat(name))

    read(whole)
    for data in mutations(whole, 18, 150 * times()):
        tried(partial(read, data), data)
    for damaged in mutations(table, 19, 150 * times()):
        tried(partial(read, held + damaged), damaged)
    for damaged in mutations(held, 20, 150 * times()):
        tried(partial(read, damaged + table), damaged)
    chance = random.Random(21)
    for _ in range(150 * times()):
        stored = [size.stored_bytes for size in section.frames()]
        forged = [FrameSize(size, chance.choice([0, 1, 1 << 16, 1 << 22, 1 << 27])) for size in stored]
        with suppress(ValueError):  # of such sizes there is no frame
            sizes = forged * chance.choice([1, 1, 2, 1000])
            tried(partial(read, held + seek_table(sizes)), sizes[:9])


def take_all(storage: MemoryStorage, path: Path) -> str:
    """Make an inventory, and close it: each maps 1 TiB of the 128 that a process may map."""
    with closing(inventory.take(Storages(storage), path)) as found:
        return found.store_id


def test_manifests_of_distributed_writes(sound: Bucket, tmp_path: Path) -> None:
    (name,) = (name for name in sound.names("uploads/") if "manifest" in name)
    manifest = frames.parse_batch_manifest(sound.data(name), name)
    others = [other for other in sound.names("uploads/") if other != name]
    for data in forms(manifest, 7, 30):
        storage = put(name, data)
        for other in others:
            storage.put(other, BufferSource(sound.data(other)))
        tried(lambda storage=storage: take_all(storage, tmp_path / "found"), data)


def test_dumps_of_metadata(sound: Bucket, metadata: MetadataStore) -> None:
    with metadata.read() as txn:
        file = io.BytesIO()
        dump.write(txn, file, 1)
    part = frames.parse_dump_part(file.getvalue(), "dump")
    for data in forms(part, 8, 40):
        tried(lambda data=data: dump.verify(io.BytesIO(data), "dump"), data)


def test_dumps_of_segments(sound: Bucket) -> None:
    state = [change for change in sound.parts[0].changes if change.WhichOneof("body") in ("segment", "cold_link")]
    piece = pb.SegmentDump(version=1, store_id=sound.store_id, path="a/large", written_ms=5, changes=state)
    for data in forms(piece, 9, 30, *sound.entries):
        storage = put("dumps/1-" + "0" * 32, data)
        found = next(storage.list("dumps/"))
        tried(lambda storage=storage, found=found: list(segment_dump.read_dump(storage, found)), data)


@pytest.mark.parametrize("name", DECODERS)
def test_damaged_ledgers_are_refused_or_read(name: str) -> None:
    read, data = DECODERS[name]
    for damaged in mutations(data, 10, 60 * times()):
        tried(partial(read, damaged), damaged)


@pytest.mark.parametrize("name", VALID)
def test_damaged_messages_are_refused_or_read(name: str) -> None:
    for damaged in mutations(VALID[name], 11, 40 * times()):
        tried(lambda damaged=damaged: [one.as_json() for one in decode(damaged).messages], damaged)


DEEP = b"[" * 4000
JSON = (DEEP, b'{"store": ' + b"1" * 4000, b'{"store": "\\ud800"}', b"null", b"[]", b'{"metadata": {"a": 1}}')


def test_damaged_marks_are_refused_or_read(sound: Bucket) -> None:
    mark = sound.data("tierfs-store")
    for data in (*JSON, *mutations(mark, 12, 300 * times())):
        storage = put("tierfs-store", data)
        tried(partial(store_mark.read, storage), data)
        tried(partial(store_mark.read_store_id, storage), data)


def test_user_metadata_in_files() -> None:
    for data in (*JSON, *mutations(b'{"store": "s", "epoch": "1", "name": "YQ=="}', 13, 300 * times())):
        tried(partial(parse_metadata, "name", data), data)
        tried(lambda data=data: metadata_beside(put("x.metadata", data), "x"), data)


def test_offsets_of_streams() -> None:
    offset = {"bytes": 5, "done": 1, "open": {"4": 7}, "read": "r", "sealed_ms": 1, "store": "s", "v": 1}
    values = [None, True, -1, 2**80, 1.5, "", "\u202e", "9" * 5000, [], {}, {"x": 1}, {"4": -1}, {"9" * 5000: 1}, 2]
    for key in offset:
        for value in values:
            tried(partial(StreamOffset.of, {**offset, key: value}), (key, value))
            tried(partial(StreamOffset.of, {other: offset[other] for other in offset if other != key}), key)


def test_damaged_settings_are_refused_or_read(tmp_path: Path) -> None:
    text = settings.default_text().replace("# [", "[").replace("\n# ", "\n")
    path = tmp_path / "store.toml"
    values = ["-1", "1e999", "nan", '"' + "9" * 400 + 'GiB"', '"\\u202e"', "2000-01-01", "[]", "{a=1}", "true", '""']
    chance = random.Random(15)
    lines = [line for line in text.splitlines() if "=" in line and not line.startswith("#")]
    forged = [f"{chance.choice(lines).partition('=')[0]}= {chance.choice(values)}\n" for _ in range(40 * times())]
    sections = [line for line in text.splitlines() if line.startswith("[")]
    forged = [f"{chance.choice(sections)}\n{line}" for line in forged]
    for data in (*mutations(text.encode(), 15, 15 * times()), *(line.encode() for line in forged), b"a = " + DEEP):
        path.write_bytes(data)
        tried(partial(settings.load_with_origins, path, {}), data)


WEIRD = [name for name in NAMES if 0 < len(name) < 1024 and "\0" not in name]


def strange_names(sound_names: list[str], seed: int, count: int) -> Iterator[str]:
    """Yield names that differ a little from those that objects have, and names that no object should have."""
    chance = random.Random(seed)
    for _ in range(count * times()):
        name = chance.choice(sound_names)
        at = chance.randrange(len(name))
        part = chance.choice([*WEIRD, "9" * 20, "0" * 20, "-1", "\u0663", "\ud800", "%2e", name[at : at + 9]])
        yield name[:at] + part + name[at + chance.choice((0, 1, len(part), len(name))) :]


def objects(names: Iterator[str], data: Callable[[str], bytes]) -> MemoryStorage:
    """Return a bucket that lists these names, as no storage checks what others put there."""
    storage = MemoryStorage()
    for name in names:
        storage.put("x", BufferSource(data(name)), create_only=False)
        held = storage.objects.pop("x")
        storage.objects[name] = replace(held, stored=replace(held.stored, name=name))
    return storage


def test_names_of_objects(sound: Bucket, tmp_path: Path) -> None:
    for seed in range(10 * times()):
        strange = sorted(set(strange_names(sound.names(""), seed, 1 if times() > 1 else 30)))
        storage = objects(iter(strange), lambda _: b"x")
        tried(partial(reader.list_journal, storage), strange)
        tried(lambda storage=storage: list(chunk_objects(storage)), strange)
        tried(lambda storage=storage: take_all(storage, tmp_path / "found"), strange)
        tried(lambda storage=storage, seed=seed: ledgers.find(storage, "s", []), strange)


SLTS = "scope/stream/0.#epoch.0.E-1-O-0.00000000-0000-4000-8000-000000000000"
ROCKETMQ = ["c/b/t/0/COMMIT_LOG/seg-0/chunk-1024", "b/t/0/COMMIT_LOG-0/chunk-4096", "-1/c/b/t/0/INDEX/seg-1/segment"]
HEADER = b"maxsize=1024&0=s$offset.0&4=s$offset.4&concat=1@9&0=t$offset.0&12=s$offset.12&"


Plan = Callable[[AdoptionPlan, MemoryStorage, Iterator[StoredObject]], None]


def planned(plan_with: Plan, of: MemoryStorage) -> None:
    plan = AdoptionPlan()
    plan_with(plan, of, of.list(""))
    plan.check_names()
    assert all(str(error).isprintable() for _, error in plan.refused)


def test_names_that_others_give() -> None:
    planners: list[tuple[list[str], Plan]] = [
        ([SLTS, "s$header", "s$offset.0"], lambda plan, storage, found: plan_pravega(plan, storage, found, "in")),
        (ROCKETMQ, lambda plan, _, found: plan_rocketmq(plan, found, "in")),
        (["a/b", "c"], lambda plan, _, found: plan_objects(plan, found, "in")),
    ]
    for seed in range(20 * times()):
        for names, plan_with in planners:
            strange = sorted({*names, *strange_names(names, seed, 1 if times() > 1 else 20)})
            tried(
                partial(planned, plan_with, objects(iter(strange), lambda name: name.encode("utf-8", "replace"))),
                strange,
            )


def test_headers_of_pravega() -> None:
    for data in (b"maxsize=100&", *mutations(HEADER, 16, 400 * times())):
        storage = objects(iter(["s$header", "s$offset.0", "s$offset.4", "t$offset.0"]), lambda _: b"abcd")
        storage.put("s$header", BufferSource(data), create_only=False)
        tried(partial(planned, lambda plan, of, found: plan_pravega(plan, of, found, "in"), storage), data)


def test_indexes_of_pulsar() -> None:
    ledger = offloaded([b"a" * 20] * 20)
    for number, data in enumerate(mutations(ledger.index, 17, 150 * times())):
        storage = put(ledger.key, ledger.data, ledger.said)
        storage.put(f"{ledger.key}-index", BufferSource(data), metadata=ledger.said)
        reading = Reading(in_files=bool(number % 2))
        tried(
            partial(planned, lambda plan, of, found, how=reading: plan_pulsar(plan, of, found, "in", how), storage),
            data,
        )
