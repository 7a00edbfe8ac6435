"""Adopted objects in a mount: read like any other file, and an errno when they have changed."""

from __future__ import annotations

import errno
import os
from hashlib import sha256
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.conftest import Bucket
from tests.mount.conftest import Mount
from tests.mount.waiting import errno_of, eventually
from tests.tiering.adoption.foreign import ForeignBucket, write_files
from tests.tiering.adoption.test_rocketmq import Q, posix
from tierfs.app import store
from tierfs.app.adopt import OBJECTS, ROCKETMQ, Adopter
from tierfs.engine.chunkstore.place import Server

pytestmark = pytest.mark.mount

DATA = os.urandom(1_500_000)


def test_adopted_objects_read_through_a_mount(store: store.Store, mount: Mount, moto_bucket: Bucket) -> None:
    theirs = ForeignBucket(moto_bucket)
    theirs.put({"logs/a": DATA, "logs/b": DATA[::-1], "logs/empty": b""})
    adopter = Adopter(store, OBJECTS, "in")
    endpoint, _ = moto_bucket
    planned = adopter.plan(adopter.find(theirs.url("logs"), Server(endpoint.endpoint_url, endpoint.region)))
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


def test_a_layout_that_grows_shows_in_a_mount_within_a_second(store: store.Store, mount: Mount, tmp_path: Path) -> None:
    theirs, log = tmp_path / "theirs", f"{Q}/COMMIT_LOG"
    files = {posix(0): DATA[:400_000], posix(400_000): DATA[400_000:700_000]}
    adopt_queue(store, write_files(theirs, files))
    path = mount().path / "mq" / log
    sealed = path.open("rb")
    assert sealed.read() == DATA[:700_000]
    adopt_queue(store, write_files(theirs, {posix(400_000): DATA[400_000:900_000]}))
    assert eventually(lambda: path.stat().st_size == 900_000, SHOWN_WITHIN_S)
    assert sealed.read() == b"", "a handle of a sealed file never grows"
    with path.open("rb") as growing:
        assert growing.read() == DATA[:900_000]
        adopt_queue(store, write_files(theirs, {posix(900_000): DATA[900_000:1_200_000]}))
        assert eventually(lambda: os.fstat(growing.fileno()).st_size == 1_200_000, SHOWN_WITHIN_S)
        assert growing.read() == DATA[900_000:1_200_000]
        inode = path.stat().st_ino
        (theirs / posix(0)).unlink()
        adopt_queue(store, theirs)
        assert eventually(lambda: path.stat().st_ino != inode, SHOWN_WITHIN_S)
        assert path.read_bytes() == DATA[400_000:1_200_000]
        assert errno_of(lambda: os.pread(growing.fileno(), 1, 0)) == errno.ESTALE
        assert os.pread(growing.fileno(), 4096, 1 << 20) == DATA[1 << 20 : (1 << 20) + 4096]
    sealed.close()


def test_the_mount_that_holds_the_store_adopts_again(store: store.Store, mount: Mount, tmp_path: Path) -> None:
    theirs = write_files(tmp_path / "theirs", {posix(0): DATA[:400_000]})
    tierfs("-q", "adopt", theirs, "--into", "mq", "--every", "1s", store=store.path)
    path = mount().path / "mq" / Q / "COMMIT_LOG"
    with path.open("rb") as growing:
        assert growing.read() == DATA[:400_000]
        write_files(theirs, {posix(0): DATA[:700_000], posix(700_000): DATA[700_000:]})
        assert eventually(lambda: os.fstat(growing.fileno()).st_size == len(DATA), 20)
        assert growing.read() == DATA[400_000:]


SHOWN_WITHIN_S = 1.0


def adopt_queue(store: store.Store, theirs: Path) -> None:
    adopter = Adopter(store, ROCKETMQ, "mq")
    planned = adopter.plan(adopter.find(str(theirs)))
    adopter.adopt(planned, 2, lambda *_: None)
    assert [outcome.error for outcome in planned.outcomes] == [None]
