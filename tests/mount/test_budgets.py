"""Budgets of users in a mount over Ceph RGW: a user who has read enough is refused, and another reads on."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import verbs
from tests.commands import tierfs
from tests.conftest import Bucket
from tests.mount.conftest import Mounted, append, mounts_of
from tests.mount.other_user import require_root, seen
from tests.mount.waiting import errno_of, eventually
from tierfs.app.setup.create import init_store
from tierfs.app.store import Store, open_store
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.place import Place, Server

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread")]

DATA = os.urandom(3 * MIB)
NOBODY = 65534


def limits(mnt: Path) -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads((mnt / ".tierfs/stats").read_text())["limits"]
    return found


@pytest.fixture
def store(tmp_path: Path, rgw_bucket: Bucket) -> Iterator[Store]:
    endpoint, bucket = rgw_bucket
    init_store(tmp_path / "store", Place.parsed(f"s3://{bucket}/p", Server(endpoint.endpoint_url)))
    with open_store(tmp_path / "store") as store:
        for name in ("a", "b"):
            append(store, name, DATA, seal=True)
        verbs.offload(store)
        verbs.evict(store, force=True)
        yield store


@pytest.fixture
def mounted(store: Store, tmp_path: Path) -> Iterator[Mounted]:
    tierfs("-q", "config", f"read.hourly_bytes={4 * MIB}", "read.when_spent=refuse", store=store.path)
    with mounts_of(store, tmp_path) as mount:
        yield mount("allow_other,xattr")


def test_a_user_over_the_budget_is_refused_with_the_reason_while_another_reads_on(
    store: Store, mounted: Mounted
) -> None:
    require_root()
    mnt = mounted.path
    assert (mnt / "a").read_bytes() == DATA
    assert errno_of((mnt / "b").read_bytes) == errno.EDQUOT
    assert seen(mnt, "b") == DATA
    told = os.getxattr(mnt / "a", "user.tierfs.read_budget").decode()
    assert " of 4 MiB; the next read is allowed in " in told
    shown = limits(mnt)
    assert shown is not None
    spent = {row["uid"]: row["bytes"] for row in shown["budgets"]}
    assert spent[0] > 3 * MIB > spent[NOBODY] >= MIB, "what root had fetched of b cost nobody nothing"
    reason = "warning: user 0 has read 4 MiB (read.hourly_bytes)"
    assert eventually(lambda: reason in tierfs("status", store=store.path, check=False).out)
    tierfs("-q", "config", "read.hourly_bytes=0", store=store.path)
    mounted.process.send_signal(signal.SIGHUP)
    assert eventually(lambda: limits(mnt) is None)
    assert (mnt / "b").read_bytes() == DATA
