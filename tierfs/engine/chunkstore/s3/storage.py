"""Objects in an S3 bucket, AWS's or any compatible one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tierfs.base.bytes.parallel import Pool
from tierfs.base.options.config import ColdSettings
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.system.metrics import MetricSink, NullMetrics
from tierfs.base.words.errors import AlreadyExists, Conflict, DataLoss, InvalidRequest, NotFound, Unavailable
from tierfs.base.words.names import printable
from tierfs.base.words.units import MAX_BYTES
from tierfs.engine.chunkstore.probe import BucketRules, ReadAbilities
from tierfs.engine.chunkstore.protocol import (
    Abilities,
    ChunkStorage,
    ComposedObject,
    ObjectPiece,
    OnReceived,
    PendingUpload,
    RangeUrl,
    Source,
    StoredObject,
    Supports,
    ThawSpeed,
)
from tierfs.engine.chunkstore.s3 import archive
from tierfs.engine.chunkstore.s3.client import connect
from tierfs.engine.chunkstore.s3.compose import Composer
from tierfs.engine.chunkstore.s3.delete_many import delete_many
from tierfs.engine.chunkstore.s3.errors import map_s3_errors, s3_code
from tierfs.engine.chunkstore.s3.location import S3Location
from tierfs.engine.chunkstore.s3.probe import bucket_rules, honours_if_match, lacking, probe_abilities, server_time_ms
from tierfs.engine.chunkstore.s3.read import RangeReader
from tierfs.engine.chunkstore.s3.upload import Uploader
from tierfs.engine.chunkstore.validate import (
    check_empty_read,
    check_metadata,
    check_name,
    check_open,
    check_pieces,
    composed_bytes,
    is_own,
)

if TYPE_CHECKING:
    from datetime import datetime

# Assumed of a server until it is probed: safe everywhere, at the price of a HEAD and of MD5.
UNPROBED = Abilities(create_only_put=True, create_only_multipart=False, verifies_crc32c=False)

_MS_PER_S = 1000
_NO_SUCH_UPLOAD = "NoSuchUpload"


class S3Storage:
    """ChunkStorage over one bucket and prefix. Thread-safe; never retries.

    Also Uploads, ManyDeletes, ServerCopies, RangeUrls, Renewable and ServedStorage.
    Without a create-only form in `abilities`, a HEAD right before the write replaces it: advisory.
    """

    supports = Supports(copies=True)

    def __init__(
        self,
        location: S3Location,
        settings: ColdSettings | None = None,
        *,
        abilities: Abilities = UNPROBED,
        clock: Clock | None = None,
        metrics: MetricSink | None = None,
    ) -> None:
        """Connect lazily: a wrong endpoint or key fails at the first call.

        Raises PermissionDenied for an unknown profile.
        """
        self.location = location
        settings = settings or ColdSettings()
        self._connection = connect(location, settings)
        self._abilities = abilities
        self.client = self._connection.client
        """Of botocore: its events see each request, and change it."""
        self._pool = Pool(settings.parts_in_parallel, "tierfs-upload", location.url())
        self._uploader = Uploader(self._connection, abilities, self._pool)
        self._reader = RangeReader(self._connection, clock or SystemClock(), metrics or NullMetrics())
        self._composer = Composer(self._connection, self._uploader, self.read_into, self.stat)
        self._closed = False

    def __repr__(self) -> str:
        return self.location.url()

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        """See ChunkStorage.put. An object that carries our metadata's attempt id is our own: success."""
        check_open(self._closed, self)
        check_name(name)
        metadata = metadata or {}
        check_metadata(metadata)
        try:
            uploaded = self._uploader.upload(name, source, metadata, create_only=create_only)
        except AlreadyExists:
            return self._own(name, source.length_bytes, metadata)
        if uploaded.is_proved:  # a HEAD would say the same, at the price of another request
            return StoredObject(name, source.length_bytes, uploaded.etag, metadata=metadata)
        return self._stored(name, source.length_bytes, uploaded.etag)

    def compose(
        self,
        name: str,
        pieces: Sequence[ObjectPiece],
        *,
        metadata: Mapping[str, str] | None = None,
        create_only: bool = True,
    ) -> ComposedObject:
        """See ChunkStorage.compose. An object that carries our metadata's attempt id is our own: success."""
        check_open(self._closed, self)
        check_name(name)
        check_pieces(name, pieces)
        metadata = metadata or {}
        check_metadata(metadata)
        length_bytes = composed_bytes(pieces)
        try:
            etag, client_bytes = self._composer.compose(name, pieces, metadata, create_only=create_only)
        except AlreadyExists:
            return ComposedObject.of(self._own(name, length_bytes, metadata))
        return ComposedObject.of(self._stored(name, length_bytes, etag), client_bytes)

    def copy_from(self, origin: ChunkStorage, stored: StoredObject) -> int | None:
        """See ServerCopies.copy_from. The server copies with this storage's keys, which must know both places."""
        if not isinstance(origin, S3Storage) or origin.location.endpoint != self.location.endpoint:
            return None
        if not stored.length_bytes:
            return None
        check_open(self._closed, self)
        pieces = [ObjectPiece(stored.name, 0, stored.length_bytes, stored.etag)]
        composer = Composer(self._connection, self._uploader, origin.read_into, origin.stat, origin.location)
        with closing(composer):
            etag, client_bytes = composer.compose(stored.name, pieces, stored.metadata, create_only=True)
        self._stored(stored.name, stored.length_bytes, etag)
        return client_bytes

    def copy_proved(self, name: str, piece: ObjectPiece, crc32c: int | None, metadata: Mapping[str, str]) -> str | None:
        check_open(self._closed, self)
        check_name(name)
        check_metadata(metadata)
        known = crc32c if self._abilities.verifies_crc32c else None
        return archive.copy_proved(self._connection, name, piece, known, metadata)

    def thaw(self, name: str, days: int, speed: ThawSpeed) -> bool:
        check_open(self._closed, self)
        check_name(name)
        return archive.thaw(self._connection, name, days, speed)

    def _stored(self, name: str, length_bytes: int, etag: str) -> StoredObject:
        """Return a just stored object as the server reports it, checked against the bytes sent."""
        stored = self.stat(name)
        if stored.length_bytes != length_bytes:
            raise DataLoss(f"{self.location.url(name)}: the server stored only {stored.length_bytes} bytes")
        if etag and stored.etag != etag:
            raise Conflict(f"{self.location.url(name)}: it was replaced while it was stored")
        return stored

    def _own(self, name: str, length_bytes: int, metadata: Mapping[str, str]) -> StoredObject:
        """Return the existing object if an earlier try of this upload stored it; else raise AlreadyExists.

        No object means a request in flight that may still land (ConditionalRequestConflict), or an object deleted
        meanwhile: Unavailable, so that the next try finds out.
        """
        try:
            existing = self.stat(name)
        except NotFound as exc:
            url = self.location.url(name)
            raise Unavailable(f"{url}: another request for it is in flight at {self.location.endpoint}") from exc
        if is_own(existing, metadata, length_bytes):
            return existing
        raise AlreadyExists(f"{self.location.url(name)}: already exists at {self.location.endpoint}")

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: OnReceived | None = None,
    ) -> None:
        check_open(self._closed, self)
        check_name(name)
        if offset < 0:
            raise InvalidRequest(f"{printable(name)}: offset {offset} is negative")
        if len(buffer):
            self._reader.read_into(name, offset, buffer, if_match, progress)
        else:
            check_empty_read(self.stat(name), offset, if_match)

    def range_url(self, name: str) -> RangeUrl | None:
        return None if self._closed else self._reader.range_url(name)

    def stat(self, name: str) -> StoredObject:
        check_open(self._closed, self)
        check_name(name)
        with map_s3_errors(self.location, "look at", name):
            answer = self.client.head_object(**self._address(name))
            return _described(name, answer["ContentLength"], answer, answer["Metadata"])

    def delete(self, name: str) -> None:
        """See ChunkStorage.delete. Also aborts unfinished multipart uploads of the name.

        No listing of objects shows them, and those of a killed process cost money until aborted.
        """
        check_open(self._closed, self)
        check_name(name)
        with map_s3_errors(self.location, "delete", name):
            self.client.delete_object(**self._address(name))
            key = self.location.key(name)
            answer = self.client.list_multipart_uploads(Bucket=self.location.bucket, Prefix=key)
            uploads = [upload["UploadId"] for upload in answer.get("Uploads", []) if upload["Key"] == key]
        for upload_id in uploads:
            self._abort_upload(name, upload_id)

    def delete_many(self, names: Sequence[str]) -> bool:
        check_open(self._closed, self)
        for name in names:
            check_name(name)
        return delete_many(self._connection, names)

    def _abort_upload(self, name: str, upload_id: str) -> None:
        """Abort an upload; one that is gone is success, which servers answer in two ways."""
        try:
            with map_s3_errors(self.location, "abort the upload of", name):
                self.client.abort_multipart_upload(**self._address(name), UploadId=upload_id)
        except (NotFound, Unavailable) as exc:
            if not isinstance(exc, NotFound) and s3_code(exc) != _NO_SUCH_UPLOAD:
                raise

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        check_open(self._closed, self)
        start: dict[str, Any] = {"StartAfter": self.location.key(after)} if after else {}
        key_prefix = self.location.key(prefix)
        paginator = self.client.get_paginator("list_objects_v2")
        pages = iter(paginator.paginate(Bucket=self.location.bucket, Prefix=key_prefix, **start))
        while True:
            check_open(self._closed, self)
            with map_s3_errors(self.location, "list", prefix):
                page = next(pages, None)
                entries = () if page is None else page.get("Contents", ())
                listed = [_described(self._name(entry, key_prefix), entry["Size"], entry, {}) for entry in entries]
            if page is None:
                return
            yield from listed

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        check_open(self._closed, self)
        key_prefix = self.location.key(prefix)
        paginator = self.client.get_paginator("list_multipart_uploads")
        pages = iter(paginator.paginate(Bucket=self.location.bucket, Prefix=key_prefix))
        while True:
            with map_s3_errors(self.location, "list the uploads of", prefix):
                page = next(pages, None)
                uploads = [
                    PendingUpload(self._name(entry, key_prefix), entry["UploadId"], _milliseconds(entry["Initiated"]))
                    for entry in (() if page is None else page.get("Uploads", ()))
                ]
            if page is None:
                return
            yield from uploads

    def abort_upload(self, upload: PendingUpload) -> None:
        check_open(self._closed, self)
        self._abort_upload(upload.name, upload.upload_id)

    def renew_credentials(self) -> bool:
        renewed = self._connection.renewal.renew()
        if renewed:
            self._reader.forget_urls()
        return renewed

    def close(self) -> None:
        """See ChunkStorage.close. Uploads that wait for a worker fail with Closed."""
        self._closed = True
        self._pool.close(wait=False)
        self._composer.close()
        self._reader.close()
        self.client.close()

    def probe_abilities(self, name: str) -> Abilities:
        """Find out by experiment on the object `name`, which may remain."""
        check_open(self._closed, self)
        check_name(name)
        return probe_abilities(self._connection, self._pool, name)

    def server_time_ms(self) -> int | None:
        check_open(self._closed, self)
        return server_time_ms(self._connection)

    def read_abilities(self, name: str) -> ReadAbilities:
        check_open(self._closed, self)
        return ReadAbilities(self._reader.serves_presigned(name), honours_if_match(self._connection, name))

    def lacking(self, name: str) -> Sequence[str]:
        check_open(self._closed, self)
        return lacking(self._connection, name)

    def bucket_rules(self) -> BucketRules:
        check_open(self._closed, self)
        return bucket_rules(self._connection)

    def _name(self, entry: Mapping[str, Any], key_prefix: str) -> str:
        """Return the name of a listed key. Raises ValueError for one that was not asked for."""
        key: str = entry["Key"]
        if not key.startswith(key_prefix):
            raise ValueError(f"a key outside {key_prefix}")
        return self.location.name(key)

    def _address(self, name: str) -> dict[str, Any]:
        return {"Bucket": self.location.bucket, "Key": self.location.key(name)}


def _described(name: str, length_bytes: int, answer: Mapping[str, Any], metadata: Mapping[str, str]) -> StoredObject:
    """Return an object as an answer describes it. Raises ValueError or KeyError for what no object can be."""
    if not 0 <= length_bytes <= MAX_BYTES:
        raise ValueError(f"a length of {length_bytes}")
    etag, modified_ms = answer["ETag"].strip('"'), _milliseconds(answer["LastModified"])
    kept_as = answer.get("StorageClass") or ""
    return StoredObject(name, length_bytes, etag, modified_ms, metadata, kept_as, archive.thaw_of(_restore_of(answer)))


def _restore_of(answer: Mapping[str, Any]) -> str:
    """Return the header of a restore; a listing has none."""
    header = answer.get("Restore")
    return header if isinstance(header, str) else ""


def _milliseconds(moment: datetime) -> int:
    """Return a time since the epoch; 0 for one before it, as of servers that do not know an object's."""
    return max(0, round(moment.timestamp() * _MS_PER_S))
