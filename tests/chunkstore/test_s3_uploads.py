"""Unfinished multipart uploads: deleting a name sweeps its own, and nobody else's."""

from __future__ import annotations

import pytest

from tierfs.chunkstore.s3 import S3Storage
from tierfs.chunkstore.s3_location import S3Location


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
