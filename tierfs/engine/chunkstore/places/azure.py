"""Azure's blobs, with adlfs for who asks and for its client; every condition is the server's.

https://learn.microsoft.com/rest/api/storageservices/put-blob
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from azure.core import MatchConditions
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from fsspec.asyn import sync

from tierfs.base.options.config import ColdSettings
from tierfs.base.words.errors import PermissionDenied, TierfsError, Unavailable
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore import validate
from tierfs.engine.chunkstore.directory.listing import WantedNames, walk
from tierfs.engine.chunkstore.places.batches import are_gone
from tierfs.engine.chunkstore.places.steps import fill, source_steps
from tierfs.engine.chunkstore.probe import Traits
from tierfs.engine.chunkstore.protocol import EtagDiffers, OnReceived, PendingUpload, Source, StoredObject

log = logging.getLogger(__name__)

# It logs a page of every credential that it did not find; the error says it in a line.
logging.getLogger("azure.identity").setLevel(logging.ERROR)

_Result = TypeVar("_Result")

_MS_PER_S = 1000
_REFUSED = frozenset({401, 403})
_NO_RANGE = 416

# Azure's limit for the parts of one batch.
BATCH = 256
# Answers to a batch where others have none, or its key may not send one. If all is refused, single deletions report it.
_NO_BATCHES = frozenset({400, 401, 403, 404, 405, 409, 501})

# Azure's keys of metadata are names of C#. Ours begin with anything and have dots and dashes, and no underscore.
_OURS = "t_"
_CODED = {"-": "_2d", ".": "_2e"}
_CODE = re.compile("|".join(_CODED.values()))

_Entries = list[tuple[bytes, StoredObject | None]]


def encode(name: str) -> str:
    """Return a name that Azure keeps as it is: a backslash would be a slash, and a dot at a part's end is lost."""
    coded = name.replace("%", "%25").replace("\\", "%5C")
    return "/".join(f"{part[:-1]}%2E" if part.endswith(".") else part for part in coded.split("/"))


def decode(name: str) -> str:
    """Return the name that `encode` made one of Azure of."""
    return name.replace("%2E", ".").replace("%5C", "\\").replace("%25", "%")


class AzurePlace:
    """ObjectPlace over a container."""

    traits = Traits(
        create_only="If-None-Match",
        joins="blocks in parallel, committed as one",
        checksum="the server compares an MD5 of each block",
    )

    def __init__(self, account: str, container: str, prefix: str, settings: ColdSettings) -> None:
        """Connect to a container; credentials are found as adlfs does, and its configuration is fsspec's."""
        from adlfs import AzureBlobFileSystem

        self.vendor_errors: tuple[type[Exception], ...] = (AzureError, ValueError)
        options = {"account_name": account} if account else {}
        self._fs: Any = AzureBlobFileSystem(skip_instance_cache=True, use_listings_cache=False, **options)
        self._container = container
        self._prefix = f"{prefix.strip('/')}/".lstrip("/")
        # The SDK would repeat a write whose answer was lost, and find the name taken: by itself. So it repeats nothing.
        self._once = {
            "retry_total": 0,
            "connection_timeout": settings.connect_timeout_s,
            "read_timeout": settings.read_timeout_s,
        }
        self._blocks = settings.parts_in_parallel

    def meaning(self, error: Exception) -> type[TierfsError]:
        is_refused = isinstance(error, ClientAuthenticationError) or getattr(error, "status_code", None) in _REFUSED
        return PermissionDenied if is_refused else Unavailable

    def put(self, name: str, source: Source, metadata: Mapping[str, str], *, create_only: bool) -> StoredObject:
        body = _Steps(name, source)
        try:
            self._run(
                self._blob(name).upload_blob(
                    body.bytes(self._fs.loop),
                    length=source.length_bytes,
                    overwrite=not create_only,
                    metadata={_key(key): value for key, value in metadata.items()},
                    validate_content=True,
                    max_concurrency=self._blocks,
                    **self._once,
                )
            )
        except ResourceExistsError as exc:
            raise FileExistsError(name) from exc
        except self.vendor_errors:
            if body.error is not None:
                raise body.error from None
            raise
        return self.stat(name)

    def read_into(
        self, name: str, offset: int, buffer: memoryview, if_match: str | None, progress: OnReceived | None
    ) -> None:
        if not buffer:
            validate.check_empty_read(self.stat(name), offset, if_match)
            return
        condition: dict[str, Any] = {}
        if if_match is not None:
            condition = {"etag": if_match, "match_condition": MatchConditions.IfNotModified}
        try:
            data = self._run(self._read(name, offset, len(buffer), condition))
        except ResourceModifiedError as exc:
            now = self.stat(name)
            text = f"{printable(name)}: it was replaced: its etag is {now.etag}, not {printable(str(if_match))}"
            raise EtagDiffers(text, etag=now.etag, length_bytes=now.length_bytes) from exc
        except ResourceNotFoundError as exc:
            raise FileNotFoundError(name) from exc
        except HttpResponseError as exc:
            if exc.status_code == _NO_RANGE:
                validate.check_range(self.stat(name), offset, len(buffer))
            raise
        if len(data) < len(buffer):
            validate.check_range(self.stat(name), offset, len(buffer))
        fill(name, data, buffer, progress)

    async def _read(self, name: str, offset: int, length_bytes: int, condition: Mapping[str, Any]) -> bytes:
        answer = await self._blob(name).download_blob(offset, length_bytes, **condition, **self._once)
        data: bytes = await answer.readall()
        return data

    def stat(self, name: str) -> StoredObject:
        try:
            properties = self._run(self._blob(name).get_blob_properties(**self._once))
        except ResourceNotFoundError as exc:
            raise FileNotFoundError(name) from exc
        return _described(name, properties, properties.metadata or {})

    def delete(self, name: str) -> None:
        try:
            self._run(self._blob(name).delete_blob(**self._once))
        except ResourceNotFoundError as exc:
            raise FileNotFoundError(name) from exc

    def delete_many(self, names: Sequence[str]) -> bool:
        """See DeletesMany. False also for a server, or a credential, that refuses the request for itself."""
        return all(self._run(self._deleted(names[at : at + BATCH])) for at in range(0, len(names), BATCH))

    async def _deleted(self, names: Sequence[str]) -> bool:
        client = self._fs.service_client.get_container_client(self._container)
        blobs = [self._prefix + encode(name) for name in names]
        try:
            parts = await client.delete_blobs(*blobs, raise_on_any_failure=False, **self._once)
        except HttpResponseError as exc:
            if exc.status_code not in _NO_BATCHES:
                raise
            log.debug("%s: blobs are deleted one by one: %s", self._container, exc)
            return False
        return are_gone(names, [part.status_code async for part in parts])

    def list(self, prefix: str, after: str) -> Iterator[StoredObject]:
        """See ObjectPlace.list. By directories: a listing of Azure's can begin at no name."""
        return (stored for _, stored in walk(self._entries, prefix, after, frozenset()))

    def _entries(self, directory: str, wanted: WantedNames) -> _Entries:
        return self._run(self._listed(directory, wanted))

    async def _listed(self, directory: str, wanted: WantedNames) -> _Entries:
        client = self._fs.service_client.get_container_client(self._container)
        start, listed = self._prefix + encode(directory), _Entries()
        async for entry in client.walk_blobs(start, delimiter="/", **self._once):
            name = decode(entry.name.removeprefix(self._prefix))
            key = name.removeprefix(directory).encode()
            if wanted.may_hold(name.encode()) and validate.is_relative(name.removesuffix("/")):
                listed.append((key, None if name.endswith("/") else _described(name, entry, {})))
        return listed

    def leftovers(self) -> Iterator[PendingUpload]:
        """See ObjectPlace.leftovers: blocks without a commit end by themselves after a week."""
        return iter(())

    def remove_leftover(self, upload: PendingUpload) -> None:
        """There are no leftovers to remove."""

    def close(self) -> None:
        sync(self._fs.loop, self._fs.service_client.close)

    def _blob(self, name: str) -> Any:
        return self._fs.service_client.get_blob_client(self._container, self._prefix + encode(name))

    def _run(self, work: Awaitable[_Result]) -> _Result:
        async def wait() -> _Result:
            return await work

        result: _Result = sync(self._fs.loop, wait)
        return result


class _Steps:
    """The bytes of a source, read in a thread: other requests share the loop."""

    def __init__(self, name: str, source: Source) -> None:
        self._steps = source_steps(name, source)
        self.error: TierfsError | None = None
        """Of the source, which the SDK would hide."""

    async def bytes(self, loop: Any) -> AsyncIterator[bytes]:
        """Yield all bytes in order, for `loop`."""
        try:
            while (step := await loop.run_in_executor(None, next, self._steps, None)) is not None:
                yield bytes(step)
        except TierfsError as exc:
            self.error = exc
            raise


def _described(name: str, properties: Any, metadata: Mapping[str, str]) -> StoredObject:
    modified_ms = round(properties.last_modified.timestamp() * _MS_PER_S)
    ours = {_name(key): value for key, value in metadata.items() if key.startswith(_OURS)}
    return StoredObject(name, properties.size, properties.etag.strip('"'), modified_ms, ours)


def _key(ours: str) -> str:
    return _OURS + "".join(_CODED.get(character, character) for character in ours)


def _name(key: str) -> str:
    decoded = {code: character for character, code in _CODED.items()}
    return _CODE.sub(lambda match: decoded[match[0]], key.removeprefix(_OURS))
