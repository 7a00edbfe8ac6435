"""Bad input: one clear line, a remedy, the right exit code, and nothing half-done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import Done, tierfs
from tests.conftest import Bucket
from tests.mount.namespaces import in_namespace


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


def test_s3_that_cannot_be_used(tmp_path: Path, moto_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, bucket = moto_bucket
    url = ("--endpoint-url", endpoint.endpoint_url)
    store = tmp_path / "s"
    refused(fails("init", "--bucket", "s3://no-such-bucket/p", *url, store=store), 3, "no-such-bucket")
    refused(fails("init", "--bucket", f"s3://{bucket}/p", "--endpoint-url", "http://127.0.0.1:9", store=store), 11)
    tierfs("-q", "init", "--bucket", f"s3://{bucket}/p", *url, store=tmp_path / "first")
    refused(fails("init", "--bucket", f"s3://{bucket}/p", *url, store=store), 5, "already contains a tierfs store")
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


@pytest.mark.xdist_group("mount-namespaces")
def test_no_fuse_device(store: Path, tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    script = f"mount -t tmpfs none /dev && exec {sys.executable} -m tierfs mount {tmp_path / 'mnt'}"
    done = subprocess.run(
        in_namespace(tmp_path, "sh", "-c", script),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TIERFS_STORE": str(store)},
    )
    refused(Done(done.returncode, done.stdout, done.stderr), 11, "/dev/fuse is missing", "modprobe fuse")
