"""`tierfs check` as a user runs it: lines, JSON, exit codes; and on a real S3 server."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.commands import tierfs
from tests.conftest import Bucket
from tierfs.app.store import open_store
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.tables import LOCATIONS
from tierfs.faces.cli.commands import check as command
from tierfs.faces.cli.main import cli

NOBODY_LISTENS = "http://127.0.0.1:9"


def lines(out: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


def test_a_cold_tier_that_does_not_answer(tmp_path: Path, moto_bucket: Bucket) -> None:
    endpoint, bucket = moto_bucket
    path = tmp_path / "store"
    tierfs("init", "--bucket", f"s3://{bucket}/p", "--endpoint-url", endpoint.endpoint_url, store=path)
    tierfs("append", "s", store=path, stdin=b"abc")
    (path / "store.toml").write_text("[cold]\nattempts = 1\n")
    with open_store(path) as store, store.metadata.write() as txn:
        location = txn.must_get(LOCATIONS, tables.u32(1), "location 1")
        txn.put(LOCATIONS, tables.u32(1), replace(location, endpoint_url=NOBODY_LISTENS))
    done = tierfs("check", store=path, check=False)
    assert done.code == 11
    assert "not checked: cannot reach" in done.out
    (file,) = (path / "chunks").glob("*/*")
    file.unlink()
    assert tierfs("check", store=path, check=False).code == 74


def test_damage_of_objects_on_ceph_is_told(rgw_bucket: Bucket, tmp_path: Path) -> None:
    endpoint, bucket = rgw_bucket
    path = tmp_path / "store"
    tierfs("init", "--bucket", f"s3://{bucket}/p", "--endpoint-url", endpoint.endpoint_url, store=path)
    (path / "store.toml").write_text("[offload]\npack_below_bytes = 0\n")  # an object each
    for name in ("a/s", "t", "u"):
        tierfs("append", name, "--seal", store=path, stdin=name.encode() * 100_000)
    tierfs("offload", store=path)
    tierfs("evict", "t", store=path)
    assert tierfs("check", "--read", store=path).out.splitlines()[-1] == "clean"
    with closing(endpoint.client()) as client:
        listed = client.list_objects_v2(Bucket=bucket, Prefix="p/segments/")["Contents"]
        for item in listed:
            if "/u/" not in item["Key"]:  # with all objects gone the place would count as not reachable
                client.delete_object(Bucket=bucket, Key=item["Key"])
    done = tierfs("check", "--json", store=path, check=False)
    found = lines(done.out)[:-1]
    assert [(one["kind"], one["severity"]) for one in found] == [
        ("object-missing", "damage"),
        ("object-missing", "loss"),
    ]
    assert tierfs("check", "--repair", "--yes", store=path, check=False).code == 74
    tierfs("offload", store=path)
    assert tierfs("check", "--read", store=path).out.splitlines()[-1].startswith("0 findings left")
    assert tierfs("cat", "a/s", "--read-priority", "offloaded-only", store=path).out == "a/s" * 100_000


@pytest.mark.parametrize(("answer", "lost"), [("y", 2), ("n", 0)])
def test_a_question_names_the_segment_and_stands_for_all_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, lost: int
) -> None:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    for name, data in (("d/a", b"abc"), ("d/b", b"defgh"), ("kept", b"k")):
        tierfs("append", name, "--seal", store=path, stdin=data)
    for file in (path / "chunks").glob("*/*"):
        if file.read_bytes() != b"k":  # with all files gone the directory would count as not mounted
            file.unlink()
    monkeypatch.setattr(command, "is_terminal", lambda: True)
    words = ["--store", str(path), "check", "--repair"]
    done = CliRunner().invoke(cli, words, input=f"{answer}\n")  # asked again, it would get no answer and abort
    assert done.stderr.count("?") == 1
    assert done.stderr.startswith(("d/a: 3 B have no valid copy.", "d/b: 5 B have no valid copy."))
    assert "all other bytes without a copy in this run" in done.stderr
    assert (done.exit_code, done.stdout.count("recorded as lost: ")) == (74, lost)
