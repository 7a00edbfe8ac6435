"""A mount namespace of a test has no mount of another test, which would live on in it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.disks import disk
from tests.mount.namespaces import in_namespace

pytestmark = [pytest.mark.mount, pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")]


def test_mounts_of_other_tests_are_left_out_and_stay_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with disk(tmp_path / "mine/a b", 1 << 20) as own, disk(tmp_path / "minerals of\nothers", 1 << 20) as other:
        (other / "deeper").mkdir()
        with disk(other / "deeper/still", 1 << 20) as deeper:
            script = 'for at in "$@"; do mountpoint -q "$at"; echo $?; done'
            command = in_namespace(tmp_path / "mine", "bash", "-c", script, "bash", *map(str, (own, other, deeper)))
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert (done.stdout.split(), done.stderr) == (["0", "32", "1"], "")  # 1: its directory is gone, too
            assert all(map(os.path.ismount, (own, other, deeper)))
