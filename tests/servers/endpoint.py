"""Address and credentials of an S3 server for tests."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ACCESS_KEY = "testkey"
SECRET_KEY = "testsecret"
REGION = "us-east-1"


@dataclass(frozen=True)
class S3Endpoint:
    """Address and keys of one running S3 server."""

    endpoint_url: str
    region: str = REGION
    access_key: str = ACCESS_KEY
    secret_key: str = SECRET_KEY
    authority: Path | None = None
    """Certificate that signed the server's, in PEM; None: a plain server, or one that the system trusts."""

    def client(self) -> S3Client:
        """A raw boto3 client without retries, for a test to check what tierfs did. Close it after use."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            verify=str(self.authority) if self.authority else None,
            config=Config(
                retries={"total_max_attempts": 1},
                s3={"addressing_style": "path"},
                request_checksum_calculation="when_required",  # RGW before 19 knows no checksum trailers
                response_checksum_validation="when_required",
            ),
        )

    def create_bucket(self) -> str:
        """Create an empty bucket with a name of its own and return the name."""
        name = f"test-{uuid.uuid4().hex[:16]}"
        client = _client_for_buckets(self)
        try:
            client.create_bucket(Bucket=name)
        finally:
            client.close()  # its connections; it opens others
        return name


@cache
def _client_for_buckets(endpoint: S3Endpoint) -> S3Client:
    """Return one client for all buckets of tests: another takes 4.5 ms."""
    return endpoint.client()
