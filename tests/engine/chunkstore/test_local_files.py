"""The door to the chunk directory: only names that tierfs makes, and never through a link."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.doubles import mutations
from tierfs.base.words.errors import DataLoss, TierfsError
from tierfs.base.words.types import AttemptId, SegmentId
from tierfs.engine.chunkstore import local_files
from tierfs.engine.chunkstore.local_files import ChunkFiles, file_name

ATTEMPT = AttemptId("0123456789abcdef" * 2)
NAME = file_name(SegmentId(258), 4096, ATTEMPT)

OPERATIONS: dict[str, Callable[[ChunkFiles, str], object]] = {
    "create": lambda files, name: os.close(files.create_file(name)),
    "append": lambda files, name: os.close(files.open_for_append(name)),
    "open": lambda files, name: os.close(files.open_for_read(name)),
    "read": lambda files, name: files.read_into(name, 0, memoryview(bytearray(1))),
    "sync": ChunkFiles.sync_directory,
    "seal": ChunkFiles.seal,
    "length": ChunkFiles.length_bytes,
    "delete": ChunkFiles.delete,
    "mode": ChunkFiles.length_and_mode,
    "stat": ChunkFiles.stat,
}

REFUSED = [
    *mutations.NAMES,
    f"../chunks/{NAME}",
    f"./{NAME}",
    f"/{NAME}",
    f"{NAME}/",
    f"{NAME}\n",
    f"{NAME}0",
    NAME[:-1],
    NAME.upper(),
    NAME.replace("/", "//"),
    NAME.removeprefix("02/"),
    NAME.replace("-1000-", "-01000-"),
    NAME.replace("-1000-", "--1000-"),
    NAME.replace("-1000-", f"-{'1' * 17}-"),
    NAME.replace("/102-", "/0-"),
    NAME.replace("/102-", f"/{'1' * 17}-"),
    NAME.replace("0123", "٠١٢٣"),
    "02/precious",
]


@pytest.fixture
def files(tmp_path: Path) -> Iterator[ChunkFiles]:
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "precious").chmod(0o600)
    with closing(ChunkFiles.create(tmp_path / "chunks")) as opened:
        yield opened


@pytest.mark.parametrize("segment_id", [1, 255, 256, 2**63 - 1, 2**64 - 1])
@pytest.mark.parametrize("start", [0, 1, 2**63 - 1, 2**64 - 1])
def test_names_that_tierfs_makes_pass(segment_id: int, start: int) -> None:
    parsed = local_files.NAME.fullmatch(file_name(SegmentId(segment_id), start, ATTEMPT))
    assert parsed is not None
    assert (int(parsed["segment"], 16), int(parsed["start"], 16)) == (segment_id, start)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_operation_takes_a_name_that_tierfs_does_not_make(files: ChunkFiles, operation: str) -> None:
    for name in REFUSED:
        with pytest.raises(DataLoss, match="is not a tierfs name"):
            OPERATIONS[operation](files, name)
    assert {path.name for path in files.root.parent.iterdir()} == {"chunks", "precious"}
    assert list(files.names()) == []


def test_no_operation_follows_a_link(files: ChunkFiles) -> None:
    precious = files.root.parent / "precious"
    (files.root / NAME).symlink_to(precious)
    for name in ("create", "append", "open", "read", "seal"):
        with pytest.raises(TierfsError):
            OPERATIONS[name](files, NAME)
    files.delete(NAME)
    assert (precious.read_bytes(), precious.stat().st_mode & 0o777) == (b"precious", 0o600)


def test_a_chunk_directory_is_made_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed process leaves is none yet, and the next makes it."""
    make = os.mkdir

    def dying(path: Any, *words: Any) -> None:
        if str(path).endswith("/80"):
            raise KeyboardInterrupt
        make(path, *words)

    monkeypatch.setattr(os, "mkdir", dying)
    with pytest.raises(KeyboardInterrupt):
        ChunkFiles.create(tmp_path / "chunks")
    monkeypatch.undo()
    assert not (tmp_path / "chunks").exists()
    ChunkFiles.create(tmp_path / "chunks").close()
    assert len(list((tmp_path / "chunks").iterdir())) == 256
