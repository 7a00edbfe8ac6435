"""A cold directory that is only read: replicas need no more, and no verb deletes what others keep in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.disks import read_only

DATA = bytes(range(256)) * 1000


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    """The cold tier of a store, in which a writer was killed long ago, and somebody else keeps a file."""
    cold = tmp_path / "cold"
    (cold / ".tmp").mkdir(parents=True)
    for name in ("a" * 32, "tierfs-" + "b" * 32, "theirs"):
        (cold / ".tmp" / name).write_bytes(b"half")
        os.utime(cold / ".tmp" / name, (0, 0))
    tierfs("init", "--cold-dir", cold, store=tmp_path / "owner", check=False)
    return cold


def test_a_replica_reads_a_read_only_directory(cold: Path, tmp_path: Path) -> None:
    assert len(list((cold / ".tmp").iterdir())) == 3, "init deletes nothing"
    tierfs("append", "a/s", "--seal", store=tmp_path / "owner", stdin=DATA)
    tierfs("offload", "a", store=tmp_path / "owner")
    assert sorted(path.name for path in (cold / ".tmp").iterdir()) == ["a" * 32, "theirs"]
    (cold / ".tmp" / ("tierfs-" + "b" * 32)).write_bytes(b"half")
    os.utime(cold / ".tmp" / ("tierfs-" + "b" * 32), (0, 0))
    with read_only(cold, tmp_path / "seen") as seen:
        tierfs("replica", "--cold-dir", seen, store=tmp_path / "replica", check=False)
        assert tierfs("cat", "a/s", store=tmp_path / "replica").out == DATA.decode(errors="replace")
        tierfs("replica", "--refresh", store=tmp_path / "replica")
        tierfs("check", store=tmp_path / "replica")
        refused = tierfs("recover", "--cold-dir", seen, store=tmp_path / "new", check=False)
        assert "Read-only file system" in refused.err
        assert not (tmp_path / "new").exists()
    assert len(list((cold / ".tmp").iterdir())) == 3
