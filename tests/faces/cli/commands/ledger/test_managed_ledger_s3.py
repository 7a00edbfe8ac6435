"""A topic on a real server from append to deletion: automatic rollover, offload, lag, reads and trimming."""

from __future__ import annotations

import hashlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.commands import tierfs
from tests.conftest import Bucket
from tests.faces.cli.commands.ledger.test_managed_ledger import lines
from tests.faces.cli.commands.test_daemon import daemon
from tests.mount.waiting import eventually

pytestmark = [pytest.mark.s3, pytest.mark.mount, pytest.mark.timeout(180, method="thread")]

TEXT = b"".join(b"line %d\n" % number for number in range(5500))


@pytest.fixture
def path(tmp_path: Path, rgw_bucket: Bucket) -> Path:
    endpoint, bucket = rgw_bucket
    store = tmp_path / "store"
    tierfs("-q", "init", "--bucket", f"s3://{bucket}/p", "--endpoint-url", endpoint.endpoint_url, store=store)
    tierfs("config", "/", "ledger_entries=1000", "deletion_lag=0", store=store)
    return store


def status(path: Path) -> Any:
    return tierfs("ledger", "status", "a/topic", "--json", store=path).json


def test_a_topic_goes_its_way_by_itself(path: Path, rgw_bucket: Bucket) -> None:
    endpoint, bucket = rgw_bucket
    with daemon(path):
        tierfs("ledger", "append", "a/topic", "--lines", store=path, stdin=TEXT)
        assert eventually(lambda: sum(one["local_deleted"] for one in status(path)["ledgers"]) == 5, within_s=60)
        found = status(path)["ledgers"]
        assert [one["offload"] for one in found] == ["complete"] * 5 + ["none"]
        read = b"".join(tierfs("ledger", "read", one["segment"], store=path).out.encode() for one in found)
        assert hashlib.sha256(read).digest() == hashlib.sha256(TEXT).digest()
        first = found[0]
        key = f"p/{first['uuid']}-ledger-{first['ledger_id']}"
        with closing(endpoint.client()) as client:
            said = [client.head_object(Bucket=bucket, Key=name)["Metadata"] for name in (key, f"{key}-index")]
        assert [one["s3managedledgeroffloaderformatversion"] for one in said] == ["1", "1"]
        tierfs("ledger", "terminate", "a/topic", store=path)
        last = f"{found[5]['ledger_id']}:0"
        assert tierfs("offload", "a/topic", "--before", last, "--json", store=path).json["first_unoffloaded"] == last
        tierfs("offload", "a/topic", store=path)
        assert status(path)["next_to_offload"] is None
        tierfs("trim", "a/topic", "--before", found[3]["ledger_id"], "--yes", store=path)
        assert len(lines(tierfs("ledger", "ls", "--json", store=path).out)) == 3
        assert "clean" in tierfs("check", store=path).out
