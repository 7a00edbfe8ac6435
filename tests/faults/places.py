"""A directory that is mounted and not mounted, as a NAS is across reboots."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


class Nas:
    """A directory `data`, shown at `path` while it is mounted."""

    def __init__(self, path: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("mounting a directory needs root")
        self.path = path
        self.data = path.with_name(f"{path.name}-data")
        for directory in (self.path, self.data):
            directory.mkdir(mode=0o700)
        self._mounted = False

    def mount(self) -> None:
        """Show the data."""
        subprocess.run(["mount", "--bind", str(self.data), str(self.path)], check=True)
        self._mounted = True

    def unmount(self) -> None:
        """Leave the empty mount point."""
        if self._mounted:
            subprocess.run(["umount", "--lazy", str(self.path)], check=True)
        self._mounted = False

    def below_the_mount_point(self) -> list[str]:
        """Bytes written there while nothing was mounted."""
        assert not self._mounted
        return sorted(os.listdir(self.path))
