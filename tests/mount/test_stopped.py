"""A mount whose process was stopped is named by the commands that need its answer."""

from __future__ import annotations

import os
import signal

import pytest

from tests.commands import tierfs
from tests.mount.conftest import Mount, append
from tests.mount.waiting import eventually
from tierfs.app import store

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread")]


def test_warmup_umount_and_mount_end_with_its_name(store: store.Store, mount: Mount) -> None:
    (store.path / "store.toml").write_text('[read]\ncache_bytes = "64MiB"\n')
    append(store, "s", b"data", seal=True)
    mounted = mount()
    assert eventually(lambda: tierfs("--json", "status", store=store.path).json["holder"] is not None)
    tierfs("-q", "offload", "s", store=store.path)
    os.kill(mounted.process.pid, signal.SIGSTOP)
    try:
        for words in (("warmup", "s"), ("umount", str(mounted.path)), ("mount", str(mounted.path))):
            done = tierfs(*words, store=store.path, check=False, timeout_s=30)
            assert (done.code, str(mounted.path) in done.err) == (11, True), done
    finally:
        os.kill(mounted.process.pid, signal.SIGCONT)
    tierfs("-q", "warmup", "s", store=store.path)
    tierfs("-q", "umount", mounted.path)
