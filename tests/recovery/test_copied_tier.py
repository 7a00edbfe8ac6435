"""Restore drills: the cold tier is a copy that plain tools made, with other ETags and times, without user metadata.

Whatever was copied, the bytes are those that were written: their CRC32C says so, and an ETag is a hint.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.commands import tierfs

KIB = 1024
DATA = {
    "logs/a": bytes(range(251)) * 3000,
    "logs/b": b"b" * 130 * KIB + bytes(range(256)) * 700,
    "logs/c": b"short",
}


def _tar(source: Path, target: Path) -> None:
    """GNU tar's own format: whole seconds, no extended attributes."""
    target.mkdir()
    packed = subprocess.run(["tar", "-C", source, "-c", "."], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-C", target, "-x"], input=packed, check=True)


def _cp_recursively(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-r", source, target], check=True)


def _cp_archive(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", source, target], check=True)


def _rclone(source: Path, target: Path) -> None:
    subprocess.run(["rclone", "copy", source, target], check=True)


COPIES: dict[str, Callable[[Path, Path], None]] = {
    "tar": _tar,
    "cp -r": _cp_recursively,
    "cp -a": _cp_archive,
    "rclone": _rclone,
}


@dataclass(frozen=True, slots=True)
class Site:
    """A store all of whose bytes are in a directory, and nowhere else."""

    store: Path
    cold: Path

    def replace(self, copy: Callable[[Path, Path], None]) -> None:
        """Put a copy in the place of the cold tier."""
        aside = self.cold.with_name("aside")
        copy(self.cold, aside)
        shutil.rmtree(self.cold)
        aside.rename(self.cold)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path / "store", tmp_path / "cold")
    site.cold.mkdir()
    tierfs("init", "--cold-dir", site.cold, store=site.store, check=False)
    tierfs("policy", "set", "/", "chunk_bytes=384KiB", "object_bytes=384KiB", store=site.store)
    for name, data in DATA.items():
        tierfs("append", name, "--seal", store=site.store, stdin=data)
    tierfs("offload", "logs", store=site.store)
    tierfs("evict", "logs", store=site.store)
    return site


def assert_reads(store: Path) -> None:
    """Every byte is what was written."""
    for name, data in DATA.items():
        assert cat(store, name) == data, name


def cat(store: Path, name: str) -> bytes:
    target = store.parent / "read"
    with target.open("wb") as file:
        subprocess.run(
            [sys.executable, "-m", "tierfs", "--store", store, "cat", name],
            stdout=file,
            stderr=subprocess.PIPE,
            check=True,
        )
    return target.read_bytes()


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
def test_a_store_reads_on_from_a_copy_of_its_cold_tier(site: Site, copy: Callable[[Path, Path], None]) -> None:
    site.replace(copy)
    assert_reads(site.store)
