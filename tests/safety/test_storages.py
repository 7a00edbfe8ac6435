"""Storages and chunk files: which bytes they give, whose they take away, and what they call lost."""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tests.disks import synced
from tests.doubles.scripted_storage import ScriptedStorage, When
from tests.safety.refused import refused
from tierfs.base.options.config import ColdSettings
from tierfs.base.system import osio
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.errors import DataLoss, InvalidRequest, NotFound, PermissionDenied, TierfsError, Unavailable
from tierfs.base.words.types import MIB, LocationId
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
from tierfs.engine.chunkstore.directory.tree import RootDirectory
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.places.address import connect_place
from tierfs.engine.chunkstore.places.filesystem import LocalFiles
from tierfs.engine.chunkstore.protocol import Abilities, BufferSource, EtagDiffers, PendingUpload, Source
from tierfs.engine.chunkstore.read_only import ReadOnlyStorage
from tierfs.engine.chunkstore.resilient import ResilientStorage
from tierfs.engine.chunkstore.s3.answer import RangeRead
from tierfs.engine.chunkstore.s3.location import S3Location
from tierfs.engine.chunkstore.validate import MARK_NAME
from tierfs.engine.metadata.records import LocationRecord

FILE = f"00/1-0-{1:016x}"


@pytest.fixture
def files(tmp_path: Path) -> Iterator[ChunkFiles]:
    with closing(ChunkFiles.create(tmp_path / "chunks")) as files:
        yield files


def test_a_repeated_read_without_a_version_is_of_one_version() -> None:
    inner = ScriptedStorage()
    inner.put("o", BufferSource(b"1" * (2 * MIB)))

    def replace() -> None:
        inner.put("o", BufferSource(b"2" * (2 * MIB + 1)), create_only=False)
        raise Unavailable("broken")

    inner.do("read", replace, when=When.HALFWAY)
    storage = ResilientStorage(inner, attempts=2, sleep=lambda _: None)
    buffer = bytearray(2 * MIB)
    storage.read_into("o", 0, memoryview(buffer))
    assert buffer == b"2" * (2 * MIB)


def test_a_read_counts_against_the_limit() -> None:
    inner = ScriptedStorage()
    inner.put("o", BufferSource(b"1"))
    limited, could_begin = ResilientStorage(inner, max_in_flight=1), list[bool]()
    inner.do("read", lambda: could_begin.append(limited._slots.acquire(blocking=False)))
    limited.read_into("o", 0, memoryview(bytearray(1)))
    assert could_begin == [False]


class Uploading(MemoryStorage):
    """A storage that notes aborted uploads."""

    aborted = False

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        """List one."""
        return iter([PendingUpload("o", "1", 0)])

    def abort_upload(self, upload: PendingUpload) -> None:
        """Note it."""
        self.aborted = True


@pytest.mark.parametrize("kind", ["ours", "theirs", "bare"])
def test_nothing_is_deleted_put_or_aborted_in_a_place_of_others(kind: str) -> None:
    inner, ours = Uploading(), kind == "ours"
    inner.put("o", BufferSource(b"theirs"))
    location = LocationRecord(id=LocationId(1), url="s3://b", writable=ours)
    place: Any = ReadOnlyStorage(inner)
    if kind != "bare":
        place = Place(location, Path(), ColdSettings()).wrapped(inner, NullMetrics())
    for change in (
        lambda: place.put("p", BufferSource(b"")),
        lambda: place.delete("o"),
        lambda: place.abort_upload(PendingUpload("o", "1", 0)),
    ):
        with refused(not ours, PermissionDenied):
            change()
    assert [stored.name for stored in inner.list("")] == (["p"] if ours else ["o"])
    assert inner.aborted is ours
    assert bool(list(place.uploads(""))) is ours


def test_no_two_versions_of_a_file_share_an_etag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([1, 2])
    monkeypatch.setattr(secrets, "randbelow", lambda _: next(ticks))
    with closing(DirectoryStorage.create(tmp_path / "cold")) as storage:
        for tick in (1, 2):
            storage.put("o", BufferSource(b"1"), create_only=False)
            assert (tmp_path / "cold/o").stat().st_mtime_ns % 1_000_000 == tick


@pytest.mark.parametrize("version", ["same", "other"])
def test_a_file_is_read_in_the_version_that_was_asked_for(tmp_path: Path, version: str) -> None:
    with closing(DirectoryStorage.create(tmp_path / "cold")) as storage:
        etag = storage.put("o", BufferSource(b"1")).etag
        if version == "other":
            storage.put("o", BufferSource(b"2"), create_only=False)
        with refused(version == "other", EtagDiffers):
            storage.read_into("o", 0, memoryview(bytearray(1)), if_match=etag)


@pytest.mark.parametrize("marked", [True, False])
def test_a_bare_directory_in_its_place_does_not_replace_a_marked_one(tmp_path: Path, marked: bool) -> None:
    root = tmp_path / "cold"
    root.mkdir()
    if marked:
        (root / MARK_NAME).touch()
    with closing(RootDirectory(root)) as tree:
        root.rename(tmp_path / "before")
        root.mkdir()
        assert tree.follow() is not marked


@pytest.mark.parametrize("mounted", [True, False])
def test_a_missing_chunk_file_is_lost_only_if_its_disk_is_there(files: ChunkFiles, mounted: bool) -> None:
    if not mounted:
        (files.root / "00").rename(files.root / "elsewhere")
    with pytest.raises(NotFound if mounted else Unavailable):
        files.open_for_read(FILE)


@pytest.mark.parametrize("short", [0, 1])
def test_a_chunk_file_has_every_byte_that_is_read(files: ChunkFiles, short: int) -> None:
    fd, view = files.create_file(FILE), memoryview(bytearray(4))
    osio.write_all(fd, b"abcd"[short:], 0)
    os.close(fd)
    with refused(short, DataLoss, "shorter"):
        files.read_into(FILE, 0, view)
        assert bytes(view) == b"abcd"


def test_the_directories_of_chunk_files_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda fd: synced.add(os.fstat(fd).st_ino))
    with closing(ChunkFiles.create(tmp_path / "chunks")):
        assert {(tmp_path / "chunks").stat().st_ino, tmp_path.stat().st_ino} <= synced


def test_a_deleted_object_of_a_directory_tier_stays_deleted_after_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(DirectoryStorage.create(tmp_path / "cold")) as storage:
        storage.put("d/object", BufferSource(b"bytes"))
        storage.put("d/other", BufferSource(b"bytes"))
        done = synced(monkeypatch)
        storage.delete("d/object")
        assert done == [str(tmp_path / "cold/d")]


def test_an_object_in_a_local_file_system_is_durable_before_its_name_and_its_name_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = connect_place(f"local://{tmp_path}/cold", "", ColdSettings(), Abilities())
    storage.put("d/first", BufferSource(b"bytes"))
    done = synced(monkeypatch)
    storage.put("d/object", BufferSource(b"bytes"))
    temporary, directory = done
    assert Path(temporary).parent == tmp_path / "cold/.tmp"
    assert directory == str(tmp_path / "cold/d")


@pytest.mark.parametrize("missing", [0, 1])
def test_an_object_in_a_place_of_files_is_as_long_as_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    write = LocalFiles.write

    def short(self: LocalFiles, path: str, source: Source, **options: Any) -> None:
        write(self, path, source, **options)
        os.truncate(path, source.length_bytes - missing)

    monkeypatch.setattr(LocalFiles, "write", short)
    storage = connect_place(f"local://{tmp_path}/cold", "", ColdSettings(), Abilities())
    with refused(missing, DataLoss, "4 of 5 bytes arrived"):
        storage.put("object", BufferSource(b"bytes"))
    assert [stored.name for stored in storage.list("")] == ([] if missing else ["object"])


RANGE = "bytes 4-7/10"


@pytest.mark.parametrize(
    ("status", "answered", "etag", "error"),
    [
        (206, RANGE, "e", None),
        (206, "bytes 4-7/*", "e", None),
        (206, "bytes 3-7/10", "e", InvalidRequest),  # the range before it
        (206, "bytes 5-7/10", "e", InvalidRequest),
        (206, "bytes 4-6/7", "e", DataLoss),
        (206, "bytes 4-8/10", "e", DataLoss),
        (200, "", "e", InvalidRequest),
        (206, RANGE, "other", EtagDiffers),
        (404, RANGE, "e", TierfsError),
    ],
)
def test_the_answer_for_another_range_or_version_is_not_read(
    status: int, answered: str, etag: str, error: type[TierfsError] | None
) -> None:
    location = S3Location("bucket", "prefix")
    buffer = bytearray(4)
    read = RangeRead(location, "object", 4, memoryview(buffer), "e", None)
    headers = {"Content-Range": answered, "ETag": f'"{etag}"'}
    answer = urllib3.HTTPResponse(io.BytesIO(b"bytes"), headers, status, preload_content=False)
    with refused(error, error or TierfsError):
        assert read.receive(answer) == 4
    assert bytes(buffer) == (bytes(4) if error else b"byte")
