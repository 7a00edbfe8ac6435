"""Ordinary tools on a mount, over both tiers."""

from __future__ import annotations

import errno
import json
import mmap
import os
import random
import subprocess
from pathlib import Path

import pytest

from tests import verbs
from tests.mount.conftest import Mount, Mounted, append
from tests.mount.waiting import errno_of
from tierfs.app.store import Store
from tierfs.base.bytes.checksum import crc32c

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread"), pytest.mark.xdist_group(__name__)]


@pytest.fixture(scope="module")
def store(common_store: Store) -> Store:
    return common_store


@pytest.fixture(scope="module")
def mount(common_mount: Mount) -> Mount:
    return common_mount


TEXT = b"".join(b"line %d of a log, ERROR %d\n" % (number, number % 7) for number in range(120_000))
BINARY = random.Random(3).randbytes(5_000_003)


def run(*words: object) -> bytes:
    return subprocess.run([*map(str, words)], capture_output=True, check=True, timeout=60).stdout


@pytest.fixture(scope="module")
def files(store: Store) -> None:
    append(store, "logs/text", TEXT, seal=True)
    append(store, "logs/cold", TEXT, seal=True)
    append(store, "data/binary", BINARY)
    append(store, "data/empty", b"", seal=True)
    verbs.offload(store, "logs/cold")
    verbs.evict(store, "logs/cold")


@pytest.fixture(scope="module")
def mounted(files: None, mount: Mount) -> Mounted:
    return mount()


def test_random_reads_get_the_bytes_of_either_tier(mounted: Mounted) -> None:
    chosen = random.Random(5)
    for name, data in (("data/binary", BINARY), ("logs/cold", TEXT)):
        with (mounted.path / name).open("rb", buffering=0) as file:
            for _ in range(300):
                offset, size = chosen.randrange(len(data) + 10), chosen.randrange(1, 300_000)
                assert os.pread(file.fileno(), size, offset) == data[offset : offset + size]


def test_shared_mappings_of_sealed_segments(mounted: Mounted) -> None:
    with (mounted.path / "logs/cold").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
        assert mapped[:] == TEXT
        mapped.close()


def test_reading_with_flags_that_do_not_matter(mounted: Mounted) -> None:
    descriptor = os.open(mounted.path / "logs/text", os.O_RDONLY | os.O_APPEND)
    try:
        assert os.read(descriptor, len(TEXT)) == TEXT
    finally:
        os.close(descriptor)


def test_extended_attributes_by_name_but_not_listed(files: None, mount: Mount) -> None:
    mounted = mount("xattr")
    path = mounted.path / "logs/cold"

    def value(name: str) -> str:
        return os.getxattr(path, f"user.tierfs.{name}").decode()

    path.read_bytes()
    assert value("segment") == "logs/cold"
    assert (value("length"), value("start_offset"), value("sealed")) == (str(len(TEXT)), "0", "1")
    assert value("chunks") == str(-(-len(TEXT) // (4 << 20)) or 1)
    assert value("crc32c") == f"{crc32c(TEXT):08x}"
    assert errno_of(lambda: os.getxattr(mounted.path / "logs", "user.tierfs.segment")) == errno.ENODATA
    assert (value("local_bytes"), value("cold_bytes")) == ("0", str(len(TEXT)))
    assert value("cold_stored_bytes") == str(len(TEXT))
    assert value("read_priority") == "local-first"
    assert value("served_from") == "cold"
    assert os.listxattr(path) == []
    assert errno_of(lambda: os.getxattr(path, "user.other")) == errno.ENODATA


def test_without_the_option_no_extended_attribute_is_asked_for_twice(mounted: Mounted) -> None:
    path = mounted.path / "logs/cold"

    def asked() -> tuple[int, int]:
        operations = json.loads((mounted.path / ".tierfs/stats").read_bytes())["operations"]
        return operations.get("getxattr", 0), operations.get("listxattr", 0)

    for _ in range(3):
        assert errno_of(lambda: os.getxattr(path, "user.tierfs.length")) == errno.ENOTSUP
        assert errno_of(lambda: os.listxattr(path)) in (0, errno.ENOTSUP)
        run("ls", "-laR", mounted.path)
    assert max(asked()) <= 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may tune the kernel")
def test_the_kernel_reads_ahead_as_far_as_one_request_goes(mounted: Mounted) -> None:
    device = mounted.path.stat().st_dev
    setting = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
    assert setting.read_text() == "1024\n"
