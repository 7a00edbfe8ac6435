"""A store's whole life in each kind of place, by the commands of its user."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.commands import Done, tierfs
from tierfs.base.words.types import MIB

NAMES = ("a", "d/b: 50%", "d/ü")
HDFS = pytest.mark.hdfs
KINDS = [
    "local",
    "gcs",
    "sftp",
    pytest.param("azure", marks=pytest.mark.whole),
    pytest.param("webhdfs", marks=HDFS),
    pytest.param("hdfs", marks=[HDFS, pytest.mark.whole]),
]
IN_HDFS = [pytest.param(kind, marks=HDFS) for kind in ("webhdfs", "hdfs")]


@dataclass(frozen=True)
class Kept:
    """A place, and what a command needs to reach it."""

    url: str
    options: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    kind = request.param
    if kind == "local":
        kept = Kept(f"local://{tmp_path}/cold")
    elif kind == "gcs":
        url, endpoint_url = request.getfixturevalue("gcs_bucket")
        kept = Kept(url, ("--endpoint-url", endpoint_url))
    elif kind == "azure":
        kept = Kept(request.getfixturevalue("azure_container"))
    elif kind == "sftp":
        kept = Kept(request.getfixturevalue("sftp_directory"))
    else:
        kept = Kept(getattr(request.getfixturevalue("hdfs_root"), kind))
    for name, value in kept.variables.items():
        monkeypatch.setenv(name, value)
    return kept


def text_of(name: str) -> bytes:
    return name.encode() * (MIB // 8)


def filled(store: Path, place: Kept) -> Path:
    tierfs("init", "--cold-url", place.url, *place.options, store=store)
    for name in NAMES:
        tierfs("-q", "append", name, store=store, stdin=text_of(name))
    tierfs("-q", "offload", store=store)
    tierfs("-q", "evict", store=store)
    return store


def require_same(store: Path) -> None:
    for name in NAMES:
        assert tierfs("cat", name, store=store).out.encode() == text_of(name)


def test_everything_comes_back_from_the_place_alone(place: Kept, tmp_path: Path) -> None:
    first = filled(tmp_path / "first", place)
    require_same(first)
    assert tierfs("check", "--read", store=first).out.endswith("clean\n")
    named = tierfs("--json", "status", store=first).json
    assert named["cold_url"] == place.url

    tierfs("replica", "--cold-url", place.url, *place.options, store=tmp_path / "copy")
    require_same(tmp_path / "copy")

    tierfs("recover", "--cold-url", place.url, *place.options, store=tmp_path / "second")
    require_same(tmp_path / "second")
    tierfs("-q", "append", "a", store=first, stdin=b"more")
    assert tierfs("offload", store=first, check=False).code == 6, "two owners: the older one is fenced"

    tierfs("-q", "append", "new", store=tmp_path / "second", stdin=b"written by the second")
    tierfs("-q", "offload", store=tmp_path / "second")
    words = ("recover", "--from-objects", "--yes", "--cold-url", place.url, *place.options)
    tierfs("-q", *words, store=tmp_path / "third")
    require_same(tmp_path / "third")
    assert tierfs("cat", "new", store=tmp_path / "third").out == "written by the second"
    assert "0 orphans" in tierfs("gc", store=tmp_path / "third").out


@pytest.mark.parametrize(
    "place", ["local", "sftp", *(pytest.param(kind, marks=HDFS) for kind in ("webhdfs", "hdfs"))], indirect=True
)
def test_doctor_says_by_which_means(place: Kept, tmp_path: Path) -> None:
    store = filled(tmp_path / "store", place)
    lines = tierfs("doctor", "-v", store=store, check=False).out
    assert place.url in lines
    assert "honoured, by " in lines
    assert "FAIL" not in lines


def test_a_second_store_is_refused(place: Kept, tmp_path: Path) -> None:
    tierfs("init", "--cold-url", place.url, *place.options, store=tmp_path / "store")
    for url in (place.url, f"{place.url}/inside"):
        refused = tierfs("init", "--cold-url", url, *place.options, store=tmp_path / "other", check=False)
        assert refused.code == 5, refused
    assert not (tmp_path / "other").exists()


def test_a_place_is_moved_to_and_adopted_from(place: Kept, tmp_path: Path) -> None:
    store = tmp_path / "store"
    tierfs("init", "--cold-dir", made(tmp_path / "nas"), store=store, check=False)
    tierfs("-q", "append", "a", store=store, stdin=text_of("a"))
    tierfs("-q", "offload", store=store)
    tierfs("-q", "evict", store=store)
    moved = tierfs("--json", "move", "--to", f"{place.url}/new", *place.options, store=store, check=False)
    assert (moved.code, moved.json["cold_url"]) == (0, f"{place.url}/new")
    assert tierfs("cat", "a", store=store).out.encode() == text_of("a")

    other = tmp_path / "other"
    tierfs("init", "--cold", "none", store=other, check=False)
    done = tierfs("--json", "adopt", f"{place.url}/new", "--into", "theirs", *place.options, store=other, check=False)
    assert done.code == 0, done
    listed = tierfs("ls", "-R", "theirs", store=other).out
    assert "segments" in listed


def made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def refusal(tmp_path: Path, *words: str) -> Done:
    done = tierfs(*words, store=tmp_path / "store", check=False)
    assert not (tmp_path / "store").exists()
    return done


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("ftp://host/x", "unknown kind of cold tier"),
        ("ftp://user:secret@host/x?secret", "ftp://user@host/x: unknown kind of cold tier"),
        ("sftp://user:secret@host/x", "sftp://user@host/x: its password or query would be recorded"),
        ("webhdfs://", "write webhdfs://[USER@]HOST[:PORT]/PATH"),
        ("webhdfs://user:secret@host/x", "webhdfs://user@host/x: its password or query would be recorded"),
        ("webhdfs://host/x?delegation=secret", "would be recorded"),
        ("abfs://c@account.dfs.core.windows.net/x?sig=secret", "would be recorded"),
        ("s3://key:secret@bucket/x", "s3://key@bucket/x is not an S3 location"),
        ("webhdfs://ho st/x", "webhdfs://ho st/x is not a place"),
        ("hdfs://user@host/x", "write hdfs://HOST[:PORT]/PATH"),
        ("gs://bucket:80/x", "write gs://BUCKET/PREFIX"),
        ("local:///a/../b", "a part of its path is empty or consists of dots"),
        ("webhdfs://host//a//b", "a part of its path is empty or consists of dots"),
        ("webhdfs://host:0/x", "0 is not a port"),
        ("webhdfs://host:8o/x", "8o is not a port"),
        ("webhdfs://host:65536/x", "65536 is not a port"),
        ("local://host/x", "write local:///DIR"),
        ("relative", "unknown kind of cold tier"),
    ],
)
def test_a_url_that_names_no_place_is_refused(tmp_path: Path, url: str, text: str) -> None:
    done = refusal(tmp_path, "init", "--cold-url", url)
    assert done.code == 2
    assert text in done.err
    assert "secret" not in done.err


def test_a_configuration_that_its_client_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT_NAME"):
        monkeypatch.delenv(name, raising=False)
    done = refusal(tmp_path, "init", "--cold-url", "abfs://container/x")
    assert done.code == 2
    assert "abfs://container/x: its client failed to start" in done.err
    assert "docs/places.md" in done.err


def test_options_of_s3_are_refused(tmp_path: Path) -> None:
    assert "these are for S3" in refusal(tmp_path, "init", "--cold-url", "webhdfs://host/x", "--region", "eu").err
    url = ("init", "--cold-url", "webhdfs://host/x", "--endpoint-url", "http://x")
    assert "takes no endpoint URL" in refusal(tmp_path, *url).err
    assert "needs --bucket" in refusal(tmp_path, "init", "--cold-url", "webhdfs://host/x", "--create-bucket").err
    assert "mutually exclusive" in refusal(tmp_path, "init", "--cold-url", "webhdfs://host/x", "--bucket", "s3://b").err


def test_a_server_that_is_not_there_is_an_outage(tmp_path: Path) -> None:
    for url in ("webhdfs://127.0.0.1:1/x", "hdfs://127.0.0.1:1/x"):
        done = refusal(tmp_path, "init", "--cold-url", url)
        assert done.code == 11, done


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    monkeypatch.setitem(sys.modules, "hdfs_native.fsspec", None)
    done = refusal(tmp_path, "init", "--cold-url", "hdfs://host/x")
    assert done.code == 2
    assert f"{sys.executable} -m pip install 'fsspec>=2024.10' 'requests" in done.err


def test_a_directory_and_a_bucket_have_urls_too(tmp_path: Path) -> None:
    cold = made(tmp_path / "cold")
    tierfs("init", "--cold-url", f"file://{cold}", store=tmp_path / "store", check=False)
    assert tierfs("--json", "status", store=tmp_path / "store").json["cold_url"] == f"file:{cold}"
    assert os.listdir(cold)
