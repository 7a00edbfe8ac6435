"""Kernel settings that a mount requests, and works without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tierfs.fuse import mountpoint


def test_a_machine_without_a_mount_command_is_mounted_on_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(mountpoint, "CONNECTIONS", tmp_path / "connections")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert not mountpoint.widen_background(tmp_path)
