"""tierfs inspect: what one object says of itself, whoever wrote it."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.conftest import Bucket
from tests.doubles.mutations import NAMES, mutations, times
from tests.ledgers import new_ledger
from tests.ledgers import offload as offload_ledger
from tests.stores import TestStore
from tierfs.app.recovery.object_headers import UNKNOWN, ObjectHeader, header_of, kind_of, known_suffix
from tierfs.base.options.policy import Policy
from tierfs.base.words.errors import InvalidRequest, NotFound, TierfsError
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.metadata import policies
from tierfs.tiering.packs import format as packs

GOLDENS = Path(__file__).parents[2] / "engine/ledger/pulsar"
UUID = "11111111-2222-3333-4444-555555555555"
JOB = "0" * 32
LINES = b"the same line\n" * 10_000

KINDS = {
    "segments/a/b/7/chunk-00000000000000000000-00000000000000000005-e1-0a": "chunk",
    "segments/a/b/7/chunk-00000000000000000000-00000000000000000005-e1-0a-c0000000a.zst": "chunk",
    f"packs/{7:020}-e1-0a-c0000000a": "pack",
    f"{UUID}-ledger-7": "ledger data",
    f"{UUID}-ledger-7-index": "ledger index",
    UUID: "ledger data",
    f"{UUID}-index": "ledger index",
    f"ledgers/entries-7-e1-{'0' * 32}": "entries of a ledger",
    f"journal/{1:020}": "journal entry",
    f"journal/checkpoint-{1:020}": "checkpoint",
    f"journal/checkpoint-{1:020}.part-{'0' * 32}-000000": "part of a checkpoint",
    "epochs/0000000002": "start of an epoch",
    "tierfs-store": "mark of a store",
    f"uploads/{JOB}/manifest-{'0' * 32}-000000": "part of a distributed write",
    f"dumps/7-{'0' * 32}": "dump of a segment",
    "journal/1": UNKNOWN,
    "uploads/x": UNKNOWN,
    "logs/day.log": UNKNOWN,
}


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_a_name_tells_the_kind(name: str, kind: str) -> None:
    assert kind_of(name).name == kind
    if kind != UNKNOWN:
        assert known_suffix(f"some/prefix/{name}") == name


@pytest.fixture
def full(store: TestStore) -> TestStore:
    """A store with objects of most kinds."""
    store.append("d/chunk", b"12345678", seal=True)
    store.offload("d/chunk")
    with store.metadata.write() as txn:
        compressing = {"chunk_bytes": "1000000", "object_bytes": "1000000", "compression": "zstd"}
        policies.put(txn, store.segment("d/chunk").parent_id, compressing)
    store.append("d/c", LINES, seal=True)
    store.offload("d/c")
    for name in ("d/p", "d/q"):
        store.append(name, bytes(40), seal=True)
    store.offload("d")
    offload_ledger(store, new_ledger(store, [b"one", b"two"]))
    store.append("small/a", b"12", seal=True)
    store.append("small/b", b"34", seal=True)
    work = store.cold_work()
    from tierfs.tiering.candidates import PackAction, objects_to_make

    with store.metadata.read() as txn:
        segments = [store.segment(name) for name in ("small/a", "small/b")]
        actions = [action for segment in segments for action in objects_to_make(txn, segment, Policy(object_bytes=8))]
    work.pack(PackAction(tuple(actions)))
    work.publish()
    work.checkpointer.checkpoint()
    return store


def headers(storage: MemoryStorage) -> dict[str, ObjectHeader]:
    """One object of each kind."""
    found = (header_of(storage, listed.name) for listed in storage.list(""))
    return {header.kind: header for header in found}


def test_each_kind_shows_its_header(full: TestStore) -> None:
    shown = headers(full.cold)
    assert {kind: header.wrong for kind, header in shown.items() if header.wrong} == {}
    chunk, pack, index = shown["chunk"], shown["pack"], shown["ledger index"]
    assert (chunk.fields["segment"], chunk.fields["start"], chunk.fields["end"]) == ("d/chunk", 0, 8)
    assert chunk.metadata["store"] == full.metadata.store_id
    assert [(part["path"], part["length"]) for part in pack.parts] == [("small/a", 2), ("small/b", 2)]
    assert index.fields["ledger_metadata"]["lastEntryId"] == "1"
    assert [part["first_entry_id"] for part in index.parts] == [0]
    assert (shown["ledger data"].fields["first_entry_id"], shown["ledger data"].fields["magic"]) == (0, "fbdbabcb")
    assert shown["ledger data"].fields["segment"].startswith("topic/")
    assert shown["entries of a ledger"].fields["store_id"] == full.metadata.store_id
    assert shown["journal entry"].fields["changes"]
    assert shown["checkpoint"].fields["parts"] == 1
    assert shown["part of a checkpoint"].fields["changes"]["segment"] >= 4


def test_what_contradicts_itself_is_told(full: TestStore) -> None:
    chunk = headers(full.cold)["chunk"]
    cut = chunk.name.replace("000008-e", "000009-e")
    full.cold.put(cut, BufferSource(b"12345678"), metadata=dict(chunk.metadata))
    assert header_of(full.cold, cut).wrong == [
        "its name says 9 bytes, and it has 8",
        "its metadata has end 8, its name has 9",
    ]
    pack = headers(full.cold)["pack"].name
    full.cold.put(pack, BufferSource(b"no pack"), create_only=False)
    assert "is damaged" in header_of(full.cold, pack).wrong[0]
    with pytest.raises(NotFound):
        header_of(full.cold, "journal/00000000000000009999")


def test_a_compressed_chunk_shows_its_frames(full: TestStore) -> None:
    name = next(item.name for item in full.cold.list("segments/d/c/") if item.name.endswith(".zst"))
    header = header_of(full.cold, name)
    assert header.wrong == []
    wanted = ("encoding", "plain_bytes", "sections", "frames", "ratio")
    ratio = round(len(LINES) / header.stored.length_bytes, 2)
    assert [header.fields[field] for field in wanted] == ["zstd frames", len(LINES), 1, 2, ratio]
    assert header.parts == [
        {
            "start": 0,
            "seek_table": header.stored.length_bytes - 8 - 2 * 8 - 9,
            "end": header.stored.length_bytes,
            "frames": 2,
            "plain_bytes": len(LINES),
        }
    ]
    data = bytearray(header.stored.length_bytes)
    full.cold.read_into(name, 0, memoryview(data))
    pack = next(item.name for item in full.cold.list("packs/") if item.name.endswith(".zst"))
    shown = header_of(full.cold, pack)
    assert (shown.wrong, shown.fields["encoding"], shown.fields["frames"]) == ([], "zstd frames", 1)
    assert (shown.fields["plain_bytes"], shown.fields["ratio"]) == (80, round(80 / shown.stored.length_bytes, 2))
    assert [(part["path"], part["length"]) for part in shown.parts] == [("d/p", 40), ("d/q", 40)]
    longer = name.replace(f"{len(LINES):020}-e", f"{len(LINES) + 1:020}-e")
    full.cold.put(longer, BufferSource(bytes(data)), metadata={})
    assert header_of(full.cold, longer).wrong == [
        f"its name says {len(LINES) + 1} bytes, and its frames have {len(LINES)}"
    ]
    full.cold.put(name, BufferSource(bytes(data[:-1])), create_only=False)
    assert "is damaged" in header_of(full.cold, name).wrong[0]


def test_hostile_objects_are_headers_or_typed_errors_and_little_is_read(
    full: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for listed in list(full.cold.list("")):
        data = bytearray(listed.length_bytes)
        full.cold.read_into(listed.name, 0, memoryview(data))
        for number, damaged in enumerate(mutations(bytes(data), seed=len(data), count=60 * times())):
            storage = MemoryStorage()
            said = {"name": NAMES[number % len(NAMES)][:300], "start": "x", "store": "\x1b]0;x\x07"}
            said = {key: value.encode("ascii", "replace").decode() for key, value in said.items()}
            printable = {key: value for key, value in said.items() if value.isprintable()}
            storage.put(listed.name, BufferSource(damaged), metadata=printable)
            try:
                header = header_of(storage, listed.name)
            except TierfsError:
                continue
            assert json.dumps([header.fields, header.parts, header.wrong])


@pytest.mark.parametrize("kind", ["whole", "streaming"])
def test_pulsars_own_objects_with_the_metadata_beside_them(kind: str, tmp_path: Path) -> None:
    shutil.copytree(GOLDENS / kind, tmp_path / kind)
    for file in sorted((tmp_path / kind).iterdir()):
        if file.suffix == ".json":
            continue
        shown = tierfs("inspect", file, "--json").json
        beside = json.loads(file.with_name(f"{file.name}.json").read_text())
        assert shown["metadata"] == {key.lower(): value for key, value in beside.get("metadata", beside).items()}
        assert (shown["wrong"], shown["object"]) == ([], file.name)
        if file.name.endswith("-index"):
            assert shown["parts"]


@pytest.mark.s3
def test_an_object_by_its_url_with_and_without_a_store(tmp_path: Path, moto_bucket: Bucket) -> None:
    endpoint, bucket = moto_bucket
    url, store = f"s3://{bucket}/deep/er", tmp_path / "store"
    tierfs("-q", "init", "--bucket", url, "--endpoint-url", endpoint.endpoint_url, store=store)
    tierfs("-q", "append", "a", "--seal", store=store, stdin=os.urandom(5_000_000))
    tierfs("-q", "offload", store=store)
    with closing(endpoint.client()) as client:
        listed = client.list_objects_v2(Bucket=bucket, Prefix="deep/er/segments/")["Contents"]
    key = listed[0]["Key"]
    by_url = tierfs("inspect", f"s3://{bucket}/{key}", "--endpoint-url", endpoint.endpoint_url, "--json").json
    assert (by_url["kind"], by_url["header"]["segment"], by_url["bytes"]) == ("chunk", "a", 5_000_000)
    assert by_url["metadata"]["start"] == "0"
    assert tierfs("inspect", f"s3://{bucket}/{key}", "--json", store=store).json == by_url
    assert tierfs("inspect", key.removeprefix("deep/er/"), "--json", store=store).json == by_url


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    """The cold directory of a store, away from it."""
    cold, store = tmp_path / "cold", tmp_path / "store"
    cold.mkdir()
    tierfs("-q", "init", "--cold-dir", cold, store=store)
    tierfs("-q", "append", "a/b", "--seal", store=store, stdin=b"x" * 5_000_000)
    tierfs("-q", "offload", store=store)
    return cold


def test_a_file_of_a_cold_directory(cold: Path) -> None:
    (chunk,) = (path for path in (cold / "segments").rglob("chunk-*") if path.is_file())
    before = sorted(cold.rglob("*"))
    shown = tierfs("inspect", chunk, "--json").json
    assert (shown["kind"], shown["header"]["segment"], shown["metadata"]["segment"]) == ("chunk", "a/b", "4")
    text = tierfs("inspect", chunk).out
    assert "segment      a/b\n" in text
    assert sorted(cold.rglob("*")) == before, "nothing is written where only a header is read"


def test_names_reach_the_terminal_escaped(tmp_path: Path) -> None:
    file = tmp_path / "evil\x1b[31m"
    file.write_bytes(b"\x1b[2J")
    done = tierfs("inspect", file)
    assert "\x1b" not in done.out
    assert "evil\\x1b[31m" in done.out
    assert "begins    1b 5b 32 4a\n" in done.out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("journal/1",), 2, ": no such file, and no --store given"),
        (("s3://bucket",), 2, "is not the URL of an object"),
        (("ftp://host/a",), 2, "serves ftp://"),
        (("/",), 3, "is a directory, so not an object"),
        (("/no/such",), 3, "is not a file, so not an object"),
    ],
)
def test_what_is_no_object_is_refused(words: tuple[str, ...], code: int, told: str) -> None:
    done = tierfs("inspect", *words, check=False)
    assert (done.code, told in done.err) == (code, True), done.err


def test_damage_is_told_by_the_exit_code(tmp_path: Path) -> None:
    file = tmp_path / f"packs/{7:020}-e1-0a-c0000000a"
    file.parent.mkdir()
    file.write_bytes(b"x" * packs.TRAILER_BYTES)
    done = tierfs("inspect", file, check=False)
    assert (done.code, "WRONG" in done.out) == (74, True)


def test_an_index_of_any_length_is_capped(store: TestStore) -> None:
    class Huge(MemoryStorage):
        def read_into(self, *_: object, **__: object) -> None:
            raise AssertionError("it is read before its size was looked at")

    storage = Huge()
    for name in (f"{UUID}-ledger-7-index", f"journal/{1:020}"):
        storage.put(name, BufferSource(bytes(17 << 20)))
        assert "bytes" in header_of(storage, name).wrong[0]
    with pytest.raises(InvalidRequest):
        header_of(storage, "../up")
