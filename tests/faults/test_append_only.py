"""A bucket whose key may not delete, as archives have it: everything works, and remaining objects are listed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.conftest import Bucket
from tests.faces.cli.commands.test_doctor import checks
from tests.stores import TestStore, open_test_store
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.errors import PermissionDenied
from tierfs.base.words.types import Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.probe import probe
from tierfs.engine.chunkstore.protocol import Abilities


class Archive(MemoryStorage):
    """Refuses to delete until the right is given."""

    may_delete = False

    def delete(self, name: str) -> None:
        if not self.may_delete:
            raise PermissionDenied(f"refused to delete {name}", remedy="request the permission from the bucket's owner")
        super().delete(name)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    settings = OffloadSettings(checkpoint_entries=3, grace_s=0)
    with open_test_store(tmp_path / "store", cold=Archive(), settings=settings) as opened:
        yield opened


def fill(store: TestStore) -> None:
    """More than two checkpoints, and a segment that was removed."""
    for number in range(12):
        store.append(f"s{number}", b"%04d" % number, seal=True)
        store.offload()
    store.engine.delete("s0", recursive=False, cold_due_ms=store.clock.now_ms())
    store.settle()


def test_the_probe_needs_no_right_to_delete() -> None:
    archive = Archive()
    assert probe(archive) == Abilities(deletes=False)
    for _ in range(3):
        assert probe(archive, keeps=True) == Abilities(deletes=False)
    assert len(list(archive.list(""))) == 2  # the first one's, and one that all later ones share
    archive.may_delete = True
    assert probe(archive, keeps=True) == Abilities()


def test_checkpoints_go_on_and_what_is_superseded_is_listed(store: TestStore) -> None:
    fill(store)
    work = store.cold_work()
    with store.metadata.read() as txn:
        state = txn.store.journal
    names = [found.name for found in work.superseded()]
    assert state.superseded_kept == len(names) > 3
    assert "refused to delete journal/00000000000000000001" in state.superseded_error
    assert names == sorted(names)
    done = work.collect_all(grace_s=0)
    assert (done.failed, done.error_kind) == (2, "PermissionDenied")  # the removed segment's object, and the journal's
    assert store.read("s5", Tier.COLD) == b"0005"


def test_with_the_right_to_delete_all_that_is_superseded_goes(store: TestStore) -> None:
    fill(store)
    assert isinstance(store.cold, Archive)
    store.cold.may_delete = True
    work = store.cold_work()
    assert work.collect_all(grace_s=0).failed == 0
    assert work.superseded() == []
    with store.metadata.read() as txn:
        assert (txn.store.journal.superseded_kept, txn.store.journal.superseded_error) == (0, "")
    assert list(store.cold.list("segments/s0/")) == []
    assert "journal/00000000000000000001" not in [found.name for found in store.cold.list("journal/")]


def test_commands_on_a_bucket_of_ceph_whose_policy_forbids_to_delete(rgw_bucket: Bucket, tmp_path: Path) -> None:
    endpoint, name = rgw_bucket
    denied = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": ["s3:DeleteObject", "s3:DeleteObjectVersion"],
        "Resource": [f"arn:aws:s3:::{name}/*"],
    }
    with closing(endpoint.client()) as client:
        client.put_bucket_policy(Bucket=name, Policy=json.dumps({"Version": "2012-10-17", "Statement": [denied]}))
    path = tmp_path / "store"
    made = tierfs(
        "init", "--bucket", f"s3://{name}/p", "--endpoint-url", endpoint.endpoint_url, store=path, check=False
    )
    assert (made.code, "the key has no permission to delete" in made.err) == (0, True), made
    (path / "store.toml").write_text("[offload]\ngrace_s = 0\n")
    tierfs("append", "s", store=path, stdin=b"bytes")
    assert tierfs("offload", "", store=path).out.startswith("offloaded 5 B")
    assert tierfs("evict", "", store=path).out.startswith("evicted 5 B")
    tierfs("rm", "s", "--now", "--yes", store=path, check=False)
    done = tierfs("gc", "--delete", store=path, check=False)
    assert (done.code, "1 deletion failed, the first: segments/s/" in done.err) == (4, True), done
    assert "segments/s/" in tierfs("gc", store=path).out
    assert "the key has no permission to delete" in tierfs("status", store=path).out
    found = checks(store=path)
    assert (found["delete"]["level"], found["cold tier"]["level"]) == ("WARN", "OK")
