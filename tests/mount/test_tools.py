"""Ordinary tools on a mount, over both tiers."""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
import os
import random
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import verbs
from tests.mount.conftest import Mount, Mounted, append
from tests.mount.waiting import errno_of
from tierfs.app import store
from tierfs.checksum import crc32c

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread")]

TEXT = b"".join(b"line %d of a log, ERROR %d\n" % (number, number % 7) for number in range(120_000))
BINARY = random.Random(3).randbytes(5_000_003)


def run(*words: object) -> bytes:
    return subprocess.run([*map(str, words)], capture_output=True, check=True, timeout=60).stdout


@pytest.fixture
def files(store: store.Store) -> None:
    append(store, "logs/text", TEXT, seal=True)
    append(store, "logs/cold", TEXT, seal=True)
    append(store, "data/binary", BINARY)
    append(store, "data/empty", b"", seal=True)
    verbs.offload(store, "logs/cold")
    verbs.evict(store, "logs/cold")


@pytest.fixture
def mounted(files: None, mount: Mount) -> Iterator[Mounted]:
    return mount()


def test_reading_tools_see_the_bytes(mounted: Mounted, tmp_path: Path) -> None:
    mnt = mounted.path
    for name in ("logs/text", "logs/cold"):
        assert run("cat", mnt / name) == TEXT
        assert run("grep", "-c", "ERROR 3", mnt / name) == b"%d\n" % TEXT.count(b"ERROR 3")
        assert run("wc", "-l", mnt / name).split()[0] == b"120000"
        assert run("tail", "-n", "1", mnt / name) == TEXT.splitlines(keepends=True)[-1]
        assert run("head", "-c", "77", mnt / name) == TEXT[:77]
        assert run("sha256sum", mnt / name).split()[0].decode() == hashlib.sha256(TEXT).hexdigest()
    assert run("dd", f"if={mnt}/data/binary", "bs=4k", "status=none") == BINARY
    assert run("dd", f"if={mnt}/data/binary", "bs=1M", "skip=2", "count=1", "status=none") == BINARY[2 << 20 : 3 << 20]
    shutil.copytree(mnt, tmp_path / "copy")
    assert (tmp_path / "copy/data/binary").read_bytes() == BINARY
    run("cp", "-a", mnt / "logs", tmp_path / "copied")
    assert (tmp_path / "copied/cold").read_bytes() == TEXT
    run("rsync", "-a", f"{mnt}/", tmp_path / "synced")
    assert (tmp_path / "synced/logs/cold").read_bytes() == TEXT
    run("sh", "-c", f"tar -S -C {mnt} -cf - . | tar -C {tmp_path}/copied -xf -")
    assert (tmp_path / "copied/data/binary").read_bytes() == BINARY
    assert (tmp_path / "copied/logs/cold").read_bytes() == TEXT


def test_the_tree_is_what_it_is(mounted: Mounted) -> None:
    found = run("find", mounted.path, "-type", "f", "-printf", "%P %s\n").decode().splitlines()
    assert sorted(found) == [
        f"data/binary {len(BINARY)}",
        "data/empty 0",
        f"logs/cold {len(TEXT)}",
        f"logs/text {len(TEXT)}",
    ]
    status = (mounted.path / "logs/cold").stat()
    assert stat.S_IMODE(status.st_mode) == 0o444
    assert status.st_blocks >= 1
    assert run("ls", mounted.path) == b"data\nlogs\n"
    sizes = os.statvfs(mounted.path)
    assert sizes.f_blocks > sizes.f_bavail > 0
    assert sizes.f_namemax == 255


def test_random_reads(mounted: Mounted) -> None:
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


def test_nothing_can_be_changed(mounted: Mounted) -> None:
    mnt = mounted.path
    attempts = [
        lambda: (mnt / "logs/text").open("ab"),
        lambda: (mnt / "logs/text").open("r+b"),
        lambda: (mnt / "new").open("wb"),
        lambda: os.truncate(mnt / "logs/text", 0),
        (mnt / "dir").mkdir,
        (mnt / "logs/text").unlink,
        (mnt / "logs").rmdir,
        lambda: (mnt / "logs/text").rename(mnt / "x"),
        lambda: (mnt / "x").symlink_to("y"),
        lambda: os.link(mnt / "logs/text", mnt / "x"),
        lambda: os.utime(mnt / "logs/text"),
        lambda: (mnt / "logs/text").chmod(0o600),
        lambda: os.setxattr(mnt / "logs/text", "user.x", b"y"),
        lambda: os.removexattr(mnt / "logs/text", "user.x"),
        lambda: os.mknod(mnt / "x"),
    ]
    for attempt in attempts:
        assert errno_of(attempt) == errno.EROFS


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


def test_missing_names_and_wrong_kinds(mounted: Mounted) -> None:
    with pytest.raises(FileNotFoundError):
        (mounted.path / "nope").stat()
    with pytest.raises(NotADirectoryError):
        (mounted.path / "logs/text/x").stat()
    with pytest.raises(FileNotFoundError):
        os.stat(os.fsencode(mounted.path) + b"/\xff\xfe")
    assert (mounted.path / "data/empty").read_bytes() == b""


def test_inodes_survive_a_remount(mounted: Mounted, mount: Mount) -> None:
    def inodes(path: Path) -> dict[str, int]:
        return {str(found.relative_to(path)): found.stat().st_ino for found in path.rglob("*")}

    assert inodes(mounted.path) == inodes(mount().path)


def test_strict_priorities_and_direct_io(files: None, mount: Mount) -> None:
    local = mount("read_priority=local-only")
    assert (local.path / "logs/text").read_bytes() == TEXT
    assert errno_of((local.path / "logs/cold").read_bytes) == errno.EIO
    cold = mount("read_priority=offloaded-only,direct_io")
    assert (cold.path / "logs/cold").read_bytes() == TEXT
    assert errno_of((cold.path / "logs/text").read_bytes) == errno.EIO
