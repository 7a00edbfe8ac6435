"""A cold directory on a filesystem that dies and is mounted again, as NAS and FUSE mounts do."""

from __future__ import annotations

import subprocess

import pytest

from tests.mount.conftest import Mount, append, serving
from tierfs.app import store
from tierfs.base.words.errors import Unavailable
from tierfs.engine.chunkstore.read_only import ReadOnlyDirectory

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread")]

DATA = b"twelve bytes"


def read(directory: ReadOnlyDirectory) -> bytes:
    buffer = bytearray(len(DATA))
    directory.read_into("s", 0, memoryview(buffer))
    return bytes(buffer)


def test_a_directory_that_is_mounted_again_is_found_again(store: store.Store, mount: Mount) -> None:
    append(store, "s", DATA, seal=True)
    mounted = mount()
    directory = ReadOnlyDirectory(mounted.path)
    assert read(directory) == DATA
    mounted.process.kill()
    mounted.process.wait(30)
    with pytest.raises(Unavailable):
        read(directory)
    subprocess.run(["umount", "-l", str(mounted.path)], check=True)
    with pytest.raises(Unavailable):  # what lies below a mount point is not the cold tier
        read(directory)
    with serving(store.path, mounted.path):
        assert read(directory) == DATA
    directory.close()
