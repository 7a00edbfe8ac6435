"""tierfs doctor on a cold tier: reachability, speed, clock and honoured conditions."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.conftest import Bucket
from tests.doubles.manual_clock import ManualClock
from tests.faces.cli.commands.test_doctor import checks
from tests.servers.endpoint import S3Endpoint
from tests.servers.gate import gate_to
from tierfs.base.options.config import ColdSettings
from tierfs.engine.chunkstore.s3.location import S3Location
from tierfs.engine.chunkstore.s3.storage import S3Storage
from tierfs.faces.doctor import check_cold
from tierfs.faces.doctor.findings import FindingLevel

NAMES = [
    "clock of the cold tier",
    "cold tier",
    "create-only",
    "create-only for multipart uploads",
    "upload checksum",
    "delete",
    "consolidation",
    "presigned ranges",
    "If-Match",
    "versions",
    "object lock",
]


def store_over(bucket: Bucket, path: Path) -> Path:
    endpoint, name = bucket
    tierfs("-q", "init", "--bucket", f"s3://{name}/p", "--endpoint-url", endpoint.endpoint_url, store=path)
    return path


def keys_of(bucket: Bucket) -> list[str]:
    endpoint, name = bucket
    with closing(endpoint.client()) as client:
        return [entry["Key"] for entry in client.list_objects_v2(Bucket=name)["Contents"]]


def test_ceph_honours_what_tierfs_relies_on_and_nothing_is_left_there(rgw_bucket: Bucket, tmp_path: Path) -> None:
    path = store_over(rgw_bucket, tmp_path / "store")
    before = keys_of(rgw_bucket)
    found = checks(store=path)
    assert list(found)[-len(NAMES) :] == NAMES
    assert {found[name]["level"] for name in NAMES} == {"OK"}
    assert found["cold tier"]["found"].startswith(f"s3://{rgw_bucket[1]}/p at {rgw_bucket[0].endpoint_url}: a small")
    assert found["create-only for multipart uploads"]["found"].startswith("not honoured")
    assert found["upload checksum"]["found"] == "the server verifies the MD5 of each upload"
    assert (found["presigned ranges"]["found"], found["If-Match"]["found"]) == ("accepted", "honoured")
    assert keys_of(rgw_bucket) == before


def test_what_is_asked_for_new_objects_is_compared_with_what_is_kept(rgw_bucket: Bucket, tmp_path: Path) -> None:
    path = store_over(rgw_bucket, tmp_path / "store")
    tierfs("-q", "config", "cold.storage_class=STANDARD", "cold.tags=team=logs", store=path)
    found = checks(store=path)["new objects"]
    assert (found["level"], found["found"]) == (
        "WARN",
        "requested storage class STANDARD; tags team=logs; the server accepts but ignores: "
        "cold.tags (uploads in parts)",
    )
    tierfs("-q", "config", "cold.tags=", store=path)
    found = checks(store=path)["new objects"]
    assert (found["level"], found["found"]) == ("OK", "storage class STANDARD: done")
    tierfs("-q", "config", "cold.storage_class=NONE_SUCH", store=path)
    assert checks(store=path, code=1)["cold tier"]["level"] == "FAIL"
    tierfs("-q", "append", "a", store=path, stdin=b"bytes")
    refused = tierfs("offload", store=path, check=False)
    assert "storage class NONE_SUCH" in refused.err
    assert keys_of(rgw_bucket)[0].startswith("p/journal/"), "no object is left of the refused ones"


def test_a_directory_keeps_no_class(tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    tierfs("-q", "init", "--cold-dir", str(tmp_path / "cold"), store=tmp_path / "store")
    file = tmp_path / "store/store.toml"  # config refuses it, an editor does not
    file.write_text(file.read_text().replace("[cold]\n", '[cold]\nencryption = "AES256"\n'))
    found = checks(store=tmp_path / "store")["new objects"]
    assert found["found"] == "encrypted by AES256: no effect, because the cold tier is not in S3"


def test_a_server_that_is_gone(moto_bucket: Bucket, tmp_path: Path) -> None:
    with gate_to(moto_bucket[0].endpoint_url) as gate:
        path = store_over((replace(moto_bucket[0], endpoint_url=gate.url), moto_bucket[1]), tmp_path / "store")
    (path / "store.toml").write_text("[cold]\nattempts = 1\n")
    found = checks(store=path, code=1)
    assert (found["cold tier"]["level"], found["store"]["level"]) == ("FAIL", "OK")
    assert found["cold tier"]["found"] == f"cannot reach {gate.url}"
    assert found["cold tier"]["remedy"] == "check the endpoint URL (cold.endpoint_url) and the network"


def test_credentials_that_are_missing(moto_bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store_over(moto_bucket, tmp_path / "store")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    found = checks(store=path, code=1)["cold tier"]
    assert (found["level"], "credentials" in found["found"]) == ("FAIL", True)


@pytest.mark.parametrize(
    ("off_s", "level", "found"),
    [
        (0, FindingLevel.OK, ""),
        (-120, FindingLevel.WARN, "s lag behind the server"),
        (120, FindingLevel.WARN, "s ahead of the server"),
        (1000, FindingLevel.FAIL, "s ahead of the server"),
    ],
)
def test_our_clock_against_the_servers(moto_bucket: Bucket, off_s: int, level: FindingLevel, found: str) -> None:
    endpoint, name = moto_bucket
    location = S3Location(bucket=name, endpoint_url=endpoint.endpoint_url)
    with closing(S3Storage(location)) as storage:
        server_ms = storage.server_time_ms()
        assert server_ms is not None
        finding = check_cold.server_clock(storage, ManualClock(server_ms + off_s * 1000))
    assert finding.level is level
    assert found in finding.text


def test_a_server_that_refuses_us_tells_its_time_too(moto_bucket: Bucket) -> None:
    endpoint, _ = moto_bucket
    with closing(S3Storage(S3Location(bucket="no-such-bucket", endpoint_url=endpoint.endpoint_url))) as storage:
        assert storage.server_time_ms() is not None


def test_presigned_reads_that_are_turned_off(moto_bucket: Bucket) -> None:
    endpoint, name = moto_bucket
    location = S3Location(bucket=name, endpoint_url=endpoint.endpoint_url)
    with closing(S3Storage(location, ColdSettings(presigned_reads=False))) as storage:
        assert check_cold.probe_reads(storage, storage).presigned_ranges is None
        assert list(storage.list("")) == []


def test_a_bucket_that_keeps_what_is_deleted_is_named(moto_s3: S3Endpoint, tmp_path: Path) -> None:
    plain, locked, kept = moto_s3.create_bucket(), "with-object-lock", "kept-by-object-lock"
    rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 30}}
    with closing(moto_s3.client()) as client:
        for bucket in (locked, kept):
            client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
        configuration = {"ObjectLockEnabled": "Enabled", "Rule": rule}
        client.put_object_lock_configuration(Bucket=kept, ObjectLockConfiguration=configuration)
    found = checks(store=store_over((moto_s3, locked), tmp_path / "locked"))
    assert (found["versions"]["level"], found["object lock"]["level"]) == ("WARN", "OK")
    found = checks(store=store_over((moto_s3, kept), tmp_path / "kept"))
    assert (found["object lock"]["level"], "(COMPLIANCE 30 days)" in found["object lock"]["found"]) == ("WARN", True)
    assert "expires noncurrent versions" in found["versions"]["remedy"]
    found = checks(store=store_over((moto_s3, plain), tmp_path / "plain"))
    assert (found["versions"]["found"], found["object lock"]["found"]) == ("not kept", "no default retention")
