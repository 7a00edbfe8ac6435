"""tierfs unseal, truncate and concat on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import tierfs
from tierfs.app import store as app
from tierfs.metadata import changes


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    return path


def append(store: Path, name: str, data: bytes, *words: str) -> None:
    tierfs("append", name, *words, store=store, stdin=data)


def test_unseal(store: Path) -> None:
    append(store, "d/s", b"abc", "--seal")
    assert tierfs("unseal", "d/s", store=store).out == "d/s is open again: 3 B\n"
    assert tierfs("unseal", "/d/s/", store=store).out == "d/s is already open: 3 B\n"
    append(store, "d/s", b"def")
    assert tierfs("cat", "d/s", store=store).out == "abcdef"
    tierfs("seal", "d/s", store=store)
    assert tierfs("--json", "unseal", "d/s", store=store).json == {
        "segment": "d/s",
        "length": 6,
        "already_open": False,
    }


def test_truncate(store: Path) -> None:
    append(store, "s", b"abcdef", "--seal")
    dry = tierfs("truncate", "s", "--before", "4", "--dry-run", store=store)
    assert dry.out == "would drop 4 B of s, up to 4: 0 chunks of 0 B local, 0 chunks of 0 B cold\n"
    refused = tierfs("truncate", "s", "--before", "4", store=store, check=False)
    assert (refused.code, "--before 4 --yes" in refused.err) == (2, True)
    assert tierfs("--json", "truncate", "s", "--before", "4", "--yes", store=store).json == {
        "segment": "s",
        "truncated": True,
        "start_offset": 4,
        "bytes": 4,
        "local_chunks": 0,
        "local_bytes": 0,
        "cold_chunks": 0,
        "cold_bytes": 0,
    }
    assert tierfs("cat", "s", store=store).out == "ef"
    assert tierfs("truncate", "s", "--before", "3", store=store).out == "nothing to do: s already begins at 4\n"
    info = tierfs("--json", "info", "s", store=store).json
    assert (info["start_offset"], info["length"]) == (4, 6)
    assert tierfs("map", "s", store=store).out.startswith("bytes 4 B … 6 B, sealed")
    emptied = tierfs("truncate", "s", "--before", "6", "--yes", store=store)
    assert emptied.out == "dropped 2 B of s, up to 6: 1 chunk of 6 B local, 0 chunks of 0 B cold\n"
    assert tierfs("cat", "s", store=store).out == ""


def test_truncate_takes_sizes_and_names_the_length(store: Path) -> None:
    append(store, "s", b"abcdef")
    beyond = tierfs("truncate", "s", "--before", "64MiB", "--yes", store=store, check=False)
    assert beyond.code == 2
    assert "cannot truncate s before 67108864: its length is 6" in beyond.err
    append(store, "big", b"x" * (2 << 20))
    tierfs("truncate", "big", "--before", "1MiB", "--yes", store=store)
    assert tierfs("--json", "info", "big", store=store).json["start_offset"] == 1 << 20


def test_truncate_takes_files_away_and_tells_the_bucket(store: Path) -> None:
    tierfs("policy", "set", "/", "chunk_bytes=1MiB", "object_bytes=1MiB", store=store)
    append(store, "s", b"x" * (3 << 20), "--seal")
    tierfs("offload", "s", store=store)
    tierfs("truncate", "s", "--before", "2MiB", "--yes", store=store)
    assert len(list((store / "chunks").glob("*/*-*"))) == 1
    with app.open_store(store) as opened, opened.metadata.read() as txn:
        assert list(changes.outbox(txn, 0)) == []


def test_concat(store: Path) -> None:
    append(store, "t", b"abc")
    append(store, "d/s", b"defg")
    unsealed = tierfs("concat", "t", "d/s", "--yes", store=store, check=False)
    assert unsealed.code == 5
    assert "tierfs seal d/s" in unsealed.err
    tierfs("seal", "d/s", store=store)
    refused = tierfs("concat", "t", "d/s", store=store, check=False)
    assert (refused.code, "d/s --yes" in refused.err) == (2, True)
    assert tierfs("concat", "t", "d/s", "--yes", store=store).out == "appended d/s to t: 4 B in 1 chunk, bytes 3 to 7\n"
    assert tierfs("cat", "t", store=store).out == "abcdefg"
    assert tierfs("ls", "d", store=store).out == ""
    assert tierfs("cat", "d/s", store=store, check=False).code == 3
    append(store, "e", b"", "--seal")
    assert tierfs("concat", "t", "e", "--yes", store=store).out == "removed e, which was empty; t is unchanged\n"
    append(store, "more", b"hi", "--seal")
    assert tierfs("--json", "concat", "t", "more", "--yes", store=store).json == {
        "target": "t",
        "source": "more",
        "start": 7,
        "end": 9,
        "chunks": 1,
    }


def test_concat_refuses(store: Path) -> None:
    append(store, "t", b"abc", "--seal")
    append(store, "d/s", b"defg", "--seal")
    for words, code in ((("t", "d/s"), 7), (("t", "t"), 2), (("d", "t"), 2), (("t", "x"), 3)):
        assert tierfs("concat", *words, "--yes", store=store, check=False).code == code
