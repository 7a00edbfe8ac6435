"""tierfs config: every setting, its value and its origin; changes of them, and of the place of the cold tier."""

from __future__ import annotations

from pathlib import Path

from tests.commands import tierfs
from tests.conftest import Bucket
from tests.mount.waiting import eventually
from tests.servers.gate import gate_to


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
            assert tierfs("config", f"cold.endpoint_url={new.url}", store=store).out.endswith(f"at {new.url}\n")
            assert eventually(lambda: (mnt / "b").read_bytes() == b"kept\n" * 1000)
            assert eventually(lambda: tierfs("offload", store=store, check=False).code == 0)
            assert f" at {new.url}" in tierfs("status", store=store).out
            assert tierfs("config", "--json", store=store).json["cold.endpoint_url"]["value"] == new.url
        finally:
            tierfs("umount", mnt, store=store, check=False)


def test_settings_that_only_s3_supports_are_refused_elsewhere(tmp_path: Path, moto_bucket: Bucket) -> None:
    store, url = tmp_path / "store", f"s3://{moto_bucket[1]}/p"
    tierfs("-q", "init", store=store)
    refused = tierfs("config", "cold.storage_class=STANDARD_IA", "cold.tags=a=b", store=store, check=False)
    assert "does not support cold.storage_class, cold.tags: only S3 does" in refused.err
    assert "tierfs config cold.storage_class= cold.tags=" in refused.err
    tierfs("-q", "config", "cold.requester_pays=yes", "cold.attempts=3", store=store)  # of any place
    assert tierfs("config", "--json", store=store).json["cold.storage_class"]["origin"] == "default"

    bare = tmp_path / "bare"
    tierfs("-q", "init", "--cold", "none", store=bare)
    where = (f"cold.url={url}", f"cold.endpoint_url={moto_bucket[0].endpoint_url}")
    tierfs("-q", "config", "cold.tags=a=b", *where, store=bare)  # the place of the same command supports them
    refused = tierfs("config", f"cold.url={tmp_path}", store=bare, check=False)
    assert "does not support cold.tags" in refused.err
    assert "does not support cold.tags" in tierfs("move", "--to", str(tmp_path), store=bare, check=False).err
