"""`tierfs recover --from-objects` as it is typed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.stores import quiet
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import Unavailable
from tierfs.recovery import from_objects, inventory
from tierfs.setup.create import ColdChoice


def test_the_command(tmp_path: Path) -> None:
    cold, lost, new = tmp_path / "cold", tmp_path / "lost", tmp_path / "new"
    cold.mkdir()
    data = bytes(range(256)) * 2000
    tierfs("init", "--cold-dir", cold, store=lost, check=False)
    tierfs("append", "a/s", "--seal", store=lost, stdin=data)
    tierfs("offload", "a", store=lost)
    shutil.rmtree(lost)
    words = ("recover", "--cold-dir", cold, "--from-objects")
    refused = tierfs(*words, store=new, check=False)
    assert (refused.code, "--yes" in refused.err, new.exists()) == (2, True, False)
    shutil.rmtree(cold / "journal")
    found = tierfs(*words, "--json", store=new, check=False).json
    assert (found["objects"], found["bytes"], found["left"]) == (1, len(data), [])
    assert tierfs("cat", "a/s", store=new).out == data.decode(errors="replace")
    tierfs("fsck", store=new)
    assert sorted(path.name for path in new.iterdir()) == [
        *("ballast", "chunks", "locks", "log", "metadata", "store.toml")
    ]


def test_the_command_counts_a_pack_once_and_lists_twenty_segments(tmp_path: Path) -> None:
    cold, lost, files = tmp_path / "cold", tmp_path / "lost", tmp_path / "files"
    cold.mkdir()
    files.mkdir()
    for number in range(23):
        (files / f"{number:02d}").write_bytes(bytes([number]) * 1000)
    tierfs("init", "--cold-dir", cold, store=lost, check=False)
    tierfs("ingest", files, "--into", "d", "--seal", store=lost, check=False)
    tierfs("offload", store=lost)
    (pack,) = (cold / "packs").iterdir()
    data = bytearray(pack.read_bytes())
    data[7 * 1000] ^= 1
    pack.chmod(0o644)
    pack.write_bytes(data)
    shutil.rmtree(cold / "journal")
    shutil.copytree(cold, tmp_path / "copy")
    words = ("recover", "--from-objects", "--cold-dir")
    said = tierfs(*words, cold, store=tmp_path / "new", check=False).out
    listed = said.splitlines()
    assert [line.partition(": 0 …")[0] for line in listed[:20]] == [
        f"d/{number:02d}" for number in range(21) if number != 7
    ]
    assert listed[20] == "and 2 more segments without a gap"
    assert listed[21].startswith(f"left aside: packs/{pack.name}, d/07 from 0: ")
    assert listed[22] == "rebuilt 22 segments of 21.5 KiB in 1 object; 1 left aside"
    assert "except packs of which another segment was linked" in listed[-1]
    assert ", 0 orphans;" in tierfs("gc", "--grace", "0s", store=tmp_path / "new").out
    every = tierfs(*words, tmp_path / "copy", "-v", store=tmp_path / "other", check=False).out.splitlines()
    assert sum(line.startswith("d/") for line in every) == 22


@pytest.mark.parametrize(
    ("failure", "told"),
    [(Unavailable("the server does not answer"), "does not answer"), (KeyboardInterrupt(), "interrupted")],
)
def test_a_listing_that_fails_at_the_end_keeps_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, told: str
) -> None:
    cold, lost, new = tmp_path / "cold", tmp_path / "lost", tmp_path / "new"
    cold.mkdir()
    tierfs("init", "--cold-dir", cold, store=lost, check=False)
    tierfs("append", "s", "--seal", store=lost, stdin=b"abcd")
    tierfs("offload", "", store=lost)

    def fail(_: ChunkStorage) -> str:
        raise failure

    monkeypatch.setattr(inventory, "names_now", fail)
    done = from_objects.recover_from_objects(new, ColdChoice(cold_dir=cold), quiet, lambda _: None)
    assert [warning for warning in done.warnings if told in warning]
    assert tierfs("cat", "s", store=new).out == "abcd"
