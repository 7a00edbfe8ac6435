"""Store one object: a single PUT, or parts in parallel; a checksum travels with every byte.

Memory: a worker reads its own part, so no more than `parts_in_parallel` parts exist, for objects of any size.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from tierfs.base.bytes.checksum import Buffer, crc32c
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Pool
from tierfs.base.words.errors import (
    AlreadyExists,
    DataLoss,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    TierfsError,
    Unavailable,
)
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.link import LEAST_STREAMS, Link, Slots
from tierfs.engine.chunkstore.protocol import Abilities, PartedSource, Source
from tierfs.engine.chunkstore.s3 import additions
from tierfs.engine.chunkstore.s3.client import S3Connection
from tierfs.engine.chunkstore.s3.errors import map_s3_errors
from tierfs.engine.chunkstore.validate import read_source

_log = logging.getLogger(__name__)

# Up to this an object is one PUT: create-only is enforced for it everywhere.
SINGLE_PUT_BYTES = 16 * MIB

PART_BYTES = 8 * MIB
# S3's limit for every part but the last.
_SMALLEST_PART_BYTES = 5 * MIB

# S3's limit; larger objects get larger parts.
MAX_PARTS = 10_000

# As Pulsar sets it; without one, servers choose types of their own.
_CONTENT_TYPE = "application/octet-stream"

_CRC_BYTES = 4
_MD5_ETAG = re.compile(r"[0-9a-f]{32}(-[0-9]+)?")
_KMS = "aws:kms"

Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Checksum:
    """The checksum sent along with a body, and the one expected in the answer."""

    parameters: dict[str, str]
    md5: bytes | None
    """None when the server verifies a CRC32C instead."""

    @classmethod
    def of(cls, body: Buffer, abilities: Abilities) -> _Checksum:
        """Return the checksum that the server is known to verify."""
        if abilities.verifies_crc32c:
            crc = crc32c(body).to_bytes(_CRC_BYTES, "big")
            return cls({"ChecksumCRC32C": base64.b64encode(crc).decode("ascii")}, None)
        md5 = hashlib.md5(body, usedforsecurity=False).digest()
        return cls({"ContentMD5": base64.b64encode(md5).decode("ascii")}, md5)

    def is_in(self, answer: Answer) -> bool:
        """Return whether an answer repeats it: the server has these very bytes."""
        if self.md5 is not None:
            return _etag_of(answer) == self.md5.hex()
        return bool(_etag_of(answer)) and self.parameters.items() <= answer.items()


@dataclass(frozen=True, slots=True)
class UploadPart:
    """One uploaded part."""

    listed: dict[str, Any]
    """As CompleteMultipartUpload takes it."""
    md5: bytes | None


# Makes one part of an upload, given the upload id and the part number.
PartJob = Callable[[str, int], UploadPart]


class Uploaded(NamedTuple):
    """An object that was stored."""

    etag: str
    """"" if it is not known yet."""
    is_proved: bool = False
    """Whether the answer said that the server has these very bytes, under a name that it gives nobody else."""


def _etag_of(answer: Answer) -> str:
    return str(answer.get("ETag", "")).strip('"')


class Uploader:
    """Uploads objects of one location. Thread-safe; the pool bounds parts in flight, of which the link takes some."""

    def __init__(self, connection: S3Connection, abilities: Abilities, pool: Pool) -> None:
        self._connection = connection
        self._client = connection.client
        self._location = connection.location
        self._abilities = abilities
        self._pool = pool
        self._link = Link()
        self._slots = Slots()

    def upload(self, name: str, source: Source, metadata: Mapping[str, str], *, create_only: bool) -> Uploaded:
        """Store all of `source`. Raises AlreadyExists.

        After Unavailable the object may exist, and an incomplete upload may remain for the sweep.
        """
        if source.length_bytes <= SINGLE_PUT_BYTES:
            return self._single(name, source, metadata, create_only=create_only)
        return Uploaded(self.multipart(name, source, metadata, create_only=create_only))

    def multipart(self, name: str, source: Source, metadata: Mapping[str, str], *, create_only: bool) -> str:
        """Store `source` in parts at any size; return the etag, "" if not known yet. Otherwise as `upload`."""
        jobs: list[PartJob] = []
        start = 0
        for size in _part_lengths(source):
            jobs.append(partial(self._upload_part, name, source, start, size))
            start += size
        return self.assemble(
            name,
            jobs,
            metadata,
            create_only=create_only,
            abilities=self._abilities,
            part_bytes=max(PART_BYTES, *_part_lengths(source)),
        )

    def assemble(
        self,
        name: str,
        jobs: Sequence[PartJob],
        metadata: Mapping[str, str],
        *,
        create_only: bool,
        abilities: Abilities,
        part_bytes: int = PART_BYTES,
        before_completion: Callable[[], None] | None = None,
    ) -> str:
        """Run `jobs`, one per part, in parallel and make their parts one object; return its etag as `multipart` does.

        `part_bytes` is the memory that a job takes. `before_completion` is called once all parts exist; when it raises,
        the parts are dropped. Raises Unavailable for an ambiguous answer to the completion, which no abort follows: the
        server may be completing.
        """
        upload_id = self._begin(name, metadata, abilities)
        try:
            parts = self._pool.run(partial(self._in_slot, upload_id, part_bytes), enumerate(jobs, 1))
            if before_completion is not None:
                before_completion()
            if create_only and not self._abilities.create_only_multipart:
                self._refuse_existing(name)
            return self._complete(name, upload_id, parts, create_only=create_only)
        except _Ambiguous as exc:
            raise Unavailable(str(exc.error), remedy=exc.error.remedy) from exc
        except BaseException:
            self._abort(name, upload_id)
            raise

    def _in_slot(self, upload_id: str, part_bytes: int, numbered: tuple[int, PartJob]) -> UploadPart:
        """Make a part when the link takes one more; large parts fill it, and memory, sooner."""
        number, job = numbered
        with self._slots.one_of(lambda: max(LEAST_STREAMS, self._link.streams * PART_BYTES // part_bytes)):
            return job(upload_id, number)

    def put_part(self, name: str, body: bytes, upload_id: str, number: int, abilities: Abilities) -> UploadPart:
        """Upload one part; `abilities` are those given to `assemble`."""
        checksum = _Checksum.of(body, abilities)
        request: dict[str, Any] = dict(checksum.parameters)
        with map_s3_errors(self._location, "write", name), self._link.begin() as timer:
            answer: Answer = self._client.upload_part(
                **self._address(name), UploadId=upload_id, PartNumber=number, Body=body, **request
            )
            timer.sent(len(body))
            listed = {"PartNumber": number, "ETag": answer["ETag"]}
        self._checked_etag(name, answer, checksum.md5.hex() if checksum.md5 else None)
        if checksum.md5 is None:
            listed |= checksum.parameters
        return UploadPart(listed, checksum.md5)

    def _single(self, name: str, source: Source, metadata: Mapping[str, str], *, create_only: bool) -> Uploaded:
        if create_only and not self._abilities.create_only_put:
            self._refuse_existing(name)
        body = _as_body(read_source(name, source, 0, source.length_bytes))
        checksum = _Checksum.of(body, self._abilities)
        request: dict[str, Any] = {**checksum.parameters, **self._condition(create_only)}
        with self._asking(name):
            answer: Answer = self._client.put_object(
                **self._address(name), Body=body, Metadata=dict(metadata), ContentType=_CONTENT_TYPE, **request
            )
        etag = self._checked_etag(name, answer, checksum.md5.hex() if checksum.md5 else None)
        exclusive = create_only and self._abilities.create_only_put
        return Uploaded(etag, is_proved=exclusive and checksum.is_in(answer))

    def _begin(self, name: str, metadata: Mapping[str, str], abilities: Abilities) -> str:
        request: dict[str, Any] = {"ChecksumAlgorithm": "CRC32C"} if abilities.verifies_crc32c else {}
        with self._asking(name), self._link.begin() as timer:
            answer = self._client.create_multipart_upload(
                **self._address(name), Metadata=dict(metadata), ContentType=_CONTENT_TYPE, **request
            )
            timer.answered()
            return answer["UploadId"]

    @contextmanager
    def _asking(self, name: str) -> Iterator[None]:
        """Map errors of a request that says how the object is kept; a refusal names the settings that say it."""
        try:
            with map_s3_errors(self._location, "write", name):
                yield
        except (InvalidRequest, PermissionDenied) as exc:
            told = additions.told(self._connection.settings)
            if told:
                exc.remedy = f"check that the server allows {told}: tierfs config"
            raise

    def _upload_part(self, name: str, source: Source, start: int, size: int, upload_id: str, number: int) -> UploadPart:
        body = _as_body(read_source(name, source, start, size))
        return self.put_part(name, body, upload_id, number, self._abilities)

    def _complete(self, name: str, upload_id: str, parts: list[UploadPart], *, create_only: bool) -> str:
        request: dict[str, Any] = {
            "MultipartUpload": {"Parts": [part.listed for part in parts]},
            **self._condition(create_only),
        }
        try:
            with map_s3_errors(self._location, "write", name):
                answer: Answer = self._client.complete_multipart_upload(
                    **self._address(name), UploadId=upload_id, **request
                )
        except Unavailable as exc:
            raise _Ambiguous(exc) from exc
        return self._checked_etag(name, answer, _multipart_md5(parts))

    def _abort(self, name: str, upload_id: str) -> None:
        """Drop the parts; if that fails too, the sweep of incomplete uploads does it."""
        try:
            with map_s3_errors(self._location, "abort the upload of", name):
                self._client.abort_multipart_upload(**self._address(name), UploadId=upload_id)
        except TierfsError as exc:
            _log.info("incomplete upload of %s left to the sweep: %s", self._location.url(name), exc)

    def _refuse_existing(self, name: str) -> None:
        """Raise AlreadyExists for an existing object. Advisory: another writer may create it before our write."""
        try:
            with map_s3_errors(self._location, "look at", name):
                self._client.head_object(**self._address(name))
        except NotFound:
            return
        raise AlreadyExists(f"{self._location.url(name)}: already exists at {self._location.endpoint}")

    def _checked_etag(self, name: str, answer: Answer, expected: str | None) -> str:
        """Return the answered etag; raise DataLoss if it is an MD5 and not that of the bytes sent.

        RGW completes multipart uploads without an etag in the answer: then return the expected one, "" if unknown.
        """
        etag = _etag_of(answer)
        # A server need not repeat in its answers how it was asked to encrypt: then the etag is no MD5 all the same.
        asked = self._connection.settings.encryption.startswith(_KMS)
        encrypted = asked or _KMS in answer.get("ServerSideEncryption", "") or "SSECustomerAlgorithm" in answer
        if expected is None or encrypted:
            return etag
        if _MD5_ETAG.fullmatch(etag) and etag != expected:
            raise DataLoss(f"{self._location.url(name)}: the server stored other bytes than were sent")
        return etag or expected

    def _condition(self, create_only: bool) -> dict[str, str]:
        # RFC 9110, section 13.1.2: fails where any version exists.
        return {"IfNoneMatch": "*"} if create_only and self._abilities.create_only_put else {}

    def _address(self, name: str) -> dict[str, Any]:
        return {"Bucket": self._location.bucket, "Key": self._location.key(name)}


class _Ambiguous(Exception):
    """A completion whose outcome is unknown."""

    def __init__(self, error: Unavailable) -> None:
        super().__init__(str(error))
        self.error = error


def _as_body(data: Buffer) -> bytes:
    """Return bytes, which botocore sends in one piece; a view of a map is copied once here."""
    return data if isinstance(data, bytes) else bytes(data)


def _part_lengths(source: Source) -> Sequence[int]:
    """Return the part lengths: the source's own, or 8 MiB each; more, in whole MiB, to stay within 10,000 parts."""
    preferred = source.part_lengths if isinstance(source, PartedSource) else ()
    if (
        preferred
        and len(preferred) <= MAX_PARTS
        and min((*preferred[:-1], _SMALLEST_PART_BYTES)) >= _SMALLEST_PART_BYTES
    ):
        return preferred
    total = source.length_bytes
    part_bytes = _part_bytes(total)
    return [min(part_bytes, total - start) for start in range(0, max(1, total), part_bytes)]


def _part_bytes(length_bytes: int) -> int:
    """Return the part size of an object: 8 MiB, or more in whole MiB to stay within 10,000 parts."""
    smallest = -(-length_bytes // MAX_PARTS)
    return max(PART_BYTES, -(-smallest // MIB) * MIB)


def _multipart_md5(parts: list[UploadPart]) -> str | None:
    """Return the etag S3 gives an object of these parts, or None if their MD5s were not computed."""
    digests = [part.md5 for part in parts if part.md5 is not None]
    if len(digests) != len(parts):
        return None
    return f"{hashlib.md5(b''.join(digests), usedforsecurity=False).hexdigest()}-{len(parts)}"
