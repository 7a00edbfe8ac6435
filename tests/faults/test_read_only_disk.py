"""A disk that takes no changes, from the start or under a process: its bytes are read by commands and mounts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.children import code_of_child
from tests.commands import tierfs
from tests.disks import disk, failing_disk, fill, read_only
from tests.faces.cli.commands.test_daemon import daemon
from tests.mount.waiting import errno_of, eventually
from tierfs.app.store import Store, open_store
from tierfs.base.system.locks import LockFile
from tierfs.base.words.errors import Conflict, ReadOnlyDisk
from tierfs.engine.metadata import environment
from tierfs.engine.metadata.tables import SEGMENTS

pytestmark = [pytest.mark.mount, pytest.mark.timeout(180, method="thread")]

COLD = os.urandom(3_000_000)
OTHER = b"read for the first time\n"
LOCAL = b"only local\n"
DISK_BYTES = 200 << 20
SAID = "the disk is read-only; data can be read"

READS = [
    "cat live",
    "cat logs/cold",
    "ls -l",
    "info logs/cold",
    "info --map logs/cold",
    "du",
    "status",
    "check",
    "check --read",
    "gc",
    "config",
    "config logs",
    "ls --removed",
    "ledger ls",
    "ledger status public/default/t",
    "backup {dir}/backup-{number}",
]
CHANGES = [
    "append live",
    "append new",
    "seal live",
    "unseal logs/cold",
    "concat -y live logs/cold",
    "clone live new",
    "mv live new",
    "trim -y logs/cold --before 10",
    "rm -y live",
    "restore gone",
    "config logs retention_age=1d",
    "config read.streams=8",
    "ingest {dir}/in --into more",
    "ledger append public/default/t",
    "offload",
    "evict",
    "consolidate",
    "gc --delete -y",
    "check --repair",
    "move --to {dir}/elsewhere",
    "admin",
]


def test_the_page_lists_the_verbs_that_are_run_here() -> None:
    page = (Path(__file__).parents[2] / "docs/recovery.md").read_text().partition("## The night")[2]
    row = next(line for line in page.splitlines() if line.startswith("| `ls`"))
    work, refused = (set(re.findall(r"`(\w+)`", column)) for column in row.strip("|").split("|"))
    beside = {"doctor", "mount", "umount", "top", "daemon"}
    assert work - beside == {words.split()[0] for words in READS}
    assert refused - beside == {words.split()[0] for words in CHANGES}


@dataclass(frozen=True, slots=True)
class Night:
    """A store on a disk that takes no changes, and a directory on one that does."""

    store: Path
    elsewhere: Path

    def reads(self, mountpoint: Path) -> None:
        """Whatever is there can be read through a mount."""
        assert (mountpoint / "live").read_bytes() == LOCAL
        assert (mountpoint / "logs/cold").read_bytes() == COLD
        assert sorted(os.listdir(mountpoint)) == ["live", "logs", "public"]

    def run(self, words: str, number: int = 0) -> tuple[int, str, str]:
        done = tierfs(*words.format(dir=self.elsewhere, number=number).split(), store=self.store, check=False)
        return done.code, done.out, done.err


def filled_store(store: Path, *options: object) -> Path:
    tierfs("-q", "init", *options, store=store, check=False)
    tierfs("append", "logs/cold", "--seal", store=store, stdin=COLD)
    tierfs("-q", "offload", store=store, check=False)  # an object of its own for the other
    tierfs("append", "logs/other", "--seal", store=store, stdin=OTHER)
    tierfs("-q", "config", "read.deadline_s=2", store=store, check=False)
    tierfs("ledger", "append", "public/default/t", store=store, stdin=b"entry\n")
    tierfs("append", "gone", store=store, stdin=b"gone")
    tierfs("rm", "-y", "gone", store=store)
    tierfs("-q", "offload", store=store, check=False)
    tierfs("evict", "logs", store=store)
    tierfs("append", "live", store=store, stdin=LOCAL)
    return store


@contextmanager
def mounted(store: Path, point: Path, *, says: str = "") -> Iterator[Path]:
    point.mkdir()
    done = tierfs("mount", point, store=store, check=False)
    assert (done.code, says in done.err) == (0, True), done
    try:
        yield point
    finally:
        tierfs("umount", "--lazy", point, store=store, check=False)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    for name in ("cold", "elsewhere", "elsewhere/in", "elsewhere/elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "elsewhere/in/file").write_text("x")
    return tmp_path / "elsewhere"


@pytest.mark.slow
def test_a_disk_that_fails_under_a_mount_still_lets_its_bytes_out(elsewhere: Path, tmp_path: Path) -> None:
    with failing_disk(tmp_path / "disk", DISK_BYTES) as bad:
        night = Night(filled_store(bad.path / "store", "--cold-dir", tmp_path / "cold"), elsewhere)
        with mounted(night.store, tmp_path / "mnt") as point:
            night.reads(point)
            bad.fail()
            for number, words in enumerate(READS):
                code, out, err = night.run(words, number)
                assert (code, err.count(SAID)) == (0, 1), (words, out, err)
            assert night.run("cat live")[1].encode() == LOCAL
            for words in CHANGES:
                code, out, err = night.run(words)
                assert (code, "read-only" in err, "see docs/recovery.md" in err) == (4, True, True), (words, out, err)
            code, out, _ = night.run("--json doctor")
            (failed,) = [row for row in json.loads(out)["checks"] if row["level"] == "FAIL"]
            assert (code, failed["name"]) == (1, "filesystem")
            assert "read-only" in failed["found"]
            with mounted(night.store, tmp_path / "other", says=SAID) as another:
                night.reads(another)
                warns(another, tmp_path / "cold")
                night.reads(another)
            night.reads(point)


def warns(point: Path, cold: Path) -> None:
    """Have the mount warn, in a log that takes nothing: of an object that is not there."""
    (object_of_other,) = [path for path in cold.rglob("*") if path.is_file() and OTHER in path.read_bytes()]
    away = cold.with_name("away")
    os.rename(object_of_other, away)
    assert errno_of((point / "logs/other").read_bytes)
    os.rename(away, object_of_other)
    assert (point / "logs/other").read_bytes() == OTHER


@pytest.mark.slow
def test_a_mount_for_reading_alone_is_read_until_it_takes_changes(elsewhere: Path, tmp_path: Path) -> None:
    """As a snapshot or a volume, which has the cold tier with it."""
    (tmp_path / "disk").mkdir()
    live = filled_store(tmp_path / "disk/store")
    seen = tmp_path / "seen"
    with read_only(tmp_path / "disk", seen):
        night = Night(seen / "store", elsewhere)
        for number, words in enumerate(READS):
            code, out, err = night.run(words, number)
            assert (code, err.count(SAID)) == (0, 1), (words, out, err)
        with mounted(night.store, tmp_path / "mnt", says=SAID) as point:
            night.reads(point)
            with daemon(live):
                code, _, err = night.run("cat live")
                assert (code, "a process that can write to it has it open" in err) == (5, True)
                with pytest.raises(OSError, match="busy"):
                    (point / "live").read_bytes()
            night.reads(point)
            subprocess.run(["mount", "-o", "remount,bind,rw", str(seen)], check=True)
            assert eventually(lambda: tierfs("--json", "status", store=night.store, check=False).json["holder"])
            tierfs("append", "live", store=night.store, stdin=b"more\n")
            assert eventually(lambda: (point / "live").read_bytes() == LOCAL + b"more\n")
            assert "could not be written" in (night.store / "log/mount.log").read_text()


def test_a_process_that_lives_on_writes_when_the_disk_does_and_its_children_read(
    tmp_path: Path, expected_warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected_warnings.append(SAID)
    monkeypatch.setattr(environment, "_LOOK_AGAIN_S", 0)
    (tmp_path / "disk").mkdir()
    filled_store(tmp_path / "disk/store")
    with read_only(tmp_path / "disk", tmp_path / "seen"), open_store(tmp_path / "seen/store") as store:
        with store.metadata.read() as txn, pytest.raises(ReadOnlyDisk):
            store.metadata.write().__enter__()
        with pytest.raises(ReadOnlyDisk):
            store.engine.open_writer("live")

        def read_here() -> int:
            with store.metadata.read() as txn:
                return int(txn.store.store_id != store.metadata.store_id)

        assert code_of_child(read_here) == 0
        with closing(LockFile(tmp_path / "disk/store/metadata/namespace")) as other:
            with pytest.raises(Conflict), store.metadata.read():
                other.try_lock(shared=True)  # as one that can write does, while this one reads
            with pytest.raises(Conflict):
                store.metadata.last_transaction_id()
        with store.metadata.read() as txn:
            subprocess.run(["mount", "-o", "remount,bind,rw", str(tmp_path / "seen")], check=True)
            store.metadata.last_transaction_id()  # another thread's look, while this one reads
            assert [row.name for _, row in txn.scan(SEGMENTS) if row.name == "live"]
        assert writes(store)
        with closing(store.engine.open_writer("live")) as writer:  # its locks could only be looked at
            writer.append(b"more\n")


@pytest.mark.slow
def test_a_store_that_nobody_has_locked_yet_is_read(tmp_path: Path) -> None:
    """As a copy without its locks, or a store that was only written to: the files cannot be made either."""
    (tmp_path / "disk").mkdir()
    live = filled_store(tmp_path / "disk/store")
    for lock in (live / "locks").iterdir():
        lock.unlink()
    with read_only(tmp_path / "disk", tmp_path / "seen") as seen:
        for words in ("status", "info live", "gc", "check", "ls", "cat live"):
            done = tierfs(*words.split(), store=seen / "store", check=False)
            assert (done.code, done.err.count(SAID)) == (0, 1), (words, done)
        with mounted(seen / "store", tmp_path / "mnt", says=SAID) as point:
            assert (point / "live").read_bytes() == LOCAL
        done = tierfs("append", "live", store=seen / "store", stdin=b"x", check=False)
        assert (done.code, "read-only" in done.err) == (4, True), done


def writes(store: Store) -> bool:
    try:
        with store.metadata.write():
            return True
    except ReadOnlyDisk:
        return False


@pytest.mark.slow
def test_a_full_disk_ends_no_mount(tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    with disk(tmp_path / "disk", DISK_BYTES) as path:
        store = filled_store(path / "store", "--cold-dir", tmp_path / "cold")
        with mounted(store, tmp_path / "mnt") as point:
            fill(path / "fill")
            warns(point, tmp_path / "cold")
            assert (point / "live").read_bytes() == LOCAL
            (path / "fill").unlink()
            tierfs("append", "live", store=store, stdin=b"more\n")
            assert eventually(lambda: (point / "live").read_bytes() == LOCAL + b"more\n")


@pytest.mark.parametrize("stream", ["full", "closed pipe", "stopped reader"])
def test_standard_error_that_takes_nothing_changes_nothing(tmp_path: Path, stream: str) -> None:
    """Neither what a command does and returns, nor what serves in the foreground."""
    store = filled_store(tmp_path / "store")
    point = tmp_path / "mnt"
    point.mkdir()
    reading, writing = os.pipe()
    if stream == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), writing)
    elif stream == "closed pipe":
        os.close(reading)
    else:
        os.set_blocking(writing, False)
        while True:
            try:
                os.write(writing, bytes(4096))
            except BlockingIOError:
                break
        os.set_blocking(writing, True)
    command = [sys.executable, "-m", "tierfs", "--store", str(store)]
    if stream != "stopped reader":  # a command waits for its terminal
        done = subprocess.run([*command, "append", "live"], input=b"x", stderr=writing, check=False, timeout=60)
        assert done.returncode == 0
        missing = subprocess.run([*command, "cat", "none"], stderr=writing, check=False, timeout=60)
        assert missing.returncode == 3
    with subprocess.Popen([*command, "mount", "-f", str(point)], stderr=writing) as process:
        try:
            assert eventually((point / "live").exists)
            assert (point / "logs/cold").read_bytes() == COLD
        finally:
            process.terminate()
            assert process.wait(30) == 0
