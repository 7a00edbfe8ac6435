"""Reading S3 without a filesystem: boto3 GETs, and GETs of presigned URLs on connections that stay open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TYPE_CHECKING

import boto3
import urllib3
from botocore.config import Config

from tests.benchmarks.mounts import SubjectFailed
from tests.servers.endpoint import S3Endpoint

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

MOST_THREADS = 64
_URL_VALID_S = 7 * 24 * 3600

Get = Callable[[str, int, int], bytes]
"""Bytes [start, start + length) of an object of the bucket, by its key."""


def boto3_client(endpoint: S3Endpoint) -> S3Client:
    """A client as an application would make it."""
    config = Config(
        s3={"addressing_style": "path"},
        max_pool_connections=MOST_THREADS,
        request_checksum_calculation="when_required",
    )
    return boto3.client(
        "s3",
        endpoint_url=endpoint.endpoint_url,
        region_name=endpoint.region,
        aws_access_key_id=endpoint.access_key,
        aws_secret_access_key=endpoint.secret_key,
        verify=str(endpoint.authority) if endpoint.authority else None,
        config=config,
    )


def boto3_get(endpoint: S3Endpoint, bucket: str) -> Get:
    """`get_object` as an application would call it."""
    client = boto3_client(endpoint)

    def get(key: str, start: int, length_bytes: int) -> bytes:
        body = client.get_object(Bucket=bucket, Key=key, Range=_range(start, length_bytes))["Body"]
        return bytes(body.read())

    return get


def presigned_get(endpoint: S3Endpoint, bucket: str) -> Get:
    """The least a GET can cost in Python: one signature for an object, urllib3 for the rest."""
    client = endpoint.client()
    authority = str(endpoint.authority) if endpoint.authority else None
    pool = urllib3.PoolManager(maxsize=MOST_THREADS, retries=False, ca_certs=authority)
    urls: dict[str, str] = {}

    def get(key: str, start: int, length_bytes: int) -> bytes:
        url = urls.get(key)
        if url is None:
            parameters = {"Bucket": bucket, "Key": key}
            url = urls[key] = client.generate_presigned_url("get_object", parameters, _URL_VALID_S)
        answer = pool.request("GET", url, headers={"Range": _range(start, length_bytes)})
        if answer.status != HTTPStatus.PARTIAL_CONTENT:
            raise OSError(f"GET of {key} was answered {answer.status}")
        return answer.data

    return get


def read_objects(get: Get, objects: Sequence[tuple[str, int]], range_bytes: int, threads: int) -> None:
    """Read whole objects, given by key and size, in ranged GETs, so many at a time. Raises SubjectFailed."""
    ranges = [
        (key, start, min(range_bytes, size_bytes - start))
        for key, size_bytes in objects
        for start in range(0, size_bytes, range_bytes)
    ]

    def read(one: tuple[str, int, int]) -> None:
        found, (key, _, wanted) = len(get(*one)), one
        if found != wanted:
            raise SubjectFailed(f"{key} gave {found} bytes of {wanted}")

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(read, ranges))


def _range(start: int, length_bytes: int) -> str:
    return f"bytes={start}-{start + length_bytes - 1}"
