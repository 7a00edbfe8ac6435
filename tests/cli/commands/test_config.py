"""tierfs config: every setting, its value and its origin; changes of them, and of the place of the cold tier."""

from __future__ import annotations

import os
from pathlib import Path

from tests.commands import tierfs
from tests.conftest import Bucket
from tests.mount.waiting import eventually
from tests.servers.gate import gate_to


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


def test_the_file_keeps_its_owner_and_mode(store: Path) -> None:
    file = store / "store.toml"
    file.chmod(0o640)
    os.chown(file, os.getuid(), 12345 if os.getuid() == 0 else os.getgid())
    before = file.stat()
    tierfs("-q", "config", "set", "read.streams=5", store=store)
    after = file.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
