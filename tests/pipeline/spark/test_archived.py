"""Reads of archived objects: one error before tasks start, or a wait; the server refuses as S3 does, without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import Bucket
from tests.mount.conftest import append
from tests.pipeline.spark.asked import Asked, batch
from tests.pipeline.spark.reading import make_cold, refusal
from tests.servers.archive import ArchiveServer, archive_server
from tierfs.app import thaw
from tierfs.app.setup.create import init_store
from tierfs.app.store import Store, open_store
from tierfs.base.words.types import Tier
from tierfs.engine.chunkstore.place import Place, Server
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.record_parts import ARCHIVED_VERSION
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.pipeline.spark import archived
from tierfs.pipeline.spark.errors import TierfsException
from tierfs.pipeline.spark.row_types import RowType

LOOKS = 3
LINES = b"one\ntwo\n" * 1000


@pytest.fixture
def server(moto_bucket: Bucket) -> Iterator[ArchiveServer]:
    with archive_server(moto_bucket[0].endpoint_url, LOOKS) as server:
        yield server


@pytest.fixture
def store(
    tmp_path: Path, moto_bucket: Bucket, server: ArchiveServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Store]:
    """With two cold segments, whose objects a rule of the bucket has archived."""
    monkeypatch.setattr(thaw, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(thaw, "LONGEST_PAUSE_S", 0.001)
    init_store(tmp_path / "store", Place.parsed(f"s3://{moto_bucket[1]}/p", Server(server.url)))
    with closing(open_store(tmp_path / "store")) as opened:
        for name in ("a/one", "b/two"):
            append(opened, name, LINES, seal=True)
            make_cold(opened, name)
        server.archives = True
        yield opened


def note_archived(store: Store) -> None:
    """Let the records say what the server does, as after `tierfs archive`."""
    with store.metadata.write() as txn:
        for record in [record for _, record in txn.scan(OBJECTS) if record.tier is Tier.COLD]:
            kept = replace(record, archive_class="GLACIER", version=ARCHIVED_VERSION, stored=b"")
            txn.put(OBJECTS, tables.u64(record.id), kept)


def read(store: Store, path: str, **options: str) -> list[tuple[object, ...]]:
    return batch(**{"store": str(store.path), "path": path, **options})


def test_what_is_recorded_as_archived_is_refused_before_a_task(store: Store, server: ArchiveServer) -> None:
    note_archived(store)
    message = refusal(store.path, "a")
    assert re.search(r"segments/.* is in the archive as GLACIER, and was not requested back; run: ", message)
    assert "run: tierfs thaw --wait a/one; or set archived to wait" in message
    assert len(server.reads) == 1, "one byte, as a class of that name may answer"
    waits = "or set thawDays, which requests them back"
    assert refusal(store.path, "a", archived="wait") == message.replace("or set archived to wait", waits)


def test_bytes_that_no_row_has_are_not_waited_for(store: Store, server: ArchiveServer) -> None:
    note_archived(store)
    assert len(batch(RowType.SEGMENTS, store=str(store.path), path="a")) == 1
    assert (server.reads, server.restores) == ([], [])


def test_a_task_that_meets_an_archived_object_requests_it_once(store: Store, server: ArchiveServer) -> None:
    """No record says it: each try of Spark costs one request with a signed URL, and one without."""
    with pytest.raises(TierfsException, match=r"segment a/one: .*; run: tierfs thaw --wait a/one; or set the option"):
        read(store, "a")
    assert len(server.reads) == 2


def test_a_read_waits_for_what_it_requests_back(
    store: Store, server: ArchiveServer, caplog: pytest.LogCaptureFixture, expected_warnings: list[str]
) -> None:
    expected_warnings += ["waiting up to 2d", "all archived objects of the read are back"]
    with caplog.at_level("WARNING", archived.__name__):
        rows = read(store, "a", archived="wait", thawDays="2")
    assert len(rows) == 2000
    assert [path for path in server.restores if "a/one" not in path] == []
    assert len(server.restores) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "waiting up to 2d (archivedTimeout) for 1 archived object of a/one: 7.8 KiB are on the way back",
        "all archived objects of the read are back",
    ]
    restored, before = len(server.restores), len(server.reads)
    assert len(read(store, "a", archived="wait")) == 2000
    assert (len(server.restores), len(server.reads)) == (restored, before), "it is back"


def test_a_wait_ends(store: Store, server: ArchiveServer, expected_warnings: list[str]) -> None:
    expected_warnings += ["waiting up to 10ms"]
    server.looks = 1 << 30
    thaw.Thawing(store, ["a"]).look(days=1)
    ended = "archived objects of a/one are not back after 10ms .archivedTimeout.; run the read again"
    with pytest.raises(TierfsException, match=ended):
        read(store, "a", archived="wait", thawDays="1", archivedTimeout="10ms")
    note_archived(store)
    assert "1 archived object of a/one: requested, but not back yet; run: tierfs thaw --wait a/one" in refusal(
        store.path, "a"
    )


def test_a_stream_waits_for_each_batch(store: Store, server: ArchiveServer, expected_warnings: list[str]) -> None:
    expected_warnings += ["waiting up to 2d", "all archived objects of the read are back"]
    options = {"store": str(store.path), "path": "/", "recursiveFileLookup": "true", "maxBytesPerTrigger": "9000"}
    note_archived(store)
    with pytest.raises(TierfsException, match="run: tierfs thaw"):
        Asked(**options).rows()
    stream = Asked(**options, archived="WAIT", thawDays="1")
    assert [len(stream.rows()) for _ in range(3)] == [2250, 1750, 0]
    assert len(server.restores) == 2


def test_options_that_have_no_effect_are_refused(store: Store) -> None:
    assert "thawDays has no effect without archived = wait" in refusal(store.path, "a", thawDays="1")
    assert "archivedTimeout has no effect without" in refusal(store.path, "a", archivedTimeout="1h")
    assert "invalid value 'waits' for option archived; expected error or wait" in refusal(
        store.path, "a", archived="waits"
    )
    assert "invalid value '0' for option thawDays" in refusal(store.path, "a", archived="wait", thawDays="0")
    assert "option archivedTimeout; expected a time with its unit" in refusal(
        store.path, "a", archived="wait", archivedTimeout="30"
    )
