"""A server that answers InvalidObjectState: one error and no storm of tries, until the objects are thawed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import Bucket
from tests.reality.reference import reference
from tests.servers.archive import ArchiveServer, archive_server
from tests.tiering.archive.archiving import ARCHIVED, ArchivedStore
from tierfs.app import thaw

NAMES = ["a/one", "a/two", "b/other"]
BYTES = 5 << 20
LOOKS = 3


@pytest.fixture
def server(moto_bucket: Bucket) -> Iterator[ArchiveServer]:
    with archive_server(moto_bucket[0].endpoint_url, LOOKS) as server:
        yield server


@pytest.fixture
def store(tmp_path: Path, moto_bucket: Bucket, server: ArchiveServer, monkeypatch: pytest.MonkeyPatch) -> ArchivedStore:
    monkeypatch.setattr(thaw, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(thaw, "LONGEST_PAUSE_S", 0.01)
    bucket = (replace(moto_bucket[0], endpoint_url=server.url), moto_bucket[1])
    store = ArchivedStore.new(tmp_path / "store", bucket)
    store.fill({name: reference(number, BYTES) for number, name in enumerate(NAMES)})
    server.archives = True
    return store


def test_a_read_fails_once_and_is_not_repeated(store: ArchivedStore, server: ArchiveServer) -> None:
    refused = store.run("cat", "a/one", check=False)
    assert (refused.code, refused.out) == (ARCHIVED, "")
    assert "segment a/one: s3://" in refused.err
    assert "is in the archive" in refused.err
    assert "tierfs thaw --wait a/one\n" in refused.err, "as it can be typed"
    # One by a signed URL and one without, for each range that one window of a read asks for at once.
    assert 1 <= len(server.reads) <= 16
    assert store.run("status", "--json", check=False).json["journal"]["unpublished"] == 0, "the place is not away"
    differs = store.run("diff", "a/one", "b/other", check=False)
    assert (differs.code, "(Archived, exit 2)" in differs.err) == (2, True), "the code that it says"
    checked = store.run("check", "--read", check=False)
    assert (checked.code, "in the archive and were not read" in checked.out + checked.err) == (11, True), checked
    assert store.run("check").code == 0


def test_thaw_requests_each_object_once_and_waits_for_it(store: ArchivedStore, server: ArchiveServer) -> None:
    store.run("clone", "a/one", "a/clone")  # the object of both is looked at once
    first = store.run("thaw", "a", "--json").json
    assert (first["objects"], first["requested"], first["ready"], first["is_ready"]) == (2, 2, 0, False)
    assert "to wait for them: tierfs thaw --wait a\n" in store.run("thaw", "a").out, "as it can be typed"
    assert store.run("warmup", "b", "--wait", check=False).code == ARCHIVED, "it was not requested"
    second = store.run("thaw", "a", "--wait", "--json").json
    assert (second["requested"], second["ready"], second["is_ready"]) == (0, 2, True)
    assert second["until_ms"] == 2_081_808_000_000
    assert len(server.restores) == len(set(server.restores)) == 2
    for number, name in enumerate(NAMES[:2]):
        assert store.read(name) == reference(number, BYTES)
    assert store.run("cat", "b/other", check=False).code == ARCHIVED
