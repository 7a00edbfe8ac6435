"""One S3 client: botocore for every verb, and the options for urllib3 to read presigned URLs the same way."""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Mapping
from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import botocore.config
import botocore.exceptions
import botocore.loaders
import botocore.session
from botocore.credentials import Credentials, RefreshableCredentials
from botocore.hooks import HierarchicalEmitter
from botocore.utils import determine_content_length, get_environ_proxies

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.config import ColdSettings
from tierfs.base.words.errors import AlreadyExists, TierfsError
from tierfs.engine.chunkstore.http.tls import TlsClient, system_bundle
from tierfs.engine.chunkstore.s3 import additions
from tierfs.engine.chunkstore.s3.credentials import Renewal
from tierfs.engine.chunkstore.s3.errors import map_s3_errors, s3_code
from tierfs.engine.chunkstore.s3.location import S3Location

if TYPE_CHECKING:
    from botocore.awsrequest import AWSRequest
    from mypy_boto3_s3 import S3Client

# Accepted by servers other than AWS when no region is configured.
DEFAULT_REGION = "us-east-1"

# Their debug lines hold signed URLs and signatures.
_SIGNING_LOGGERS = ("urllib3.connectionpool", "botocore.auth", "botocore.endpoint")

# Codes for an existing bucket. In us-east-1, and on Ceph, creating it again is success.
_OURS, _TAKEN = "BucketAlreadyOwnedByYou", "BucketAlreadyExists"

# Code for a bucket request that must name the server's region.
_NEEDS_REGION = "IllegalLocationConstraintException"

# A body of this size is not sent before the server answers that it takes it: one that refuses and closes in the midst
# of it would be taken for one that is away. Smaller ones fit in the socket's buffers.
_ASKED_FIRST_BYTES = 256 * 1024

_HTTPS = "https:"
_SIGNED = ("X-Amz-Signature", "Signature:", "Signature=")


@dataclass(frozen=True, slots=True)
class S3Connection:
    """A connected location."""

    location: S3Location
    client: S3Client
    settings: ColdSettings
    tls: TlsClient | None
    """For an https endpoint: trusts the user's CA bundle, or the system's authorities."""
    proxied: bool
    """The environment names a proxy for the endpoint; only botocore goes through it."""
    credentials: Credentials | None
    renewal: Renewal

    @property
    def signs_at_once(self) -> bool:
        """Whether signing takes only computation, and no request for new credentials."""
        if isinstance(self.credentials, RefreshableCredentials):
            return not self.credentials.refresh_needed()
        return self.credentials is not None


def connect(location: S3Location, settings: ColdSettings) -> S3Connection:
    """Create the client; nothing is sent yet. Raises PermissionDenied for an unknown profile."""
    _hide_signatures()
    with map_s3_errors(location, "use"):
        session = new_session(location.profile)
        session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
        create_client = cast(Any, session.create_client)
        bundle = session.get_config_variable("ca_bundle")
        client = create_client(
            "s3",
            region_name=location.region or session.get_config_variable("region") or DEFAULT_REGION,
            endpoint_url=location.endpoint_url,
            config=_config(location, settings),
            verify=bundle or system_bundle(),
        )
        additions.add_to(client, location, settings)
        client.meta.events.register("before-sign.s3.PutObject", _send_at_once)
        client.meta.events.register("before-call.s3.DeleteObjects", _add_md5)
        url = client.meta.endpoint_url
        tls = TlsClient(bundle) if url.startswith(_HTTPS) else None
        # NO_PROXY, which names no proxy, is among them.
        proxied = urlsplit(url).scheme in get_environ_proxies(url)
        credentials = session.get_credentials()
    return S3Connection(location, client, settings, tls, proxied, credentials, Renewal(location.profile, credentials))


def new_session(profile: str | None) -> botocore.session.Session:
    """Return a session of botocore with its own handlers.

    botocore inspects the signatures of its 120 handlers in each new session: 6 ms, half of a connection.
    """
    return botocore.session.Session(event_hooks=copy(_own_handlers()), include_builtin_handlers=False, profile=profile)


@cache
def _own_handlers() -> HierarchicalEmitter:
    """Return botocore's handlers, to copy: what a client registers is in its copy alone."""
    handlers = HierarchicalEmitter()
    botocore.session.Session(event_hooks=handlers)
    return handlers


def _add_md5(params: Mapping[str, Any], **_: object) -> None:
    """Add the sum of a request's body that servers before 2025 require; botocore sends a CRC32 instead."""
    body = params["body"]
    digest = hashlib.md5(body if isinstance(body, bytes) else str(body).encode(), usedforsecurity=False).digest()
    params["headers"]["Content-MD5"] = base64.b64encode(digest).decode("ascii")


def _send_at_once(request: AWSRequest, **_: object) -> None:
    """Send a small body without asking first: botocore waits for `100 Continue` before each, a round trip."""
    if (determine_content_length(request.data) or 0) < _ASKED_FIRST_BYTES:
        del request.headers["Expect"]


@cache
def _loader(data_path: str | None) -> Any:
    """Load what botocore knows of S3 once in a process: parsing it is two thirds of making a client."""
    return botocore.loaders.create_loader(data_path)


def create_bucket(location: S3Location, settings: ColdSettings) -> None:
    """Create the location's bucket; an existing one of ours is left unchanged.

    Raises AlreadyExists for another owner's bucket, and the errors of any request.
    """
    client = connect(location, settings).client
    region = {"CreateBucketConfiguration": {"LocationConstraint": client.meta.region_name}}
    try:
        with map_s3_errors(location, "create the bucket of"):
            _create_somewhere(client, location, region if client.meta.region_name != DEFAULT_REGION else {})
    except TierfsError as exc:
        if s3_code(exc) == _TAKEN:
            raise AlreadyExists(
                f"bucket {location.bucket} belongs to another owner at {location.endpoint}",
                remedy="choose another name",
            ) from exc
        if s3_code(exc) != _OURS:
            raise
    finally:
        client.close()


def _create_somewhere(client: S3Client, location: S3Location, region: dict[str, Any]) -> None:
    """Create the bucket in a region; try without one first on servers other than AWS: most have only one."""
    if location.endpoint_url is not None and region:
        try:
            client.create_bucket(Bucket=location.bucket)
            return
        except botocore.exceptions.ClientError as exc:
            if exc.response["Error"]["Code"] != _NEEDS_REGION:
                raise
    client.create_bucket(Bucket=location.bucket, **region)


def _config(location: S3Location, settings: ColdSettings) -> botocore.config.Config:
    return botocore.config.Config(
        # ResilientStorage is the only place that retries.
        retries={"total_max_attempts": 1, "mode": "standard"},
        # Servers other than AWS reject the checksums that botocore sends by default.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        signature_version="s3v4",
        s3={"addressing_style": location.addressing_style()},  # type: ignore[arg-type]
        max_pool_connections=settings.connections,
        connect_timeout=settings.connect_timeout_s,
        read_timeout=settings.read_timeout_s,
        tcp_keepalive=True,
        user_agent_extra="tierfs",
    )


def _hide_signatures() -> None:
    for name in _SIGNING_LOGGERS:
        logging.getLogger(name).addFilter(_without_signature)


def _without_signature(record: logging.LogRecord) -> bool:
    """Return whether a vendor's log record is free of signatures."""
    text = record.getMessage()
    return not any(mark in text for mark in _SIGNED)
