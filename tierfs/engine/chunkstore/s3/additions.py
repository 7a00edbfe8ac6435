"""What settings add to every request of one client: how new objects are kept, and who pays for a request.

botocore asks its handlers for the parameters of each request, so that each kind of upload, part, copy, probe and read
gets them here, also one that is added later. The price of a request without such settings is nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlencode

from tierfs.base.options.config import ColdSettings
from tierfs.base.words import object_names
from tierfs.engine.chunkstore.s3.location import S3Location

if TYPE_CHECKING:
    from botocore.awsrequest import AWSRequest
    from botocore.model import OperationModel
    from mypy_boto3_s3 import S3Client

# Requests that make an object, of which parts and copies of parts are made for the second one.
_MAKE = ("PutObject", "CreateMultipartUpload", "CopyObject")

PAYER = "x-amz-request-payer"
REQUESTER = "requester"

_QUERY = "-query"


def add_to(client: S3Client, location: S3Location, settings: ColdSettings) -> None:
    """Have the client add what the settings say to each of its requests."""
    if settings.requester_pays or _kept(settings) or of_bytes(settings):
        register: Any = client.meta.events.register  # the stubs know of no handler that answers
        register("provide-client-params.s3", _Additions(location, settings))
        register("before-sign.s3.GetObject", _payer_into_query)


def told(settings: ColdSettings) -> str:
    """Describe for people how new objects are kept; empty if the bucket alone says so."""
    parts = [f"storage class {settings.storage_class}"] if settings.storage_class else []
    if settings.encryption != "bucket":
        parts.append(f"encrypted by {settings.encryption}" + (f", key {settings.kms_key}" if settings.kms_key else ""))
    parts += [f"tags {settings.tags}"] if settings.tags else []
    parts += ["requester pays"] if settings.requester_pays else []
    return "; ".join(parts)


class _Additions:
    """The handler of all requests: botocore takes the answer of one."""

    def __init__(self, location: S3Location, settings: ColdSettings) -> None:
        self._location = location
        self._pays = settings.requester_pays
        self._all = _kept(settings)
        self._of_bytes = {**self._all, **of_bytes(settings)}

    def __call__(self, params: Mapping[str, Any], model: OperationModel, **_: object) -> dict[str, Any]:
        """Return the parameters of a request with those that are added."""
        shape = model.input_shape
        payer = {"RequestPayer": REQUESTER} if self._pays and shape and "RequestPayer" in shape.members else {}
        if model.name not in _MAKE:
            return {**params, **payer}
        # The journal and the store's mark are small and read at once: a class with a least size or time would only
        # cost, and a lifecycle rule that goes by a tag must not reach them.
        holds_bytes = object_names.holds_bytes(self._location.name(params["Key"]))
        added = self._of_bytes if holds_bytes else self._all
        copied = {"TaggingDirective": "REPLACE"} if model.name == "CopyObject" and "Tagging" in added else {}
        return {**params, **payer, **added, **copied}


def _kept(settings: ColdSettings) -> dict[str, str]:
    """Return what holds for all objects. S3's User Guide, "Specifying server-side encryption"."""
    if settings.encryption == "bucket":
        return {}
    return {"ServerSideEncryption": settings.encryption, **_given("SSEKMSKeyId", settings.kms_key)}


def of_bytes(settings: ColdSettings) -> dict[str, str]:
    """Return what is added for objects that hold segments' bytes, besides the encryption."""
    pairs = [pair.partition("=")[::2] for pair in settings.tags.split()]
    # Ceph takes the + of a form's blank as it is written (measured, 16.2).
    tags = urlencode([(unquote(name), unquote(value)) for name, value in pairs], quote_via=quote)
    return {**_given("StorageClass", settings.storage_class), **_given("Tagging", tags)}


def _given(name: str, value: str) -> dict[str, str]:
    return {name: value} if value else {}


def _payer_into_query(request: AWSRequest, signature_version: str, **_: object) -> None:
    """Move the payer of a URL that is signed into its query: as a header each reader would have to send it."""
    if isinstance(signature_version, str) and signature_version.endswith(_QUERY) and PAYER in request.headers:
        del request.headers[PAYER]
        request.params = {**(request.params or {}), PAYER: REQUESTER}
