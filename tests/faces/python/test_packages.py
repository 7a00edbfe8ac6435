"""Storages and transforms that packages add by entry points: what works, and what is said where one does not."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import tierfs
from tierfs.app import verbs
from tierfs.app.setup import place_change
from tierfs.app.setup.create import init_store
from tierfs.app.store import open_store
from tierfs.base.bytes.checksum import Buffer
from tierfs.base.words.errors import (
    AlreadyExists,
    DataLoss,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    StorageFull,
    TierfsError,
    Unavailable,
)
from tierfs.engine.chunkstore import binding
from tierfs.engine.chunkstore.binding import Binding
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import BufferSource, StoredObject
from tierfs.engine.ledger import transforms

CODE = """
from tests.faces.python.test_packages import Kept
def connect(url):
    return Kept(url)
def broken(url):
    raise KeyError(url)
def twice(entry):
    return [entry, entry]
def bad(entry):
    return [entry[10]]
"""
POINTS = """
[tierfs.storage]
kept = theirs:connect
broken = theirs:broken
missing = theirs:nothing

[tierfs.transform]
twice = theirs:twice
bad = theirs:bad
missing = theirs:nothing
"""


class Kept(Binding):
    """A binding over a dictionary per URL, whose calls fail with an error of the operating system when told to."""

    places: dict[str, MemoryStorage] = {}  # noqa: RUF012  # for all instances, as a disk would be
    fails: int | None = None

    def __init__(self, url: str) -> None:
        self.inner = self.places.setdefault(url, MemoryStorage())

    def _step(self) -> None:
        if self.fails is not None:
            raise OSError(self.fails, os.strerror(self.fails))

    def write(self, name: str, blocks: Iterator[Buffer], metadata: Mapping[str, str], *, create_only: bool) -> None:
        self._step()
        self.inner.put(name, BufferSource(b"".join(blocks)), metadata=metadata, create_only=create_only)

    def look(self, name: str) -> StoredObject:
        self._step()
        return self.inner.stat(name)

    def read(self, name: str, offset: int, length_bytes: int) -> Buffer:
        self._step()
        buffer = bytearray(length_bytes)
        self.inner.read_into(name, offset, memoryview(buffer))
        return buffer

    def remove(self, name: str) -> None:
        self._step()
        self.inner.delete(name)

    def walk(self, prefix: str, after: str) -> Iterator[StoredObject]:
        self._step()
        return self.inner.list(prefix, after=after)

    def end(self) -> None:
        self._step()


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package `theirs`, as an installer leaves it."""
    site = tmp_path / "site"
    (site / "theirs-1.0.dist-info").mkdir(parents=True)
    (site / "theirs-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (site / "theirs-1.0.dist-info/entry_points.txt").write_text(POINTS)
    (site / "theirs.py").write_text(CODE)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # of replicas
    Kept.places.clear()
    yield
    sys.modules.pop("theirs", None)


def test_a_store_on_a_package_s_storage(tmp_path: Path) -> None:
    init_store(tmp_path / "store", Place.in_bucket("kept://here/"))
    with tierfs.open_store(tmp_path / "store") as store:
        store.append("s", b"bytes", seal=True)
        store.offload()
        store.evict(force=True)
        assert (store.segment("s").read(), store.info("s").local_bytes) == (b"bytes", 0)
    assert any(name.startswith("journal/") for name in Kept.places["kept://here"].objects)
    with pytest.raises(AlreadyExists):
        init_store(tmp_path / "other", Place.in_bucket("kept://here"))
    with tierfs.open_store("kept://here") as replica:
        assert replica.segment("s").read() == b"bytes"


def test_a_secret_in_a_url_is_refused(tmp_path: Path) -> None:
    for url in ("kept://user:hidden@here/", "kept://here?key=hidden"):
        with pytest.raises(InvalidRequest, match="would be recorded") as caught:
            init_store(tmp_path / "store", Place.parsed(url))
        assert "hidden" not in str(caught.value)
    assert not (tmp_path / "store").exists()


def test_a_store_moves_to_a_package_s_storage(tmp_path: Path) -> None:
    init_store(tmp_path / "store", None)
    with open_store(tmp_path / "store") as store:
        done = place_change.change(store.metadata, store.paths, store.settings.cold, {"url": "kept://there"})
        assert done.after.url == "kept://there"
        assert verbs.settle(store) is None
    assert Kept.places["kept://there"].objects


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("broken://x", "theirs:broken, which fails: KeyError"),
        ("missing://x", "theirs:nothing, which fails: AttributeError"),
        ("other://x", "no installed package serves other://"),
    ],
)
def test_what_does_not_load_is_named(url: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        binding.connect(url)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, NotFound),
        (errno.EEXIST, AlreadyExists),
        (errno.EROFS, PermissionDenied),
        (errno.ENOSPC, StorageFull),
        (errno.ECONNRESET, Unavailable),
    ],
)
def test_errors_of_the_system_have_a_meaning(number: int, kind: type[TierfsError]) -> None:
    kept = Kept("kept://x")
    stored = kept.put("object", BufferSource(b"bytes"))
    kept.fails = number
    calls = [
        lambda: kept.put("other", BufferSource(b"")),
        lambda: kept.stat("object"),
        lambda: kept.delete("object"),
        lambda: list(kept.list("")),
        lambda: kept.read_into("object", 0, memoryview(bytearray(1)), if_match=stored.etag),
    ]
    for call in calls:
        with pytest.raises(kind, match=os.strerror(number) if kind is not AlreadyExists else "already exists"):
            call()


def test_fewer_bytes_than_were_sent_are_noticed() -> None:
    class Loses(Kept):
        def write(self, name: str, blocks: Iterator[Buffer], metadata: Mapping[str, str], *, create_only: bool) -> None:
            super().write(name, iter([b"".join(blocks)[:-1]]), metadata, create_only=create_only)

    with pytest.raises(Unavailable, match="5 bytes were sent, but 4 are stored"):
        Loses("kept://x").put("object", BufferSource(b"bytes"))


def test_transforms_by_name() -> None:
    assert transforms.names() == ["bad", "missing", "twice", "unbatch"]
    assert list(transforms.named("twice").entries([b"a", b""])) == [b"a", b"a", b"", b""]
    assert list(transforms.named("unbatch").entries([b"no message"])) == [b"no message"]
    for name, said in (("none", "known transforms: bad"), ("missing", "cannot be loaded: AttributeError")):
        with pytest.raises(InvalidRequest) as refused:
            transforms.named(name)
        assert said in f"{refused.value} {refused.value.remedy}"
    for entries in ([b"0123456789x"], [b"short"]):  # it returns a number, and it raises
        with pytest.raises(InvalidRequest, match="transform bad fails at entry 0"):
            list(transforms.named("bad").entries(entries))


def test_a_source_that_is_damaged_stores_nothing() -> None:
    class Damaged(BufferSource):
        def read(self, offset: int, length_bytes: int) -> Buffer:
            raise DataLoss("damaged")

    kept = Kept("kept://x")
    with pytest.raises(DataLoss):
        kept.put("object", Damaged(b"bytes"))
    assert list(kept.list("")) == []
