"""Google Cloud Storage by its JSON API, with gcsfs for who asks and for the session.

gcsfs repeats requests by itself, also a write that was carried out and whose answer was lost: then the name is taken,
by ourselves, and nothing says so. So its requests are made here without their repetition.
https://cloud.google.com/storage/docs/json_api/v1
"""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime
from email import message_from_bytes
from email.message import Message
from typing import Any
from urllib.parse import quote

import aiohttp
from fsspec.asyn import sync

from tierfs.base.bytes.checksum import crc32c
from tierfs.base.options.config import ColdSettings
from tierfs.base.words.errors import DataLoss, PermissionDenied, TierfsError, Unavailable
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore import validate
from tierfs.engine.chunkstore.places.batches import are_gone
from tierfs.engine.chunkstore.places.place import listed_after
from tierfs.engine.chunkstore.places.steps import fill, source_steps
from tierfs.engine.chunkstore.probe import Traits
from tierfs.engine.chunkstore.protocol import EtagDiffers, OnReceived, PendingUpload, Source, StoredObject

_PAGE = 1000
_BOUNDARY = "tierfs-5f2c9a417be04d0e"
_MS_PER_S = 1000
_DESCRIBED = "name,size,generation,updated,metadata,crc32c"
_UNAUTHENTICATED = frozenset({401, 403})

# How an answer to a part begins.
_STATUS = re.compile(r"HTTP/[0-9.]+ ([0-9]{3})\b")
# Google's limit for the parts of one batch.
BATCH = 100
_PART = f"--{_BOUNDARY}\r\nContent-Type: application/http\r\nContent-ID: <{{number}}>\r\n\r\n{{request}}\r\n\r\n\r\n"

log = logging.getLogger(__name__)


class GcsPlace:
    """ObjectPlace over a bucket; an etag is an object's generation."""

    traits = Traits(
        create_only="ifGenerationMatch=0",
        checksum="its CRC32C is compared with that of the bytes sent",
    )

    def __init__(self, bucket: str, prefix: str, endpoint_url: str, settings: ColdSettings) -> None:
        """Connect to a bucket; credentials are found as gcsfs does, and its configuration is fsspec's."""
        from gcsfs import GCSFileSystem, retry

        self.vendor_errors: tuple[type[Exception], ...] = (retry.HttpError, *retry.RETRIABLE_EXCEPTIONS, ValueError)
        options = {"endpoint_url": endpoint_url} if endpoint_url else {}
        self._fs: Any = GCSFileSystem(
            skip_instance_cache=True, use_listings_cache=False, requests_timeout=_timeout(settings), **options
        )
        self._once: Any = GCSFileSystem._request.__wrapped__
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/".lstrip("/")

    def meaning(self, error: Exception) -> type[TierfsError]:
        code = getattr(error, "code", None)
        return PermissionDenied if str(code) in map(str, _UNAUTHENTICATED) else Unavailable

    def put(self, name: str, source: Source, metadata: Mapping[str, str], *, create_only: bool) -> StoredObject:
        body = _TwoParts(name, source, json.dumps({"name": self._prefix + name, "metadata": dict(metadata)}))
        # One request, also for a large object: its condition holds for all of it, and nothing stays of a broken one.
        condition = {"ifGenerationMatch": "0"} if create_only else {}
        headers = {"Content-Type": f'multipart/related; boundary="{_BOUNDARY}"'}
        try:
            _, answer = self._ask(
                "POST",
                self._uploads,
                headers=headers,
                data=body.parts(self._fs.loop),
                uploadType="multipart",
                **condition,
            )
        except self.vendor_errors:
            if body.error is not None:
                raise body.error from None
            raise
        made = json.loads(answer)
        if "crc32c" in made and base64.b64decode(made["crc32c"]) != body.crc.to_bytes(4, "big"):
            self._ask("DELETE", self._object(name), ifGenerationMatch=made["generation"])
            raise DataLoss(f"{printable(name)}: it was damaged on its way to {self._bucket}")
        return self._stored(made)

    def read_into(
        self, name: str, offset: int, buffer: memoryview, if_match: str | None, progress: OnReceived | None
    ) -> None:
        if not buffer:
            validate.check_empty_read(self.stat(name), offset, if_match)
            return
        condition = {} if if_match is None else {"ifGenerationMatch": if_match}
        headers = {"Range": f"bytes={offset}-{offset + len(buffer) - 1}"}
        try:
            answered, data = self._ask("GET", self._object(name), headers=headers, alt="media", **condition)
        except FileExistsError as exc:  # 412
            now = self.stat(name)
            text = f"{printable(name)}: it was replaced: its generation is {now.etag}, not {printable(str(if_match))}"
            raise EtagDiffers(text, etag=now.etag, length_bytes=now.length_bytes) from exc
        except self.vendor_errors:
            validate.check_range(self.stat(name), offset, len(buffer))  # 416, which its errors do not tell from others
            raise
        if len(data) < len(buffer):
            stored = self.stat(name)
            validate.check_etag(name, stored.etag, if_match, stored.length_bytes)
            validate.check_range(stored, offset, len(buffer))
        validate.check_etag(name, answered.get("x-goog-generation", if_match or ""), if_match, None)
        fill(name, data, buffer, progress)

    def stat(self, name: str) -> StoredObject:
        _, answer = self._ask("GET", self._object(name), fields=_DESCRIBED)
        return self._stored(json.loads(answer))

    def delete(self, name: str) -> None:
        self._ask("DELETE", self._object(name))

    def delete_many(self, names: Sequence[str]) -> bool:
        """See DeletesMany. False also for a server, or a key, that has no batches."""
        return all(self._deleted(names[at : at + BATCH]) for at in range(0, len(names), BATCH))

    def _deleted(self, names: Sequence[str]) -> bool:
        asked = (f"DELETE /storage/v1/{self._object(name)} HTTP/1.1" for name in names)
        parts = "".join(_PART.format(number=number, request=request) for number, request in enumerate(asked))
        headers = {"Content-Type": f"multipart/mixed; boundary={_BOUNDARY}"}
        where, body = f"{self._fs._location}/batch/storage/v1", f"{parts}--{_BOUNDARY}--".encode()
        try:
            answered, answer = self._ask("POST", where, headers=headers, data=body)
        except (FileNotFoundError, PermissionError) as exc:
            log.debug("%s: objects are deleted one by one: %s", self._bucket, exc)
            return False
        return are_gone(names, _codes(answered.get("Content-Type", ""), answer))

    def list(self, prefix: str, after: str) -> Iterator[StoredObject]:
        page: dict[str, str] = {"startOffset": self._prefix + after} if after else {}
        while True:
            fields = f"nextPageToken,items({_DESCRIBED})"
            wanted = {"prefix": self._prefix + prefix, "maxResults": str(_PAGE), "fields": fields, **page}
            _, answer = self._ask("GET", f"b/{quote(self._bucket, safe='')}/o", **wanted)
            listing = json.loads(answer)
            yield from listed_after(map(self._stored, listing.get("items", ())), after)
            if not listing.get("nextPageToken"):
                return
            page = {**page, "pageToken": listing["nextPageToken"]}

    def leftovers(self) -> Iterator[PendingUpload]:
        """See ObjectPlace.leftovers: resumable uploads cannot be listed, and end by themselves after a week."""
        return iter(())

    def remove_leftover(self, upload: PendingUpload) -> None:
        """There are no leftovers to remove."""

    def close(self) -> None:
        if self._fs._session is not None:
            sync(self._fs.loop, self._fs._session.close)

    @property
    def _uploads(self) -> str:
        return f"{self._fs._location}/upload/storage/v1/b/{quote(self._bucket, safe='')}/o"

    def _object(self, name: str) -> str:
        return f"b/{quote(self._bucket, safe='')}/o/{quote(self._prefix + name, safe='')}"

    def _ask(self, method: str, path: str, **parameters: Any) -> tuple[Mapping[str, str], bytes]:
        """Do one request, once. Raises FileExistsError for a condition that does not hold."""
        try:
            _, headers, _, answer = sync(self._fs.loop, self._once, self._fs, method, path, **parameters)
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as exc:
            if str(exc).startswith("Forbidden"):  # as gcsfs words it
                raise PermissionError(str(exc)) from exc
            raise
        return headers, answer

    def _stored(self, described: Mapping[str, Any]) -> StoredObject:
        modified = datetime.fromisoformat(described["updated"]).timestamp() if "updated" in described else 0.0
        name = described["name"].removeprefix(self._prefix)
        etag, metadata = str(described["generation"]), described.get("metadata") or {}
        return StoredObject(name, int(described["size"]), etag, round(modified * _MS_PER_S), metadata)


class _TwoParts:
    """The description of an object and its bytes, as the two parts of one body."""

    def __init__(self, name: str, source: Source, described: str) -> None:
        self._name = name
        self._source = source
        self._described = described
        self.crc = 0
        self.error: TierfsError | None = None
        """Of the source, which aiohttp would hide."""

    async def parts(self, loop: Any) -> AsyncIterator[bytes]:
        """Yield the body, in order, for `loop`. The source is read in a thread: other requests share the loop."""
        head = f"--{_BOUNDARY}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{self._described}\r\n"
        yield f"{head}--{_BOUNDARY}\r\nContent-Type: application/octet-stream\r\n\r\n".encode()
        steps = source_steps(self._name, self._source)
        try:
            while (step := await loop.run_in_executor(None, next, steps, None)) is not None:
                self.crc = crc32c(step, self.crc)
                yield bytes(step)
        except TierfsError as exc:
            self.error = exc
            raise
        yield f"\r\n--{_BOUNDARY}--".encode()


def _codes(content_type: str, body: bytes) -> list[int]:
    """Return the status of each answer in that to a batch."""
    message = message_from_bytes(f"Content-Type: {content_type}\r\n\r\n".encode() + body)
    parts = message.get_payload() if message.is_multipart() else []
    answers = (_STATUS.match(str(part.get_payload())) for part in parts if isinstance(part, Message))
    return [int(answer[1]) for answer in answers if answer]


def _timeout(settings: ColdSettings) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(sock_connect=settings.connect_timeout_s, sock_read=settings.read_timeout_s)
