"""Bad input: one clear line, a remedy, the right exit code, and nothing half-done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import Done, new_store, tierfs
from tests.conftest import Bucket


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    return path


def refused(done: Done, code: int, *words: str) -> None:
    """Assert one line of error, and at most one of remedy, with these words and this exit code."""
    assert done.code == code, done
    assert done.out == ""
    lines = done.err.splitlines()
    assert 1 <= len(lines) <= 2, done.err
    assert lines[0].startswith("tierfs: ")
    assert lines[0].endswith(f"exit {code})")
    for word in words:
        assert word in done.err, done.err


def fails(*words: object, store: Path | None = None, stdin: bytes = b"") -> Done:
    return tierfs(*words, store=store, stdin=stdin, check=False)


def test_no_store_and_wrong_store(tmp_path: Path) -> None:
    refused(fails("ls"), 2, "--store DIR", "TIERFS_STORE")
    refused(fails("ls", store=tmp_path / "none"), 3, "is not a tierfs store", "init")
    (tmp_path / "file").write_text("x")
    refused(fails("info", "s", store=tmp_path / "file"), 3, "is not a tierfs store")


def test_a_store_others_can_write_is_refused(store: Path) -> None:
    store.chmod(0o777)
    refused(fails("ls", store=store), 4, "can be written by others", "chmod 700")


def test_init_twice_or_in_a_full_directory(store: Path, tmp_path: Path) -> None:
    refused(fails("init", store=store), 5, "is a tierfs store already")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    refused(fails("init", store=tmp_path / "full"), 2, "is not empty")
    assert (tmp_path / "full" / "file").read_text() == "mine"


def test_a_cold_directory_that_holds_a_store(tmp_path: Path) -> None:
    cold = tmp_path / "cold"
    cold.mkdir()
    tierfs("-q", "init", "--cold-dir", cold, store=tmp_path / "one")
    refused(fails("init", "--cold-dir", cold, store=tmp_path / "two"), 5, "holds a tierfs store already", "recover")
    assert not (tmp_path / "two").exists()


def test_options_that_exclude_each_other(tmp_path: Path) -> None:
    refused(fails("init", "--cold", "none", "--bucket", "s3://b", store=tmp_path / "s"), 2, "mutually exclusive")
    refused(fails("init", "--region", "r", store=tmp_path / "s"), 2, "--bucket")
    refused(fails("init", "--bucket", "http://b", store=tmp_path / "s"), 2, "s3://BUCKET/PREFIX")
    assert not (tmp_path / "s").exists()


def test_s3_that_cannot_be_used(tmp_path: Path, moto_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, bucket = moto_bucket
    url = ("--endpoint-url", endpoint.endpoint_url)
    store = tmp_path / "s"
    refused(fails("init", "--bucket", "s3://no-such-bucket/p", *url, store=store), 3, "no-such-bucket")
    refused(fails("init", "--bucket", f"s3://{bucket}/p", "--endpoint-url", "http://127.0.0.1:9", store=store), 11)
    tierfs("-q", "init", "--bucket", f"s3://{bucket}/p", *url, store=tmp_path / "first")
    refused(fails("init", "--bucket", f"s3://{bucket}/p", *url, store=store), 5, "holds a tierfs store already")
    assert not store.exists()


def test_init_makes_the_bucket_where_it_is_asked_to(tmp_path: Path, moto_bucket: Bucket) -> None:
    endpoint, there = moto_bucket
    words = ("init", "--endpoint-url", endpoint.endpoint_url, "--create-bucket", "--bucket")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    new = f"new-{there}"
    refused(fails(*words, f"s3://{new}/p", store=tmp_path / "full"), 2, "is not empty")
    refused(fails("init", *words[1:3], "--bucket", f"s3://{new}/p", store=tmp_path / "s"), 3, "does not exist")
    for name, bucket in (("s", new), ("again", there), ("elsewhere", there)):
        tierfs("-q", *words, f"s3://{bucket}/{name}", "--region", "us-east-1", store=tmp_path / name)
    tierfs("-q", *words, f"s3://{new}-far/p", "--region", "eu-central-1", store=tmp_path / "far")
    refused(fails("init", "--create-bucket", store=tmp_path / "none"), 2, "--create-bucket needs --bucket")


def test_s3_with_wrong_keys(tmp_path: Path, rgw_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, bucket = rgw_bucket
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret-key")
    done = fails("init", "--bucket", f"s3://{bucket}/p", "--endpoint-url", endpoint.endpoint_url, store=tmp_path / "s")
    refused(done, 4)
    assert "wrong-secret-key" not in done.err
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("name", ["a/../b", "..", "a\nb", "x" * 300, ""])
def test_names_that_cannot_be(store: Path, name: str) -> None:
    refused(fails("append", name, store=store, stdin=b"x"), 2)
    assert tierfs("ls", store=store).out == ""


def test_a_sealed_segment_and_a_wrong_offset(store: Path) -> None:
    tierfs("append", "s", "--seal", store=store, stdin=b"abc")
    refused(fails("append", "s", store=store, stdin=b"d"), 7, "is sealed")
    tierfs("append", "t", store=store, stdin=b"abc")
    refused(fails("append", "t", "--expect-offset", "2", store=store, stdin=b"d"), 8, "its length is 3")
    refused(fails("append", "new", "--expect-offset", "2", store=store, stdin=b"d"), 8)
    assert tierfs("ls", store=store).out == "s\nt\n"


def test_what_does_not_exist(store: Path) -> None:
    for words in (["info", "no"], ["cat", "no"], ["ls", "no"], ["seal", "no"], ["rm", "no"], ["offload", "no"]):
        refused(fails(*words, store=store), 3, "no does not exist")


def test_directories_and_segments_mixed_up(store: Path) -> None:
    tierfs("append", "d/s", store=store, stdin=b"x")
    refused(fails("info", "d", store=store), 2, "is a directory")
    refused(fails("append", "d", store=store), 2, "is a directory")
    refused(fails("append", "d/s/t", store=store), 2, "is a segment")
    refused(fails("rm", "d", store=store), 2, "rm -r d")
    refused(fails("rm", "-r", "d", store=store), 2, "--yes")


def test_input_files_that_cannot_be_read(store: Path, tmp_path: Path) -> None:
    refused(fails("append", "s", tmp_path / "none", store=store), 3, "none")
    refused(fails("append", "s", tmp_path, store=store), 2, "is a directory", "ingest")
    refused(fails("ingest", tmp_path / "none", "--into", "d", store=store), 3, "none")
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0)
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", "cat", str(secret)], capture_output=True, check=False
    )
    if done.returncode == 0:
        pytest.fail("the file was meant to be unreadable")
    assert tierfs("ls", store=store).out == ""


def test_unknown_settings_and_values(store: Path) -> None:
    settings = store / "store.toml"
    settings.write_text("[read]\nbudget = 3\n")
    refused(fails("seal", "s", store=store), 2, "store.toml", "'read.budget'", "budget_bytes")
    settings.write_text('[read]\nbudget_bytes = "many"\n')
    refused(fails("seal", "s", store=store), 2, "read.budget_bytes", "many")
    settings.write_text('[read]\nbudget_bytes = "64MiB"\ndeadline_s = "1min"\n')
    tierfs("ls", store=store)
    settings.write_text("[read\n")
    refused(fails("seal", "s", store=store), 2, "not valid TOML")


@pytest.mark.parametrize("text", ["[read]\nbudget = 3\n", '[read]\nstreams = "x"\n', "[read\n", "streams = 3\n"])
def test_refused_settings_stop_no_look_and_no_repair(store: Path, tmp_path: Path, text: str) -> None:
    tierfs("append", "d/s", store=store, stdin=b"bytes")
    (store / "store.toml").write_text(text)
    looks = (["ls"], ["info", "d/s"], ["du"], ["map", "d/s"], ["status"], ["policy", "show", "/"], ["verify"])
    for words in (*looks, ["cat", "d/s"], ["fsck"], ["fsck", "--repair"], ["doctor"], ["dump", tmp_path / "dump"]):
        done = tierfs(*words, store=store, check=False)
        assert (done.code in (0, 1), "store.toml" in done.err + done.out) == (True, True), (words, done)
    assert tierfs("-q", "cat", "d/s", store=store).out == "bytes"


def test_ranges_outside_the_segment(store: Path) -> None:
    tierfs("append", "s", store=store, stdin=b"abc")
    refused(fails("cat", "s", "--from", "4", store=store), 2, "holds bytes 0 to 3")
    assert tierfs("cat", "s", "--from", "1", "--to", "4", store=store).out == "bc"
    refused(fails("cat", "s", "--from", "2", "--to", "1", store=store), 2)
    refused(fails("cat", "s", "--from", "many", store=store), 2, "is not a size")


def test_bytes_are_read_without_a_cold_tier(tmp_path: Path) -> None:
    store = tmp_path / "s"
    tierfs("-q", "init", "--cold", "none", store=store)
    tierfs("append", "s", store=store, stdin=b"abc")
    assert tierfs("cat", "s", store=store).out == "abc"


def test_reading_a_tier_that_has_no_copy(store: Path) -> None:
    tierfs("append", "s", store=store, stdin=b"abc")
    refused(fails("cat", "s", "--read-priority", "offloaded-only", store=store), 11, "not in the cold tier")


def test_mount_points_that_cannot_be_used(store: Path, tmp_path: Path) -> None:
    refused(fails("mount", tmp_path / "none", store=store), 3, "does not exist", "mkdir")
    (tmp_path / "file").write_text("x")
    refused(fails("mount", tmp_path / "file", store=store), 2, "is not a directory")
    refused(fails("mount", tmp_path, store=store), 2, "is not empty")
    (tmp_path / "mnt").mkdir()
    refused(fails("mount", tmp_path / "mnt", "-o", "fast", store=store), 2, "unknown mount option 'fast'")
    refused(fails("mount", tmp_path / "mnt", "-o", "rw", store=store), 2, "read-only")
    refused(fails("umount", tmp_path / "mnt"), 3, "is not a tierfs mount")


def test_no_fuse_device(store: Path, tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    script = f"mount -t tmpfs none /dev && exec {sys.executable} -m tierfs mount {tmp_path / 'mnt'}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TIERFS_STORE": str(store)},
    )
    refused(Done(done.returncode, done.stdout, done.stderr), 11, "/dev/fuse is missing", "modprobe fuse")


def test_unknown_commands_and_options(store: Path) -> None:
    refused(fails("frobnicate", store=store), 2, "frobnicate")
    refused(fails("ls", "--frob", store=store), 2, "--frob")


def test_errors_as_json(store: Path) -> None:
    import json

    done = fails("info", "no", "--json", store=store)
    assert done.code == 3
    assert json.loads(done.err) == {"error": "segment no does not exist", "kind": "NotFound", "exit": 3, "remedy": None}


def test_a_full_disk_leaves_nothing_half_done(store: Path) -> None:
    free = os.statvfs(store)
    floor = free.f_bavail * free.f_frsize * 2
    (store / "store.toml").write_text(f"[write]\nfree_space_floor_bytes = {floor}\n")
    refused(fails("append", "s", store=store, stdin=b"x"), 28, "the local disk is full", "evict")
    assert tierfs("ls", store=store).out == ""


@pytest.mark.parametrize(
    "words",
    [
        ("rm", "it's"),
        ("rm", "-r", "a b"),
        ("rm", "--", "-dash"),
        ("concat", "-q", "it's", "sealed one"),
        ("truncate", "it's", "--before", "1"),
        ("ledger", "delete", "m/00000000000000000001"),
        ("ledger", "trim", "m", "--before", "1:1"),
        ("gc", "--delete", "--trash"),
        ("gc", "--accept-clock"),
    ],
)
def test_a_confirmation_can_be_pasted(store: Path, words: tuple[str, ...]) -> None:
    for name in ("it's", "a b/s", "-dash", "sealed one"):
        tierfs("append", "--", name, store=store, stdin=b"four")
    tierfs("seal", "sealed one", store=store)
    tierfs("ledger", "create", "m", "--id", "1", store=store)
    tierfs("ledger", "append", "m", store=store, stdin=b"entry")
    tierfs("ledger", "close", "m/00000000000000000001", store=store)
    refused = fails("--store", store, *words)
    assert refused.code == 2
    remedy = refused.err.splitlines()[1].strip()
    assert remedy.startswith(f"to confirm: tierfs --store {store} {words[0]} ")
    done = subprocess.run(
        ["bash", "-euc", remedy.removeprefix("to confirm: ")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_ignoring_a_journal_can_be_pasted(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    old, new = new_store(tmp_path / "old"), tmp_path / "new"
    tierfs("append", "s", store=old, stdin=b"bytes")
    tierfs("offload", store=old)
    cold = old.parent / "cold"
    refused = fails("--store", new, "recover", "--from-objects", "--cold-dir", cold)
    command = refused.err.splitlines()[1].partition("to ignore it: ")[2]
    done = subprocess.run(["bash", "-euc", command], capture_output=True, text=True, check=False)
    assert (done.returncode, new.is_dir()) == (0, True), done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("offload",),
        ("evict", "s"),
        ("consolidate",),
        ("ledger", "offload", "m"),
        ("dump", "s", "--to-bucket"),
        ("load", "dumps/1-2"),
        ("gc",),
    ],
)
def test_a_store_without_a_cold_tier_is_told_to_get_one(tmp_path: Path, words: tuple[str, ...]) -> None:
    store = tmp_path / "alone"
    tierfs("-q", "init", "--cold", "none", store=store)
    tierfs("append", "s", store=store, stdin=b"bytes")
    tierfs("ledger", "append", "m", store=store, stdin=b"entry")
    done = fails(*words, store=store)
    refused(done, 2, "needs a cold tier, and this store has none (NoColdTier", "tierfs config set cold.url=URL")


def test_a_full_disk_is_named_where_no_cold_tier_could_make_room(tmp_path: Path) -> None:
    store = tmp_path / "alone"
    tierfs("-q", "init", "--cold", "none", store=store)
    tierfs("-q", "config", "set", "write.free_space_floor_bytes=1PiB", store=store, check=False)
    done = fails("append", "s", store=store, stdin=b"bytes")
    assert (done.code, "nothing can be evicted: eviction needs a cold tier" in done.err) == (28, True), done
