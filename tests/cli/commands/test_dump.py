"""tierfs dump and tierfs load."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.commands import tierfs
from tierfs.clock import SystemClock
from tierfs.holder import lock
from tierfs.setup.create import ColdChoice, init_store
from tierfs.store_paths import StorePaths


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "cold").mkdir()
    init_store(tmp_path / "store", ColdChoice(cold_dir=tmp_path / "cold"))
    tierfs("append", "a/s", store=tmp_path / "store", stdin=b"cold")
    tierfs("offload", store=tmp_path / "store")
    tierfs("append", "a/s", store=tmp_path / "store", stdin=b" and local")
    return tmp_path / "store"


def test_a_store_whose_metadata_are_lost_is_made_again(path: Path, tmp_path: Path) -> None:
    made = tierfs("dump", tmp_path / "file", "--json", store=path).json
    assert made["rows"]["segments"] == 1
    assert [found.name for found in tmp_path.iterdir() if "file" in found.name] == ["file"]
    refused = tierfs("load", tmp_path / "file", store=path, check=False)
    assert (refused.code, "has metadata already" in refused.err) == (5, True)
    shutil.rmtree(path / "metadata")
    shutil.rmtree(path / "locks")
    loaded = tierfs("load", tmp_path / "file", "--json", store=path).json
    assert loaded == {**made, "missing_files": 0, "newer_files": 0}
    assert tierfs("cat", "a/s", store=path).out == "cold and local"
    tierfs("append", "a/s", store=path, stdin=b"!")
    tierfs("offload", store=path)
    assert tierfs("cat", "a/s", "--read-priority", "offloaded-only", store=path).out == "cold and local!"


def test_an_append_after_a_load_leaves_newer_bytes_in_their_file(path: Path, tmp_path: Path) -> None:
    """A file in the dump was continued since: its newer bytes may be the only copy."""
    tierfs("append", "t", store=path, stdin=b"known")
    tierfs("dump", tmp_path / "file", store=path)
    tierfs("append", "t", store=path, stdin=b" and newer")
    shutil.rmtree(path / "metadata")
    loaded = tierfs("load", tmp_path / "file", "--json", store=path, check=False)
    assert (loaded.code, loaded.json["newer_files"]) == (0, 1)
    newer = [file for file in (path / "chunks").glob("*/*") if file.read_bytes() == b"known and newer"]
    tierfs("append", "t", store=path, stdin=b"!")
    assert tierfs("cat", "t", store=path).out == "known!"
    assert newer[0].read_bytes() == b"known and newer"


def test_a_replica_that_a_mount_follows_needs_no_refresh(path: Path, tmp_path: Path) -> None:
    replica = tmp_path / "replica"
    tierfs("-q", "replica", "--cold-dir", tmp_path / "cold", store=replica)
    assert tierfs("replica", "--refresh", store=replica).out == "nothing new after slot 2\n"
    with lock.hold(StorePaths(replica).holder, SystemClock()):
        refused = tierfs("replica", "--refresh", store=replica, check=False)
    assert (refused.code, "nothing is to be done: it follows the bucket, every 5 s" in refused.err) == (5, True)


ENGINES_WORDS = re.compile(r"\b(slots?|entry|entries|rows?|outbox|fenced|intents?)\b")


def test_people_read_of_segments_and_bytes_not_of_the_engine(path: Path, tmp_path: Path) -> None:
    cold, new = tmp_path / "cold", tmp_path / "new"
    printed = [tierfs("dump", tmp_path / "file", store=path)]
    assert printed[-1].out.startswith(f"wrote {tmp_path}/file: 1 segment in 2 directories, 3 chunks\n  store ")
    printed.append(tierfs("load", tmp_path / "file", store=tmp_path / "loaded", check=False))
    assert printed[-1].out.startswith(f"loaded {tmp_path}/file: 1 segment in 2 directories, 3 chunks\n  store ")
    printed.append(tierfs("recover", "--cold-dir", cold, store=new, check=False))
    assert printed[-1].out.startswith(f"recovered 1 segment from the journal of file:{cold}\n")
    shutil.rmtree(new)
    printed.append(tierfs("recover", "--from-objects", "--cold-dir", cold, store=new, check=False))
    assert " updates, the newest is " in printed[-1].err
    printed.append(tierfs("recover", "--from-objects", "--yes", "--cold-dir", cold, store=new, check=False))
    assert f"{new} is the store of the bucket now" in printed[-1].out
    assert [done.code for done in printed] == [0, 0, 0, 2, 0]
    for done in printed:
        assert ENGINES_WORDS.findall(done.out + done.err) == [], done


@pytest.mark.parametrize("verb", ["load", "repair"])
def test_where_records_may_be_missing_files_without_one_are_left_to_people(
    path: Path, tmp_path: Path, verb: str
) -> None:
    """The holder's mark that it may remove them goes."""
    tierfs("dump", tmp_path / "file", store=path)
    mark = path / "walked"
    mark.write_text("{}")
    if verb == "load":
        shutil.rmtree(path / "metadata")
        tierfs("load", tmp_path / "file", store=path, check=False)
    else:
        tierfs("fsck", store=path)
        assert mark.exists()
        tierfs("fsck", "--repair", store=path)
    assert not mark.exists()


def test_stdout_has_the_same_dump_and_nothing_else(path: Path, tmp_path: Path) -> None:
    tierfs("dump", tmp_path / "file", store=path)
    (tmp_path / "other").mkdir()
    tierfs("dump", "-", store=path)
    cut = (tmp_path / "file").read_bytes()[:-1]
    (tmp_path / "cut").write_bytes(cut)
    refused = tierfs("load", tmp_path / "cut", store=tmp_path / "new", check=False)
    assert (refused.code, (tmp_path / "new").exists()) == (74, False)
    tierfs("-q", "load", tmp_path / "file", store=tmp_path / "new")
    said = tierfs("status", store=tmp_path / "new", check=False)
    assert said.code == 0


def test_only_a_file_is_replaced(path: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for target in (tmp_path / "pipe", tmp_path, tmp_path / "circle"):
        refused = tierfs("dump", target, store=path, check=False)
        assert (refused.code, "is not a file" in refused.err, "dump -" in refused.err) == (2, True, True), refused
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "circle").is_symlink()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    tierfs("dump", tmp_path / "link", store=path)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").stat().st_size > 0


def test_an_old_dump_is_noticed_at_the_next_publish(path: Path, tmp_path: Path) -> None:
    tierfs("dump", tmp_path / "file", store=path)
    tierfs("append", "later", store=path, stdin=b"x")
    tierfs("offload", store=path)
    shutil.rmtree(path / "metadata")
    loaded = tierfs("load", tmp_path / "file", store=path, check=False)
    assert loaded.code == 0
    assert "bytes in 1 chunk file are newer than the dump" in loaded.err
    refused = tierfs("offload", store=path, check=False)
    assert refused.code == 6
    assert "old backup" in refused.err
    assert "tierfs recover" in refused.err
    assert "epoch 1 of its own (an old backup, or a copy of it is in use)" in tierfs("status", store=path).out


def test_a_segment_is_dumped_to_the_bucket_and_loaded_again(path: Path) -> None:
    tierfs("offload", store=path)
    made = tierfs("dump", "a/s", "--to-bucket", "--json", store=path).json
    assert (made["cold_bytes"], made["only_local_bytes"]) == (14, 0)
    tierfs("rm", "a/s", "--yes", store=path)
    refused = tierfs("load", made["object"], store=path, check=False)
    assert (refused.code, "tierfs restore a/s" in refused.err) == (5, True)
    tierfs("gc", "--delete", "--trash", "--yes", store=path)
    tierfs("load", made["object"], store=path)
    assert tierfs("cat", "a/s", store=path).out == "cold and local"
    again = tierfs("load", "a/s", store=path, check=False)
    assert again.code == 5
