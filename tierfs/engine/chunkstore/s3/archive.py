"""Storage classes of S3: a copy in another one, with a proof of its bytes, and the way back of an archived object.

RestoreObject and CopyObject of S3's API. A copy is proved by its CRC32C, where the server sums one up, or by its MD5,
which the etag of an object is that was stored in one part, without a key of its own.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

from tierfs.base.words.errors import AlreadyExists, DataLoss, InvalidRequest, TierfsError
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.protocol import EtagDiffers, ObjectPiece, Thaw, ThawSpeed
from tierfs.engine.chunkstore.s3.client import S3Connection
from tierfs.engine.chunkstore.s3.errors import map_s3_errors, s3_code

# S3's limit for one CopyObject.
MOST_COPIED_BYTES = 5 * 1024**3

# RestoreObject: one that was begun goes on; a class that can be read at once; a server without archives.
_RESTORING, _READABLE, _NO_ARCHIVE = (
    "RestoreAlreadyInProgress",
    "InvalidObjectState",
    ("NotImplemented", "MethodNotAllowed"),
)

_MD5 = re.compile(r"[0-9a-f]{32}")
_EXPIRY = re.compile(r'expiry-date="([^"]+)"')
_CRC_BYTES = 4
_MS_PER_S = 1000


def copy_proved(
    connection: S3Connection, name: str, piece: ObjectPiece, crc32c: int | None, metadata: Mapping[str, str]
) -> str | None:
    """See ProvedCopies.copy_proved."""
    if piece.length_bytes > MOST_COPIED_BYTES:
        return None
    location = connection.location
    checked: dict[str, Any] = {} if crc32c is None else {"ChecksumAlgorithm": "CRC32C"}
    try:
        with map_s3_errors(location, "copy", piece.name):
            answer = connection.client.copy_object(
                Bucket=location.bucket,
                Key=location.key(name),
                CopySource={"Bucket": location.bucket, "Key": location.key(piece.name)},
                CopySourceIfMatch=f'"{piece.etag}"',
                Metadata=dict(metadata),
                MetadataDirective="REPLACE",
                ContentType="application/octet-stream",
                **checked,
            )
            result: Mapping[str, Any] = answer["CopyObjectResult"]
            etag = str(result["ETag"]).strip('"')
    except AlreadyExists as exc:  # the meaning of a failed condition elsewhere
        message = f"{printable(piece.name)}: it was replaced: its etag is not {piece.etag}"
        raise EtagDiffers(message, etag="", length_bytes=None) from exc
    summed = result.get("ChecksumCRC32C")
    if crc32c is not None and summed:
        if summed != base64.b64encode(crc32c.to_bytes(_CRC_BYTES, "big")).decode("ascii"):
            raise DataLoss(f"{printable(name)}: the copy has another CRC32C than {printable(piece.name)}")
        return etag
    return etag if _MD5.fullmatch(piece.etag) and etag == piece.etag else None


def thaw(connection: S3Connection, name: str, days: int, speed: ThawSpeed) -> bool:
    """See Thaws.thaw."""
    location = connection.location
    request: Any = {"Days": days, "GlacierJobParameters": {"Tier": speed.value.capitalize()}}
    try:
        with map_s3_errors(location, "restore", name):
            connection.client.restore_object(Bucket=location.bucket, Key=location.key(name), RestoreRequest=request)
    except TierfsError as exc:
        code = s3_code(exc)
        if code == _RESTORING:
            return True
        if code == _READABLE or (isinstance(exc, InvalidRequest) and code in _NO_ARCHIVE):
            return False
        raise
    return True


def thaw_of(header: str) -> Thaw | None:
    """Return what `x-amz-restore` says; None without the header. Raises ValueError for a date that is none.

    `ongoing-request="true"`, or `ongoing-request="false", expiry-date="Fri, 21 Dec 2012 00:00:00 GMT"`.
    """
    if not header:
        return None
    expiry = _EXPIRY.search(header)
    if expiry is None:
        return Thaw()
    moment = parsedate_to_datetime(expiry[1])
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return Thaw(max(1, round(moment.timestamp() * _MS_PER_S)))
