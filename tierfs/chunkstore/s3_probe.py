"""What an S3 server honours, found by experiment: answers to conditions and checksums differ by vendor."""

from __future__ import annotations

import base64
from concurrent.futures import Executor
from dataclasses import replace

from botocore.exceptions import ClientError

from tierfs.checksum import crc32c
from tierfs.chunkstore.protocol import Abilities, BufferSource
from tierfs.chunkstore.s3_client import S3Connection
from tierfs.chunkstore.s3_errors import map_s3_errors
from tierfs.chunkstore.s3_upload import Uploader
from tierfs.errors import AlreadyExists, InvalidRequest

_PROBE = b"tierfs probes what this server honours; this object can be deleted\n"
_OTHER = b"other bytes\n"
_UNCHECKED = Abilities(create_only_put=True, create_only_multipart=True, verifies_crc32c=False)
"""Sends the conditions and leaves the answer to the server."""


def probe_abilities(connection: S3Connection, executor: Executor, name: str) -> Abilities:
    """What the server honours. Creates the object `name`. Raises what put raises, except AlreadyExists."""
    uploader = Uploader(connection, _UNCHECKED, executor)
    create_only_put = _put_is_create_only(uploader, name)
    return Abilities(
        create_only_put=create_only_put,
        create_only_multipart=create_only_put and _multipart_is_create_only(uploader, name),
        verifies_crc32c=_refuses_wrong_crc32c(connection, name)
        and _takes_crc32c(Uploader(connection, replace(_UNCHECKED, verifies_crc32c=True), executor), name),
    )


def _put_is_create_only(uploader: Uploader, name: str) -> bool:
    uploader.upload(name, BufferSource(_PROBE), {}, create_only=False)
    return not _succeeds(uploader.upload, name)


def _multipart_is_create_only(uploader: Uploader, name: str) -> bool:
    return not _succeeds(uploader.multipart, name)


def _succeeds(upload: object, name: str) -> bool:
    """Whether a create-only upload over the existing object is let through."""
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
            if exc.response["ResponseMetadata"]["HTTPStatusCode"] == 400:
                return True
            raise
    return False


def _takes_crc32c(uploader: Uploader, name: str) -> bool:
    """Whether right checksums are accepted, in parts too."""
    try:
        uploader.multipart(name, BufferSource(_PROBE), {}, create_only=False)
    except InvalidRequest:
        return False
    return True
