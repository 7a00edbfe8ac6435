"""The cold tier's server goes away and comes back: readers wait for it, up to their deadline and no longer."""

from __future__ import annotations

import errno
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import verbs
from tests.commands import tierfs
from tests.conftest import Bucket
from tests.mount.conftest import Mount, append
from tests.mount.waiting import errno_of, eventually
from tests.reality.reference import reference
from tests.servers.endpoint import ACCESS_KEY, SECRET_KEY
from tests.servers.gate import Gate, gate_to
from tests.servers.rgw import RgwServer
from tests.upkeep.holder import alarms
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.engine.chunkstore.place import Place, Server
from tierfs.upkeep.holder.problem import ProblemKind

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread")]

SIZE = 1 << 20
LONG = 24 << 20
ALONE = 8 << 20
"""Of a segment that shares no object with others."""
DEADLINE_S = 1.0
RESTART_S = 1.0
READ_AHEADS_AT_ONCE = 12
"""The kernel's own limit: so many that wait would hold up every other read."""
APART_BYTES = 6 << 18
"""More than the longest read-ahead of a mount, 1 MiB: no reader waits for a page that another one has requested."""


@pytest.fixture
def gate(moto_bucket: Bucket) -> Iterator[Gate]:
    with gate_to(moto_bucket[0].endpoint_url) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path, moto_bucket: Bucket, gate: Gate, request: pytest.FixtureRequest) -> Iterator[app.Store]:
    """A store whose segment `s` is cold, in a bucket behind the gate, and `l` is local."""
    url = f"s3://{moto_bucket[1]}/p"
    init_store(tmp_path / "store", Place.parsed(url, Server(gate.url)))
    with app.open_store(tmp_path / "store") as opened:
        append(opened, "s", reference(0, getattr(request, "param", SIZE)), seal=True)
        verbs.offload(opened)
        verbs.evict(opened)
        append(opened, "l", reference(0, 100_000), seal=True)
        yield opened


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the right keys; this process and its children have none in their environment."""
    path = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    write_keys(path, ACCESS_KEY, SECRET_KEY)
    return path


def write_keys(path: Path, access: str, secret: str) -> None:
    path.write_text(f"[default]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n")


def test_a_key_that_was_replaced_is_told_as_an_error_of_the_disk_until_the_new_one_is_there(
    keys: Path, rgw_server: RgwServer, rgw_bucket: Bucket, tmp_path: Path
) -> None:
    rgw_server.add_key("old", "oldsecret")
    write_keys(keys, "old", "oldsecret")
    place = Place.parsed(f"s3://{rgw_bucket[1]}/p", Server(rgw_bucket[0].endpoint_url))
    init_store(tmp_path / "store", place)
    with app.open_store(tmp_path / "store") as opened:
        for name in ("a", "b", "c"):
            append(opened, name, reference(0, ALONE), seal=True)
        verbs.offload(opened)
        verbs.evict(opened)
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    tierfs("mount", mnt, store=tmp_path / "store")
    try:
        assert (mnt / "a").read_bytes() == reference(0, ALONE)
        rgw_server.revoke_key("old")
        assert eventually(lambda: errno_of((mnt / "b").read_bytes) == errno.EIO)

        def says_why() -> bool:
            assert errno_of((mnt / "b").read_bytes) == errno.EIO
            shown = tierfs("status", store=tmp_path / "store", check=False).out
            assert f"reads at {mnt} are refused: " in shown
            return f"reads at {mnt} are refused: credentials refused by" in shown

        assert eventually(says_why)  # while it removes a key, Ceph RGW answers AccessDenied
        write_keys(keys, ACCESS_KEY, SECRET_KEY)
        assert eventually(lambda: errno_of((mnt / "b").read_bytes) == 0)
        assert (mnt / "c").read_bytes() == reference(0, ALONE)
        assert "reads at" not in tierfs("status", store=tmp_path / "store", check=False).out
    finally:
        tierfs("umount", mnt, store=tmp_path / "store", check=False)


def deadline(store: app.Store, seconds: float) -> None:
    (store.path / "store.toml").write_text(f"[read]\ndeadline_s = {seconds}\n")


@pytest.mark.parametrize("store", [LONG], indirect=True)
def test_a_restart_in_the_middle_of_a_copy_is_waited_for(
    store: app.Store, mount: Mount, gate: Gate, tmp_path: Path
) -> None:
    mnt = mount().path
    gate.close_after_bytes = gate.forwarded_bytes + LONG // 3
    copying = subprocess.Popen(["cp", mnt / "s", tmp_path / "copy"], stderr=subprocess.PIPE)
    assert eventually(lambda: gate.close_after_bytes is None)
    reopening = threading.Timer(RESTART_S, gate.open)
    reopening.start()
    _, said = copying.communicate(timeout=60)
    reopening.join()
    assert (copying.returncode, said) == (0, b"")
    assert (tmp_path / "copy").read_bytes() == reference(0, LONG)


@pytest.mark.parametrize("how", ["refused", "silent"])
def test_status_names_the_reads_that_wait(store: app.Store, mount: Mount, gate: Gate, how: str, tmp_path: Path) -> None:
    mnt = mount(fault="tells-soon").path
    gate.close() if how == "refused" else gate.silence()
    reading = subprocess.Popen(["cat", mnt / "s"], stdout=subprocess.DEVNULL)
    try:
        assert eventually(lambda: f" at {mnt}, up to " in tierfs("status", store=store.path).out)
        text = (mnt / ".tierfs/metrics").read_text()
        assert '\ntierfs_problems{kind="reads-wait"} 1.0\n' in text
        alarms.assert_fires(
            tmp_path, alarms.of_kind(ProblemKind.READS_WAIT), [*alarms.series(text)], {"kind": "reads-wait"}
        )
    finally:
        gate.open()
        assert reading.wait(timeout=60) == 0
    assert json.loads(tierfs("--json", "status", store=store.path).out)["waiting"] == []


@pytest.mark.parametrize("how", ["refused", "silent"])
def test_a_server_that_stays_away_is_an_error_at_the_deadline(
    store: app.Store, mount: Mount, gate: Gate, how: str
) -> None:
    deadline(store, DEADLINE_S)
    mnt = mount().path
    gate.close() if how == "refused" else gate.silence()
    assert errno_of((mnt / "s").read_bytes) == errno.EIO
    gate.open()
    # The deadline still holds, and a busy machine may need longer than that for its first requests.
    assert eventually(lambda: errno_of((mnt / "s").read_bytes) == 0)
    assert (mnt / "s").read_bytes() == reference(0, SIZE)


@pytest.mark.parametrize("store", [LONG], indirect=True)
def test_local_bytes_are_read_while_many_wait_for_a_server(store: app.Store, mount: Mount, gate: Gate) -> None:
    mnt = mount(fault="tells-soon").path
    gate.silence()
    readers = [reading_from(0, mnt)]
    try:
        # Until a read arrives, each open drops the pages of the file, and waits for those that are being read.
        assert eventually(lambda: waiting_reads(mnt) >= 1)
        readers += [reading_from(offset, mnt) for offset in range(APART_BYTES, LONG, APART_BYTES)]
        assert len(readers) > READ_AHEADS_AT_ONCE
        assert eventually(lambda: waiting_reads(mnt) >= len(readers))
        assert (mnt / "l").read_bytes() == reference(0, 100_000)
        assert [reader.poll() for reader in readers] == [None] * len(readers), "they still wait"
    finally:
        for reader in readers:
            reader.kill()
        gate.open()
        for reader in readers:
            reader.wait(30)


def reading_from(offset: int, mnt: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["tail", "-c", f"+{offset + 1}", mnt / "s"], stdout=subprocess.DEVNULL)


def waiting_reads(mnt: Path) -> int:
    """Reads that the mount knows to wait for the cold tier."""
    reads: int = json.loads((mnt / ".tierfs" / "stats").read_text())["waiting"]["reads"]
    return reads
