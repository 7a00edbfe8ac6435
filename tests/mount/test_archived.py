"""A mount over objects of the archive: an error at once for those that must be restored, and moves by policy."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import Bucket
from tests.mount.conftest import Mounted, serving
from tests.mount.waiting import errno_of, eventually
from tests.reality.reference import reference
from tests.servers.archive import ArchiveServer, archive_server
from tests.tiering.archive.archiving import SMALL, ArchivedStore
from tierfs.app import thaw

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread")]

FROZEN = reference(0, 5 << 20)
OTHER = reference(1, SMALL)
MOST_READS = 16
"""Requests of the ranges that one window of a read asks for at once, each by a signed URL and without one."""


@pytest.fixture
def server(moto_bucket: Bucket) -> Iterator[ArchiveServer]:
    with archive_server(moto_bucket[0].endpoint_url, looks=1) as server:
        yield server


@pytest.fixture
def store(tmp_path: Path, moto_bucket: Bucket, server: ArchiveServer, monkeypatch: pytest.MonkeyPatch) -> ArchivedStore:
    monkeypatch.setattr(thaw, "FIRST_PAUSE_S", 0.01)
    bucket = (replace(moto_bucket[0], endpoint_url=server.url), moto_bucket[1])
    store = ArchivedStore.new(tmp_path / "store", bucket)
    store.fill({"frozen": FROZEN, "other": OTHER})
    store.run("archive", "frozen", "--class", "GLACIER", check=False)
    return store


@pytest.fixture
def mounted(store: ArchivedStore, tmp_path: Path) -> Iterator[Mounted]:
    (path := tmp_path / "mnt").mkdir()
    with serving(store.path, path, "xattr") as mounted:
        yield mounted


def test_a_read_fails_at_once_and_is_not_repeated_while_other_reads_go_on(
    store: ArchivedStore, mounted: Mounted, server: ArchiveServer
) -> None:
    frozen, other = mounted.path / "frozen", mounted.path / "other"
    for tries in (1, 2):
        assert errno_of(frozen.read_bytes) == errno.EIO
        assert 1 <= len(server.reads) <= tries * MOST_READS, server.reads
        assert other.read_bytes() == OTHER
    refused = len(server.reads)
    assert os.getxattr(frozen, "user.tierfs.archive_class") == b"GLACIER: restore first, with tierfs thaw"
    assert os.getxattr(frozen, "user.tierfs.archived_bytes") == b"%d" % len(FROZEN)
    assert "tierfs thaw" in store.run("info", "frozen").out
    assert store.run("check").code == 0, "nothing is marked as damaged"
    assert len(server.reads) == refused, "nothing reads it in the background"
    store.run("thaw", "frozen", "--wait")
    assert frozen.read_bytes() == FROZEN


def test_objects_move_by_policy_and_stay_out_of_the_archive_once_it_is_off(
    store: ArchivedStore, mounted: Mounted
) -> None:
    """All by the mount, while it is read."""

    def classes() -> set[str]:
        return {record.archive_class for record in store.records()}

    store.run("config", "other", "archive_class=STANDARD_IA", "archive_after=1s")
    assert eventually(lambda: classes() == {"GLACIER", "STANDARD_IA"}, 60)
    assert (mounted.path / "other").read_bytes() == OTHER
    assert "archive_after=off" in store.run("archive", "other", "--back", check=False).err
    store.run("config", "other", "archive_after=off")
    assert store.run("archive", "other", "--back", "--json").json["objects"] == 1
    assert classes() == {"GLACIER", ""}
    assert (mounted.path / "other").read_bytes() == OTHER
