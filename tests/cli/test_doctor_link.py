"""tierfs doctor on the link to the cold tier: measured by the store's own cold objects."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.relay.loop import Slowness
from tests.benchmarks.relay.process import RelayServer
from tests.cli.commands.test_doctor import checks
from tests.commands import tierfs
from tests.conftest import Bucket
from tierfs.types import MIB

SLOW = Slowness(delay_s=0.03, rate_bytes_s=10_000_000)
BYTES = random.Random(8).randbytes(12 * MIB)


def offloaded(path: Path, data: bytes = BYTES) -> Path:
    """Move bytes of a store to its cold tier, in one object."""
    tierfs("append", "s", store=path, stdin=data)
    tierfs("seal", "s", store=path)
    tierfs("offload", store=path)
    return path


def link(path: Path, *words: str) -> Any:
    return checks(*words, store=path)["link"]


@pytest.mark.timeout(120)
def test_a_setting_that_holds_a_far_link_back(moto_bucket: Bucket, tmp_path: Path) -> None:
    endpoint, bucket = moto_bucket
    path = tmp_path / "store"
    with RelayServer(endpoint.endpoint_url, SLOW) as relay:
        where = ("--bucket", f"s3://{bucket}/p", "--endpoint-url", relay.endpoint_url)
        tierfs("-q", "init", *where, store=path)
        (path / "store.toml").write_text("[read]\nstreams = 2\n")
        found = link(offloaded(path))
    takes = found["figures"]["link_streams"]
    assert (found["level"], found["figures"]["limit"]) == ("WARN", "read.streams")
    assert found["found"].endswith(f"limit: read.streams = 2, the link takes {takes}")
    assert f"TIERFS_READ__STREAMS={takes}" in found["remedy"]
    assert found["figures"]["first_byte_s"] >= SLOW.delay_s
    # What socket buffers hold comes faster than the link is.
    assert found["figures"]["connection_bytes_per_s"] < 1.3 * SLOW.rate_bytes_s
    assert found["figures"]["read_bytes"] <= 32 * MIB


def test_small_objects_tell_the_first_byte_only(tmp_path: Path) -> None:
    tierfs("-q", "init", store=tmp_path / "store")
    found = link(offloaded(tmp_path / "store", b"abc"))
    assert (found["level"], "no object is large enough" in found["found"]) == ("OK", True)
