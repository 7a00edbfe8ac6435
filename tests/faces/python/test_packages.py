"""Storages and transforms that packages add by entry points: what works, and what is said where one does not."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import tierfs
from tierfs.app import move, verbs
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
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore import binding
from tierfs.engine.chunkstore.binding import Binding
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import BufferSource, StoredObject, Supports
from tierfs.engine.ledger import transforms

CODE = """
from tests.faces.python.test_packages import Archive, Kept, Library, Overwriting, Small, Tiny
connect, archive, library, overwriting, small, tiny = Kept, Archive, Library, Overwriting, Small, Tiny
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
archive = theirs:archive
library = theirs:library
overwriting = theirs:overwriting
small = theirs:small
tiny = theirs:tiny
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


class Library(Kept):
    supports = Supports(writes=False)


class Archive(Kept):
    supports = Supports(deletes=False)


class Small(Kept):
    supports = Supports(max_object_bytes=16 * MIB)


class Tiny(Kept):
    supports = Supports(max_object_bytes=1 * MIB)


class Overwriting(Kept):
    """Replaces a taken name; `race` is what another process writes between the look and the write."""

    supports = Supports(create_only=False)
    race: Callable[[], None] | None = None

    def write(self, name: str, blocks: Iterator[Buffer], metadata: Mapping[str, str], *, create_only: bool) -> None:
        assert not create_only
        super().write(name, blocks, metadata, create_only=False)
        if self.race is not None:
            self.race()


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


def test_no_store_is_made_in_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(PermissionDenied, match="can only be read") as refused:
        init_store(tmp_path / "store", Place.parsed("library://here"))
    assert "tierfs adopt" in str(refused.value.remedy)
    assert not (tmp_path / "store").exists()
    assert not Kept.places["library://here"].objects
    init_store(tmp_path / "store", None)
    with open_store(tmp_path / "store") as store, pytest.raises(PermissionDenied, match="can only be read"):
        place_change.change(store.metadata, store.paths, store.settings.cold, {"url": "library://here"})


def test_a_place_that_cannot_be_written_is_followed(tmp_path: Path) -> None:
    init_store(tmp_path / "store", Place.parsed("kept://here"))
    with tierfs.open_store(tmp_path / "store") as store:
        store.append("s", b"bytes", seal=True)
        store.offload()
    Kept.places["library://here"] = Kept.places["kept://here"]
    with tierfs.open_store("library://here") as replica:
        assert replica.segment("s").read() == b"bytes"


def test_a_place_without_create_only_has_the_advisory_lease(tmp_path: Path) -> None:
    report = init_store(tmp_path / "store", Place.parsed("overwriting://here"))
    assert any("only an advisory lease" in warning for warning in report.warnings)
    with open_store(tmp_path / "store") as store:
        place = store.cold_location
        assert place is not None
        assert not place.create_only_put
    storage = Overwriting("overwriting://here")
    storage.put("x", BufferSource(b"mine"), metadata={"attempt": "1"})
    with pytest.raises(AlreadyExists):
        storage.put("x", BufferSource(b"else"), metadata={"attempt": "2"})
    storage.race = lambda: Kept.write(storage, "y", iter([b"theirs"]), {"attempt": "3"}, create_only=False)
    with pytest.raises(AlreadyExists, match="at the same time"):
        storage.put("y", BufferSource(b"ours"), metadata={"attempt": "4"})


def test_a_place_that_cannot_delete_is_not_tried(tmp_path: Path) -> None:
    report = init_store(tmp_path / "store", Place.parsed("archive://here"))
    assert any("no permission to delete" in warning for warning in report.warnings)
    with pytest.raises(PermissionDenied, match="nothing can be deleted"):
        Archive("archive://here").delete("x")


def test_objects_larger_than_a_place_stores_are_refused_by_the_policy(tmp_path: Path) -> None:
    """Refused when a policy is set and when a place is chosen, not at an upload hours later."""
    with pytest.raises(InvalidRequest, match=r"chunk_bytes 64MiB \(built-in\): .* at most 16MiB"):
        init_store(tmp_path / "store", Place.parsed("small://here"))
    assert not (tmp_path / "store").exists()
    init_store(tmp_path / "store", None)
    with open_store(tmp_path / "store") as store:

        def use_it() -> None:
            place_change.change(store.metadata, store.paths, store.settings.cold, {"url": "small://here"})

        with pytest.raises(InvalidRequest, match="at most 16MiB"):
            use_it()
        verbs.change_policies(store, "", {"chunk_bytes": str(16 * MIB), "object_bytes": str(16 * MIB)})
        use_it()
        with pytest.raises(InvalidRequest, match=r"object_bytes 17MiB \(directory logs\): .* at most 16MiB"):
            verbs.change_policies(store, "logs", {"object_bytes": str(17 * MIB)})
    with pytest.raises(InvalidRequest, match="of at most 1MiB: the journal of a store needs 16MiB"):
        init_store(tmp_path / "other", Place.parsed("tiny://here"))
    with pytest.raises(InvalidRequest, match="stores objects of at most 16MiB, not of"):
        Small("small://here").put("x", BufferSource(bytes(16 * MIB + 1)))


def test_a_store_refuses_to_move_its_place_to_one_that_supports_less(tmp_path: Path) -> None:
    init_store(tmp_path / "store", Place.parsed("kept://here"))
    with open_store(tmp_path / "store") as store:
        for url, error in (("library://x", PermissionDenied), ("small://x", InvalidRequest)):
            with pytest.raises(error):
                move.move(store, move.place_to(store, {"url": url}), lambda _: None)
            assert not Kept.places[url].objects
        encrypted = replace(store.settings.cold, encryption="AES256", tags="a=b")
        with pytest.raises(InvalidRequest, match=r"kept://y does not support cold\.encryption, cold\.tags: only S3"):
            place_change.change(store.metadata, store.paths, encrypted, {"url": "kept://y"})
