"""Find out by experiment which guarantees an S3 server honours: conditions and checksums differ by vendor."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from botocore.exceptions import ClientError

from tierfs.base.bytes.checksum import crc32c
from tierfs.base.bytes.parallel import Pool
from tierfs.base.words.errors import AlreadyExists, InvalidRequest
from tierfs.engine.chunkstore.probe import BucketRules
from tierfs.engine.chunkstore.protocol import Abilities, BufferSource
from tierfs.engine.chunkstore.s3 import additions
from tierfs.engine.chunkstore.s3.client import S3Connection
from tierfs.engine.chunkstore.s3.errors import map_s3_errors
from tierfs.engine.chunkstore.s3.upload import Uploader

_PROBE = b"tierfs probes what this server honours; this object can be deleted\n"
_OTHER = b"other bytes\n"
# Sends the conditions and leaves their enforcement to the server.
_UNCHECKED = Abilities(create_only_put=True, create_only_multipart=True, verifies_crc32c=False)
_NO_ETAG = '"tierfs-probes-an-etag-that-no-object-has"'
_MS_PER_S = 1000

# Answers to a request that the server does not implement, or that the key may not make.
_CANNOT_TELL = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.CONFLICT,
        HTTPStatus.NOT_IMPLEMENTED,
    }
)


def probe_abilities(connection: S3Connection, pool: Pool, name: str) -> Abilities:
    """Return the abilities of the server. Creates the object `name`. Raises as put does, except AlreadyExists."""
    uploader = Uploader(connection, _UNCHECKED, pool)
    create_only_put = _put_is_create_only(uploader, name)
    return Abilities(
        create_only_put=create_only_put,
        create_only_multipart=create_only_put and _multipart_is_create_only(uploader, name),
        verifies_crc32c=_refuses_wrong_crc32c(connection, name)
        and _takes_crc32c(Uploader(connection, replace(_UNCHECKED, verifies_crc32c=True), pool), name),
    )


def _put_is_create_only(uploader: Uploader, name: str) -> bool:
    uploader.upload(name, BufferSource(_PROBE), {}, create_only=False)
    return not _succeeds(uploader.upload, name)


def _multipart_is_create_only(uploader: Uploader, name: str) -> bool:
    return not _succeeds(uploader.multipart, name)


def _succeeds(upload: object, name: str) -> bool:
    """Return whether a create-only upload over the existing object succeeds."""
    assert callable(upload)
    try:
        upload(name, BufferSource(_OTHER), {}, create_only=True)
    except AlreadyExists:
        return False
    except InvalidRequest:  # the condition is not implemented: it protects nothing
        return True
    return True


def _refuses_wrong_crc32c(connection: S3Connection, name: str) -> bool:
    wrong = base64.b64encode(crc32c(_OTHER).to_bytes(4, "big")).decode("ascii")
    location = connection.location
    with map_s3_errors(location, "write", name):
        try:
            connection.client.put_object(
                Bucket=location.bucket, Key=location.key(name), Body=_PROBE, ChecksumCRC32C=wrong
            )
        except ClientError as exc:
            if exc.response["ResponseMetadata"]["HTTPStatusCode"] == HTTPStatus.BAD_REQUEST:
                return True
            raise
    return False


def _takes_crc32c(uploader: Uploader, name: str) -> bool:
    """Return whether right checksums are accepted, in parts too. A bucket with Object Lock may require an MD5."""
    try:
        uploader.upload(name, BufferSource(_PROBE), {}, create_only=False)
        uploader.multipart(name, BufferSource(_PROBE), {}, create_only=False)
    except InvalidRequest:
        return False
    return True


def lacking(connection: S3Connection, name: str) -> list[str]:
    """Return what a new object lacks of what settings ask for, as `cold.tags (uploads in parts)`: servers ignore it.

    Writes the object `name`, as one PUT and in parts. Raises as put does if the server refuses what is asked for.
    """
    settings, location = connection.settings, connection.location
    if not additions.told(settings):
        return []
    address = {"Bucket": location.bucket, "Key": location.key(name)}
    kept: Any = {**address, **additions.of_bytes(settings)}
    wanted = {
        "cold.storage_class": settings.storage_class,
        "cold.encryption": "" if settings.encryption == "bucket" else settings.encryption,
        "cold.tags": kept.get("Tagging", ""),
    }
    wanting: list[str] = []
    client = connection.client
    with map_s3_errors(location, "write", name):
        for kind in ("single uploads", "uploads in parts"):
            if kind == "single uploads":
                client.put_object(**kept, Body=_PROBE)
            else:
                upload: Any = {**address, "UploadId": client.create_multipart_upload(**kept)["UploadId"]}
                etag = client.upload_part(**upload, PartNumber=1, Body=_PROBE)["ETag"]
                client.complete_multipart_upload(**upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})
            held = _held(connection, address)
            wanting += [f"{key} ({kind})" for key, value in wanted.items() if value and held.get(key, value) != value]
    return wanting


def _held(connection: S3Connection, address: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings that an object was stored by; without the tags if the key may not ask for them."""
    head: Any = connection.client.head_object(**address)  # type: ignore[arg-type]
    held = {"cold.encryption": head.get("ServerSideEncryption", "")}
    held["cold.storage_class"] = head.get("StorageClass", "STANDARD")  # S3 leaves out the usual one
    try:
        answer: Any = connection.client.get_object_tagging(**address)  # type: ignore[arg-type]
    except ClientError as exc:
        if exc.response["ResponseMetadata"]["HTTPStatusCode"] not in _CANNOT_TELL:
            raise
        return held
    pairs = {tag["Key"]: tag["Value"] for tag in answer.get("TagSet", [])}
    asked = dict(parse_qsl(additions.of_bytes(connection.settings).get("Tagging", ""), keep_blank_values=True))
    return {**held, "cold.tags": additions.of_bytes(connection.settings).get("Tagging", "") if pairs == asked else ""}


def honours_if_match(connection: S3Connection, name: str) -> bool:
    """Return whether a read of `name`, which exists, with another etag in If-Match is refused."""
    location = connection.location
    with map_s3_errors(location, "read", name):
        try:
            answer = connection.client.get_object(Bucket=location.bucket, Key=location.key(name), IfMatch=_NO_ETAG)
        except ClientError as exc:
            if exc.response["ResponseMetadata"]["HTTPStatusCode"] == HTTPStatus.PRECONDITION_FAILED:
                return True
            raise
        answer["Body"].close()
    return False


def server_time_ms(connection: S3Connection) -> int | None:
    """Return the Date of the server's answer, also of a refusal; None without one."""
    location = connection.location
    answer: Mapping[str, Any]
    with map_s3_errors(location, "list"):
        try:
            answer = connection.client.list_objects_v2(Bucket=location.bucket, Prefix=location.key(""), MaxKeys=1)
        except ClientError as exc:
            answer = exc.response
        date = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
        return None if date is None else round(parsedate_to_datetime(date).timestamp() * _MS_PER_S)


def bucket_rules(connection: S3Connection) -> BucketRules:
    """Return the bucket's rules for deleted objects, by two small requests. Raises Unavailable."""
    return BucketRules(_is_versioned(connection), _default_lock(connection))


def _is_versioned(connection: S3Connection) -> bool | None:
    answer = _asked(connection, "get_bucket_versioning")
    return None if answer is None else answer.get("Status") == "Enabled"


def _default_lock(connection: S3Connection) -> str | None:
    answer = _asked(connection, "get_object_lock_configuration")
    if answer is None:
        return None
    rule = answer.get("ObjectLockConfiguration", {}).get("Rule", {}).get("DefaultRetention", {})
    years, days = rule.get("Years"), rule.get("Days")
    period = f"{years} years" if years else f"{days} days" if days else ""
    return f"{rule.get('Mode', '')} {period}".strip() if period else ""


def _asked(connection: S3Connection, request: str) -> Mapping[str, Any] | None:
    """Return the answer; empty without such a rule, None if the key may not ask or the server cannot tell."""
    location = connection.location
    with map_s3_errors(location, "describe"):
        try:
            answer: Mapping[str, Any] = getattr(connection.client, request)(Bucket=location.bucket)
            return answer
        except ClientError as exc:
            status = exc.response["ResponseMetadata"]["HTTPStatusCode"]
            if status == HTTPStatus.NOT_FOUND:
                return {}
            if status in _CANNOT_TELL:
                return None
            raise
