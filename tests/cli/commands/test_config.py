"""tierfs config: every setting, its value and its origin; changes of them, and of the place of the cold tier."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.conftest import Bucket
from tests.mount.waiting import eventually
from tests.servers.gate import gate_to
from tierfs.config import Settings

PLACE = ("url", "endpoint_url", "region", "profile")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    return path


def test_every_setting_is_shown_as_in_the_file(store: Path) -> None:
    lines = tierfs("config", "show", store=store).out.splitlines()
    names = [f"{section.name}.{key.name}" for section in fields(Settings) for key in fields(section.default_factory())]
    names[:0] = [f"cold.{part}" for part in PLACE]
    assert [line.partition(" = ")[0] for line in lines] == names
    assert 'read.budget_bytes = "256MiB"  (default)' in lines
    assert 'read.priority = "off"  (default)' in lines
    assert set(tierfs("config", "show", "--json", store=store).json) == set(names)


def test_values_say_where_they_come_from(store: Path) -> None:
    wanted = ("read.budget_bytes=1GiB", "read.streams=3", "read.priority=local-only")
    tierfs("-q", "config", "set", *wanted, store=store)
    environment = {**os.environ, "TIERFS_STORE": str(store), "TIERFS_READ__STREAMS": "5"}
    words = [sys.executable, "-m", "tierfs", "config", "show"]
    text = subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout
    assert 'read.budget_bytes = "1GiB"  (file)\n' in text
    assert "read.streams = 5  (environment)\n" in text
    assert 'read.priority = "local-only"  (file)\n' in text
    data = tierfs("config", "show", "--json", store=store).json
    assert data["read.budget_bytes"] == {"value": 1 << 30, "origin": "file"}
    assert data["read.streams"] == {"value": 3, "origin": "file"}
    assert data["cold.presigned_reads"] == {"value": True, "origin": "default"}


def test_mistakes(store: Path, tmp_path: Path) -> None:
    done = tierfs("config", "show", store=tmp_path / "none", check=False)
    assert (done.code, done.out) == (3, "")
    assert "is not a tierfs store" in done.err
    assert tierfs("config", "set", store=store, check=False).code == 2
    (store / "store.toml").write_text("[read]\nstreams = 0\n")
    done = tierfs("config", "show", store=store, check=False)
    assert (done.code, done.out) == (2, "")
    assert "read.streams = 0" in done.err


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_store_named_before_or_in_a_group_wins_over_the_environment(
    store: Path, tmp_path: Path, place: int
) -> None:
    words = ["config", "show"]
    words[place:place] = ["--store", str(store)]
    assert "read.streams" in tierfs(*words, store=tmp_path / "none").out


def text_of(store: Path) -> str:
    return (store / "store.toml").read_text()


def test_a_setting_is_set_where_its_default_is_shown_and_unset_again(store: Path) -> None:
    before = text_of(store)
    done = tierfs(
        "config", "set", "read.streams=5", "log.level=warning", "offload.grace_s=4h", store=store, check=False
    )
    assert (done.code, done.out) == (0, 'read.streams = 5\nlog.level = "warning"\noffload.grace_s = "4h"\n')
    assert "SIGHUP" in done.err
    after = text_of(store)
    assert len(after.splitlines()) == len(before.splitlines())
    assert [line for line in after.splitlines() if line not in before.splitlines()] == [
        "streams = 5",
        'grace_s = "4h"',
        'level = "warning"',
    ]
    tierfs("-q", "config", "set", "read.streams=6", store=store)
    assert tierfs("config", "show", "--json", store=store).json["read.streams"] == {"value": 6, "origin": "file"}
    tierfs("config", "unset", "read.streams", "log.level", "offload.grace_s", "read.priority", store=store)
    assert text_of(store) == before


@pytest.mark.parametrize(
    "text", ["", "# mine\n", "[log]\nlevel = 'debug'  # loud\n", "# [read]\n# streams = 4\n[log]\n"]
)
def test_any_file_takes_a_setting_and_keeps_the_rest(store: Path, text: str) -> None:
    (store / "store.toml").write_text(text)
    tierfs("-q", "config", "set", "read.streams=5", store=store)
    assert tierfs("config", "show", "--json", store=store).json["read.streams"]["value"] == 5
    kept = [line for line in text.splitlines() if "streams" not in line and line != "# [read]"]
    assert [line for line in kept if line not in text_of(store).splitlines()] == []


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        (("read.streems=5",), "did you mean read.streams?"),
        (("read.streams=0",), "it is a whole number from 1 to 1024"),
        (("read.streams=5", "read.budget_bytes=many"), "read.budget_bytes"),
        (("read.streams",), "is not NAME=VALUE"),
        (("read.streams=5", "read.streams=6"), "given twice"),
        (("cold.url=here",), "write s3://BUCKET/PREFIX or a full path"),
        (("cold.url=/none/such",), "mount it, or name where it is"),
        (("read.streams=5", "cold.url=/none/such"), "mount it, or name where it is"),
    ],
)
def test_one_mistake_changes_nothing(store: Path, pairs: tuple[str, ...], told: str) -> None:
    before = text_of(store)
    done = tierfs("config", "set", *pairs, store=store, check=False)
    assert done.code in (2, 3)
    assert told in done.err
    assert text_of(store) == before


def test_a_directory_that_moved_is_used_by_mounts_and_commands_after_one_command(tmp_path: Path) -> None:
    store, old, new = tmp_path / "moved", tmp_path / "old", tmp_path / "new"
    old.mkdir()
    (tmp_path / "mnt").mkdir()
    (tmp_path / "empty").mkdir()
    tierfs("-q", "init", "--cold-dir", old, store=store)
    for name in ("a", "b"):
        tierfs("-q", "append", name, store=store, stdin=b"kept\n" * 1000)
    tierfs("-q", "offload", store=store)
    tierfs("-q", "evict", store=store)
    tierfs("mount", tmp_path / "mnt", store=store)
    try:
        assert (tmp_path / "mnt/a").read_bytes() == b"kept\n" * 1000
        old.rename(new)
        refused = tierfs("config", "set", f"cold.url={tmp_path / 'empty'}", store=store, check=False)
        assert refused.code == 12
        assert "holds no journal" in refused.err
        done = tierfs("config", "set", f"cold.url={new}", store=store, check=False)
        assert (done.code, done.out) == (0, f"cold tier: file:{new}\n")
        assert "tierfs fsck" in done.err
        assert eventually(lambda: (tmp_path / "mnt/b").read_bytes() == b"kept\n" * 1000)
        tierfs("-q", "append", "c", store=store, stdin=b"later\n")
        tierfs("-q", "offload", store=store)
        assert any((new / "segments").rglob("*")) or any((new / "packs").rglob("*"))
        assert not old.exists()
        assert tierfs("fsck", store=store).out.endswith("clean\n")
    finally:
        tierfs("umount", tmp_path / "mnt", store=store, check=False)


def test_a_server_that_has_another_address_is_found_after_one_command(tmp_path: Path, moto_bucket: Bucket) -> None:
    store, endpoint, mnt = tmp_path / "moved", moto_bucket[0].endpoint_url, tmp_path / "mnt"
    mnt.mkdir()
    with gate_to(endpoint) as old, gate_to(endpoint) as new:
        tierfs("-q", "init", "--bucket", f"s3://{moto_bucket[1]}/p", "--endpoint-url", old.url, store=store)
        for name in ("a", "b"):
            tierfs("-q", "append", name, store=store, stdin=b"kept\n" * 1000)
        tierfs("-q", "offload", store=store)
        tierfs("-q", "evict", store=store)
        tierfs("mount", mnt, store=store)
        try:
            assert (mnt / "a").read_bytes() == b"kept\n" * 1000
            old.close()
            tierfs("-q", "append", "c", store=store, stdin=b"meanwhile\n")
            assert tierfs("config", "set", f"cold.endpoint_url={new.url}", store=store).out.endswith(f"at {new.url}\n")
            assert eventually(lambda: (mnt / "b").read_bytes() == b"kept\n" * 1000)
            assert eventually(lambda: tierfs("offload", store=store, check=False).code == 0)
            assert f" at {new.url}" in tierfs("status", store=store).out
            assert tierfs("config", "show", "--json", store=store).json["cold.endpoint_url"]["value"] == new.url
        finally:
            tierfs("umount", mnt, store=store, check=False)


def test_the_environment_is_told_where_it_is_above_the_file(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {**os.environ, "TIERFS_STORE": str(store), "TIERFS_READ__STREAMS": "7"}
    words = [sys.executable, "-m", "tierfs", "config", "set", "read.streams=5"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert "read.streams is set by the environment" in done.stderr


def test_a_file_that_is_no_text_is_left_as_it_is(store: Path) -> None:
    (store / "store.toml").write_bytes(b"# \xff\n")
    done = tierfs("config", "set", "read.streams=5", store=store, check=False)
    assert (done.code, "is not valid TOML" in done.err) == (2, True)
    assert (store / "store.toml").read_bytes() == b"# \xff\n"


def test_the_file_keeps_its_owner_and_mode(store: Path) -> None:
    file = store / "store.toml"
    file.chmod(0o640)
    os.chown(file, os.getuid(), 12345 if os.getuid() == 0 else os.getgid())
    before = file.stat()
    tierfs("-q", "config", "set", "read.streams=5", store=store)
    after = file.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)


def test_settings_are_shown_where_the_metadata_are_gone(store: Path) -> None:
    shutil.rmtree(store / "metadata")
    done = tierfs("config", "show", store=store, check=False)
    assert done.code == 0
    assert "read.streams = 32  (default)" in done.out
    assert "the address of the cold tier is not known" in done.err
