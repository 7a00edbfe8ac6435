"""Map errors of S3 and of the connection to ours: one line, never a credential or a signed URL.

No vendor message is copied into ours: servers echo requests, and clients print whole URLs.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from botocore import exceptions as botocore
from botocore.parsers import ResponseParserError
from urllib3 import exceptions as urllib3
from urllib3.util.ssl_match_hostname import CertificateError

from tierfs.base.words.errors import (
    AlreadyExists,
    Archived,
    DataLoss,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    StorageFull,
    TierfsError,
    Unavailable,
    WrongColdTier,
)
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.s3.location import S3Location

# The action of reading an object's bytes.
READ = "read"

_NO_BUCKET = frozenset({"NoSuchBucket"})
_MISSING = frozenset({"NoSuchKey", "404", "NotFound"})
_BAD_CREDENTIALS = frozenset(
    {
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidToken",
        "TokenRefreshRequired",
        "InvalidClientTokenId",
        "InvalidSecurity",
        "UnrecognizedClientException",
    }
)
_WRONG_CLOCK = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
_REFUSED = frozenset({"AccessDenied", "Forbidden", "403", "AllAccessDisabled", "AccountProblem", "NotSignedUp"})
_TAKEN = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict"})
_FULL = frozenset({"QuotaExceeded", "InsufficientStorage", "507", "XMinioStorageFull", "InsufficientCapacity"})
# S3's API, GetObject and CopyObject: the class of the object has to restore it first, and has not, or no longer.
_ARCHIVED = frozenset({"InvalidObjectState", "ObjectNotInActiveTierError"})
_ELSEWHERE = frozenset(
    {
        "PermanentRedirect",
        "TemporaryRedirect",
        "Redirect",
        "301",
        "307",
        "308",
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
    }
)
_DAMAGED_ON_THE_WAY = frozenset(
    {"BadDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch", "IncompleteBody", "RequestTimeout"}
)
# NoSuchUpload: the upload was swept; the next try starts a new one.
_PASSING = frozenset(
    {
        "SlowDown",
        "ServiceUnavailable",
        "InternalError",
        "Throttling",
        "ThrottlingException",
        "RequestThrottled",
        "TooManyRequests",
        "RequestLimitExceeded",
        "BandwidthLimitExceeded",
        "OperationAborted",
        "NoSuchUpload",
        "408",
        "409",
        "429",
    }
)

_SERVER_ERROR = 500
_NOT_IMPLEMENTED = 501
_MAX_CODE_LENGTH = 60

_MISSING_CREDENTIALS = (
    botocore.NoCredentialsError,
    botocore.PartialCredentialsError,
    botocore.CredentialRetrievalError,
    botocore.ProfileNotFound,
    botocore.TokenRetrievalError,
    botocore.UnauthorizedSSOTokenError,
    botocore.SSOError,
)
_UNREACHABLE = (
    botocore.EndpointConnectionError,
    botocore.ConnectTimeoutError,
    botocore.ProxyConnectionError,
    urllib3.NewConnectionError,
    urllib3.ConnectTimeoutError,
)
_TLS = (botocore.SSLError, urllib3.SSLError, ssl.SSLError)
# OpenSSL's reasons when the other end speaks no TLS, or none as new as 1.2.
_NO_PEER = frozenset({"WRONG_VERSION_NUMBER", "UNSUPPORTED_PROTOCOL", "HTTP_REQUEST", "NO_PROTOCOLS_AVAILABLE"})

_EXPIRED = frozenset({10})
_NOT_YET_VALID = frozenset({9})
_HOSTNAME_MISMATCH = 62
# OpenSSL's codes for a certificate: its time, and its names and addresses.
_OTHER_NAME = frozenset({_HOSTNAME_MISMATCH, 63, 64})
_BROKEN = (
    botocore.HTTPClientError,
    botocore.ConnectionError,
    botocore.IncompleteReadError,
    botocore.ResponseStreamingError,
    urllib3.HTTPError,
    http.client.HTTPException,
    OSError,
)
# Of botocore's parsers for a number or time that is none, and of ours for a field that is missing or impossible.
_UNREADABLE = (ResponseParserError, ValueError, OverflowError, LookupError, RuntimeError)
_TIMEOUTS = (botocore.ReadTimeoutError, urllib3.ReadTimeoutError, TimeoutError)


@contextmanager
def map_s3_errors(location: S3Location, action: str, name: str = "") -> Iterator[None]:
    """Turn errors of botocore, urllib3 and sockets into ours; `action` completes "refused to ...".

    Unavailable is worth a retry: no answer, a broken one, or one that is none of S3. InvalidRequest is not.
    """
    try:
        yield
    except botocore.ClientError as exc:
        raise _answered(location, action, name, exc.response) from exc
    except _MISSING_CREDENTIALS as exc:
        raise _no_credentials(location, exc) from exc
    except _TLS as exc:
        raise _insecure(location, action, name, exc) from exc
    except _UNREACHABLE as exc:
        raise Unavailable(
            f"cannot reach {location.endpoint}", remedy="check the endpoint URL (cold.endpoint_url) and the network"
        ) from exc
    except _TIMEOUTS as exc:
        raise Unavailable(f"{location.endpoint} did not answer in time to {action} {location.url(name)}") from exc
    except _BROKEN as exc:
        kind = type(exc).__name__
        raise Unavailable(f"connection to {location.endpoint} broke: {action} {location.url(name)} ({kind})") from exc
    except botocore.BotoCoreError as exc:
        raise InvalidRequest(
            f"cannot {action} {location.url(name)} at {location.endpoint} ({type(exc).__name__})"
        ) from exc
    except _UNREADABLE as exc:
        message = f"invalid S3 response from {location.endpoint} to {action} {location.url(name)}"
        raise Unavailable(
            f"{message} ({type(exc).__name__})",
            remedy="retry; if it fails again, check that the endpoint URL is an S3 server",
        ) from exc


def s3_code(error: TierfsError) -> str:
    """Return S3's code in the answer that caused `error`; "" without one."""
    cause = error.__cause__
    return str(cause.response.get("Error", {}).get("Code", "")) if isinstance(cause, botocore.ClientError) else ""


def _insecure(location: S3Location, action: str, name: str, exc: Exception) -> TierfsError:
    """Return the error of a failed TLS connection. A certificate does not pass; a broken connection does."""
    cause = _tls_cause(exc)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _distrusted(location.endpoint, cause.verify_code)
    if isinstance(cause, CertificateError):
        return _distrusted(location.endpoint, _HOSTNAME_MISMATCH)
    reason = str(getattr(cause, "reason", None) or type(exc).__name__)
    if reason in _NO_PEER:
        message = f"{location.endpoint} does not speak TLS 1.2 or newer ({reason})"
        return InvalidRequest(message, remedy="check the endpoint URL: it may need http://")
    return Unavailable(f"connection to {location.endpoint} broke: {action} {location.url(name)} ({reason})")


def _tls_cause(exc: BaseException) -> ssl.SSLError | CertificateError | None:
    """Return the error of TLS itself, which clients wrap in their own."""
    seen: list[object] = [exc]
    for error in seen:  # grows: as deep as it is wrapped
        if isinstance(error, ssl.SSLError | CertificateError):
            return error
        if isinstance(error, BaseException):
            inner = (*error.args, error.__cause__, error.__context__, getattr(error, "kwargs", {}).get("error"))
            seen += [cause for cause in inner if isinstance(cause, BaseException) and cause not in seen]
    return None


def _distrusted(endpoint: str, code: int) -> TierfsError:
    """Return the error for a certificate, by OpenSSL's code."""
    whose = f"the certificate of {endpoint}"
    if code in _EXPIRED:
        return InvalidRequest(f"{whose} has expired", remedy="renew the certificate, or set this machine's clock")
    if code in _NOT_YET_VALID:
        return InvalidRequest(f"{whose} is not valid yet", remedy="set this machine's clock")
    if code in _OTHER_NAME:
        return InvalidRequest(f"{whose} is for other names", remedy="use a name of the certificate in the endpoint URL")
    message = f"{whose} is signed by an authority that this machine does not trust"
    return InvalidRequest(message, remedy="set AWS_CA_BUNDLE to the file of its authority's certificate, in PEM")


def _no_credentials(location: S3Location, exc: Exception) -> TierfsError:
    if isinstance(exc, botocore.ProfileNotFound):
        message = f"the AWS profile {printable(str(location.profile))} does not exist"
    else:
        message = f"no usable AWS credentials for {location.endpoint}"
    return PermissionDenied(
        message, remedy="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile (cold.profile)"
    )


def _answered(location: S3Location, action: str, name: str, response: Mapping[str, Any]) -> TierfsError:
    error = response.get("Error", {})
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return error_of_answer(location, action, name, str(error.get("Code", "")), int(status))


def error_of_answer(location: S3Location, action: str, name: str, code: str, status: int) -> TierfsError:
    """Return the error for an answer with S3's `code` ("" without one) and HTTP `status`."""
    code = printable(code[:_MAX_CODE_LENGTH]) or str(status)
    url, endpoint = location.url(name), location.endpoint
    detail = f"({code})" if code == str(status) else f"({code}, HTTP {status})"
    if code in _NO_BUCKET:
        # In a missing bucket a missing object proves nothing: it is not lost.
        kind = WrongColdTier if action == READ else NotFound
        return kind(
            f"bucket {location.bucket} does not exist at {endpoint}",
            remedy="create the bucket, or check its name and the endpoint URL (cold.endpoint_url)",
        )
    if code in _MISSING:
        return NotFound(f"{url}: not found at {endpoint}")
    if code in _TAKEN:
        return AlreadyExists(f"{url}: already exists at {endpoint}")
    if code in _FULL:
        return StorageFull(f"{endpoint} has no room for {url} {detail}", remedy="raise the bucket's quota")
    if code in _ARCHIVED:
        return Archived(
            f"{url} is in the archive, and must be restored before it can be read",
            remedy="run: tierfs thaw --wait PATH",
        )
    if code == "InvalidRange":
        return DataLoss(f"{url}: bytes after its end were requested")
    return _refusal(location, code) or _by_status(f"{endpoint} refused to {action} {url} {detail}", code, status)


def _refusal(location: S3Location, code: str) -> TierfsError | None:
    """Return the error for wrong credentials, clock, endpoint or region; None for other codes."""
    if code in _BAD_CREDENTIALS:
        return PermissionDenied(
            f"credentials refused by {location.endpoint} ({code})",
            remedy="check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile (cold.profile)",
        )
    if code in _WRONG_CLOCK:
        return PermissionDenied(
            f"credentials refused by {location.endpoint} ({code})", remedy="set this machine's clock"
        )
    if code in _ELSEWHERE:
        return InvalidRequest(
            f"bucket {location.bucket} is not served by {location.endpoint} in region {location.region} ({code})",
            remedy="set cold.region and cold.endpoint_url to the bucket's",
        )
    return None


def _by_status(message: str, code: str, status: int) -> TierfsError:
    if code in _REFUSED or status in (http.HTTPStatus.FORBIDDEN, http.HTTPStatus.UNAUTHORIZED):
        return PermissionDenied(message, remedy="request the permission from the bucket's owner")
    if code in _PASSING or code in _DAMAGED_ON_THE_WAY:
        return Unavailable(message)
    if status >= _SERVER_ERROR and status != _NOT_IMPLEMENTED:
        return Unavailable(message)
    return InvalidRequest(message)
