"""Each bad day of the runbook is made, and its commands are typed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.commands import FORKED_COMMANDS, tierfs
from tests.conftest import Bucket
from tests.disks import disk, fill
from tests.docs.blocks import ROOT, RUN, blocks_of, sections_of
from tests.docs.machine import Machine
from tests.doubles.manual_clock import ManualClock
from tests.mount.waiting import eventually
from tests.servers.rgw import RgwServer
from tierfs.app.store import open_store
from tierfs.upkeep.holder.problem import ProblemKind

pytestmark = [pytest.mark.mount, pytest.mark.slow, pytest.mark.timeout(300)]

PAGE = "docs/runbook.md"
MIB = 1 << 20
DISK_BYTES = 160 * MIB
FREE_BYTES = 60 * MIB
"""Below the floor of a new store, 64 MiB, by less than the day's cold bytes."""
AHEAD_MS = 10 * 86_400_000


@dataclass
class Day:
    """A machine with a store on the disk `/srv`, whose cold tier is on the disk `/mnt/nas`."""

    machine: Machine
    own: Path
    """The disk of the store, and that of the cold tier, as they are mounted for good."""
    nas: Path

    @property
    def store(self) -> Path:
        return self.machine.root / "srv/store"

    @property
    def cold(self) -> Path:
        return self.machine.root / "mnt/nas/tierfs"

    def run(self, *words: object, stdin: bytes = b"") -> None:
        tierfs("-q", *words, store=self.store, stdin=stdin, check=False)

    def daemon(self) -> None:
        tierfs("daemon", store=self.store)

    def has(self, kind: ProblemKind) -> bool:
        problems = tierfs("status", "--json", store=self.store, check=False).json["problems"]
        return any(problem["kind"] == kind for problem in problems)

    def cold_objects(self) -> list[Path]:
        return sorted(self.cold.glob("segments/logs/web/*/chunk-*"))

    def copy(self, name: str) -> None:
        """Copy the cold tier as tools do that know neither times nor attributes."""
        copy = self.machine.root / "backup" / name
        subprocess.run(["cp", "-r", "--no-preserve=all", self.cold, copy], check=True)


@pytest.fixture
def day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Day]:
    """A machine with two disks; no process of the test keeps a file of them open."""
    monkeypatch.setenv(FORKED_COMMANDS, "1")
    machine = Machine(tmp_path)
    nas, srv = machine.root / "mnt/nas", machine.root / "srv"
    nas.mkdir()
    with ExitStack() as left:
        disks = left.enter_context(disk(tmp_path / "disk-of-nas", DISK_BYTES))
        own = left.enter_context(disk(tmp_path / "disk-of-srv", DISK_BYTES))
        for source, target in ((disks, nas), (own, srv)):
            subprocess.run(["mount", "--bind", source, target], check=True)
            left.callback(subprocess.run, ["umount", "--lazy", target], check=True)
        machine.replace |= {
            "mount /mnt/nas": f"mount --bind {disks} {nas}",
            "remount,rw /srv": f"remount,rw {own}",
            "remount,rw /mnt/nas": f"remount,rw {disks}",
            "findmnt /mnt/nas": f"findmnt {nas}",
            "timedatectl set-ntp": "echo",
            "apt install": "echo",
        }
        left.callback(machine.leave)
        left.callback(subprocess.run, ["mount", "-o", "remount,rw", own], check=True)
        yield Day(machine, own, disks)


def made(day: Day) -> None:
    """Make a store with `logs/web`, which is only cold, and `logs/db/2026-11-20`, which is in both tiers."""
    day.machine.store("/srv/store", "--cold-dir", "/mnt/nas/tierfs")
    day.run("offload")
    day.run("evict", "logs/web")


def away(day: Day) -> None:
    made(day)
    subprocess.run(["umount", "--lazy", day.cold.parent], check=True)


def copied(day: Day) -> None:
    made(day)
    day.copy("older")
    day.run("append", "logs/app", "--seal", stdin=b"a line\n")
    day.run("offload")
    day.copy("newest")
    shutil.rmtree(day.cold)
    shutil.copytree(day.machine.root / "backup/older", day.cold)


def full(day: Day) -> None:
    day.machine.store("/srv/store", "--cold-dir", "/mnt/nas/tierfs")
    day.run("rm", "logs", "--recursive", "--now", "--yes")
    day.run("append", "logs/web", "--seal", stdin=bytes(8 * MIB))
    day.run("offload")
    other = day.store.with_name("other")
    fill(other)
    os.truncate(other, other.stat().st_size - FREE_BYTES)


def read_only(day: Day) -> None:
    made(day)
    day.run("append", "logs/app", stdin=b"a line\n")
    subprocess.run(["mount", "-o", "remount,ro", day.own], check=True)


def clock_was_ahead(day: Day) -> None:
    """A process with a clock that is ten days ahead commits; all others have the right one."""
    made(day)
    with open_store(day.store, ManualClock(time.time_ns() // 1_000_000 + AHEAD_MS)) as store, store.metadata.write():
        pass


def dead(day: Day) -> None:
    made(day)
    day.run("append", "logs/app", "--seal", stdin=b"only me\n")
    day.run("offload", "logs/db")


def behind(day: Day) -> None:
    made(day)
    tierfs("replica", "--cold-dir", day.cold, store=day.store.with_name("replica"))
    day.run("append", "logs/app", "--seal", stdin=b"a line\n")


def silent(day: Day) -> None:
    made(day)
    where = ("replica", "--standby", "--takeover-after", "1min", "--cold-dir", day.cold)
    tierfs(*where, store=day.store.with_name("standby"))


def suspect(day: Day) -> None:
    day.machine.store("/srv/store", "--cold-dir", "/mnt/nas/tierfs")
    day.run("config", "offload.pack_below_bytes=0")
    day.run("offload")
    (chunk,) = day.cold_objects()
    with chunk.open("r+b") as file:
        file.seek(100)
        file.write(b"wrong")
    day.run("check", "logs/web")


def lost(day: Day) -> None:
    day.machine.store("/srv/store", "--cold-dir", "/mnt/nas/tierfs")
    day.run("config", "offload.pack_below_bytes=0")
    day.run("offload")
    day.run("evict", "logs/web")
    day.copy("newest")
    day.cold_objects()[0].unlink()


def stuck(day: Day) -> None:
    made(day)
    day.daemon()
    subprocess.run(["mount", "-o", "remount,ro", day.nas], check=True)
    day.run("append", "logs/app", "--seal", stdin=b"only me\n")
    assert eventually(lambda: day.has(ProblemKind.STUCK))


def upgrade(day: Day) -> None:
    made(day)
    (day.machine.root / "mnt/logs").mkdir()
    tierfs("mount", day.machine.root / "mnt/logs", store=day.store)


DAYS: dict[str, Callable[[Day], None]] = {
    "The place is away": away,
    "The bucket is a copy": copied,
    "The disk is full": full,
    "The disk is read-only": read_only,
    "The clock is wrong": clock_was_ahead,
    "The owner is dead": dead,
    "The owner is silent": silent,
    "The replica lags behind": behind,
    "Copies are suspect": suspect,
    "Bytes are lost": lost,
    "Offloading is stuck": stuck,
    "The upgrade": upgrade,
}
WITH_A_SERVER = "The keys have expired"


@pytest.mark.parametrize("title", DAYS)
def test_a_bad_day_ends_as_the_runbook_says(day: Day, title: str) -> None:
    DAYS[title](day)
    day.machine.read(PAGE, {"TIERFS_STORE": str(day.store)}, title)


def test_a_day_of_expired_keys_ends_as_the_runbook_says(
    tmp_path: Path, rgw_server: RgwServer, rgw_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, (endpoint, bucket) = Machine(tmp_path), rgw_bucket
    keys = "[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n"
    machine.file("new-credentials", keys.format(endpoint.access_key, endpoint.secret_key))
    used = machine.root / "home/.aws/credentials"
    used.parent.mkdir()
    used.write_text(keys.format("expiring", "their-secret"))
    rgw_server.add_key("expiring", "their-secret")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(used))
    day = Day(machine, tmp_path, tmp_path)
    machine.store("/srv/store", "--bucket", f"s3://{bucket}/prefix", "--endpoint-url", endpoint.endpoint_url)
    day.daemon()
    try:
        rgw_server.revoke_key("expiring")
        day.run("append", "logs/app", "--seal", stdin=b"a line\n")
        assert eventually(lambda: day.has(ProblemKind.STUCK))
        pid = tierfs("status", "--json", store=day.store, check=False).json["holder"]["pid"]
        machine.replace["systemctl reload tierfs-daemon@logs"] = f"kill -HUP {pid}"
        machine.replace["http://s3.example:9000"] = endpoint.endpoint_url
        machine.read(PAGE, {"TIERFS_STORE": str(day.store)}, WITH_A_SERVER)
    finally:
        machine.leave()


def test_each_section_of_the_runbook_is_typed() -> None:
    text = (ROOT / PAGE).read_text()
    blocks = blocks_of(text)
    assert set(sections_of(text)) == {*DAYS, WITH_A_SERVER}
    for title, (start, end) in sections_of(text).items():
        assert any(block.language in RUN and not block.not_run for block in blocks if start <= block.line < end), title
