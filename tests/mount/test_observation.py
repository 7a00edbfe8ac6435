"""The reports of a running mount, read through the kernel."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests import verbs
from tests.mount.conftest import Mount, append
from tests.mount.waiting import errno_of, eventually
from tierfs.app import store
from tierfs.base.bytes.progress import Progress
from tierfs.base.words.types import CRC_BLOCK_BYTES, ChunkState, Tier
from tierfs.engine.metadata import chain_edits, chains, directories, policies
from tierfs.engine.metadata.chain_edits import Editor

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread")]

DATA = bytes(range(256)) * 8192
"""Two chunks of the test store."""

KEYS = [
    "version",
    "time_ms",
    "uptime_s",
    "store",
    "options",
    "operations",
    "errors",
    "reads",
    "storage",
    "cache",
    "unpacked",
    "memory",
    "fetches",
    "link",
    "waiting",
    "limits",
    "handles",
    "sessions",
    "segments_open",
    "segments",
    "disk_cache",
    "holder",
    "backlog",
    "store_id",
    "journal",
]


def test_the_page_lists_every_key_of_the_statistics() -> None:
    page = (Path(__file__).parents[2] / "docs/monitoring.md").read_text()
    table = page.partition("| key | means |\n")[2].partition("\n\n")[0]
    assert re.findall(r"`(\w+)`", "\n".join(row.split("|")[1] for row in table.splitlines())) == KEYS


def stats(mnt: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((mnt / ".tierfs/stats").read_text())
    return found


def metrics(mnt: Path) -> dict[str, float]:
    lines = (mnt / ".tierfs/metrics").read_text().splitlines()
    return {key: float(value) for key, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def quiet(_: Progress) -> None:
    """Ignore progress."""


def make_cold(store: store.Store, name: str) -> None:
    verbs.offload(store, name)
    verbs.evict(store, name)


def test_the_document_has_its_keys_and_the_mounts_options(store: store.Store, mount: Mount) -> None:
    found = stats(mount("direct_io,umask=27").path)
    assert list(found) == KEYS
    assert found["store"] == str(store.path)
    assert (found["options"]["direct_io"], found["options"]["umask"], found["options"]["uid"]) == (True, 0o27, 0)
    assert found["uptime_s"] > 0
    assert (found["handles"], found["segments"], found["disk_cache"]) == (0, [], None)
    assert found["memory"] == {"budget_bytes": store.settings.read.budget_bytes, "used_bytes": 0}


def test_reads_are_counted_by_the_tier_that_served_them(store: store.Store, mount: Mount) -> None:
    append(store, "d/local", DATA, seal=True)
    append(store, "d/cold", DATA, seal=True)
    make_cold(store, "d/cold")
    mnt = mount("direct_io").path
    for name in ("local", "cold", "cold"):
        assert (mnt / "d" / name).read_bytes() == DATA
    found = stats(mnt)
    assert (found["reads"]["local"]["bytes"], found["reads"]["cold"]["bytes"]) == (len(DATA), 2 * len(DATA))
    assert found["reads"]["local"]["requests"] >= 1
    blocks = found["cache"]["memory"]["hits"] + found["cache"]["memory"]["misses"]
    least = 2 * len(DATA) // CRC_BLOCK_BYTES
    assert least <= blocks < 2 * least  # a block that two requests share counts for both
    assert found["cache"]["memory"]["misses"] >= 1
    assert found["cache"]["memory"]["hits"] >= least // 2  # the second time it was all there
    assert found["storage"]["read"]["bytes"] == len(DATA) + CRC_BLOCK_BYTES  # the mount's rehearsal
    assert found["operations"]["open"] >= 3
    assert found["operations"]["read"] >= found["reads"]["local"]["requests"] + found["reads"]["cold"]["requests"]
    values = metrics(mnt)
    assert values['tierfs_read_bytes_total{tier="cold"}'] == 2 * len(DATA)
    assert values['tierfs_cache_misses_total{cache="memory"}'] == found["cache"]["memory"]["misses"]
    assert values['tierfs_fuse_operations_total{operation="read"}'] >= found["operations"]["read"]


def test_open_segments_show_where_their_readers_are(store: store.Store, mount: Mount) -> None:
    append(store, "d/s", DATA, seal=True)
    make_cold(store, "d/s")
    append(store, "other", b"abc")
    mnt = mount("direct_io").path
    with (mnt / "d/s").open("rb", buffering=0) as first, (mnt / "d/s").open("rb"), (mnt / "other").open("rb"):
        before = {segment["name"]: segment for segment in stats(mnt)["segments"]}
        assert (before["d/s"]["served_from"], before["d/s"]["window_bytes"]) == (None, 0)
        assert os.pread(first.fileno(), 1000, 0) == DATA[:1000]
        found = stats(mnt)
        shown, other = found["segments"]
        assert (shown["name"], shown["handles"], shown["sealed"], shown["length"]) == ("d/s", 2, True, len(DATA))
        assert (shown["offset"], shown["served_from"]) == (1000, "cold")
        assert [(process["pid"], process["uid"], process["handles"]) for process in shown["processes"]] == [
            (os.getpid(), os.getuid(), 2)
        ]
        assert (shown["requests"], shown["bytes"]) == (1, 1000)
        assert shown["window_bytes"] >= 1 << 20
        assert (other["name"], other["handles"], other["sealed"], other["bytes"]) == ("other", 1, False, 0)
        assert (found["handles"], found["segments_open"], found["sessions"]) == (3, 2, 1)
        assert found["memory"]["used_bytes"] > 0
        values = metrics(mnt)
        assert (values["tierfs_open_handles"], values["tierfs_read_sessions"]) == (3, 1)
        assert values["tierfs_memory_budget_bytes"] == found["memory"]["budget_bytes"]
    assert eventually(lambda: stats(mnt)["segments"] == [])


def test_the_store_and_its_place_in_the_journal(store: store.Store, mount: Mount) -> None:
    mnt = mount().path
    before = stats(mnt)
    assert before["store_id"] == store.metadata.store_id
    append(store, "s", DATA, seal=True)
    make_cold(store, "s")
    found = stats(mnt)["journal"]
    assert found == {"slot": verbs.status(store).journal.slot, "replica": False}
    assert found["slot"] > before["journal"]["slot"]


def test_failed_operations_are_counted_by_errno(store: store.Store, mount: Mount) -> None:
    append(store, "s", DATA, seal=True)
    make_cold(store, "s")
    mnt = mount("xattr,read_priority=local-only").path
    assert errno_of((mnt / "s").read_bytes) == errno.EIO
    assert errno_of(lambda: os.getxattr(mnt / "s", "user.other")) == errno.ENODATA
    errors = stats(mnt)["errors"]
    assert errors["read"]["EIO"] >= 1
    assert errors["getxattr"]["ENODATA"] == 1
    assert metrics(mnt)['tierfs_fuse_errors_total{errno="EIO",operation="read"}'] == errors["read"]["EIO"]


def test_only_the_holder_tells_the_backlog(store: store.Store, mount: Mount) -> None:
    append(store, "s", DATA)
    holder = mount().path
    assert eventually(lambda: stats(holder)["backlog"] is not None)
    other = mount().path
    assert stats(holder)["holder"]
    assert not stats(other)["holder"]
    assert stats(other)["backlog"] is None

    def backlog() -> int:
        found = stats(holder)["backlog"]
        assert found["oldest_s"] >= 0
        return int(found["pending_bytes"] + found["active_bytes"])

    assert eventually(lambda: backlog() == len(DATA))
    values = metrics(holder)
    assert values["tierfs_holder"] == 1
    assert values["tierfs_offload_backlog_bytes"] == stats(holder)["backlog"]["pending_bytes"]
    assert values["tierfs_offload_backlog_age_seconds"] >= 0
    assert metrics(other)["tierfs_holder"] == 0
    assert "tierfs_offload_backlog_bytes" not in metrics(other)
    store.engine.seal("s")
    verbs.offload(store, "s")
    assert eventually(lambda: backlog() == 0)


def test_bytes_that_no_policy_moves_are_told_and_are_no_backlog(store: store.Store, mount: Mount) -> None:
    append(store, "kept/s", DATA, seal=True)
    append(store, "later/s", DATA[:1000], seal=True)
    with store.metadata.write() as txn:
        policies.change(txn, "kept", put_settings={"offload_after": "off"})
        policies.change(txn, "later", put_settings={"offload_after": "86400"})
    holder = mount().path
    assert eventually(lambda: (stats(holder)["backlog"] or {}).get("kept_bytes") == len(DATA))
    assert stats(holder)["backlog"]["pending_bytes"] == 1000
    assert metrics(holder)["tierfs_offload_backlog_bytes"] == 1000
    for mnt in (holder, mount().path):
        backlog = json.loads((mnt / ".tierfs/backlog").read_text())
        assert (backlog["pending_bytes"], backlog["active_bytes"], backlog["kept_bytes"]) == (1000, 0, len(DATA))
        assert [(row["kind"], row["bytes"]) for row in backlog["reasons"]] == [("off", len(DATA)), ("later", 1000)]
        assert "offload_after = off (directory kept)" in backlog["reasons"][0]["why"]


def test_served_from_tells_the_tier_of_the_newest_read(store: store.Store, mount: Mount) -> None:
    append(store, "s", DATA, seal=True)
    path = mount("direct_io,xattr").path / "s"

    def served_from() -> str:
        return os.getxattr(path, "user.tierfs.served_from").decode()

    assert served_from() == "none"
    assert path.read_bytes() == DATA
    assert served_from() == "local"
    make_cold(store, "s")
    assert path.read_bytes() == DATA
    assert served_from() == "cold"


def test_bytes_of_suspect_and_lost_chunks_are_metrics_of_the_store(store: store.Store, mount: Mount) -> None:
    append(store, "s", DATA, seal=True)
    make_cold(store, "s")
    mnt = mount().path
    assert (metrics(mnt)["tierfs_suspect_bytes"], metrics(mnt)["tierfs_lost_bytes"]) == (0, 0)
    with store.metadata.read() as txn:
        segment_id = directories.segment_by_name(txn, "s").id
        chunk, *_ = chains.chunks(txn, segment_id, Tier.COLD)
    chain_edits.set_state(store.metadata, segment_id, Tier.COLD, chunk, ChunkState.SUSPECT)
    assert (metrics(mnt)["tierfs_suspect_bytes"], metrics(mnt)["tierfs_lost_bytes"]) == (chunk.length, 0)
    with store.metadata.write() as txn:
        Editor(txn, directories.segment_by_name(txn, "s")).lose(chunk.range).put(journaled=True)
    assert (metrics(mnt)["tierfs_suspect_bytes"], metrics(mnt)["tierfs_lost_bytes"]) == (0, chunk.length)
