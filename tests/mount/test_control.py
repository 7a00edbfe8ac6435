"""Control files and signals."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests import verbs
from tests.commands import tierfs
from tests.mount.conftest import Mount, append
from tests.mount.waiting import errno_of, eventually
from tierfs.app import store

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread")]


def test_the_settings_can_be_read_but_are_not_listed(store: store.Store, mount: Mount) -> None:
    append(store, "s", b"x")
    mnt = mount().path
    assert os.listdir(mnt) == ["s"]
    assert os.listdir(mnt / ".tierfs") == ["config", "cache", "metrics", "stats", "backlog", "accesslog"]
    listed = subprocess.run(["ls", "-a", mnt / ".tierfs"], capture_output=True, check=True, text=True).stdout.split()
    assert listed[:2] == [".", ".."]
    text = (mnt / ".tierfs/config").read_text()
    assert text == tierfs("config", "show", store=store.path).out
    assert "read.budget_bytes = " in text
    assert json.loads((mnt / ".tierfs/cache").read_text())["state"] == "off"
    assert errno_of((mnt / ".tierfs/other").stat) == errno.ENOENT
    assert errno_of((mnt / "d/.tierfs").stat) == errno.ENOENT
    assert errno_of(lambda: (mnt / ".tierfs/config").write_text("x")) == errno.EROFS


def test_sigusr1_tells_what_the_process_does(store: store.Store, tmp_path: Path) -> None:
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    tierfs("mount", mnt, store=store.path)
    log = store.path / "log" / "mount.log"
    try:
        assert eventually(lambda: verbs.status(store).holder is not None)
        holder = verbs.status(store).holder
        assert holder is not None
        os.kill(holder.pid, signal.SIGUSR1)
        assert eventually(lambda: "thread MainThread:" in log.read_text())
        assert "task tierfs.fuse.watch" in log.read_text()
        (store.path / "store.toml").write_text("[background]\nhigh_watermark_percent = 70\n")
        os.kill(holder.pid, signal.SIGHUP)
        assert eventually(lambda: "settings and credentials were reloaded" in log.read_text())
        assert "background.high_watermark_percent = 70  (file)" in (mnt / ".tierfs/config").read_text()
        (store.path / "store.toml").write_text("[background]\nnonsense = 70\n")
        os.kill(holder.pid, signal.SIGHUP)
        assert eventually(lambda: "nothing was reloaded" in log.read_text())
        (store.path / "store.toml").write_text("")
        again = verbs.status(store).holder
        assert again is not None
        assert again.pid == holder.pid
        tierfs("append", "s", store=store.path, stdin=b"abc")
        assert '"bytes": 3' in tierfs("offload", "--json", store=store.path).out
    finally:
        tierfs("umount", mnt)
