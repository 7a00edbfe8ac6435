"""A place that replaces names that are taken: an advisory lease stands in, and is called so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import tierfs
from tierfs.base.options.config import ColdSettings
from tierfs.base.words.errors import AlreadyExists
from tierfs.engine.chunkstore.places.address import connect_place
from tierfs.engine.chunkstore.places.file_place import FilePlace
from tierfs.engine.chunkstore.places.filesystem import LocalFiles
from tierfs.engine.chunkstore.places.storage import PlaceStorage
from tierfs.engine.chunkstore.protocol import Abilities, BufferSource


@pytest.fixture
def replaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files whose rename replaces what is there, as those of many file systems do."""
    rename = LocalFiles.rename
    monkeypatch.setattr(
        LocalFiles, "rename", lambda self, path, to, *, overwrite: rename(self, path, to, overwrite=True)
    )


def opened(tmp_path: Path, *, create_only: bool) -> PlaceStorage:
    return connect_place(f"local://{tmp_path}/cold", "", ColdSettings(), Abilities(create_only_put=create_only))


def test_the_probe_finds_out(replaces: None, tmp_path: Path) -> None:
    storage = opened(tmp_path, create_only=True)
    assert not storage.probe_abilities("probe/x").create_only_put


def test_a_look_before_the_write_refuses_a_name_that_is_taken(replaces: None, tmp_path: Path) -> None:
    storage = opened(tmp_path, create_only=False)
    storage.put("slot", BufferSource(b"first"), metadata={"attempt": "1"})
    with pytest.raises(AlreadyExists):
        storage.put("slot", BufferSource(b"second"), metadata={"attempt": "2"})
    assert storage.stat("slot").metadata == {"attempt": "1"}


def test_of_two_writers_at_once_the_one_that_was_replaced_gives_way(
    replaces: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = opened(tmp_path, create_only=False), opened(tmp_path, create_only=False)
    put = FilePlace.put

    def both_write(self: object, name: str, source: BufferSource, *rest: object, **options: bool) -> object:
        monkeypatch.undo()
        monkeypatch.setattr(LocalFiles, "rename", lambda self, path, to, *, overwrite: Path(path).replace(to))
        mine = put(self, name, source, *rest, **options)  # type: ignore[arg-type]
        # The other one looked before this one's write, and writes after it.
        second.place.put(name, BufferSource(b"second"), {"attempt": "2"}, create_only=False)
        return mine

    monkeypatch.setattr(FilePlace, "put", both_write)
    with pytest.raises(AlreadyExists):
        first.put("slot", BufferSource(b"first"), metadata={"attempt": "1"})
    assert second.stat("slot").metadata == {"attempt": "2"}


def test_init_status_and_doctor_call_it_by_its_name(replaces: None, tmp_path: Path) -> None:
    store = tmp_path / "store"
    done = tierfs("init", "--cold-url", f"local://{tmp_path}/cold", store=store, check=False)
    assert (done.code, "only an advisory lease prevents two owners" in done.err) == (0, True)
    assert "advisory lease" in tierfs("status", store=store).out
    assert "advisory lease" in tierfs("doctor", store=store, check=False).out
    tierfs("-q", "append", "a", store=store, stdin=b"x")
    tierfs("-q", "offload", store=store)
    tierfs("recover", "--cold-url", f"local://{tmp_path}/cold", store=tmp_path / "other", check=False)
    tierfs("-q", "append", "a", store=store, stdin=b"x")
    assert tierfs("offload", store=store, check=False).code == 6
