"""One S3 client: botocore for every verb, and the options for urllib3 to read presigned URLs the same way.

One presigned URL serves all ranges of an object for some minutes. It is a credential: it is never logged.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import OrderedDict
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

import botocore.config
import botocore.exceptions
import botocore.loaders
import botocore.session
import urllib3
from botocore.credentials import Credentials, RefreshableCredentials
from botocore.utils import determine_content_length, get_environ_proxies

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.config import ColdSettings
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.words.errors import AlreadyExists, TierfsError
from tierfs.engine.chunkstore.http.tls import TlsClient, system_bundle
from tierfs.engine.chunkstore.s3 import additions
from tierfs.engine.chunkstore.s3.errors import map_s3_errors, s3_code
from tierfs.engine.chunkstore.s3.location import S3Location
from tierfs.engine.chunkstore.s3.signature import UrlSigner, learn

if TYPE_CHECKING:
    from botocore.awsrequest import AWSRequest
    from mypy_boto3_s3 import S3Client

_log = logging.getLogger(__name__)

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


# Least time between two looks for other credentials: each reads files for some 5 ms (measured).
_LOOK_S = 1.0

# Requests signed before the credentials changed are refused no later (a guess): each may be repeated.
_ON_THE_WAY_S = 60.0


class Renewal:
    """Looks for other credentials after a refusal: in the profile's file, as tools that rotate keys replace it.

    Those that expire by themselves (roles, SSO) botocore renews, and those of the environment cannot change.
    """

    def __init__(self, profile: str | None, held: Credentials | None, clock: Clock | None = None) -> None:
        """Change `held` in place: the client and all that signs share it."""
        self._profile = profile
        self._held = None if isinstance(held, RefreshableCredentials) else held
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._looked_s = self._changed_s = -math.inf

    def renew(self) -> bool:
        """Return whether the credentials changed just now, or a moment ago by another thread's look."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            if self._held is not None and now_s - self._looked_s >= _LOOK_S:
                self._looked_s = now_s
                if self._replace(self._held):
                    self._changed_s = now_s
                    _log.info("credentials were refused, and others are used from now on")
            return now_s - self._changed_s < _ON_THE_WAY_S

    def _replace(self, held: Credentials) -> bool:
        try:
            newest = botocore.session.Session(profile=self._profile).get_credentials()
        except botocore.exceptions.BotoCoreError as exc:
            _log.warning("credentials were refused, and no others are found: %s", exc)
            return False
        if newest is None or newest.get_frozen_credentials() == held.get_frozen_credentials():
            return False
        held.access_key, held.secret_key, held.token = newest.access_key, newest.secret_key, newest.token
        return True


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
        session = botocore.session.Session(profile=location.profile)
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
        url = client.meta.endpoint_url
        tls = TlsClient(bundle) if url.startswith(_HTTPS) else None
        # NO_PROXY, which names no proxy, is among them.
        proxied = urlsplit(url).scheme in get_environ_proxies(url)
        credentials = session.get_credentials()
    return S3Connection(location, client, settings, tls, proxied, credentials, Renewal(location.profile, credentials))


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


# Validity of a URL at the server; short, because it is a credential for the object.
_VALID_S = 900

# We stop using it well before it expires, so that clocks may disagree and a queued GET still starts.
_USED_S = 600

# Cached URLs, about 1 KiB each.
_MAX_URLS = 4096


class _Signing(NamedTuple):
    """How URLs are signed and where all of them lead, as botocore decided both at once.

    One value, set at once: a thread that signs by the signer of another must find the origin too.
    """

    origin: str = ""
    signer: UrlSigner | None = None


class SignedUrls:
    """Signed paths and queries for reading the objects of one location. Thread-safe."""

    def __init__(self, connection: S3Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._lock = threading.Lock()
        self._targets: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._signing = _Signing()

    @property
    def origin(self) -> str:
        """Scheme, host and port of all URLs; "" before the first one."""
        return self._signing.origin

    def target(self, name: str) -> str:
        """Return the signed path and query for `name`. Raises botocore's errors; call within map_s3_errors."""
        target = self.signed(name)
        if target is not None:
            return target
        now = self._clock.monotonic_s()
        target = self._sign(self._connection.location.key(name))
        with self._lock:
            self._targets[name] = (now + _USED_S, target)
            self._targets.move_to_end(name)
            if len(self._targets) > _MAX_URLS:
                self._targets.popitem(last=False)
        return target

    def _sign(self, key: str) -> str:
        """Sign the first URL with each set of credentials by botocore, and others as that one."""
        held = self._connection.credentials
        credentials = None if held is None else held.get_frozen_credentials()
        signer = self._signing.signer
        if signer is not None and signer.credentials == credentials:
            return signer.target(key, self._clock.now_ms())
        url = self._connection.client.generate_presigned_url(
            "get_object", Params={"Bucket": self._connection.location.bucket, "Key": key}, ExpiresIn=_VALID_S
        )
        origin, target = _split(url)
        learned = None if credentials is None else learn(url, key, credentials, self._clock.now_ms())
        with self._lock:
            self._signing = _Signing(origin, learned)
        return target

    def signed(self, name: str) -> str | None:
        """Return a cached path and query that is still valid, or None."""
        with self._lock:
            used_until, target = self._targets.get(name, (0.0, ""))
        return target if used_until > self._clock.monotonic_s() else None

    def forget(self, name: str) -> None:
        """Have botocore sign again next time; idempotent."""
        with self._lock:
            self._targets.pop(name, None)
            self._signing = self._signing._replace(signer=None)

    def clear(self) -> None:
        """Forget all URLs."""
        with self._lock:
            self._targets.clear()


def _split(url: str) -> tuple[str, str]:
    """Split a URL into scheme and host, and path and query."""
    parsed = urllib3.util.parse_url(url)
    return f"{parsed.scheme}://{parsed.netloc}", parsed.request_uri
