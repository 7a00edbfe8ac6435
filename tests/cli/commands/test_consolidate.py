"""tierfs consolidate: alone, through the holder, and on Ceph, where the server copies the bytes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import verbs
from tests.conftest import Bucket
from tierfs.app import store as app
from tierfs.holder.verbs import CONSOLIDATE, perform
from tierfs.metrics import MetricName
from tierfs.setup.create import ColdChoice, init_store
from tierfs.types import MIB


def cold_pieces(path: Path, *sizes: int, name: str = "logs/s") -> bytes:
    """Append one cold object of each size, with nothing kept local; return the bytes."""
    data = b""
    with app.open_store(path) as store:
        for size in sizes:
            part = os.urandom(size)
            writer = store.engine.open_writer(name)
            writer.append(part)
            store.engine.close_writer(writer)
            verbs.offload(store, name)
            data += part
        verbs.evict(store, name, force=True)
    return data


@pytest.mark.parametrize(
    ("sizes", "uploaded"), [((5 * MIB, 6 * MIB + 1, 7 * MIB), 0), ((6 * MIB, 1000, 11 * MIB), 5 * MIB)]
)
def test_on_ceph_the_server_copies(rgw_bucket: Bucket, tmp_path: Path, sizes: tuple[int, ...], uploaded: int) -> None:
    """The composition moves no byte through this machine; only the read-back for the check is a download."""
    endpoint, bucket = rgw_bucket
    path = tmp_path / "store"
    init_store(path, ColdChoice(bucket_url=f"s3://{bucket}/p", endpoint_url=endpoint.endpoint_url))
    data = cold_pieces(path, *sizes)
    with app.open_store(path) as store:
        before = store.metrics.values(MetricName.STORAGE_BYTES)
        report = perform(store, CONSOLIDATE, "")
        assert (report.objects_before, report.objects_after, report.bytes) == (3, 1, len(data))
        assert report.client_bytes == uploaded
        ways = store.metrics.values(MetricName.COMPOSED_BYTES)
        assert ways == {("cold", "client"): uploaded, ("cold", "server"): len(data) - uploaded}
        read = store.metrics.values(MetricName.STORAGE_BYTES)["cold", "read"] - before.get(("cold", "read"), 0)
        assert len(data) <= read < len(data) + MIB  # and the edges of pieces that share a block, if there are any
        found = bytearray()
        verbs.cat(store, "logs/s", None, None, None, found.extend)
    assert bytes(found) == data
