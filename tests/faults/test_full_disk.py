"""A disk without a free byte: what frees space works, and the rest says what is full and what helps."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_daemon import daemon
from tests.commands import tierfs
from tests.disks import disk, fill
from tierfs.checksum import crc32c

COLD_BYTES = 4_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    """A store with cold bytes that are local too, on a disk of its own."""
    (tmp_path / "cold").mkdir()
    with disk(tmp_path / "disk", 200 << 20) as path:
        tierfs("-q", "init", "--cold-dir", tmp_path / "cold", store=path / "store")
        tierfs("append", "s", store=path / "store", stdin=os.urandom(COLD_BYTES))
        tierfs("offload", store=path / "store")
        yield path / "store"


def test_evict_needs_no_byte_to_begin(store: Path) -> None:
    (store / "locks" / "holder").unlink()
    fill(store.parent / "fill")
    done = tierfs("evict", "--json", store=store, check=False)
    assert done.code == 0
    assert f'"bytes": {COLD_BYTES}' in done.out
    assert "others will not see which process holds the store" in done.err


def test_a_replica_says_which_disk_is_full(store: Path, tmp_path: Path) -> None:
    replica = store.parent / "replica"
    tierfs("-q", "replica", "--cold-dir", tmp_path / "cold", store=replica)
    tierfs("append", "later", store=store, stdin=b"later")
    tierfs("offload", store=store)
    fill(store.parent / "fill")
    refused = tierfs("replica", "--refresh", store=replica, check=False)
    assert refused.code == 28
    assert f"{replica / 'metadata'}: the disk of the metadata is full" in refused.err
    assert tierfs("cat", "s", store=replica).out


def test_opening_where_the_writers_page_is_missing(store: Path) -> None:
    """A copy may have left it out or made it sparse; writing to its mapping would be SIGBUS."""
    (store / "metadata" / "writer").unlink()
    fill(store.parent / "fill")
    refused = tierfs("ls", store=store, check=False)
    assert refused.code == 28
    assert f"{store / 'metadata'}: the disk of the metadata is full" in refused.err


MIB = 1 << 20


def checked(store: Path, name: str, data: bytes) -> None:
    """Whether the segment has these bytes, by its checksum."""
    info = tierfs("info", name, "--json", store=store).json
    assert (info["length"], info["crc32c"]) == (len(data), f"{crc32c(data):08x}")


def test_an_append_evicts_what_is_cold_before_it_gives_up(store: Path) -> None:
    tierfs("append", "kept", store=store, stdin=os.urandom(80 * MIB))
    tierfs("offload", store=store)
    data = os.urandom(90 * MIB)
    done = tierfs("append", "new", store=store, stdin=data, check=False)
    assert (done.code, done.out) == (0, f"new 0 {len(data)}\n")
    assert "that are cold were evicted" in done.err
    checked(store, "new", data)


def test_an_append_is_refused_when_nothing_is_cold(store: Path) -> None:
    tierfs("evict", store=store)
    done = tierfs("append", "new", store=store, stdin=bytes(150 * MIB), check=False)
    assert done.code == 28
    assert "the local disk is full" in done.err
    started = time.monotonic()
    assert tierfs("append", "new", "--wait", "2s", store=store, stdin=bytes(8 * MIB), check=False).code == 28
    assert time.monotonic() - started >= 2


@pytest.mark.mount
def test_an_append_waits_for_the_holder_to_make_room(store: Path) -> None:
    tierfs("policy", "set", "/", "chunk_bytes=4MiB", store=store)
    data = os.urandom(170 * MIB)  # of 134 that may be used
    with daemon(store):
        done = tierfs("append", "new", store=store, stdin=data, check=False)
        assert (done.code, done.out) == (0, f"new 0 {len(data)}\n"), done.err
        checked(store, "new", data)
