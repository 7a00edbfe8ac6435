"""Consolidation in a real HDFS: its name node joins the objects, readers in between lose nothing, and gc ends them."""

from __future__ import annotations

from pathlib import Path

import pytest

import tierfs as package
from tests.commands import tierfs
from tests.servers.hdfs_server import HdfsRoot
from tierfs.base.options.config import ColdSettings
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.places.address import connect_place
from tierfs.engine.chunkstore.places.storage import PlaceStorage
from tierfs.engine.chunkstore.protocol import Abilities
from tierfs.tiering.consolidate_command import ConsolidateReport

pytestmark = pytest.mark.hdfs

NAME = "d/b: 50%"
PART = 4 * MIB + 128 * 1024


def part(number: int) -> bytes:
    return bytes([65 + number]) * PART


@pytest.fixture
def store(hdfs_root: HdfsRoot, tmp_path: Path) -> Path:
    """A store with a segment of four cold objects, and nothing of it on the local disk."""
    store = tmp_path / "store"
    tierfs("-q", "init", "--cold-url", hdfs_root.webhdfs, store=store)
    tierfs("-q", "config", "offload.pack_below_bytes=0", "offload.consolidate_chunks=0", store=store)
    for number in range(4):
        tierfs("-q", "append", NAME, store=store, stdin=part(number))
        tierfs("-q", "offload", store=store)
    tierfs("-q", "seal", NAME, store=store)
    tierfs("-q", "evict", "--force", store=store)
    return store


def place(url: str) -> PlaceStorage:
    return connect_place(url, "", ColdSettings(), Abilities())


def consolidated(store: Path) -> ConsolidateReport:
    with package.open_store(store) as opened:
        return opened.consolidate(NAME)


def names(storage: PlaceStorage) -> set[str]:
    return {stored.name for stored in storage.list("segments/")}


def test_no_byte_passes_through_the_client(store: Path, hdfs_root: HdfsRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    from tierfs.engine.chunkstore.places.webhdfs import WebHdfsFiles

    inner, passed = WebHdfsFiles.read_into, []

    def read_into(self: WebHdfsFiles, path: str, offset: int, buffer: memoryview, progress: object) -> None:
        if "/segments/" in path and "/.joined/" not in path:
            passed.append(len(buffer))
        inner(self, path, offset, buffer, progress)  # type: ignore[arg-type]

    monkeypatch.setattr(WebHdfsFiles, "read_into", read_into)
    done = consolidated(store)
    assert (done.objects_after, done.client_bytes, done.bytes) == (1, 0, 4 * PART)
    assert passed == [], "not even to check it: no byte was copied"
    monkeypatch.undo()
    with package.open_store(store) as opened:
        assert opened.segment(NAME).read() == b"".join(map(part, range(4)))
    assert tierfs("info", "--json", NAME, store=store).json["tiers"]["cold"]["chunks"] == 1
    assert tierfs("check", "--read", store=store).out.endswith("clean\n")


def test_readers_in_between_lose_nothing(store: Path, hdfs_root: HdfsRoot, tmp_path: Path) -> None:
    """A handle with the layout of before, a replica that does not know of it, and the other way to HDFS."""
    old = names(place(hdfs_root.webhdfs))
    replica = tmp_path / "replica"
    tierfs("-q", "replica", "--cold-url", hdfs_root.hdfs, store=replica)
    with package.open_store(store) as opened, opened.open(NAME) as handle:
        assert handle.read(PART) == part(0)
        assert consolidated(store).client_bytes == 0
        assert handle.read() == b"".join(map(part, range(1, 4)))
    assert tierfs("cat", NAME, store=replica).out.encode() == b"".join(map(part, range(4)))
    assert old < names(place(hdfs_root.webhdfs)), "the old names are listed until gc deletes them"
    assert old < names(place(hdfs_root.hdfs))
    lost = tmp_path / "lost"
    tierfs("-q", "recover", "--cold-url", hdfs_root.webhdfs, store=lost)
    assert tierfs("check", "--read", store=lost).out.endswith("clean\n")


def test_gc_ends_the_old_names_and_what_belongs_to_them(store: Path, hdfs_root: HdfsRoot) -> None:
    tierfs("-q", "config", "offload.grace_s=0", store=store)
    consolidated(store)
    tierfs("-q", "gc", "--delete", store=store)
    storage = place(hdfs_root.webhdfs)
    assert len(names(storage)) == 1
    root = hdfs_root.webhdfs.split("/", 3)[3]
    entries = dict(storage.place.files.entries(f"/{root}"))  # type: ignore[attr-defined]
    assert not {".joined", ".joins"} & entries.keys()
    assert tierfs("cat", NAME, store=store).out.encode() == b"".join(map(part, range(4)))
