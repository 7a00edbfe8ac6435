"""Adopted objects in a mount: read like any other file, and an errno when they have changed."""

from __future__ import annotations

import errno
import os
from hashlib import sha256
from pathlib import Path

import pytest

from tests.adoption.foreign import ForeignBucket
from tests.conftest import Bucket
from tests.mount.conftest import Mount
from tierfs.app import store
from tierfs.app.adopt import OBJECTS, Adopter, ForeignReach

pytestmark = pytest.mark.mount

DATA = os.urandom(1_500_000)


def test_adopted_objects_read_through_a_mount(store: store.Store, mount: Mount, moto_bucket: Bucket) -> None:
    theirs = ForeignBucket(moto_bucket)
    theirs.put({"logs/a": DATA, "logs/b": DATA[::-1], "logs/empty": b""})
    adopter = Adopter(store, OBJECTS, "in", ForeignReach(moto_bucket[0].endpoint_url, moto_bucket[0].region))
    planned = adopter.plan(theirs.url("logs"))
    adopter.adopt(planned, 2, lambda *_: None)
    assert adopter.settle() is None
    mounted = mount("xattr")
    directory = mounted.path / "in"
    assert sorted(os.listdir(directory)) == ["a", "b", "empty"]
    assert sha256((directory / "a").read_bytes()).digest() == sha256(DATA).digest()
    assert (directory / "empty").read_bytes() == b""
    assert os.getxattr(directory / "b", "user.tierfs.cold_bytes") == b"%d" % len(DATA)
    theirs.put({"logs/b": DATA})
    assert_eio(directory / "b")


def assert_eio(path: Path) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.EIO)) as caught:
        path.read_bytes()
    assert caught.value.errno == errno.EIO
