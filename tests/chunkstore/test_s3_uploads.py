"""Unfinished multipart uploads: listed with their names, swept with the name, and nobody else's."""

from __future__ import annotations

import pytest

from tierfs.chunkstore.s3.location import S3Location
from tierfs.chunkstore.s3.storage import S3Storage


@pytest.mark.parametrize("server", ["moto_bucket", "rgw_bucket"])
def test_delete_sweeps_unfinished_uploads_of_the_name(server: str, request: pytest.FixtureRequest) -> None:
    endpoint, bucket = request.getfixturevalue(server)
    client = endpoint.client()
    for key in ("p/a", "p/a", "p/ab"):
        client.create_multipart_upload(Bucket=bucket, Key=key)
    storage = S3Storage(S3Location(bucket, "p", endpoint_url=endpoint.endpoint_url, region=endpoint.region))
    storage.delete("a")
    left = client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    assert [upload["Key"] for upload in left] == ["p/ab"]
    storage.close()
    client.close()


@pytest.mark.parametrize("server", ["moto_bucket", "rgw_bucket"])
def test_uploads_under_the_prefix_are_listed_and_aborted(server: str, request: pytest.FixtureRequest) -> None:
    endpoint, bucket = request.getfixturevalue(server)
    client = endpoint.client()
    for key in ("p/segments/a", "p/segments/a", "p/journal/1", "q/segments/a"):
        client.create_multipart_upload(Bucket=bucket, Key=key)
    storage = S3Storage(S3Location(bucket, "p", endpoint_url=endpoint.endpoint_url, region=endpoint.region))
    found = list(storage.uploads("segments/"))
    assert [upload.name for upload in found] == ["segments/a", "segments/a"]
    assert all(upload.started_ms > 0 for upload in found)
    storage.abort_upload(found[0])
    storage.abort_upload(found[0])
    assert [upload.upload_id for upload in storage.uploads("segments/")] == [found[1].upload_id]
    left = client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    assert sorted(upload["Key"] for upload in left) == ["p/journal/1", "p/segments/a", "q/segments/a"]
    storage.close()
    client.close()
