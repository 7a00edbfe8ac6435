"""Objects made of files: of two writers at once, of writers that are killed, and of parts that are joined."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.children import FAILED, code_of_child, die
from tierfs.base.options.config import ColdSettings
from tierfs.base.words.errors import AlreadyExists, InvalidRequest, NotFound, Unavailable
from tierfs.engine.chunkstore.places import file_place
from tierfs.engine.chunkstore.places.address import connect_place
from tierfs.engine.chunkstore.places.filesystem import LocalFiles
from tierfs.engine.chunkstore.places.storage import PlaceStorage
from tierfs.engine.chunkstore.protocol import Abilities, BufferSource


def opened(tmp_path: Path) -> PlaceStorage:
    return connect_place(f"local://{tmp_path}/cold", "", ColdSettings(), Abilities())


def test_the_loser_of_a_name_leaves_the_metadata_of_the_winner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = LocalFiles.write

    def at_one_time(self: LocalFiles, path: str, *rest: Any, **options: Any) -> None:
        write(self, path, *rest, **options)
        os.utime(path, (1_700_000_000, 1_700_000_000))

    monkeypatch.setattr(LocalFiles, "write", at_one_time)
    storage = opened(tmp_path)
    first = storage.put("journal/1", BufferSource(b"12345"), metadata={"attempt": "1"})
    with pytest.raises(AlreadyExists):
        storage.put("journal/1", BufferSource(b"54321"), metadata={"attempt": "2"})
    assert storage.stat("journal/1") == first
    assert first.metadata == {"attempt": "1"}


def test_an_answer_that_is_lost_leaves_the_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = LocalFiles.rename

    def unanswered(self: LocalFiles, path: str, target: str, *, overwrite: bool) -> None:
        rename(self, path, target, overwrite=overwrite)
        raise ConnectionResetError

    monkeypatch.setattr(LocalFiles, "rename", unanswered)
    storage = opened(tmp_path)
    with pytest.raises(Unavailable):
        storage.put("object", BufferSource(b"bytes"), metadata={"attempt": "1"})
    assert storage.stat("object").metadata == {"attempt": "1"}


def sidecars(tmp_path: Path) -> list[Path]:
    return [path for path in tmp_path.glob("cold/.metadata/*/*") if path.is_file()]


@pytest.mark.parametrize("error", [ConnectionResetError, KeyboardInterrupt, FileExistsError])
@pytest.mark.parametrize("is_taken", [False, True])
def test_a_name_that_was_never_given_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], is_taken: bool
) -> None:
    storage = opened(tmp_path)
    if is_taken:
        storage.put("object", BufferSource(b"other"), metadata={"attempt": "1"})
    before = sidecars(tmp_path)

    def refused(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(LocalFiles, "rename", refused)
    with pytest.raises((Unavailable, AlreadyExists, KeyboardInterrupt)):
        storage.put("object", BufferSource(b"bytes"), metadata={"attempt": "2"})
    assert list(storage.uploads("")) == []
    assert sidecars(tmp_path) == before


@pytest.mark.parametrize("kept_bytes", [0, 1, 20, -1])
def test_metadata_that_was_cut_off_goes_with_its_unfinished_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_bytes: int
) -> None:
    def killed_before_the_name() -> int:
        monkeypatch.setattr(LocalFiles, "rename", _die)
        opened(tmp_path).put("object", BufferSource(b"bytes"), metadata={"attempt": "1"})
        return FAILED

    assert code_of_child(killed_before_the_name) == 0
    (sidecar,) = sidecars(tmp_path)
    sidecar.write_bytes(sidecar.read_bytes()[:kept_bytes])
    storage = opened(tmp_path)
    (left,) = storage.uploads("")
    storage.abort_upload(left)
    assert (list(storage.uploads("")), sidecars(tmp_path)) == ([], [])


def test_an_unfinished_write_that_has_both_names_leaves_the_object_its_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As SFTP has for a moment, which gives an object its name by a hard link."""

    def linked(self: LocalFiles, path: str, target: str, *, overwrite: bool) -> None:
        os.link(path, target)
        die()

    def killed_between_the_names() -> int:
        monkeypatch.setattr(LocalFiles, "rename", linked)
        opened(tmp_path).put("object", BufferSource(b"bytes"), metadata={"attempt": "1"})
        return FAILED

    assert code_of_child(killed_between_the_names) == 0
    storage = opened(tmp_path)
    (left,) = storage.uploads("")
    storage.abort_upload(left)
    assert list(storage.uploads("")) == []
    assert storage.stat("object").metadata == {"attempt": "1"}


STEPS: dict[str, Callable[[Any], Any]] = {
    "bytes": lambda patch: patch(LocalFiles, "status", _die),
    "metadata": lambda patch: patch(LocalFiles, "rename", _die),
    "name": lambda patch: patch(file_place.FilePlace, "_rename", _then_die),
}


def _die(*_: Any, **__: Any) -> Any:
    die()


_rename = file_place.FilePlace._rename


def _then_die(*arguments: Any, **options: Any) -> None:
    _rename(*arguments, **options)
    die()


@pytest.mark.parametrize("step", STEPS)
def test_a_writer_that_is_killed_leaves_all_of_an_object_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def killed() -> int:
        STEPS[step](monkeypatch.setattr)
        opened(tmp_path).put("a/b", BufferSource(b"killed"), metadata={"attempt": "1"})
        return FAILED

    assert code_of_child(killed) == 0
    storage = opened(tmp_path)
    if step == "name":
        assert storage.stat("a/b").metadata == {"attempt": "1"}
        return
    with pytest.raises(NotFound):
        storage.stat("a/b")
    assert list(storage.list("")) == []
    (left,) = storage.uploads("")
    storage.abort_upload(left)
    assert list(storage.uploads("")) == []
    assert sidecars(tmp_path) == []
    assert storage.put("a/b", BufferSource(b"second"), metadata={"attempt": "2"}).metadata == {"attempt": "2"}
    assert storage.stat("a/b").metadata == {"attempt": "2"}


@pytest.mark.parametrize(
    "kind",
    [
        "local",
        "sftp",
        pytest.param("webhdfs", marks=pytest.mark.hdfs),
        pytest.param("hdfs", marks=[pytest.mark.hdfs, pytest.mark.whole]),
    ],
)
def test_what_an_unfinished_write_leaves_is_known_and_removed(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    if kind == "local":
        url = f"local://{tmp_path}/cold"
    elif kind == "sftp":
        url = request.getfixturevalue("sftp_directory")
    else:
        url = getattr(request.getfixturevalue("hdfs_root"), kind)
    storage = connect_place(url, "", ColdSettings(), Abilities())
    assert list(storage.uploads("")) == []
    place = storage.place
    assert isinstance(place, file_place.FilePlace)
    place._written(f"{place._root}/.tmp/tierfs-{'0' * 32}", "a/b", BufferSource(b"half"))
    assert list(storage.list("")) == []
    (left,) = storage.uploads("")
    storage.abort_upload(left)
    assert list(storage.uploads("")) == []
    storage.close()


def test_names_of_its_own_are_no_objects(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    for name in (".tmp/x", ".metadata/x", ".tmp"):
        with pytest.raises(InvalidRequest):
            storage.put(name, BufferSource(b"x"))


@pytest.mark.hdfs
@pytest.mark.parametrize("size", [4096, 4097, 3 * 4096])
def test_a_large_object_is_joined_of_parts(hdfs_root: Any, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(file_place, "PART_BYTES", 4096)
    data = random.Random(size).randbytes(size)
    storage = connect_place(hdfs_root.webhdfs, "", ColdSettings(), Abilities())
    stored = storage.put("large", BufferSource(data), metadata={"attempt": "1"})
    buffer = bytearray(size)
    storage.read_into("large", 0, memoryview(buffer), if_match=stored.etag)
    assert bytes(buffer) == data
    assert storage.stat("large") == stored
    assert list(storage.uploads("")) == []
    storage.close()
