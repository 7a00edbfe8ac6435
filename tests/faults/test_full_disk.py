"""A disk without a free byte: verbs that free space work, and other errors name the full disk and the remedy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import verbs
from tests.commands import tierfs
from tests.disks import disk, fill
from tests.faces.cli.commands.test_daemon import daemon
from tierfs.app.store import open_store
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import StorageFull
from tierfs.engine.metadata.tables import POLICIES
from tierfs.tiering.garbage.ballast import with_room

COLD_BYTES = 4_000_000

READERS_AT_ONCE = 200
PAGE_BYTES = 4096


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
    assert "other processes cannot see which process has the store locked" in done.err


def test_what_is_not_cold_yet_can_be_offloaded_and_then_evicted(store: Path) -> None:
    files = store.parent / "files"
    files.mkdir()
    for number in range(1000):  # so that the metadata grows
        (files / f"{number:04d}").write_bytes(b"%04d" % number)
    tierfs("ingest", files, "--into", "new", "--seal", store=store)
    fill(store.parent / "fill")
    offloaded = tierfs("offload", "new", store=store, check=False)
    assert (offloaded.code, "using the reserved space" in offloaded.err) == (0, True)
    assert '"bytes": 4000' in tierfs("evict", "new", "--force", "--json", store=store, check=False).out
    assert tierfs("cat", "new/0999", store=store).out == "0999"
    (store.parent / "fill").unlink()
    tierfs("evict", store=store)
    assert (store / "ballast").stat().st_size == 2 * MIB  # as large as ever


def test_a_commit_that_is_written_in_part_is_a_full_disk_too(store: Path) -> None:
    """LMDB reports it as an I/O error; the process continues, and evict uses the room reserved for it."""
    with open_store(store) as opened:
        fill(store.parent / "fill")
        os.truncate(store.parent / "fill", (store.parent / "fill").stat().st_size - PAGE_BYTES)
        with pytest.raises(StorageFull, match="the disk of the metadata is full"), opened.metadata.write() as txn:
            txn.put_raw(POLICIES.name, b"many pages in a row", bytes(100 * PAGE_BYTES))
        assert verbs.evict(opened, "s").bytes == COLD_BYTES


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


def without_the_writers_page(metadata: Path) -> None:
    """As a copy may have omitted it."""
    (metadata / "writer").unlink()


def with_holes(metadata: Path) -> None:
    """LMDB's lock file as an older tierfs made it, or a copy."""
    with (metadata / "lock.mdb").open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.truncate(0)
        file.truncate(size)


@pytest.mark.parametrize("harm", [without_the_writers_page, with_holes])
def test_opening_where_pages_to_be_mapped_are_not_on_the_disk(store: Path, harm: Callable[[Path], None]) -> None:
    """Writing to their mapping would be SIGBUS."""
    harm(store / "metadata")
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
    assert "of cold bytes" in done.err
    checked(store, "new", data)


def test_an_append_is_refused_when_nothing_is_cold(store: Path) -> None:
    tierfs("evict", store=store)
    done = tierfs("append", "new", store=store, stdin=bytes(150 * MIB), check=False)
    assert done.code == 28
    assert "the local disk is full" in done.err
    waited = tierfs("append", "new", "--wait", "1s", store=store, stdin=bytes(8 * MIB), check=False)
    assert waited.code == 28
    assert "waiting for room" in waited.err


@pytest.mark.mount
def test_an_append_waits_for_the_holder_to_make_room(store: Path) -> None:
    tierfs("config", "/", "chunk_bytes=4MiB", store=store)
    data = os.urandom(170 * MIB)  # of 134 that may be used
    with daemon(store):
        done = tierfs("append", "new", store=store, stdin=data, check=False)
        assert (done.code, done.out) == (0, f"new 0 {len(data)}\n"), done.err
        checked(store, "new", data)


READERS = f"""
import sys
from contextlib import ExitStack
from pathlib import Path
from tierfs.base.system.clock import SystemClock
from tierfs.engine.metadata.store import MetadataStore
metadata = MetadataStore(Path(sys.argv[1]), SystemClock())
with ExitStack() as stack:
    seen = [stack.enter_context(metadata.read()).store.store_id for _ in range({READERS_AT_ONCE})]
print(len(seen))
"""


def test_many_readers_on_a_full_disk(store: Path) -> None:
    """Each page of LMDB's lock file holds the slots of 64; writing to one that is not on the disk is SIGBUS."""
    fill(store.parent / "fill")
    done = python(READERS, store / "metadata")
    assert (done.returncode, done.stdout) == (0, f"{READERS_AT_ONCE}\n"), done


def test_the_ballast_comes_back_once_there_is_room(store: Path, expected_warnings: list[str]) -> None:
    expected_warnings.append("using the reserved space")
    ballast = store / "ballast"
    size = ballast.stat().st_size
    fill(store.parent / "fill")
    paths = StorePaths(store)

    def work() -> None:
        if ballast.stat().st_size:
            raise StorageFull("no room")

    with_room(paths.ballast, work)
    assert ballast.stat().st_blocks == 0
    with_room(paths.ballast, lambda: None)
    assert ballast.stat().st_blocks == 0
    (store.parent / "fill").unlink()
    with_room(paths.ballast, lambda: None)
    assert (ballast.stat().st_size, ballast.stat().st_blocks * 512 >= size) == (size, True)


def python(code: str, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, timeout=60, check=False
    )
