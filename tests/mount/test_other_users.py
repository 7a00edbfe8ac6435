"""What users other than the one who mounts see of a mount with allow_other."""

from __future__ import annotations

import stat
import subprocess

import pytest

from tests.mount.conftest import Mount, append
from tests.mount.other_user import require_root, seen
from tierfs.app import store

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread")]

CONTROL = ("config", "cache", "metrics", "stats", "accesslog")


@pytest.mark.parametrize("options", ["allow_other", "allow_other,uid=65534,gid=65534"])
def test_other_users_read_segments_but_not_the_control_files(store: store.Store, mount: Mount, options: str) -> None:
    require_root()
    append(store, "s", b"data", seal=True)
    mnt = mount(options).path
    assert seen(mnt, "s") == b"data"
    assert stat.S_IMODE((mnt / ".tierfs").stat().st_mode) == 0o500
    for name in CONTROL:
        status = (mnt / ".tierfs" / name).stat()
        assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o400, 0)
        assert seen(mnt, f".tierfs/{name}") is None
    assert seen(mnt, ".tierfs") is None
    assert (mnt / ".tierfs/config").read_bytes()
    shown = subprocess.run(["findmnt", "-no", "OPTIONS", mnt], capture_output=True, text=True, check=True).stdout
    assert "default_permissions" in shown.split(",")


def test_an_option_lets_other_users_read_the_control_files(store: store.Store, mount: Mount) -> None:
    require_root()
    mnt = mount("allow_other,allow_other_control").path
    assert stat.S_IMODE((mnt / ".tierfs").stat().st_mode) == 0o555
    assert seen(mnt, ".tierfs/config") == (mnt / ".tierfs/config").read_bytes()
    assert stat.S_IMODE((mount("allow_other,allow_other_control,umask=077").path / ".tierfs").stat().st_mode) == 0o500
